package engine

import (
	"weir/internal/engine/credit"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/window"
)

// pushes sends counted hits to the backend.
type pushes struct {
	tallies *entry.Tallies
	link    *link.Link
	rules   *rule.Set
	entries *entry.Entries
	outbox  *outbox

	credit *credit.Credit

	hasty   bool        // the orphans are for [Engine.PushCharges]
	crowded bool        // due keys wait because too many batches are unanswered
	all     bool        // everything is due
	push    window.Push // for an item
	check   rule.Check  // of the key that is pushed
}

// probe tests whether the backend is back, if there is something for it and no failed batch will
// test it.
func (p *pushes) probe() {
	if len(p.outbox.batches) == 0 && p.entries.Unpushed() > 0 && p.link.Enter(p.link.HostNow()) {
		p.outbox.postEmpty()
	}
}

// pushDue claims the keys that are due, and sends them. It returns false if time ran out. It
// returns true if they have to wait for answers, since hurrying would not help.
func (p *pushes) pushDue(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	p.crowded = false
	for ; ; handled++ {
		orphan := p.entries.Orphans.Next(p.outbox.away)
		if !orphan && !p.credit.Hits.DueAt(now, p.all) {
			break
		}
		if b = p.room(b); b == nil || p.link.Late(handled, deadline) {
			p.outbox.send(b)
			p.crowded = b == nil
			return b == nil
		}
		if orphan {
			p.addOrphan(b)
		} else {
			p.addAdvanced(b)
		}
	}
	done = p.entries.Dirty.Visit(now, p.all, func() bool { return p.link.HostNow() >= deadline }, func(key *entry.DirtyKey, r *rule.Rule) entry.Fate {
		if b = p.room(b); b == nil || p.link.Late(handled, deadline) {
			p.crowded = b == nil
			return entry.Stop
		}
		handled++
		return p.claim(b, key, r, now)
	})
	p.outbox.send(b)
	return done || p.crowded
}

// addOrphan adds to a batch the orphan that Next has found.
func (p *pushes) addOrphan(b *batch) {
	o := p.entries.Orphans.Take()
	b.add(&o.Item, pushed{}, o.Ends)
}

// retire puts the remaining advanced hits in pushes, with the notice that the worker has no part
// any more.
func (p *pushes) retire() {
	p.credit.End()
	for owes := p.credit.Owes && p.credit.Knows; owes || len(p.credit.Hits.Unsent) > 0; owes = false {
		b := p.outbox.newBatch()
		for len(p.credit.Hits.Unsent) > 0 && !b.full() {
			p.addAdvanced(b)
		}
		b.ends = max(b.ends, p.link.Now()+link.LongestPause)
		p.outbox.seal(b)
		b.state = failed
	}
}

// addAdvanced adds the last of the unsent advanced hits to a batch.
//
//go:noinline
func (p *pushes) addAdvanced(b *batch) {
	h := p.credit.Hits.Send()
	b.ahead++
	ends := h.Ends()
	for i := range h.Rule.Limits {
		h.Push(i, &p.push)
		wanted := entry.Item(h.ID, &h.Rule.Limits[i], &p.push)
		b.add(&wanted, pushed{address: h.Address, rule: h.Rule, limit: int32(i), ahead: h}, ends)
		b.hits += p.push.Added()
		p.tallies.Pushed += p.push.Added()
	}
}

// pushAll is [Engine.PushAll].
func (p *pushes) pushAll() (done bool) {
	for _, b := range p.outbox.batches {
		if b.state == failed {
			p.outbox.post(b)
		}
	}
	p.all = true // in this visit
	start := p.link.HostNow()
	for !p.pushDue(p.link.ToBackend(start), start+tickNanos) && p.link.HostNow() < start+leaveNanos {
	}
	p.all = p.outbox.leaving
	return !p.crowded && len(p.entries.Orphans)+len(p.credit.Hits.Unsent) == 0
}

// room returns a batch with room for another key: b, or a new batch after sending a full b. It is
// nil if too many batches are unanswered.
func (p *pushes) room(b *batch) *batch {
	if b != nil && !b.full() {
		return b
	}
	p.outbox.send(b)
	if p.outbox.crammed() {
		return nil
	}
	return p.outbox.newBatch()
}

