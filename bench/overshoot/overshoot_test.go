package main

import (
	"testing"

	"weir/bench/page"
	"weir/internal/must"
)

// The tables of the quick grid equal the kept tables, so they are the same every time: a change must come with new figures
// in README.md.
func TestFiguresAreKept(t *testing.T) {
	got := must.Get(tables(quick().trials()))(t)
	page.Kept(t, "overshoot", got)
}

// The single limiter agrees with the oracle: it uses all of the limit if enough is offered, and never more. The other ways
// are judged by the same requests.
func TestWays(t *testing.T) {
	for _, a := range append(full().algorithms, others().algorithms...) {
		one := quick().trials()[0]
		one.algorithm, one.traffic, one.load = a, kinds[0], 5
		r := &must.Get(measure([]trial{one}))(t)[0]
		if r.central.worst > mostInUse || r.central.worst < 0.99 || r.ofLimit(&r.central) < 0.97 || r.ofLimit(&r.central) > 1+1e-3 {
			t.Errorf("%s: the one limiter admits %g, and uses %g", a.name, r.ofLimit(&r.central), r.central.worst)
		}
		for _, w := range ways {
			if o := w.of(r); o.requests != r.central.requests || o.admitted == 0 {
				t.Errorf("%s, %s: %+v", a.name, w.name, *o)
			}
		}
		must.AtLeast(t, r.periodic.worst, 1.05, "%s: the most of the limit that periodic sync uses", a.name)
	}
}
