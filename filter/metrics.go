package filter

import (
	"weir/config"
	"weir/internal/proxywasm"
)

// tally counts in the VM, and adds to the proxy's metric when it is published: a host call for each count would cost more
// than the decision that it counts.
type tally struct {
	metric  proxywasm.Metric
	defined bool
	pending uint64
}

func (t *tally) count()       { t.pending++ }
func (t *tally) add(n uint64) { t.pending += n }

func (t *tally) define(name string) {
	t.metric, t.defined = proxywasm.DefineCounter(name), true
}

func (t *tally) publish() {
	if t.pending != 0 && t.defined {
		t.metric.Add(t.pending)
		t.pending = 0
	}
}

// metrics are those of a plugin context. Their names have the labels in them, as Istio's have: what lies between weir_rule=.= and ;.; is
// the rule, whatever dots the namespace has. With stats_tags, or Istio's extraStatTags, Envoy cuts the labels out of the name.
type metrics struct {
	rules []ruleMetrics

	lostRaces tally // compare-and-sets that another worker was faster with
	givenUp   tally // decisions whose hits lost every race, and were kept to be added later
	lost      tally // hits that could not be kept
	evicted   tally // counters that had to make room before they expired
	corrupt   tally // pages or entries of a form that nobody writes
	pushed    tally // hits that were sent to the backend
	badCosts  tally // costs that were no numbers
	failed    tally // pushes that the backend did not take, and that are sent again
	waited    tally // requests that waited for the backend
	alone     tally // requests decided without the backend, as it was away
}

type ruleMetrics struct {
	allowed, rejected tally
	// overshoot is the most hits above a limit that nodes can admit together.
	overshoot gauge
}

// gauge is a number of the proxy.
type gauge struct {
	metric  proxywasm.Metric
	defined bool
}

func (g *gauge) define(name string) { g.metric, g.defined = proxywasm.DefineGauge(name), true }

func (g *gauge) set(n uint64) {
	if g.defined {
		g.metric.Set(n)
	}
}

func (m *metrics) define(c *config.Config) {
	namespace := "weir." + label("weir_namespace", c.Namespace)
	m.rules = make([]ruleMetrics, len(c.Rules))
	for i := range c.Rules {
		rule := namespace + label("weir_rule", c.Rules[i].Name)
		m.rules[i].allowed.define(rule + label("weir_outcome", "allowed") + "requests_total")
		m.rules[i].rejected.define(rule + label("weir_outcome", "rejected") + "requests_total")
		if c.SyncRate >= 0 {
			m.rules[i].overshoot.define(rule + "overshoot_bound")
		}
	}
	for i, t := range m.ofPlugin() {
		t.define(namespace + metricNames[i] + "_total")
	}
}

//go:noinline
func label(name, value string) string { return name + "=.=" + value + ";.;" }

// metricNames are in the order of ofPlugin.
var metricNames = [...]string{
	"lost_races", "given_up", "lost_hits", "evicted_counters", "corrupt_entries", "pushed_hits", "bad_costs", "failed_pushes",
	"waited_requests", "decided_alone",
}

// ofPlugin are the metrics that are not of a rule.
func (m *metrics) ofPlugin() [len(metricNames)]*tally {
	return [...]*tally{&m.lostRaces, &m.givenUp, &m.lost, &m.evicted, &m.corrupt, &m.pushed, &m.badCosts, &m.failed, &m.waited, &m.alone}
}

func (m *metrics) publish() {
	for i := range m.rules {
		m.rules[i].allowed.publish()
		m.rules[i].rejected.publish()
	}
	for _, t := range m.ofPlugin() {
		t.publish()
	}
}
