// Package claim says which hits the backend is to hear of next, and claims them for a push: those of keys of the table go
// in flight, those of evicted counters and those on credit leave their lists. What a push is, and when it is full or sent,
// is its owner's.
package claim

import (
	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/pending"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Claims claims a worker's hits for pushes.
type Claims struct {
	tallies *entry.Tallies
	link    *link.Link
	rules   *rule.Set
	entries *entry.Entries
	pending *pending.Pending
	ledger  *ledger.Ledger
	check   rule.Check  // of the key that is claimed
	push    window.Push // for an item
	item    wire.Item
}

// New returns the claims of a worker. Nothing is claimed of partitions that are away.
func New(tallies *entry.Tallies, link *link.Link, rules *rule.Set, entries *entry.Entries, pending *pending.Pending, ledger *ledger.Ledger) Claims {
	return Claims{tallies: tallies, link: link, rules: rules, entries: entries, pending: pending, ledger: ledger}
}

// Push is what claimed hits go into.
type Push interface {
	// Add adds an item, which counts until a time. hits are those that are lost with it.
	Add(item *wire.Item, of Origin, ends int64, hits uint64)
}

// Origin says where an item comes from, and so where the answer goes.
type Origin struct {
	_ [0]func() // keeps Go from generating an equality function

	Address sharedata.Address
	Rule    *rule.Rule // nil for an orphan, whose counter has left the table
	Limit   int32
	Claim   counter.Due
	Ahead   *ledger.Hits // set for advanced hits
	Relied  bool         // the push asks for hits of the key, too, for requests that rely on its lease
}

// Due claims what is due, or all: orphans, hits on credit, then the keys of the table. Each goes into the push that room
// returns. Due returns false if room returns none, or it is late in the middle of the keys.
func (c *Claims) Due(now int64, all bool, late func() bool, room func() Push) (done bool) {
	return c.orphans(room) && c.OnCredit(now, all, room) && c.pending.Dirty.Visit(now, all, late, func(key *pending.DirtyKey, r *rule.Rule) pending.Fate {
		b := room()
		if b == nil {
			return pending.Stop
		}
		return c.claim(b, key, r, now)
	})
}

// Hasty claims what the backend should hear of before the next request. While it can't, that waits until it is due.
func (c *Claims) Hasty(room func() Push) {
	open := c.link.Reach() != link.Near
	done := c.pending.VisitHasty(func(r *rule.Rule, at sharedata.Address) pending.Fate {
		if open {
			return pending.Drop
		}
		b := room()
		if b == nil {
			return pending.Stop
		}
		c.key(b, &rule.Ref{Rule: r, Address: at}, false, c.link.Now())
		return pending.Drop
	}) && (open || !c.pending.HastyOrphans || c.orphans(room))
	c.pending.HastyOrphans = c.pending.HastyOrphans && !done
}

// Along claims what goes along with a question, so that the backend decides with it: hits of evicted counters that give
// others back, for which a request may ask again, and those of the question's key, which may be nil. relied says that requests
// rely on the key's lease. Along returns false if there is no room left.
func (c *Claims) Along(key *rule.Ref, relied bool, now int64, room func() Push) (done bool) {
	if c.pending.HastyOrphans {
		c.orphans(room)
	}
	b := room()
	if b != nil && key != nil {
		c.key(b, key, relied, now)
	}
	return b != nil
}

// orphans claims the hits of evicted counters but those of partitions that are away, as long as there is room. done means
// that it has claimed all.
//
//go:noinline
func (c *Claims) orphans(room func() Push) (done bool) {
	return c.pending.VisitOrphans(func(o *pending.Orphan) pending.Fate {
		b := room()
		if b == nil {
			return pending.Stop
		}
		hits := o.Added()
		b.Add(&o.Item, Origin{}, o.Ends, hits)
		c.tallies.Pushed += hits
		return pending.Drop
	})
}

// OnCredit claims hits on credit that are due, or all, as long as there is room.
//
//go:noinline
func (c *Claims) OnCredit(now int64, all bool, room func() Push) (done bool) {
	var b Push
	return c.ledger.Send(now, all, func() bool {
		b = room()
		return b != nil
	}, func(h *ledger.Hits, limit int, item *wire.Item, hits uint64, ends int64) {
		b.Add(item, Origin{Address: h.Address, Rule: h.Rule, Limit: int32(limit), Ahead: h}, ends, hits)
		c.tallies.Pushed += hits
	})
}

// key claims the pending hits of a key, unless its partition is away, its last push has no answer yet or other workers win
// every race.
func (c *Claims) key(b Push, key *rule.Ref, relied bool, now int64) {
	d, claimed := c.entries.At(&c.check, key.Rule, key.Address), false
	d.ID = key.ID
	if c.entries.Update(d, 0, now, func() (writes, lists bool) {
		d.Counter.Identify(d.ID)
		claimed = d.Slot.Found() && d.Counter.Pending() && d.Counter.Identified() && !c.pending.Away.Has(d.Counter.Sync().ID) && d.Counter.Claim(now)
		return claimed, claimed && d.Counter.Own(false, now) // whoever was to review a lease does not know the new due time
	}) && claimed {
		c.add(b, d, relied)
	}
}

// claim moves a key's pending hits in flight, and adds them to a push. It gives back the part of a
// lease that is no longer of use. If a lease stays, it asks for the key's totals, because the hits
// of others may make the lease too large.
func (c *Claims) claim(b Push, key *pending.DirtyKey, r *rule.Rule, now int64) pending.Fate {
	d := c.entries.At(&c.check, r, key.Address)
	becomes, claimed := pending.Drop, false
	if !c.entries.Update(d, entry.AsStored, now, func() (writes, lists bool) {
		becomes, claimed = pending.Drop, false
		if !d.Slot.Found() || d.Counter.Sync().Due != key.Due {
			return false, false // evicted with its hits rescued, or adopted by another worker
		}
		if c.pending.Away.Has(d.Counter.Sync().ID) {
			becomes = pending.Retry
			return false, false
		}
		d.Counter.Advance(now)
		changed := d.Counter.Pending() // read before a returned lease can cancel out pending hits
		dismissed := c.rules.Retires(r)
		leases := d.Counter.Review(now) && !dismissed
		if dismissed {
			d.Counter.ReturnLeases()
		}
		if c.rules.Leaving {
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
		c.add(b, d, false)
		key.Due = d.Counter.Sync().Due
	}
	return becomes
}

// add adds a claimed key's hits in flight to a push, by an item for each limit.
//
//go:noinline
func (c *Claims) add(b Push, d *rule.Check, relied bool) {
	of := Origin{Address: d.Address, Rule: d.Rule, Claim: d.Counter.Sync().Claimed, Relied: relied}
	for i := range d.Counter.States {
		d.Counter.Outgoing(i, &c.push)
		l := &d.Rule.Limits[i]
		if !l.Kind.Bucketed() && c.push.Newest < uint64(len(c.push.Hits)-1) {
			continue // an impossible time: the backend would refuse the batch
		}
		c.item, of.Limit = rule.Item(d.Counter.Sync().ID, l, &c.push), int32(i)
		hits := c.push.Added()
		b.Add(&c.item, of, d.Counter.PushEnds(i), hits)
		c.tallies.Pushed += hits
	}
	d.Counter.ClaimedOthers(c.entries.KeepOrphan)
}