// claim moves a key's pending hits in flight, and adds them to a batch. It gives back the part of a
// lease that is no longer of use. If a lease stays, it asks for the key's totals, because the hits
// of others may make the lease too large.
func (p *pushes) claim(b *batch, key *entry.DirtyKey, r *rule.Rule, now int64) entry.Fate {
	d := p.entries.At(&p.check, r, key.Address)
	becomes, claimed := entry.Drop, false
	if !p.entries.Update(d, entry.AsStored, now, func() (writes, lists bool) {
		becomes, claimed = entry.Drop, false
		if !d.Slot.Found() || d.Counter.Sync().Due != key.Due {
			return false, false // evicted with its hits rescued, or adopted by another worker
		}
		if p.outbox.away.Has(d.Counter.Sync().ID) {
			becomes = entry.Retry
			return false, false
		}
		d.Counter.Advance(now)
		changed := d.Counter.Pending() // read before a returned lease can cancel out pending hits
		dismissed := p.dismissed(r)
		leases := d.Counter.Review(now) && !dismissed
		if dismissed {
			d.Counter.ReturnLeases()
		}
		if p.outbox.leaving {
			d.Counter.Abandon()
		}
		pending := d.Counter.Pending()
		watched := r.Watched && !dismissed && d.Counter.ForgetAt() > now
		if !pending && !watched && !leases {
			return changed, false
		}
		if claimed = d.Counter.Claim(now); !claimed {
			becomes = entry.Retry
		} else if watched || leases {
			becomes = entry.Stay
		}
		return claimed, false
	}) {
		return entry.Retry
	}
	if claimed {
		p.addClaimed(b, d)
		key.Due = d.Counter.Sync().Due
	}
	return becomes
}

// dismissed reports whether a rule's hits are pushed for the last time, and its leases go back.
func (p *pushes) dismissed(r *rule.Rule) bool { return p.outbox.leaving || p.rules.Dismissed(r) }

// addClaimed adds a claimed key's hits in flight to a batch.
func (p *pushes) addClaimed(b *batch, d *rule.Check) {
	for i := range d.Counter.States {
		d.Counter.Outgoing(i, &p.push)
		l := &d.Rule.Limits[i]
		if !l.Kind.Bucketed() && p.push.Newest < uint64(len(p.push.Hits)-1) {
			continue // an impossible time: the backend would refuse the batch
		}
		wanted := entry.Item(d.Counter.Sync().ID, l, &p.push)
		b.add(&wanted, pushed{address: d.Address, rule: d.Rule, limit: int32(i), claim: d.Counter.Sync().Claimed}, d.Counter.PushEnds(i))
		b.hits += p.push.Added()
		p.tallies.Pushed += p.push.Added()
	}
	d.Counter.ClaimedOthers(p.entries.KeepOrphan)
}

// unfinished reports whether the backend has yet to hear of any hits.
func (p *pushes) unfinished() bool {
	return p.entries.Unpushed()+len(p.outbox.batches)+len(p.credit.Hits.Unsent) > 0
}

// leaveNanos is how long a node that is no longer wanted waits for the backend's answers, in
// nanoseconds.
const leaveNanos = int64(5e9)

// pushCharges is [Engine.PushCharges].
func (p *pushes) pushCharges() {
	if len(p.entries.Hasty) == 0 && !p.hasty {
		return
	}
	if p.link.Open() {
		p.entries.Hasty = p.entries.Hasty[:0] // they are pushed when they are due
		p.hasty = false
		return
	}
	var b *batch
	for len(p.entries.Hasty) > 0 {
		if b = p.room(b); b == nil {
			return
		}
		r, at := p.entries.Hasty.Take()
		p.claimPending(b, p.entries.At(&p.check, r, at))
	}
	for ; p.hasty && len(p.entries.Orphans) > 0; p.addOrphan(b) {
		if b = p.room(b); b == nil {
			return
		}
	}
	p.hasty = false
	p.outbox.send(b)
}

// claimPending adds the pending hits of a check's key to a batch, unless its last push has no
// answer yet or other workers win every race.
func (p *pushes) claimPending(b *batch, d *rule.Check) {
	now := p.link.Now()
	claimed := false
	if p.entries.Update(d, 0, now, func() (writes, lists bool) {
		claimed = d.Slot.Found() && d.Counter.Pending() && d.Counter.Identified() && d.Counter.Claim(now)
		return claimed, claimed && d.Counter.Own(false, now) // whoever was to review a lease does not know the new due time
	}) && claimed {
		p.addClaimed(b, d)
	}
}
