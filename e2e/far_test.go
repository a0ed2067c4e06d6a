package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
)

// In a fleet of ten nodes, requests for keys that a node has never seen do not wait. A key near its
// limit gets all of it, and no more. Once all is quiet the backend has exactly the admitted hits.
func TestFarKeysWaitForNothing(t *testing.T) {
	t.Parallel()
	for _, store := range nightly.Or([]string{"memory", "file", "redis"}, []string{"memory", "redis"}) {
		t.Run(store, func(t *testing.T) {
			url := store
			switch store {
			case "file":
				url += ":" + filepath.Join(t.TempDir(), "weir.db")
			case "redis":
				url = redistest.Start(t).URL()
			}
			onWazero(t, func(t *testing.T, d driver) { farKeysWaitForNothing(t, d, url) })
		})
	}
}

func farKeysWaitForNothing(t *testing.T, d driver, store string) {
	const (
		limit = 500
		users = 300
	)
	backend := serve(t, store)
	all, addresses := nodes(t, d, 10, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.2, ` +
		perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:]})
	f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(1, 33))
	ask := func(node int, user string) {
		t.Helper()
		if _, _, err := f.ask(t, client, node, user); err != nil {
			t.Fatal(err)
		}
	}
	// Each node has a part of the limits.
	round := 0
	if !soon(func() bool {
		ready := true
		for n := range all {
			ask(n, fmt.Sprint("first ", round, " at ", n))
			ready = all[n].metric(t, metricName("advanced_hits_total")) > 0 && ready
		}
		round++
		return ready
	}) {
		t.Fatal("some nodes have no part of the limits")
	}
	waited, advanced := metric(t, all, "waited_requests"), metric(t, all, "advanced_hits")
	for user := range users {
		for range 3 {
			ask(random.IntN(len(all)), fmt.Sprint("user ", user))
		}
	}
	waited, advanced = metric(t, all, "waited_requests")-waited, metric(t, all, "advanced_hits")-advanced
	t.Logf("of %d requests %d waited, and %d hits were advanced", 3*users, waited, advanced)
	// A node that did not run for ten seconds has lost its part.
	if waited > 3*users/20 || advanced < 3*users*19/20 {
		t.Errorf("of %d requests %d waited, and %d hits were advanced", 3*users, waited, advanced)
	}

	before := f.total()
	if !soon(func() bool {
		ask(random.IntN(len(all)), "ann")
		return f.total()-before >= limit
	}) {
		t.Fatalf("%d requests for a key were admitted in the end, want %d", f.total()-before, limit)
	}
	for range limit {
		ask(random.IntN(len(all)), "ann")
	}
	settle(t, backend, "default", f.total())
	if got := f.total() - before; got != limit {
		t.Errorf("%d requests for a key were admitted, want %d", got, limit)
	}
}
