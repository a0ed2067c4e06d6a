package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// A node gives back hits that others have counted, also those that it has not heard of, and each node
// gets them.
func TestGiveBackOfOthers(t *testing.T) {
	t.Parallel()
	for kind, l := range kinds(100) {
		for _, exact := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var nodes [2]*Limiter
				for i := range nodes {
					nodes[i] = limiter(t, w.node(t, Options{Rules: rule(l), Exact: exact}), "r")
				}
				want := func(what string, node int, cost uint64, allowed bool) {
					t.Helper()
					if d := decide(t, nodes[node], cost, "k"); d.Allowed != allowed {
						t.Errorf("%s, exact %v, %s: %d hits of node %d: allowed %v, %d left", kind, exact, what, cost, node, d.Allowed, d.Remaining)
					}
					pause(time.Millisecond)
				}
				want("at first", 1, 10, true)
				want("at first", 0, 45, true)
				want("at first", 0, 45, true)
				want("full", 0, 1, false)
				must.OK(t, nodes[1].GiveBack(t.Context(), Key{"k"}, 60))
				want("60 are back", 1, 30, true)
				pause(2 * time.Second)
				want("30 are left", 0, 30, true)
				pause(2 * time.Second)
				want("none is left", 0, 1, false)
				want("none is left", 1, 1, false)
			})
		}
	}
}
