package node

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
	n.leaving, n.leaveBy = true, n.now()+leaveNanos
	n.PushAll()
}

// Left reports whether a node that leaves has nothing left to push, or has waited long enough for
// the backend.
func (n *Node) Left() bool { return !n.Unfinished() || n.now() > n.leaveBy }

// Inherit takes over what a node of the same namespace and backend leaves. Its callouts may never
// be answered, so its batches are sent again, as they are.
func (n *Node) Inherit(from *Node) {
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
