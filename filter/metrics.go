package filter

import (
	"weir/config"
	"weir/internal/engine"
)

// metrics are the metrics of a plugin context. Their names contain labels, as Istio's do: the text
// between weir_rule=.= and ;.; is the rule, even if the namespace has dots. Envoy's stats_tags, or
// Istio's extraStatTags, extract the labels from the name.
type metrics struct {
	rules []rule // with the metrics of each
	// namespace are the metrics without a rule, in the order of metricNames.
	namespace [len(metricNames)]tally
	// overrides is how many are applied, and unfit how many don't fit their rules.
	overrides, unfit gauge
	// places is how many requests of the process hold; longest is for how many seconds.
	places, longest gauge
}

func (m *metrics) defineAll(c *config.Config, rules *rules) {
	namespace := "weir." + label("weir_namespace", c.Namespace)
	m.rules = rules.list
	for i := range m.rules {
		r := &m.rules[i]
		prefix := namespace + label("weir_rule", r.config.Name)
		// A shadow rule rejects nobody, so its counters must not look like rejections.
		allowed, rejected := "allowed", "rejected"
		if r.config.Shadow {
			allowed, rejected = "shadow_allowed", "shadow_rejected"
		}
		r.allowed.define(prefix + label("weir_outcome", allowed) + "requests_total")
		r.rejected.define(prefix + label("weir_outcome", rejected) + "requests_total")
		if !r.config.Shadow {
			r.rejectedByOther.define(prefix + label("weir_outcome", "rejected_by_other") + "requests_total")
		}
		if r.limits.Marks {
			r.marked.define(prefix + label("weir_outcome", "marked") + "requests_total")
		}
		if len(r.config.WarnAt) > 0 {
			r.warnings.define(prefix + "warnings_total")
		}
		if r.limits.Synced() && !r.config.Shadow {
			r.overshoot.define(prefix + "overshoot_bound")
		}
	}
	for i := range m.namespace {
		m.namespace[i].define(namespace + metricNames[i] + "_total")
	}
	if rules.holds {
		m.places.define(namespace + "held_places")
		m.longest.define(namespace + "longest_held_seconds")
	}
	if c.Backend.Cluster != "" {
		m.overrides.define(namespace + "overrides")
		m.unfit.define(namespace + "unfit_overrides")
	}
}

func label(name, value string) string { return name + "=.=" + value + ";.;" }

// metricNames are in the order in which publishCounts sets them.
var metricNames = [...]string{
	"lost_races", "given_up", "lost_hits", "evicted_counters", "corrupt_entries", "pushed_hits", "bad_costs", "failed_pushes",
	"waited_requests", "decided_alone", "crowded_requests", "late_requests",
	"unread_costs", "unread_bodies", "cut_streams", "absent_costs", "lost_places", "blocked_keys", "delayed_requests", "unknown_models",
	"advanced_hits",
}

// publishBounds publishes by how much the nodes that share the limits can exceed them, and how many
// overrides apply.
func (m *metrics) publishBounds(n *engine.Engine) {
	applied, unfit := n.Overrides()
	m.overrides.set(uint64(applied))
	m.unfit.set(uint64(unfit))
	for i := range m.rules {
		m.rules[i].overshoot.set(n.Overshoot(i))
	}
}

// publishCounts publishes the counts of the engine and of the requests.
func (m *metrics) publishCounts(n *engine.Engine, r *request, h *holders) {
	for i := range m.rules {
		rule := &m.rules[i]
		rule.allowed.publish()
		rule.rejected.publish()
		rule.rejectedByOther.publish()
		rule.marked.publish()
		rule.warnings.count = n.Warnings(i)
		rule.warnings.publish()
	}
	t := &n.Tallies
	counts := [...]uint64{t.LostRaces, t.GivenUp, t.Lost, t.Evicted, t.Corrupt, t.Pushed, r.badCosts, t.Failed, t.Waited, t.Alone, t.Crowded, t.Late, r.unreadCosts, r.unreadBodies, r.cutStreams, r.absentCosts, h.lost, t.Blocked, t.Delayed, r.unknownModels, t.Advanced}
	for i := range m.namespace {
		m.namespace[i].count = counts[i]
		m.namespace[i].publish()
	}
}
