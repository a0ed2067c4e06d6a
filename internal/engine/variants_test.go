package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/window"
)

// variants makes a rule's limits allow so many hits, for each number.
func variantsOf(f *fakeNode, hits ...uint64) (rules []*rule.Rule) {
	for _, n := range hits {
		l := f.rule(0).Limits[0]
		if l.Max = n; l.Kind.Bursts() {
			l.Burst = n
		}
		rules = append(rules, f.rule(0).Variant([]window.Limit{l}))
	}
	return rules
}

// A key keeps its counter whatever limit a request has for it. An empty bucket is empty for all of
// them.
func TestVariantsShareCounters(t *testing.T) {
	t.Parallel()
	for _, shape := range longest {
		for _, rate := range []int64{-1, 0, second} {
			t.Run(fmt.Sprintf("%v at %v", shape, time.Duration(rate)), func(t *testing.T) {
				t.Parallel()
				f := newWorld(t, 1, 1, rate, engine.Options{}, users(of(shape, 5))).nodes[0]
				v := variantsOf(f, 8, 2, 5)
				more := 3
				if shape.Kind.Refills() {
					more = 0
				}
				for i, step := range []struct {
					rule   *rule.Rule
					passes int
				}{
					{nil, 5}, {v[0], more}, {v[1], 0}, {nil, 0}, {v[2], 0}, {v[0], 0},
				} {
					f.variant = step.rule
					passed := 0
					for range 10 {
						count(&passed, f.send("ann"))
					}
					must.Equal(t, passed, step.passes, "step %d: passed", i)
				}
			})
		}
	}
}

// Without the backend each node may admit as much as the largest limit says.
func TestVariantsOvershoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 1, second, engine.Options{}, users(fixed(10)))
	for _, f := range w.nodes {
		f.send("ann")
	}
	w.advance(10 * time.Second)
	f := w.nodes[0]
	f.send("bob") // so that it hears of the others
	w.advance(time.Second)
	variantsOf(f, 700, 20)
	f.breakOff()
	must.Equal(t, [2]uint64{f.Overshoot(0), f.Nodes()}, [2]uint64{1400, 3}, "the bound, and nodes")
}
