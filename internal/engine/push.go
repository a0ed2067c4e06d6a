package engine

import (
	"weir/internal/engine/credit"
	"weir/internal/engine/entry"
	"weir/internal/engine/feed"
	"weir/internal/engine/jitter"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/pending"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
)

// pushes sends counted hits to the backend.
type pushes struct {
	tallies *entry.Tallies
	link    *link.Link
	rules   *rule.Set
	entries *entry.Entries
	outbox  *outbox

	credit  *credit.Credit
	pending *pending.Pending
	ledger  *ledger.Ledger

	hasty   bool       // the orphans are for [Engine.PushCharges]
	crowded bool       // due keys wait because too many batches are unanswered
	all     bool       // everything is due
	check   rule.Check // of the key that is pushed
}

// pushDue claims the keys that are due, and sends them. It returns false if time ran out. It
// returns true if they have to wait for answers, since hurrying would not help.
func (p *pushes) pushDue(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	p.crowded = false
	next := func() *batch { // nil when time or room is over
		if b = p.room(b); b == nil || late(p.outbox.host, handled, deadline) {
			p.crowded = b == nil
			return nil
		}
		handled++
		return b
	}
	done = p.addOrphans(p.outbox.away, next) && p.addAdvanced(now, p.all, next) && p.pending.Dirty.Visit(now, p.all, func() bool { return p.outbox.host.Now() >= deadline }, func(key *pending.DirtyKey, r *rule.Rule) pending.Fate {
		if next() == nil {
			return pending.Stop
		}
		return p.claim(b, key, r, now)
	})
	p.outbox.send(b)
	return done || p.crowded
}

// addOrphans adds orphans to the batches that room returns, until it returns none. done means that it has added
// all whose partition is not away.
//
//go:noinline
func (p *pushes) addOrphans(away wire.PartitionSet, room func() *batch) (done bool) {
	return p.pending.VisitOrphans(away, func(o *pending.Orphan) pending.Fate {
		b := room()
		if b == nil {
			return pending.Stop
		}
		b.add(&o.Item, pushed{}, o.Ends)
		return pending.Drop
	})
}

// retire puts the remaining advanced hits in pushes, with the notice that the worker has no part
// any more.
func (p *pushes) retire() {
	for more := p.credit.End() || p.ledger.Unpushed() > 0; more; {
		b := p.outbox.newBatch(feed.None)
		more = !p.addAdvanced(0, true, func() *batch {
			if b.full() {
				return nil
			}
			return b
		})
		b.ends = max(b.ends, p.link.Now()+jitter.LongestPause)
		p.outbox.seal(b)
		b.state = failed
	}
}

// addAdvanced adds advanced hits that are due, or all, to the batches that room returns, until it returns none.
//
//go:noinline
func (p *pushes) addAdvanced(now int64, all bool, room func() *batch) (done bool) {
	var b *batch
	return p.ledger.Send(now, all, func() bool {
		if b = room(); b != nil {
			b.ahead++
		}
		return b != nil
	}, func(h *ledger.Hits, limit int, item *wire.Item, hits uint64, ends int64) {
		b.add(item, pushed{address: h.Address, rule: h.Rule, limit: int32(limit), ahead: h}, ends)
		p.tallies.Pushed += hits
		b.hits += hits
	})
}

// pushAll is [Engine.PushAll].
func (p *pushes) pushAll() (done bool) {
	for _, b := range p.outbox.batches {
		if b.state == failed {
			p.outbox.post(b)
		}
	}
	p.all = true // in this visit
	start := p.outbox.host.Now()
	for !p.pushDue(p.link.ToBackend(start), start+tickNanos) && p.outbox.host.Now() < start+leaveNanos {
	}
	p.all = p.rules.Leaving
	_, evicted := p.pending.Unpushed()
	return !p.crowded && evicted+p.ledger.Unpushed() == 0
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
	return p.outbox.newBatch(feed.None)
}

