package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

// Whoever asks often enough gets all of a limit, of whichever node: what one node has leased and does not use comes back to the others. Of
// several nodes a hundredth may stay, which is kept for free hits. And nobody gets more, however long they ask, but for a hundredth: the nodes have just joined, and the first of them may still take
// itself for the only one.
func TestAllOfTheLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{10, 100, 1000} {
		for _, nodes := range []int{1, 2} {
			t.Run(fmt.Sprint("limit ", limit, " nodes ", nodes), func(t *testing.T) {
				t.Parallel()
				backend := serve(t, "memory")
				_, addresses := costlyNodes(t, nodes, `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.02, `+
					perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:], backend, http.DefaultTransport)
				f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(1, 9))
				ask := func() {
					if _, _, err := f.ask(client, random.IntN(nodes), "ann"); err != nil {
						t.Fatal(err)
					}
				}
				for range limit {
					ask()
				}
				t.Logf("the first %d requests: %d admitted", limit, f.total())
				if got := f.total(); nodes == 1 && got != limit {
					t.Errorf("one node admitted %d of %d requests at once", got, limit)
				}
				least := limit
				if nodes > 1 {
					least -= limit / 100
				}
				for deadline := time.Now().Add(hang); f.total() < least; ask() {
					if time.Now().After(deadline) {
						t.Fatalf("admitted %d in the end, want %d", f.total(), least)
					}
				}
				for range 2 * limit {
					ask()
				}
				settle(t, backend, "default", f.total())
				if got := f.total(); got > limit+limit/100 {
					t.Errorf("admitted %d, want %d", got, limit)
				}
			})
		}
	}
}
