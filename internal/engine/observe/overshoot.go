package observe

import (
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/window"
)

// Overshoot is [Engine.Overshoot] of a rule, if requests are decided as by says while the backend is away.
func (w *Observer) Overshoot(r *rule.Rule, by failure.Mode) (hits uint64) {
	if !r.Synced() {
		return 0
	}
	now := w.link.Now()
	return min(w.admittedAlone(r, by, now)+r.Excess.At(now), window.MaxHits)
}

// admittedAlone is how many hits nodes without the backend may admit above a rule's limits.
func (w *Observer) admittedAlone(r *rule.Rule, by failure.Mode, now int64) (hits uint64) {
	if by == failure.Deny {
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
	if by == failure.Allow || nodes == 0 {
		return window.MaxHits // the number of nodes is unknown
	}
	if !r.Forgets() {
		nodes-- // this node keeps to the limit
	}
	return min(hits*nodes, window.MaxHits)
}
