package observe

import (
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/window"
)

// Figures are those of a rule, for people.
type Figures struct {
	// Warnings is how often a key was at a share of a limit from which on the rule warns.
	Warnings uint64
	// Overshoot is [Engine.Overshoot].
	Overshoot uint64
}

// Figures are those of a rule.
func (w *Observer) Figures(rule int) (f Figures) {
	f.Warnings = w.warned[rule]
	if r := &w.rules.List[rule]; r.Synced() {
		now := w.link.Now()
		f.Overshoot = min(w.admittedAlone(r, now)+r.Excess.At(now), window.MaxHits)
	}
	return f
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