// claim moves a key's pending hits in flight, and adds them to a batch. It gives back the part of a
// lease that is no longer of use. If a lease stays, it asks for the key's totals, because the hits
// of others may make the lease too large.
func (p *pushes) claim(b *batch, key *pending.DirtyKey, r *rule.Rule, now int64) pending.Fate {
	d := p.entries.At(&p.check, r, key.Address)
	becomes, claimed := pending.Drop, false
	if !p.entries.Update(d, entry.AsStored, now, func() (writes, lists bool) {
		becomes, claimed = pending.Drop, false
		if !d.Slot.Found() || d.Counter.Sync().Due != key.Due {
			return false, false // evicted with its hits rescued, or adopted by another worker
		}
		if p.outbox.away.Has(d.Counter.Sync().ID) {
			becomes = pending.Retry
			return false, false
		}
		d.Counter.Advance(now)
		changed := d.Counter.Pending() // read before a returned lease can cancel out pending hits
		dismissed := p.rules.Retires(r)
		leases := d.Counter.Review(now) && !dismissed
		if dismissed {
			d.Counter.ReturnLeases()
		}
		if p.rules.Leaving {
			d.Counter.Abandon()
		}
		watched := r.Watched && !dismissed && d.Counter.ForgetAt() > now
		if !d.Counter.Pending() && !watched && !leases {
			return changed, false
		}
		if claimed = d.Counter.Claim(now); !claimed {
			becomes = pending.Retry
		} else if watched || leases {
			becomes = pending.Stay
		}
		return claimed, false
	}) {
		return pending.Retry
	}
	if claimed {
		p.addClaimed(b, d)
		key.Due = d.Counter.Sync().Due
	}
	return becomes
}

// addClaimed adds a claimed key's hits in flight to a batch.
//
//go:noinline
func (p *pushes) addClaimed(b *batch, d *rule.Check) {
	b.hits += p.entries.Outgoing(d, func(limit int, item *wire.Item, ends int64) {
		b.add(item, pushed{address: d.Address, rule: d.Rule, limit: int32(limit), claim: d.Counter.Sync().Claimed}, ends)
	})
}

// unfinished reports whether the backend has yet to hear of any hits.
func (p *pushes) unfinished() bool {
	keys, evicted := p.pending.Unpushed()
	return keys+evicted+p.ledger.Unpushed()+len(p.outbox.batches) > 0
}

// leaveNanos is how long a node that is no longer wanted waits for the backend's answers, in
// nanoseconds.
const leaveNanos = int64(5e9)

// pushCharges is [Engine.PushCharges].
func (p *pushes) pushCharges() {
	var b *batch
	open := p.link.Reach() != link.Near // they are pushed when they are due
	room := func() *batch {
		b = p.room(b)
		return b
	}
	done := p.pending.VisitHasty(func(r *rule.Rule, at sharedata.Address) pending.Fate {
		switch {
		case open:
		case room() == nil:
			return pending.Stop
		default:
			p.claimPending(b, &rule.Ref{Rule: r, Address: at}, p.link.Now())
		}
		return pending.Drop
	}) && (open || !p.hasty || p.addOrphans(0, room))
	p.hasty = p.hasty && !done
	p.outbox.send(b)
}

// claimPending adds the pending hits of a key to a batch, unless its last push has no answer yet or other
// workers win every race.
func (p *pushes) claimPending(b *batch, key *rule.Ref, now int64) {
	d, claimed := p.entries.At(&p.check, key.Rule, key.Address), false
	d.ID = key.ID
	if p.entries.Update(d, 0, now, func() (writes, lists bool) {
		d.Counter.Identify(d.ID)
		claimed = d.Slot.Found() && d.Counter.Pending() && d.Counter.Identified() && d.Counter.Claim(now)
		return claimed, claimed && d.Counter.Own(false, now) // whoever was to review a lease does not know the new due time
	}) && claimed {
		p.addClaimed(b, d)
	}
}
