package filter

import "weir/internal/proxywasm"

// tally is a counter in the VM. Publishing adds it to the proxy's metric. A host call for each
// count would cost more than the decision itself.
type tally struct {
	_ [0]func() // keeps Go from generating an equality function

	metric  proxywasm.Metric
	defined bool
	// published is the part of count that the metric has already.
	count, published uint64
}

func (t *tally) define(name string) {
	t.metric, t.defined = proxywasm.DefineCounter(name), true
}

func (t *tally) publish() {
	if t.count != t.published && t.defined {
		t.metric.Add(t.count - t.published)
		t.published = t.count
	}
}

type gauge struct {
	_ [0]func() // keeps Go from generating an equality function

	metric  proxywasm.Metric
	defined bool
	value   uint64 // the last value set
}

func (g *gauge) define(name string) { g.metric, g.defined = proxywasm.DefineGauge(name), true }

func (g *gauge) set(n uint64) {
	if g.defined && n != g.value {
		g.value = n
		g.metric.Set(n)
	}
}
