// Package settle has what the backend's answers change in the entries of their keys: totals that include what was in
// flight, leases, and hits that go back because they have no place here.
package settle

import (
	"weir/internal/counter"
	"weir/internal/engine/claim"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/pending"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/window"
)

// Settler takes answers into the table.
type Settler struct {
	tallies *entry.Tallies
	link    *link.Link
	rules   *rule.Set
	entries *entry.Entries
	pending *pending.Pending
	check   rule.Check // of the key whose answer is taken in
}

// New returns the settler of a worker.
func New(tallies *entry.Tallies, link *link.Link, rules *rule.Set, entries *entry.Entries, pending *pending.Pending) Settler {
	return Settler{tallies: tallies, link: link, rules: rules, entries: entries, pending: pending}
}

// Totals are those of a key's limits in an answer.
type Totals = [wire.MaxLimits]window.Totals

// Totals takes in the totals of some limits of a key whose hits in flight were answered at a time.
func (s *Settler) Totals(key *claim.Origin, limits []int32, answered int64, totals *Totals) {
	d, now := s.entries.At(&s.check, key.Rule, key.Address), s.link.Now()
	if !s.entries.Update(d, entry.Hastens|entry.AsStored, now, func() (writes, lists bool) {
		if !d.Slot.Found() || s.stray(d) {
			return false, false
		}
		for i, limit := range limits {
			if int(limit) < len(d.Counter.States) {
				d.Counter.Settle(int(limit), key.Claim, answered, &totals[i])
			}
		}
		newer := d.Counter.Heard(answered)
		pending := d.Counter.Pending()
		if d.Counter.Trim(key.Relied, now); newer {
			d.Counter.RunDry(now, s.link.Random.Fraction())
		}
		d.NoteExcess(now)
		return true, d.Counter.Pending() && d.Counter.Own(pending, now)
	}) {
		// The hits stay in flight until they are abandoned: counted here, and in the backend.
		s.tallies.GivenUp++
	}
}

// Learn keeps an answer's totals in a key's entry, for the headers and for the time when the
// backend is away. Hits among them that were granted at a time and have no place here go back.
func (s *Settler) Learn(part *rule.Ref, answered int64, back uint64, at int64, totals *Totals) {
	for i := range part.Rule.Limits {
		if back > 0 {
			s.giveBack(part, i, back, at, &totals[i])
			totals[i].Subtract(&part.Rule.Limits[i], at, back)
		}
	}
	d, now := s.entries.At(&s.check, part.Rule, part.Address), s.link.Now()
	if !s.entries.Update(d, 0, now, func() (writes, lists bool) {
		if s.stray(d) || !d.Slot.Found() && nothing(totals[:len(d.Counter.States)]) {
			return false, false
		}
		d.Counter.Identify(part.ID)
		for i := range d.Counter.States {
			d.Counter.Learn(i, answered, &totals[i])
		}
		d.Counter.Heard(answered)
		d.NoteExcess(now)
		// Hits that were counted before the rule had a backend are still to be pushed.
		return true, (part.Rule.Watched || d.Counter.Pending()) && d.Counter.Adopt(now, s.link.Reach() == link.Near)
	}) {
		s.tallies.GivenUp++
	}
}

// nothing reports whether totals are all 0.
func nothing(totals []window.Totals) bool {
	for i := range totals {
		for _, hits := range totals[i].Hits {
			if hits != 0 {
				return false
			}
		}
	}
	return true
}

// Lease is a grant of hits for a key's entry.
type Lease struct {
	window.Grant
	// Least and Most are what was asked for, and Ahead says that it was for requests to come.
	Least, Most uint64
	Ahead       bool
}

// Lease puts a grant into a key's entry, or gives it back. relies is how many hits requests rely on.
func (s *Settler) Lease(part *rule.Ref, l *Lease, totals *Totals, relies func(d *rule.Check) uint64) {
	d := s.entries.At(&s.check, part.Rule, part.Address)
	relied := relies(d)
	var lost [wire.MaxLimits]bool
	now, kept, how := s.link.Now(), false, entry.Frees
	if l.Hits == 0 {
		how = 0
	}
	if !s.entries.Update(d, how, now, func() (writes, lists bool) {
		if kept = !s.stray(d); !kept {
			return false, false
		}
		d.Counter.Identify(part.ID)
		owned := d.Counter.Pending()
		for i := range d.Counter.States {
			lost[i] = !d.Counter.Grant(i, l.Grant, &totals[i])
		}
		d.Counter.Granted(l.Hits, l.Least, l.Most, relied, l.Ahead, now, s.link.Random.Fraction())
		d.Counter.Heard(l.Answered)
		d.NoteExcess(now)
		return true, d.Counter.Own(owned, now)
	}) {
		kept = false
	}
	if !kept {
		s.tallies.GivenUp++
	}
	for i := range part.Rule.Limits {
		if !kept || lost[i] {
			s.giveBack(part, i, l.Hits, l.At, &totals[i])
		}
	}
}

// giveBack gives back hits that were granted for limit i and have no place here, in the window
// where they were counted.
func (s *Settler) giveBack(part *rule.Ref, i int, hits uint64, at int64, total *window.Totals) {
	if number, counts := part.Rule.Limits[i].LeaseNumber(at, total); counts && hits > 0 {
		s.pending.HastyOrphans = s.pending.HastyOrphans || part.Rule.Exact()
		s.entries.Elsewhere(part, i, -int64(hits), number, s.link.Now()) // without room, the hits stay unused until their window ends
	}
}

// Judge says whether a request's hits of a key have room by an answer, in whose totals they are if they were granted, and
// by the hits that the backend may not have known then. owes reports whether it may have lacked some that give others back.
func (s *Settler) Judge(part *rule.Ref, granted bool, answered int64, totals *Totals) (verdict counter.Verdict, owes bool) {
	d := s.entries.At(&s.check, part.Rule, part.Address)
	if s.entries.Read(d, s.link.Now()); s.stray(d) {
		return counter.Allowed, false
	}
	cost := part.Cost
	if granted {
		cost = 0
	}
	owes = d.Counter.Owes() && !part.Rule.CountRejected
	if granted && d.Counter.Settled(answered) || fits(d, (*window.State).Presume, answered, cost, totals) {
		return counter.Allowed, owes
	}
	if s.entries.Read(d, s.link.Now()); !fits(d, (*window.State).Doubt, answered, cost, totals) {
		return counter.Rejected, owes
	}
	return counter.Unsure, owes
}

// fits reports whether a cost has room next to an answer's totals and the assumed part of each
// state.
func fits(d *rule.Check, suppose func(s *window.State), answered int64, cost uint64, totals *Totals) bool {
	for i := range d.Counter.States {
		suppose(&d.Counter.States[i])
		d.Counter.Learn(i, answered, &totals[i])
	}
	return d.Counter.Allows(cost)
}

// stray reports whether an answer has no place in a check's entry, which was read: the rule no
// longer synchronises, and the entry is newer and does not either. Its hits would seem to be
// unknown to the backend.
func (s *Settler) stray(d *rule.Check) bool {
	return s.rules.Retires(d.Rule) && !d.Counter.Identified()
}
