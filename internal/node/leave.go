package node

// Leave pushes everything, whether or not it is due. Call it once no request waits. It begins now,
// and the following ticks push the rest, until Left returns true. Further calls do nothing.
func (n *Node) Leave() {
	if n.callouts.leaving {
		return
	}
	n.asks.drop()
	n.callouts.leaving, n.leaveBy = true, n.link.hostNow()+leaveNanos
	n.advances.end()
	n.pushes.pushAll()
	n.tellUsage(true)
}

// Left reports whether a leaving node has pushed everything, or has waited long enough for the
// backend.
func (n *Node) Left() bool {
	left := n.leaveBy - n.link.hostNow()
	return !n.Unfinished() || left < 0 || left > leaveNanos
}

// Inherit takes over everything that another node of the same namespace and backend has not
// finished. No request may wait for that node any more. The answers to its callouts may never come,
// so its batches are sent again unchanged. For rules that do not synchronise here, its hits are
// pushed and its leases go back.
func (n *Node) Inherit(from *Node) {
	from.asks.drop()
	for i := range from.rules.list {
		n.rules.succeed(&from.rules.list[i])
		n.rules.dismiss(&from.rules.list[i])
	}
	// The other node may itself have inherited rules.
	for _, r := range from.keys.dirty.rules {
		n.rules.dismiss(r)
	}
	for _, b := range from.callouts.batches {
		for i := range b.items {
			n.rules.dismiss(b.items[i].rule)
		}
		for _, t := range b.asks {
			for i := range t.parts {
				n.rules.dismiss(t.parts[i].Rule)
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
	n.callouts.batches = append(from.callouts.batches, n.callouts.batches...)
	n.keys.inherit(&from.keys)
	n.accounts.inherit(&from.accounts)
	from.callouts.batches = nil
}
