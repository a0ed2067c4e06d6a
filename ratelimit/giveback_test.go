package ratelimit

import (
	"context"
	"math/rand/v2"
	"strconv"
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

// Hits that have passed before the backend has counted them can be given back, too, while they are on their way, and at once,
// which waits for nothing, also by a limiter with other limits than that of the request.
func TestGiveBackOfAdvancedHits(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"at once": 0, "by other limits": 0, "on their way": 1003 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				n := w.node(t, Options{Rules: rule(FixedWindow(1000, 24*time.Hour))})
				l := limiter(t, n, "r")
				of := l
				if name == "by other limits" {
					of = must.Get(l.WithLimits(FixedWindow(2000, 24*time.Hour)))(t)
				}
				for i := range 40 {
					decide(t, of, 1, strconv.Itoa(i))
					pause(100 * time.Millisecond)
				}
				before := n.Stats().AdvancedHits
				decide(t, of, 5, "k")
				must.Equal(t, n.Stats().AdvancedHits-before, 5, "hits are advanced")
				pause(by)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if by == 0 {
					cancel()
				}
				must.OK(t, l.GiveBack(ctx, Key{"k"}, 3))
				pause(3 * time.Second)
				must.Equal(t, decide(t, l, 1, "k").Remaining, 997, "left after 5 hits, 3 given back, and 1")
			})
		})
	}
}

// Hits that have passed before the backend has counted them come back, too, though a window has ended since, as far as they count:
// by a limit that slides, and by one whose window goes on. Those of the new window come back before them.
func TestGiveBackAfterAWindow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits []Limit
		left   []uint64
	}{
		"that slides":         {[]Limit{SlidingWindow(1000, time.Minute)}, []uint64{998}},
		"beside a longer one": {[]Limit{FixedWindow(1000, time.Minute), FixedWindow(2000, 24*time.Hour)}, []uint64{999, 1998}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				n := w.node(t, Options{Rules: rule(test.limits...)})
				l := limiter(t, n, "r")
				for i := range 119 {
					decide(t, l, 1, strconv.Itoa(i))
					pause(500 * time.Millisecond)
				}
				pause(400 * time.Millisecond)
				before := n.Stats().AdvancedHits
				decide(t, l, 5, "k")
				pause(200 * time.Millisecond)
				decide(t, l, 2, "k")
				must.Equal(t, n.Stats().AdvancedHits-before, 7, "hits are advanced")
				must.OK(t, l.GiveBack(t.Context(), Key{"k"}, 6))
				pause(3 * time.Second)
				d := must.Get(Decide(t.Context(), l.Demand(Key{"k"}, 1)))(t)
				for i, left := range test.left {
					must.Equal(t, d.Standings[i].Remaining, left, "left by limit %d after 5 hits and 2 of the next window, 6 given back, and 1", i)
				}
			})
		})
	}
}

// Whatever a node takes and gives back of some keys, by these limits or others, on credit, leased or on its way: in the end, what is
// left of each key's limit is all but what was taken and not given back. If pushes and answers get lost, it is no more than that.
func TestGiveBackIsExact(t *testing.T) {
	t.Parallel()
	for _, lossy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const limit, keys = 1000, 4
			w, random := newWorld(), rand.New(rand.NewPCG(1, 2))
			n := w.node(t, Options{Rules: rule(FixedWindow(limit, 24*time.Hour), SlidingWindow(900, 12*time.Hour))})
			own := limiter(t, n, "r")
			limiters := []*Limiter{own, must.Get(own.WithLimits(FixedWindow(2*limit, 24*time.Hour), SlidingWindow(800, 12*time.Hour)))(t)}
			if lossy {
				w.loseOneOf(6)
			}
			var used [keys]uint64
			back := 0
			for i := range 1500 {
				l, k := limiters[random.IntN(2)], random.IntN(keys)
				switch key := (Key{strconv.Itoa(k)}); {
				case random.IntN(5) == 0:
					decide(t, l, 1, "other", strconv.Itoa(i%500)) // so that it keeps its part
				case used[k] > 0 && random.IntN(2) == 0:
					hits := 1 + random.Uint64N(min(used[k], 8))
					must.OK(t, l.GiveBack(t.Context(), key, hits))
					used[k] -= hits
					back++
				default:
					if cost := 1 + random.Uint64N(6); decide(t, l, cost, key...).Allowed {
						used[k] += cost
					}
				}
				if random.IntN(3) == 0 {
					pause(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
				}
			}
			w.set(func() { w.loses = nil })
			pause(time.Minute)
			for k, of := range used {
				d := must.Get(Decide(t.Context(), own.Demand(Key{strconv.Itoa(k)}, 0)))(t)
				if left := d.Standings[0].Remaining; left > limit-of || left < limit-of && !lossy {
					t.Errorf("lossy %v: %d are left of key %d, want %d", lossy, left, k, limit-of)
				}
			}
			if advanced := n.Stats().AdvancedHits; advanced < 500 || back < 300 {
				t.Errorf("lossy %v: %d hits were advanced, and %d times some went back: such a run shows little", lossy, advanced, back)
			}
		})
	}
}
