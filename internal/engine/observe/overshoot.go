package observe

import (
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/window"
)

// Figures are those of a rule for people: [Engine.Warnings] and [Engine.Overshoot].
func (w *Observer) Figures(rule int) (warnings, overshoot uint64) {
	if r := &w.rules.List[rule]; r.Synced() {
		now := w.link.Now()
		overshoot = min(w.admittedAlone(r, now)+r.Excess.At(now), window.MaxHits)
	}
	return w.warned[rule], overshoot
}

// admittedAlone is how many hits nodes without the backend may admit above a rule's limits.
func (w *Observer) admittedAlone(r *rule.Rule, now int64) (hits uint64) {
	if w.failure == failure.Deny {
		return 0
	}
	nodes, hits := w.rules.Nodes, r.Quota()
	if r.Advances {
		hits += hits / 2 // the advanced hits of all nodes
	}
	switch peak, counts := w.link.CountsAlone(now, r.Lasts()); {
	case counts:
		nodes, hits = max(nodes, peak), max(hits, w.rules.Before(r.Index))
	case !w.link.Open():
		return 0
	}
	if w.failure == failure.Allow || nodes == 0 {
		return window.MaxHits // the number of nodes is unknown
	}
	if !r.Forgets() {
		nodes-- // this node keeps to the limit
	}
	return min(hits*nodes, window.MaxHits)
}
