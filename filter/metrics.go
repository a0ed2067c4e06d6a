package filter

import (
	"weir/config"
	"weir/internal/engine"
	"weir/internal/wire"
)

// metrics are the metrics of a plugin context. Their names contain labels, as Istio's do: the text
// between weir_rule=.= and ;.; is the rule, even if the namespace has dots. Envoy's stats_tags, or
// Istio's extraStatTags, extract the labels from the name.
type metrics struct {
	rules []rule // with the metrics of each
	// namespace are the metrics without a rule, in the order of metricNames.
	namespace [len(metricNames)]tally
	// overrides is how many are applied, and unfit how many don't fit their rules.
	overrides, unfit *gauge
	// places is how many requests of the process hold; longest is for how many seconds.
	places, longest *gauge
	// prefix begins the names of all.
	prefix string
	gauges *gauges // of all plugin contexts
}

func (m *metrics) defineAll(c *config.Config, rules *rules) {
	namespace := "weir." + label("weir_namespace", c.Namespace)
	m.rules, m.prefix = rules.list, namespace
	m.gauges.contexts = append(m.gauges.contexts, m)
	for i := range m.rules {
		r := &m.rules[i]
		r.prefix, r.metrics = namespace+label("weir_rule", r.config.Name), m
		r.define()
	}
	for i := range m.namespace {
		m.namespace[i].define(namespace + metricNames[i] + "_total")
	}
	if rules.holds {
		m.places = m.defineGauge(namespace + "held_places")
		m.longest = m.defineGauge(namespace + "longest_held_seconds")
	}
	if c.Backend.Cluster != "" {
		m.overrides = m.defineGauge(namespace + "overrides")
		m.unfit = m.defineGauge(namespace + "unfit_overrides")
	}
}

// define defines the metrics of the rule's mode, those that are not defined yet. A shadow rule rejects
// nobody, so its counters must not look like rejections.
func (r *rule) define() {
	switch r.mode {
	case wire.Off:
		r.defineOutcome(&r.off, "off")
	case wire.Shadow:
		r.defineOutcome(&r.wouldAllow, "shadow_allowed")
		r.defineOutcome(&r.wouldReject, "shadow_rejected")
	default:
		r.defineOutcome(&r.allowed, "allowed")
		r.defineOutcome(&r.rejected, "rejected")
		r.defineOutcome(&r.rejectedByOther, "rejected_by_other")
		if r.limits.Marks {
			r.defineOutcome(&r.marked, "marked")
		}
		if r.limits.Fair && !r.uneven.defined {
			r.uneven.define(r.prefix + "uneven_requests_total")
		}
		if r.limits.Synced() && r.overshoot == nil {
			r.overshoot = r.metrics.defineGauge(r.prefix + "overshoot_bound")
		}
	}
	if len(r.config.WarnAt) > 0 && !r.warnings.defined {
		r.warnings.define(r.prefix + "warnings_total")
	}
}

func (r *rule) defineOutcome(t *tally, outcome string) {
	if !t.defined {
		t.define(r.prefix + label("weir_outcome", outcome) + "requests_total")
	}
}

func label(name, value string) string { return name + "=.=" + value + ";.;" }

// metricNames are in the order in which publishCounts sets them.
var metricNames = [...]string{
	"lost_races", "given_up", "lost_hits", "evicted_counters", "corrupt_entries", "pushed_hits", "bad_costs", "failed_pushes",
	"waited_requests", "decided_alone", "crowded_requests", "late_requests",
	"unread_costs", "unread_bodies", "cut_streams", "absent_costs", "lost_places", "blocked_keys", "delayed_requests", "unknown_models",
	"advanced_hits", "upstream_holds",
}

// publishBounds publishes by how much the nodes that share the limits can exceed them, and how many
// overrides apply. A plugin context that only starts, as Envoy tries a configuration out, does not know that.
func (m *metrics) publishBounds(n *engine.Engine) {
	applied, unfit := n.Overrides()
	m.set(m.overrides, uint64(applied))
	m.set(m.unfit, uint64(unfit))
	for i := range m.rules {
		m.set(m.rules[i].overshoot, n.Overshoot(i))
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
		rule.off.publish()
		rule.wouldAllow.publish()
		rule.wouldReject.publish()
		rule.uneven.publish()
		rule.warnings.count = n.Warnings(i)
		rule.warnings.publish()
	}
	t := &n.Tallies
	counts := [...]uint64{t.LostRaces, t.GivenUp, t.Lost, t.Evicted, t.Corrupt, t.Pushed, r.badCosts, t.Failed, t.Waited, t.Alone, t.Crowded, t.Late, r.unreadCosts, r.unreadBodies, r.cutStreams, r.absentCosts, h.lost, t.Blocked, t.Delayed, r.unknownModels, t.Advanced, r.upstreamHolds}
	for i := range m.namespace {
		m.namespace[i].count = counts[i]
		m.namespace[i].publish()
	}
}
