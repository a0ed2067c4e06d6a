package node

import (
	"weir/window"
)

// enlist has a key pushed when it is due.
//
//go:noinline
func (n *Node) enlist(d *Demand) { n.dirty.add(d.address, d.Rule, d.Counter.Sync().Due) }

// probe looks whether the backend is back, if there is something for it, and no batch to be sent
// again that would tell.
func (n *Node) probe() {
	if len(n.batches) == 0 && n.dirty.count+len(n.orphans) > 0 && n.link.enter(n.hostNow(), n.options.Timeout) {
		n.postEmpty()
	}
}

// pushDue claims the keys that are due and sends them. It reports false if there are more; not if
// they have to wait because too many batches are out, as there is nothing to hurry for until one of
// them is answered.
func (n *Node) pushDue(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	n.crowded = false
	for ; len(n.orphans) > 0; handled++ {
		if b = n.room(b); b == nil || n.late(handled, deadline) {
			n.send(b)
			n.crowded = b == nil
			return b == nil
		}
		n.addOrphan(b)
	}
	keys := &n.dirty
	for keys.more() {
		if !n.all && keys.calm(now) {
			keys.skip()
			continue
		}
		for {
			key, ok := keys.next()
			if !ok {
				break
			}
			if wake, waits := n.notDue(key, now); waits {
				keys.keep(*key, now, wake)
				continue
			}
			if b = n.room(b); b == nil || n.late(handled, deadline) {
				n.send(b)
				n.crowded = b == nil
				return b == nil
			}
			handled++
			n.pushKey(b, *key, now)
		}
		keys.skip()
		if keys.block < len(keys.blocks) && n.hostNow() >= deadline {
			n.send(b)
			return false
		}
	}
	keys.rewind()
	n.send(b)
	return true
}

// addOrphan adds the newest orphan to a batch.
func (n *Node) addOrphan(b *batch) {
	last := &n.orphans[len(n.orphans)-1]
	b.add(&last.item, pushed{}, last.ends)
	n.orphans = n.orphans[:len(n.orphans)-1]
}

// PushAll pushes what was counted, whether or not it is due, and sends again what has failed,
// without a pause. It reports false if there is more, for which pushes have to be answered first.
func (n *Node) PushAll() (done bool) {
	for _, b := range n.batches {
		if b.state == failed {
			n.post(b)
		}
	}
	n.all = true // in this visit
	start := n.hostNow()
	for !n.pushDue(start+n.link.offset, start+tickNanos) && n.hostNow() < start+leaveNanos {
	}
	n.all = n.leaving
	return !n.crowded && len(n.orphans) == 0
}

// notDue reports whether a key is not due yet, and since when it may be.
func (n *Node) notDue(key *dirtyKey, now int64) (wake int64, waits bool) {
	if n.all {
		return 0, false
	}
	r := n.dirty.rules[key.rule]
	if !key.due.Passed(now, r.Interval) {
		return now + key.due.In(now) - dueSlack, true
	}
	return key.notBefore, key.notBefore > now && key.notBefore-now <= r.Interval
}

// pushKey claims the key that is being visited, and keeps it if there is more to do for it later.
func (n *Node) pushKey(b *batch, key dirtyKey, now int64) {
	switch r := n.dirty.rules[key.rule]; n.claim(b, &key, r, now) {
	case claimLater:
		key.notBefore = now + r.Interval
		n.dirty.keep(key, now, 0)
	case claimReview:
		n.dirty.keep(key, now, 0)
	case claimDone:
		n.dirty.forget()
	}
}

// room is a batch with room for one more key: b, or if that is full another one, after sending b.
// It is nil if too many batches are out.
func (n *Node) room(b *batch) *batch {
	if b != nil && !b.full() {
		return b
	}
	n.send(b)
	if n.crammed() {
		return nil
	}
	return n.newBatch()
}

// claiming says what becomes of a key that was due.
type claiming uint8

const (
	// claimDone keys are forgotten.
	claimDone claiming = iota
	// claimReview keys are looked at again at their new due time: they have a lease, or are
	// watched.
	claimReview
	// claimLater keys can't be claimed yet.
	claimLater
)

// claim moves a key's pending hits in flight and adds them to a batch. Of a lease, what is of no use
// any more is given back. If it stays, the backend is asked for the key's totals, as what others have
// taken may make it too large.
func (n *Node) claim(b *batch, key *dirtyKey, r *Rule, now int64) claiming {
	d := n.at(r, key.address)
	for range n.table.Attempts() {
		n.fetch(d)
		if !d.slot.Found() || d.Counter.Sync().Due != key.due {
			return claimDone // evicted, and its hits rescued; or another worker has it
		}
		d.Counter.Advance(now)
		changed := d.Counter.Pending() // a lease that goes back may be as large as what is pending
		dismissed := n.dismissed(r)
		leases := d.Counter.Review(now) && !dismissed
		if dismissed {
			d.Counter.ReturnLeases()
		}
		if n.leaving {
			d.Counter.Abandon()
		}
		pending := d.Counter.Pending()
		watched := r.Watched && !dismissed && d.Counter.ForgetAt() > now
		if !pending && !watched && !leases {
			if changed && !n.write(d, now) {
				continue
			}
			return claimDone
		}
		if !d.Counter.Claim(now) {
			return claimLater
		}
		if !n.write(d, now) {
			continue
		}
		n.addClaimed(b, d)
		if watched || leases {
			key.due = d.Counter.Sync().Due
			return claimReview
		}
		return claimDone
	}
	return claimLater
}

// dismissed reports whether what a rule has is to be pushed for the last time, and its leases go back.
func (n *Node) dismissed(r *Rule) bool { return n.leaving || r.dismissed }

// addClaimed adds what a claimed key has in flight to a batch.
func (n *Node) addClaimed(b *batch, d *Demand) {
	for i := range d.Counter.States {
		d.Counter.Outgoing(i, &n.push)
		l := &d.Rule.Limits[i]
		if !l.Kind.Bucketed() && n.push.Newest < uint64(len(n.push.Hits)-1) {
			continue // a time that no clock had: the backend would refuse the batch
		}
		wanted := item(d.Counter.Sync().ID, l, &n.push)
		b.add(&wanted, pushed{address: d.address, rule: d.Rule, limit: int32(i), claim: d.Counter.Sync().Claimed}, d.Counter.PushEnds(i))
		b.hits += n.push.Added()
		n.Tallies.Pushed += n.push.Added()
	}
	d.Counter.ClaimedOthers(func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		if !n.keepOrphan(id, l, push, ends) {
			n.Tallies.Lost += push.Added()
		}
	})
}

// Unfinished reports whether there is anything that the backend has yet to hear of.
func (n *Node) Unfinished() bool { return n.dirty.count+len(n.orphans)+len(n.batches) > 0 }
