package filter

import (
	"weir/internal/engine"
	"weir/internal/proxywasm"
)

// decider is the engine that decides, and the observer of costs.
type decider struct {
	node     *engine.Engine // nil if the plugin has not started
	observed *observed
}

// now is the time by the backend's clock if that is known, in nanoseconds.
func (e *decider) now() int64 { return e.node.Time(proxywasm.Now()) }

// force charges a response's cost whether or not there is room.
func (e *decider) force(s *engine.Ref, now int64) {
	e.node.ForceRef(s, now)
	if !s.Rule.Bounds() {
		tellCharged(e.observed, s.Rule.Index, int64(s.Cost))
	}
}

// revise replaces the hits of a charge by the response's cost.
func (e *decider) revise(c *engine.Charge, cost uint64, now int64) {
	if cost != c.Cost && !c.Rule.Bounds() {
		tellCharged(e.observed, c.Rule.Index, int64(cost-c.Cost))
	}
	e.node.Charges.Revise(c, cost, now)
}
