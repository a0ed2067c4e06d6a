package filter

import (
	"weir/config"
	"weir/internal/counter"
	"weir/internal/node"
	"weir/internal/proxywasm"
)

// tally counts in the VM, and is added to the proxy's metric when it is published. A host call for
// each count would cost more than the decision that it counts.
type tally struct {
	_ [0]func() // or else Go makes a function that compares values

	metric  proxywasm.Metric
	defined bool
	// published is how much of the count the metric has.
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

// metrics are those of a plugin context. Their names have the labels in them, as Istio's have. The
// text between weir_rule=.= and ;.; is the rule, whatever dots the namespace has. Envoy cuts the
// labels out of the name if it has stats_tags, or Istio's extraStatTags.
type metrics struct {
	rules []ruleMetrics
	// namespace are those that are not of a rule, in the order of metricNames.
	namespace [len(metricNames)]tally
	// overrides counts those that are applied, and unfit those that can't be.
	overrides, unfit gauge
	// places are held by requests of the process, longest for so many seconds.
	places, longest gauge
}

type ruleMetrics struct {
	allowed, rejected tally
	marked            tally // passed though the rule had no room
	warnings          tally
	// overshoot is the most hits above a limit that nodes can admit together as things stand.
	overshoot gauge
}

// count counts a request that the rule lets pass, or not.
func (r *ruleMetrics) count(verdict counter.Verdict) {
	if verdict == counter.Allowed {
		r.allowed.count++
	} else {
		r.rejected.count++
	}
}

// gauge is a number of the proxy.
type gauge struct {
	_ [0]func() // or else Go makes a function that compares values

	metric  proxywasm.Metric
	defined bool
	value   uint64 // that was set last
}

func (g *gauge) define(name string) { g.metric, g.defined = proxywasm.DefineGauge(name), true }

func (g *gauge) set(n uint64) {
	if g.defined && n != g.value {
		g.value = n
		g.metric.Set(n)
	}
}

// define defines the metrics of a configuration, and of its rules as they count.
func (m *metrics) define(c *config.Config, rules []node.Rule) {
	namespace := "weir." + label("weir_namespace", c.Namespace)
	m.rules = make([]ruleMetrics, len(c.Rules))
	for i := range c.Rules {
		prefix := namespace + label("weir_rule", c.Rules[i].Name)
		// Nobody is rejected by a shadow rule, so that it must not look like it.
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

// metricNames are in the order in which publish counts.
var metricNames = [...]string{
	"lost_races", "given_up", "lost_hits", "evicted_counters", "corrupt_entries", "pushed_hits", "bad_costs", "failed_pushes",
	"waited_requests", "decided_alone", "crowded_requests", "late_requests",
	"unread_costs", "unread_bodies", "cut_streams", "absent_costs", "lost_places", "blocked_keys", "delayed_requests", "unknown_models",
	"advanced_hits",
}

// bound has the proxy's metrics say by how much the nodes that share the limits can exceed them, and
// which limits have moved.
func (m *metrics) bound(n *node.Node) {
	applied, unfit := n.Overrides()
	m.overrides.set(uint64(applied))
	m.unfit.set(uint64(unfit))
	for i := range m.rules {
		m.rules[i].overshoot.set(n.Overshoot(i))
	}
}

// publish has the proxy's metrics say what was counted, by the engine and of requests.
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
