package node

// Leave has everything pushed, whether or not it is due. Call it when nobody waits any more. It
// begins now; what is not possible at once is pushed at the ticks to come, until the node has left.
// Another call does nothing.
func (n *Node) Leave() {
	if n.callouts.leaving {
		return
	}
	n.asks.drop()
	n.callouts.leaving, n.leaveBy = true, n.link.hostNow()+leaveNanos
	n.advances.end()
	n.pushes.pushAll()
	n.accounts.tell(true)
}

// Left reports whether a node that leaves has nothing left to push, or has waited long enough for
// the backend.
func (n *Node) Left() bool {
	left := n.leaveBy - n.link.hostNow()
	return !n.Unfinished() || left < 0 || left > leaveNanos
}

// Inherit takes over what a node of the same namespace and backend leaves, once nobody waits for
// that any more. Its callouts may never be answered, so its batches are sent again, as they are.
// For rules that do not synchronise here, counted hits are pushed, and leases go back.
func (n *Node) Inherit(from *Node) {
	from.asks.drop()
	for i := range from.rules.list {
		n.rules.succeed(&from.rules.list[i])
		n.rules.dismiss(&from.rules.list[i])
	}
	// Others were inherited, too.
	for _, r := range from.pushes.dirty.rules {
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
	n.keys.orphans = append(n.keys.orphans, from.keys.orphans...)
	n.pushes.dirty.inherit(&from.pushes.dirty)
	n.accounts.inherit(&from.accounts)
	from.callouts.batches, from.keys.orphans = nil, nil
}
