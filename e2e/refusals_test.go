package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
)

// Three nodes get one and a half times a limit at once. With a limit of 100 no refusal is false.
// With larger limits few are, and the log has the number: a lease is idle until its node's next
// requests use it. If workers may let hits of far keys pass, more are, but all of the limit passes in the end.
func TestRefusalsAreTrue(t *testing.T) {
	onEachByNight(t, 3, func(t *testing.T, d driver) {
		for _, limit := range []int64{100, 1000, 10_000} {
			for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
				if limit == 10_000 && (algorithm != "fixed_window" || !nightly.On()) {
					continue // this takes long
				}
				t.Run(fmt.Sprint(limit, " ", algorithm), func(t *testing.T) {
					d.beside(t)
					backend := serve(t, "memory")
					_, addresses := nodes(t, d, 3, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, ` +
						perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": %q}`, limit, algorithm))[1:]})
					for round := range nightly.Or(3, 1) {
						var r refusals
						r.rush(t, newTraffic(1, addresses...), fmt.Sprint("ann", round), limit, uint64(round))
						t.Logf("%d of %d requests admitted, %d refused, %d of these falsely", r.admitted, limit*3/2, r.refused, r.falsely)
						if round > 0 && limit > 100 { // workers have parts of the limit from the round before, which are kept back until all have heard of the key
							r.falsely = 0
							must.AtLeast(t, r.admitted, limit/2, "round %d: of a limit of %d, admitted at once", round, limit)
							r.rest(t, newTraffic(1, addresses...), fmt.Sprint("ann", round), limit)
						}
						if r.admitted > limit || (limit == 100 || round > 0) && (r.falsely > 0 || r.admitted < limit) || r.falsely > limit/4 {
							t.Errorf("round %d: of a limit of %d %d requests were admitted, %d refused falsely", round, limit, r.admitted, r.falsely)
						}
					}
				})
			}
		}
	})
}

// refusals counts answers as they come. A refusal is false if all hits admitted before, all
// requests under way at that time, and the request fit the limit.
type refusals struct {
	sync.Mutex
	sent, onItsWay, admitted, refused, falsely int64
}

func (r *refusals) rush(t *testing.T, f *traffic, user string, limit int64, seed uint64) {
	t.Helper()
	var clients sync.WaitGroup
	for k := range uint64(6) {
		client, random := client(t), rand.New(rand.NewPCG(seed, k))
		clients.Go(func() {
			for r.next(limit * 3 / 2) {
				status, _, err := f.ask(t, client, random.IntN(len(f.addresses)), user)
				if err != nil {
					t.Error(err)
					return
				}
				r.answered(status, limit)
			}
		})
	}
	clients.Wait()
}

// rest asks until all of the limit has passed.
func (r *refusals) rest(t *testing.T, f *traffic, user string, limit int64) {
	t.Helper()
	client := client(t)
	for deadline := time.Now().Add(hang); r.admitted < limit && time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		for node := range f.addresses {
			if status, _, err := f.ask(t, client, node, user); err != nil {
				t.Fatal(err)
			} else if status == http.StatusOK {
				r.admitted++
			}
		}
	}
}

func (r *refusals) next(requests int64) bool {
	r.Lock()
	defer r.Unlock()
	if r.sent == requests {
		return false
	}
	r.sent++
	r.onItsWay++
	return true
}

func (r *refusals) answered(status int, limit int64) {
	r.Lock()
	defer r.Unlock()
	if status == http.StatusOK {
		r.admitted++
	} else if r.refused++; r.admitted+r.onItsWay <= limit {
		r.falsely++
	}
	r.onItsWay--
}
