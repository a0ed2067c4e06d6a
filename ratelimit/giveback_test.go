package ratelimit

import (
	"context"
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
	eachKind(t, 100, func(t *testing.T, _ string, l Limit, exact bool) {
		w := newWorld()
		var nodes [2]*Limiter
		for i := range nodes {
			nodes[i] = limiter(t, w.node(t, Options{Rules: rule(l), Exact: exact}), "r")
		}
		want := func(what string, node int, cost uint64, allowed bool) {
			t.Helper()
			must.Equal(t, decide(t, nodes[node], cost, "k").Allowed, allowed, "%s: %d hits of node %d: allowed", what, cost, node)
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

// While hits are on their way back, others that this node has not heard of go back, too: the backend is asked for them, whichever
// answer comes first.
func TestGiveBackBesideAnother(t *testing.T) {
	t.Parallel()
	for kind, l := range kinds(100) {
		for _, later := range []time.Duration{0, 20 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var nodes [2]*Namespace
				for i := range nodes {
					nodes[i] = w.node(t, Options{Rules: rule(l)})
					decide(t, limiter(t, nodes[i], "r"), 5, "k")
					must.OK(t, nodes[i].Sync(t.Context()))
				}
				back := limiter(t, nodes[0], "r")
				must.OK(t, back.GiveBack(t.Context(), Key{"k"}, 5))
				w.set(func() { w.later = later })
				go func() { must.Report(t, nodes[0].Sync(t.Context())) }()
				pause(time.Millisecond)
				w.set(func() { w.later = 0 })
				must.OK(t, back.GiveBack(t.Context(), Key{"k"}, 5))
				pause(2 * time.Second)
				must.Equal(t, decide(t, back, 100, "k").Allowed, true, "%s, the first answer by %v later: 100 of 100 once all are back", kind, later)
			})
		}
	}
}

// Hits that have passed before the backend has counted them can be given back, too, while they are on their way, and at once,
// which waits for nothing, also by a limiter with other limits than that of the request.
func TestGiveBackOfAdvancedHits(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"at once": 0, "by other limits": 0, "on their way": 1003 * time.Millisecond} {
		bubble(t, name, func(t *testing.T) {
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
	}
}

// Hits of a window that has ended go back, before the backend has heard of them, without making room in the next window: what others
// count there after that stays.
func TestGiveBackAfterAWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		rules := rule(FixedWindow(1000, time.Minute))
		n := w.node(t, Options{Rules: rules})
		l, other := limiter(t, n, "r"), limiter(t, w.node(t, Options{Rules: rules, Exact: true}), "r")
		for i := range 119 {
			decide(t, l, 1, strconv.Itoa(i))
			pause(500*time.Millisecond - time.Duration(time.Now().UnixNano())%(500*time.Millisecond))
		}
		pause(400 * time.Millisecond)
		before := n.Stats().AdvancedHits
		decide(t, l, 5, "k")
		must.Equal(t, n.Stats().AdvancedHits-before, 5, "hits are advanced")
		pause(200 * time.Millisecond)
		must.OK(t, l.GiveBack(t.Context(), Key{"k"}, 5))
		must.Equal(t, decide(t, other, 3, "k").Remaining, 997, "left after 3 hits of the new window")
		pause(3 * time.Second)
		must.Equal(t, decide(t, other, 1, "k").Remaining, 996, "left after one more")
	})
}
