package engine

import (
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
)

// Leave pushes everything, whether or not it is due. Call it once no request waits. It begins now,
// and the following ticks push the rest, until Left returns true. Further calls do nothing.
func (e *Engine) Leave() {
	if e.rules.Leaving {
		return
	}
	e.acquires.drop()
	e.rules.Leaving, e.leaveBy = true, e.ticks.host.Now()+leaveNanos
	e.credit.End()
	e.pushes.pushAll()
	e.meter.Send(true)
}

// Left reports whether a leaving node has pushed everything and given its part of the limits back, or has
// waited long enough for the backend.
func (e *Engine) Left() bool {
	left := e.leaveBy - e.ticks.host.Now()
	owes := e.credit.End() && e.link.Reach() == link.Near
	return !e.Unfinished() && !owes || left < 0 || left > leaveNanos
}

// Inherit takes over everything that another node of the same namespace and backend has not
// finished. No request may wait for that node any more. The answers to its callouts may never come,
// so its batches are sent again unchanged. For rules that do not synchronise here, its hits are
// pushed and its leases go back.
func (e *Engine) Inherit(from *Engine) {
	from.acquires.drop()
	e.rules.Succeed(&from.rules)
	e.rules.Retain(e.rulesInUse)
	dismiss := func(r *rule.Rule) { e.rules.Dismiss(r, &from.rules) }
	for i := range from.rules.List {
		dismiss(&from.rules.List[i])
	}
	from.rulesInUse(dismiss) // the other node may itself have inherited rules
	from.pushes.retire()
	for _, b := range from.outbox.batches {
		if b.state == sent {
			b.state = failed
		}
		from.outbox.ended(b)
		b.retryAt = 0
	}
	e.outbox.batches = append(from.outbox.batches, e.outbox.batches...)
	e.Tallies.Lost += e.pending.Inherit(&from.pending)
	e.meter.Inherit(&from.meter)
	from.outbox.batches = nil
}

// rulesInUse calls visit with the rules of keys and pushes that are not done; some are nil.
func (e *Engine) rulesInUse(visit func(*rule.Rule)) {
	for _, r := range e.pending.Dirty.Rules {
		visit(r)
	}
	for _, b := range e.outbox.batches {
		for i := range b.items {
			visit(b.items[i].Rule)
		}
		for _, t := range b.asks {
			for i := range t.parts {
				visit(t.parts[i].Rule)
			}
		}
	}
}
