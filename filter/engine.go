package filter

import (
	"weir/internal/node"
	"weir/internal/proxywasm"
)

// engine is the node that decides, and who hears of what responses have cost.
type engine struct {
	node     *node.Node // nil if the plugin has not started
	observed *observed
}

// now is the time by the backend's clock, as far as that is known.
func (e *engine) now() int64 { return e.node.Time(proxywasm.Now()) }

// force counts what a response costs.
func (e *engine) force(s *node.Saved, now int64) {
	e.node.ForceSaved(s, now)
	tellCharged(e.observed, s.Rule.Index, int64(s.Cost))
}

// revise has a charge cost what the response has told, in the place of what was taken.
func (e *engine) revise(c *node.Charge, cost uint64, now int64) {
	if cost != c.Cost {
		tellCharged(e.observed, c.Rule.Index, int64(cost-c.Cost))
	}
	e.node.Revise(c, cost, now)
}
