package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// changeCounter empties a user's counter of rule 0, or if a number is given, gives so many hits back. It
// returns how many came back.
func (w *world) changeCounter(user string, grant uint64) (returned uint64) {
	w.t.Helper()
	returned, _, err := backend.New(w.store).By(nil).ChangeCounter(w.t.Context(), "default", &backend.Change{
		ID: w.nodes[0].id(0, user), Rule: "rule-0", Values: []string{user}, Grant: grant,
	})
	must.OK(w.t, err)
	return returned
}

// exhaust has every node ask until all of them refuse, and returns how many passed.
func (w *world) exhaust(user string) (passed int64) {
	for range 2 {
		for range 30 {
			for _, f := range w.nodes {
				for range 10 {
					count(&passed, f.send(user))
				}
			}
			w.advance(100 * time.Millisecond)
		}
		often(80, w.advance, 500*time.Millisecond) // what was leased goes back
	}
	for _, f := range w.nodes {
		count(&passed, f.send(user))
	}
	return passed
}

// A key that every worker of every node refuses passes again an interval after it was emptied: its
// whole limit, and no more. The same holds for what is given back.
func TestEmptiedCountersReachEveryNode(t *testing.T) {
	t.Parallel()
	for _, rate := range []time.Duration{0, time.Second, 5 * time.Second} {
		for _, hits := range []uint64{20, 300} {
			for _, shape := range longest {
				t.Run(fmt.Sprint(rate, hits, shape), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, 3, 2, int64(rate), engine.Options{}, users(of(shape, hits)))
					want := int64(hits)
					must.EqualOrEnd(t, w.exhaust("ann"), want, "passed")
					interval := max(rate, time.Second)
					for range 2 {
						must.Equal(t, w.changeCounter("ann", 0), hits, "given back")
						w.ticks(2*interval, interval)
						for i, f := range w.nodes {
							must.Equal(t, f.send("ann"), true, "node %d refuses", i)
						}
						must.Equal(t, w.exhaust("ann")+int64(len(w.nodes)), want, "passed after the counter was emptied")
						w.changeCounter("ann", 12)
						w.ticks(2*interval, interval)
						must.Equal(t, w.exhaust("ann"), 12, "passed after 12 were given back")
					}
				})
			}
		}
	}
}

// Whatever is on its way, leased, lost or sent again when a counter is emptied or relieved, no more
// passes than the limit and what came back.
func TestEmptiedCountersUnderFire(t *testing.T) {
	t.Parallel()
	for _, hits := range []uint64{20, 300, 5000} {
		for _, shape := range longest {
			t.Run(fmt.Sprint(hits, shape), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 3, 2, second, engine.Options{OnBackendFailure: failure.Deny}, users(of(shape, hits)))
				w.lossBefore, w.lossAfter = 0.1, 0.1
				passed, returned := uint64(0), uint64(0)
				var waiting []*fakeRequest
				for step := range 400 {
					for range hits / 20 {
						r, verdict := w.any().request("ann")
						if verdict == counter.Allowed {
							passed++
						}
						waiting = append(waiting, r)
					}
					if w.random.IntN(4) == 0 { // pushes are on their way meanwhile
						w.pass(10 * time.Millisecond)
						w.any().tick()
					} else {
						w.advance(50 * time.Millisecond)
					}
					switch {
					case step%67 == 66:
						returned += w.changeCounter("ann", 0)
					case step%31 == 30:
						returned += w.changeCounter("ann", hits/4)
					}
					if len(w.zombies) > 0 && w.random.IntN(3) == 0 {
						w.apply(w.zombies[w.random.IntN(len(w.zombies))]) // a copy that is late
					}
				}
				w.quiet()
				passed += uint64(allowed(waiting))
				must.Between(t, passed, returned/2, hits+returned, "passed, with a limit of %d and %d given back", hits, returned)
				if sum := w.sum(); sum < 0 || shape.Kind != window.TokenBucket && uint64(sum)+returned < passed {
					t.Errorf("the backend has %d, with %d passed and %d given back", sum, passed, returned)
				}
			})
		}
	}
}

// A lease ends when the counter is emptied that it was counted in, and what goes back of it makes no more room
// than there is.
func TestLeasesOfEmptiedCountersEnd(t *testing.T) {
	t.Parallel()
	for _, shape := range longest {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2, 2, second, engine.Options{}, users(of(shape, 1000)))
			f := w.nodes[0]
			for range 40 {
				f.send("ann")
				f.send("ann")
				w.advance(50 * time.Millisecond)
			}
			leased := f.leased(0, "ann")
			must.EqualOrEnd(t, leased > 0, true, "hits are leased")
			w.changeCounter("ann", 0)
			for range 21 {
				w.pass(50 * time.Millisecond) // too short for the lease to go back by itself
				for _, n := range w.nodes {
					n.AskForList()
					n.tick()
				}
				for _, n := range w.nodes {
					w.deliver(n)
				}
				if f.leased(0, "ann") == 0 {
					break
				}
			}
			must.Equal(t, f.leased(0, "ann"), 0, "are leased still, of %d", leased)
			// Hits of sub-buckets that have moved from a lease are told with the next push, and count.
			if sum := w.sum(); sum != 0 && !shape.Kind.Bucketed() || sum > 40 {
				t.Errorf("the backend has %d", sum)
			}
		})
	}
}

// A list's notices for keys of other rules, of another form, or that are over, do no harm.
func TestNoticesOfNoConcern(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2, second, engine.Options{}, users(fixed(5)))
	now := uint64(w.now / 1e6)
	for range 6 {
		w.nodes[0].send("ann")
	}
	w.override(
		wire.Override{Rule: "another", Notice: wire.Notice{Reset: now}},
		override("ann", 7),
		wire.Override{Rule: "rule-0", Values: []string{"ann"}, Notice: wire.Notice{Granted: now}, Until: now + 60_000},
		wire.Override{Rule: "rule-0", Values: []string{"ann", "bob"}, Notice: wire.Notice{Reset: now}},
		wire.Override{Rule: "rule-0", Values: []string{"bob"}, Notice: wire.Notice{Reset: 1}, Until: 2},
	)
	w.ticks(2*time.Second, time.Second)
	w.wantLimits("ann", 7)
	for _, f := range w.nodes {
		_, unfit := f.Overrides()
		must.Equal(t, unfit, 1, "unfit")
	}
	must.Equal(t, w.exhaust("ann"), 2, "more pass")
}
