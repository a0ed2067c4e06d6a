package engine

// Leave pushes everything, whether or not it is due. Call it once no request waits. It begins now,
// and the following ticks push the rest, until Left returns true. Further calls do nothing.
func (e *Engine) Leave() {
	if e.callouts.leaving {
		return
	}
	e.asks.drop()
	e.callouts.leaving, e.leaveBy = true, e.link.HostNow()+leaveNanos
	e.advances.End()
	e.pushes.pushAll()
	e.tellUsage(true)
}

// Left reports whether a leaving node has pushed everything, or has waited long enough for the
// backend.
func (e *Engine) Left() bool {
	left := e.leaveBy - e.link.HostNow()
	return !e.Unfinished() || left < 0 || left > leaveNanos
}

// Inherit takes over everything that another node of the same namespace and backend has not
// finished. No request may wait for that node any more. The answers to its callouts may never come,
// so its batches are sent again unchanged. For rules that do not synchronise here, its hits are
// pushed and its leases go back.
func (e *Engine) Inherit(from *Engine) {
	from.asks.drop()
	for i := range from.rules.List {
		e.rules.Succeed(&from.rules.List[i])
		e.rules.Dismiss(&from.rules.List[i])
	}
	// The other node may itself have inherited rules.
	for _, r := range from.keys.Dirty.Rules {
		e.rules.Dismiss(r)
	}
	for _, b := range from.callouts.batches {
		for i := range b.items {
			e.rules.Dismiss(b.items[i].rule)
		}
		for _, t := range b.asks {
			for i := range t.parts {
				e.rules.Dismiss(t.parts[i].Rule)
			}
		}
	}
	from.pushes.retire()
	for _, b := range from.callouts.batches {
		if b.state == sent {
			b.state = failed
		}
		from.callouts.ended(b)
		b.retryAt = 0
	}
	e.callouts.batches = append(from.callouts.batches, e.callouts.batches...)
	e.keys.Inherit(&from.keys)
	e.accounts.Inherit(&from.accounts)
	from.callouts.batches = nil
}
