package node

import (
	"bytes"
)

// Waits reports whether requests wait. A node that is no longer wanted stays until none does: at the
// ticks to come each gets its answer, or is decided as its time is over.
func (n *Node) Waits() bool { return n.waiting.first != nil }

// Leave has everything pushed, whether or not it is due. Call it when nobody waits any more. It
// begins now; what is not possible at once is pushed at the ticks to come, until the node has left.
// Another call does nothing.
func (n *Node) Leave() {
	if n.leaving {
		return
	}
	n.dropWishes()
	n.leaving, n.leaveBy = true, n.hostNow()+leaveNanos
	n.PushAll()
}

// Left reports whether a node that leaves has nothing left to push, or has waited long enough for
// the backend.
func (n *Node) Left() bool {
	left := n.leaveBy - n.hostNow()
	return !n.Unfinished() || left < 0 || left > leaveNanos
}

// Inherit takes over what a node of the same namespace and backend leaves, once nobody waits for that
// any more. Its callouts may never be answered, so its batches are sent again, as they are. Of rules
// that do not synchronise here, what was counted is pushed, and leases go back.
func (n *Node) Inherit(from *Node) {
	from.dropWishes()
	for i := range from.rules {
		n.succeed(&from.rules[i])
		n.dismiss(&from.rules[i])
	}
	// Others were inherited, too.
	for _, r := range from.dirty.rules {
		n.dismiss(r)
	}
	for _, b := range from.batches {
		for i := range b.items {
			n.dismiss(b.items[i].rule)
		}
		for _, t := range b.takes {
			for i := range t.parts {
				n.dismiss(t.parts[i].rule)
			}
		}
	}
	for _, b := range from.batches {
		if b.state == sent {
			b.state = failed
		}
		from.ended(b)
		b.retryAt = 0
	}
	n.batches = append(from.batches, n.batches...)
	n.orphans = append(n.orphans, from.orphans...)
	n.dirty.inherit(&from.dirty)
	from.batches, from.orphans = nil, nil
}

// succeed takes over what a rule's limits were, which hits may have passed by that still count.
func (n *Node) succeed(old *Rule) {
	for i := range n.rules {
		if r := &n.rules[i]; bytes.Equal(r.Prefix, old.Prefix) {
			r.before = max(r.before, old.before, old.Quota())
		}
	}
}

// dismiss dismisses a rule that this node does not synchronise.
func (n *Node) dismiss(old *Rule) {
	if old == nil || old.dismissed {
		return
	}
	for i := range n.rules {
		if r := &n.rules[i]; r.Synced() && bytes.Equal(r.Prefix, old.Prefix) {
			return
		}
	}
	old.dismissed = true
}
