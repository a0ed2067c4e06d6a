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

// gauges are those of a VM's plugin contexts. The proxy has them for the whole process, and keeps their values when
// a plugin context is gone.
type gauges struct {
	list     []*gauge
	contexts []*metrics // that have not left
}

type gauge struct {
	_ [0]func() // keeps Go from generating an equality function

	name   string
	metric proxywasm.Metric
	value  uint64 // the last that this VM has set; unset for none
	// owner sets it: the plugin context that has defined it last, or any if that is gone. Others are being replaced.
	owner *metrics
}

const unset = 1<<64 - 1

// defineGauge returns a gauge, which m sets from now on if it is the newest plugin context.
func (m *metrics) defineGauge(name string) *gauge {
	g := m.gauges.find(name)
	if g == nil {
		g = &gauge{name: name, value: unset}
		m.gauges.list = append(m.gauges.list, g)
	}
	g.metric = proxywasm.DefineGauge(name) // each configuration of the native form defines its metrics
	// One that is being replaced defines gauges, too, when its rules are moved.
	if all := m.gauges.contexts; len(all) > 0 && all[len(all)-1] == m {
		g.owner = m
	}
	return g
}

func (all *gauges) find(name string) *gauge {
	for _, g := range all.list {
		if g.name == name {
			return g
		}
	}
	return nil
}

// set sets a gauge, unless it is not defined, or is another plugin context's.
func (m *metrics) set(g *gauge, n uint64) {
	if g == nil || g.owner != nil && g.owner != m {
		return
	}
	if g.owner = m; n != g.value {
		g.value = n
		g.metric.Set(n)
	}
}

// leave gives up the gauges of a plugin context that goes. If the namespace has another here, those that it has not
// defined say nothing more. If not, another VM may have set them, by a newer plugin.
func (m *metrics) leave() {
	var others []*metrics
	replaced := false
	for _, other := range m.gauges.contexts {
		if other != m {
			others = append(others, other)
			replaced = replaced || other.prefix == m.prefix
		}
	}
	m.gauges.contexts = others
	for _, g := range m.gauges.list {
		if g.owner != m {
			continue
		}
		if replaced {
			m.set(g, 0)
		}
		g.owner = nil
	}
}
