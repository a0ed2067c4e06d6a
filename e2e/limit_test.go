package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
)

// A small limit answers each request correctly, from the first second and at any node: requests
// pass one after the other up to the limit, and then none.
func TestSmallLimits(t *testing.T) {
	onEachByNight(t, 2, func(t *testing.T, d driver) {
		backend := serve(t, "memory")
		var rules []string
		limits := []int{1, 2, 3, 5, 10, 20, 100}
		for _, limit := range limits {
			rules = append(rules, fmt.Sprintf(`{"name": "of-%d", "key": [{"header": "x-user"}], "match": {"path": {"exact": "/%d"}},
			"limits": [{"limit": %d, "window": "366d"}]}`, limit, limit, limit))
		}
		_, addresses := nodes(t, d, 2, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "rules": [` +
			strings.Join(rules, ", ") + `]}`})
		client := client(t)
		for _, limit := range limits {
			for round := range 3 {
				for request := range limit + 8 {
					r := ask(t, client, addresses[(request+round)%2], ":path", fmt.Sprint("/", limit), "x-user", fmt.Sprint("ann", round))
					want := http.StatusOK
					if request >= limit {
						want = http.StatusTooManyRequests
					}
					must.Equal(t, r.status, want, "request %d of a limit of %d: status", request+1, limit)
				}
			}
		}
	})
}

// A client that asks often enough gets all of a limit at any node, because unused leases return to
// the other nodes. It never gets more.
func TestAllOfTheLimit(t *testing.T) {
	onEachByNight(t, 2, func(t *testing.T, d driver) {
		for _, limit := range []int64{10, 100, 1000} {
			for n := range 2 {
				t.Run(fmt.Sprint("limit ", limit, " nodes ", n+1), func(t *testing.T) {
					d.beside(t)
					backend := serve(t, "memory")
					_, addresses := nodes(t, d, n+1, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.02, ` +
						perUser(fmt.Sprintf(`{"limit": %d, "window": "366d", "algorithm": "fixed_window"}`, limit))[1:]})
					f, client, random := newTraffic(1, addresses...), client(t), rand.New(rand.NewPCG(1, 9))
					more := func() int64 {
						f.request(t, client, random.IntN(n+1), "ann")
						return f.total()
					}
					for before := f.total(); before < limit; before = f.total() {
						if !soon(func() bool { return more() > before }) {
							t.Fatalf("admitted %d in the end, want %d", before, limit)
						}
					}
					for range 2 * limit {
						more()
					}
					settle(t, backend, "default", f.total())
					must.Equal(t, f.total(), limit, "admitted")
				})
			}
		}
	})
}

// Ten nodes (three Envoys) share a limit, with even traffic and with 91 % at one node, at twice
// the limit (up to ten in a nightly run). At no moment do they pass more than the limit.
// bench/overshoot tests the same in simulated time, with windows that end.
func TestTenNodesKeepOneLimit(t *testing.T) {
	onEachByNight(t, 10, func(t *testing.T, d driver) {
		const limit = 1000
		n, requests := d.few(10), nightly.Or(10, 2)*limit
		for _, algorithm := range []string{
			`{"limit": 1000, "window": "366d"}`,
			`{"limit": 1, "window": "366d", "algorithm": "token_bucket", "burst": 1000}`,
			`{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}`,
		}[:nightly.Or(3, 2)] {
			t.Run(algorithm, func(t *testing.T) {
				backend := serve(t, "memory")
				_, addresses := nodes(t, d, n, nodeConfig{
					backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.5, ` + perUser(algorithm)[1:],
				})
				client, random := client(t), rand.New(rand.NewPCG(1, 10))
				f := newTraffic(1, addresses...)
				for _, skewed := range []bool{false, true} {
					before, user := f.total(), fmt.Sprint("skewed ", skewed)
					for range requests {
						node := random.IntN(n)
						if skewed && random.IntN(100) < 90 {
							node = 0
						}
						f.request(t, client, node, user)
					}
					// Hits leased by other nodes come back only after some intervals.
					must.AtMost(t, f.total()-before, limit, "%s, skewed %v: admitted", algorithm, skewed)
					must.AtLeast(t, f.total()-before, limit*97/100, "%s, skewed %v: admitted", algorithm, skewed)
				}
				settle(t, backend, "default", f.total())
			})
		}
	})
}
