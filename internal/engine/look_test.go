package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/window"
)

// look looks at all processes.
func (w *world) look() observe.Looked {
	var processes []observe.Process
	for _, p := range w.processes {
		of := &p.nodesHere()[0].options
		o := observe.Process{Namespace: of.Namespace, Data: of.Data, Clock: of.Host}
		for i := range p.nodesHere()[0].options.Rules {
			r := p.nodesHere()[0].rule(i)
			o.Rules = append(o.Rules, rule.Rule{Rule: r.Rule, SyncRate: r.SyncRate, Prefix: r.Prefix})
		}
		processes = append(processes, o)
	}
	return observe.Look(processes)
}

// All processes together show the hits that have passed, while hits are leased, while the backend
// is away, and when it is back, whichever worker of whichever process a request came to.
func TestLook(t *testing.T) {
	for _, shape := range longest {
		for _, hits := range []uint64{10, 1000} {
			t.Run(fmt.Sprintf("%+v, limit %d", shape, hits), func(t *testing.T) {
				w := newWorld(t, 3, 2, second, engine.Options{}, users(of(shape, hits)))
				passed := map[string]uint64{}
				check := func(when string) {
					t.Helper()
					most := uint64(0)
					for user, n := range passed {
						for _, f := range w.nodes {
							n -= f.Advanced(f.stored(0, user))
						}
						most = max(most, n)
					}
					seen := w.look()
					must.Equal(t, seen.Most[0][0], most, "%s: are seen of the key with most, which has passed %d", when, most)
					for i, p := range w.processes {
						want := observe.Leased{}
						for _, user := range []string{"ann", "bob"} {
							if leased := p.nodesHere()[0].leased(0, user); leased > 0 {
								want.Leases++
								want.Free += leased
							}
						}
						must.Equal(t, seen.Leased[i][0], want, "%s: process %d holds", when, i)
					}
				}
				send := func(n int) {
					t.Helper()
					for i := range n {
						user := "ann"
						if i%3 == 0 {
							user = "bob"
						}
						if w.any().send(user) {
							passed[user]++
						}
						if i%10 == 0 {
							w.advance(100 * time.Millisecond)
						}
					}
				}
				check("at first")
				send(100)
				check("while hits are leased")
				w.lossBefore = 1
				send(300)
				check("while the backend is away")
				w.lossBefore = 0
				often(20, w.advance, 500*time.Millisecond)
				check("when it is back")
			})
		}
	}
}

// If a rule does not synchronise, nobody knows which keys of two processes are the same.
func TestLookAtRulesHere(t *testing.T) {
	w := newWorld(t, 2, 1, second, engine.Options{}, users(of(longest[0], 10)).here(), users(fixed(5), limit(window.SlidingWindow, 7, minute)).here())
	for _, user := range []string{"ann", "ann", "bob"} {
		w.nodes[0].send(user)
	}
	w.nodes[1].send("carl")
	must.Equal(t, fmt.Sprint(w.look()), "{[[{0 0} {0 0}] [{0 0} {0 0}]] [[3] [3 3]]}", "")
	w.pass(time.Hour)
	must.Equal(t, fmt.Sprint(w.look().Most), "[[3] [0 0]]", "an hour later")
}

// Where no worker has come so far there is nothing to see, and nothing is made.
func TestLookAtNothing(t *testing.T) {
	p := newProcess(t)
	seen := observe.Look([]observe.Process{{Namespace: "default", Data: &p.Map, Rules: []rule.Rule{{}}}})
	must.Equal(t, fmt.Sprint(seen), "{[[{0 0}]] [[]]}", "seen")
	must.Equal(t, p.Len(), 0, "keys in shared data")
}
