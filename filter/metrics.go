package filter

import (
	"weir/config"
	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/proxywasm"
)

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

// metrics are the metrics of a plugin context. Their names contain labels, as Istio's do: the text
// between weir_rule=.= and ;.; is the rule, even if the namespace has dots. Envoy's stats_tags, or
// Istio's extraStatTags, extract the labels from the name.
type metrics struct {
	rules []ruleMetrics
	// namespace are the metrics without a rule, in the order of metricNames.
	namespace [len(metricNames)]tally
	// overrides is how many are applied, and unfit how many don't fit their rules.
	overrides, unfit gauge
	// places is how many requests of the process hold; longest is for how many seconds.
	places, longest gauge
}

type ruleMetrics struct {
	allowed, rejected tally
	marked            tally // passed although the rule had no room
	warnings          tally
	// overshoot is the most hits above a limit that all nodes together can admit now.
	overshoot gauge
}

// count counts a verdict of the rule.
func (r *ruleMetrics) count(verdict counter.Verdict) {
	if verdict == counter.Allowed {
		r.allowed.count++
	} else {
		r.rejected.count++
	}
}

// gauge is a gauge of the proxy.
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

// define defines the metrics of a configuration and of its rules.
func (m *metrics) define(c *config.Config, rules []node.Rule) {
	namespace := "weir." + label("weir_namespace", c.Namespace)
	m.rules = make([]ruleMetrics, len(c.Rules))
	for i := range c.Rules {
		prefix := namespace + label("weir_rule", c.Rules[i].Name)
		// A shadow rule rejects nobody, so its counters must not look like rejections.
		allowed, rejected := "allowed", "rejected"
		if c.Rules[i].Shadow {
			allowed, rejected = "shadow_allowed", "shadow_rejected"
		}
		m.rules[i].allowed.define(prefix + label("weir_outcome", allowed) + "requests_total")
		m.rules[i].rejected.define(prefix + label("weir_outcome", rejected) + "requests_total")
		if rules[i].Marks {
			m.rules[i].marked.define(prefix + label("weir_outcome", "marked") + "requests_total")
		}
		if len(c.Rules[i].WarnAt) > 0 {
			m.rules[i].warnings.define(prefix + "warnings_total")
		}
		if rules[i].Synced() && !c.Rules[i].Shadow {
			m.rules[i].overshoot.define(prefix + "overshoot_bound")
		}
	}
	for i := range m.namespace {
		m.namespace[i].define(namespace + metricNames[i] + "_total")
	}
	for i := range c.Rules {
		if c.Rules[i].Hold != 0 && !m.places.defined {
			m.places.define(namespace + "held_places")
			m.longest.define(namespace + "longest_held_seconds")
		}
	}
	if c.Backend.Cluster != "" {
		m.overrides.define(namespace + "overrides")
		m.unfit.define(namespace + "unfit_overrides")
	}
}

func label(name, value string) string { return name + "=.=" + value + ";.;" }

// metricNames are in the order in which publish sets them.
var metricNames = [...]string{
	"lost_races", "given_up", "lost_hits", "evicted_counters", "corrupt_entries", "pushed_hits", "bad_costs", "failed_pushes",
	"waited_requests", "decided_alone", "crowded_requests", "late_requests",
	"unread_costs", "unread_bodies", "cut_streams", "absent_costs", "lost_places", "blocked_keys", "delayed_requests", "unknown_models",
	"advanced_hits",
}

// bound publishes by how much the nodes that share the limits can exceed them, and how many
// overrides apply.
func (m *metrics) bound(n *node.Node) {
	applied, unfit := n.Overrides()
	m.overrides.set(uint64(applied))
	m.unfit.set(uint64(unfit))
	for i := range m.rules {
		m.rules[i].overshoot.set(n.Overshoot(i))
	}
}

// publish publishes the counts of the engine and of the requests.
func (m *metrics) publish(n *node.Node, r *request, h *holders) {
	for i := range m.rules {
		m.rules[i].allowed.publish()
		m.rules[i].rejected.publish()
		m.rules[i].marked.publish()
		m.rules[i].warnings.count = n.Warnings(i)
		m.rules[i].warnings.publish()
	}
	t := &n.Tallies
	counts := [...]uint64{t.LostRaces, t.GivenUp, t.Lost, t.Evicted, t.Corrupt, t.Pushed, r.badCosts, t.Failed, t.Waited, t.Alone, t.Crowded, t.Late, r.unreadCosts, r.unreadBodies, r.cutStreams, r.absentCosts, h.lost, t.Blocked, t.Delayed, r.unknownModels, t.Advanced}
	for i := range m.namespace {
		m.namespace[i].count = counts[i]
		m.namespace[i].publish()
	}
}
