package node

import (
	"bytes"
)

// Release has nobody wait any more: all are decided without the backend.
func (n *Node) Release() {
	n.dropWishes()
	for len(n.waiting) > 0 {
		if w := n.waiting[0]; w.waits() {
			n.giveUpOn(w)
		} else {
			n.forget(w)
		}
	}
	n.released = nil
}

// Leave has everything pushed, whether or not it is due. It begins now; what is not possible at
// once is pushed at the ticks to come, until the node has left.
func (n *Node) Leave() {
	n.leaving, n.leaveBy = true, n.hostNow()+leaveNanos
	n.PushAll()
}

// Left reports whether a node that leaves has nothing left to push, or has waited long enough for
// the backend.
func (n *Node) Left() bool {
	left := n.leaveBy - n.hostNow()
	return !n.Unfinished() || left < 0 || left > leaveNanos
}

// Inherit takes over what a node of the same namespace and backend leaves. Its callouts may never
// be answered, so its batches are sent again, as they are. Of rules that do not synchronise here, what
// was counted is pushed, and leases go back.
func (n *Node) Inherit(from *Node) {
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
