package credit

import "weir/internal/engine/rule"

// View is what tests of the engine see of a worker's credit.
type View struct {
	Epoch, Version, Divisor uint64
	Limits                  []uint64
	Without                 uint64 // the last push that said the worker has no part
	Out                     int    // keys whose hits are in pushes
}

// View returns the present state.
func (c *Credit) View() View {
	return View{c.epoch, c.version, c.divisor, c.limits, c.without, c.Hits.out}
}

// Allowance returns how many hits of a key a rule may advance. It is for tests.
func (c *Credit) Allowance(r *rule.Rule) uint64 { return c.allowance(r) }

// Each calls visit with the hits that no push has. It is for tests.
func (l *Ledger) Each(visit func(r *rule.Rule, id [16]byte, hits uint64)) {
	for _, h := range l.Unsent {
		visit(h.Rule, h.ID, h.hits)
	}
}
