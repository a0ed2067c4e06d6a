// Package charge changes what requests that have passed have taken, when their costs are known, when they end,
// or when somebody takes hits back. And it blocks keys.
package charge

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/meter"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
)

// Charges change what requests that have passed have taken, and block keys.
type Charges struct {
	tallies  *entry.Tallies
	link     *link.Link
	rules    *rule.Set
	entries  *entry.Entries
	observer *observe.Observer
	meter    *meter.Meter
	ledger   *ledger.Ledger
	prefetch func(d *rule.Check) // asks for more than a key has left
	check    rule.Check          // of the charge
}

// New returns the charges of a worker.
func New(tallies *entry.Tallies, link *link.Link, rules *rule.Set, entries *entry.Entries, observer *observe.Observer, meter *meter.Meter, ledger *ledger.Ledger, prefetch func(d *rule.Check)) Charges {
	return Charges{tallies: tallies, link: link, rules: rules, entries: entries, observer: observer, meter: meter, ledger: ledger, prefetch: prefetch}
}

// Force takes a check's hits, whether or not they have room. Those used are told to people.
func (h *Charges) Force(d *rule.Check, used, now int64) {
	h.entries.Read(d, now)
	h.entries.Take(d, now, entry.Forced)
	if d.Low {
		h.prefetch(d)
	}
	d.NoteExcess(now)
	h.observer.Charged(d, used, now)
}

// ForceRef is Force for a referred check.
func (h *Charges) ForceRef(s *rule.Ref, used, now int64) {
	h.Force(h.check.Restore(s), used, now)
}

// Retry tries again to write hits that lost every race. They count from now on.
func (h *Charges) Retry(now int64) {
	retries := h.entries.Retries
	h.entries.Retries = nil
	for i := range retries {
		h.ForceRef(&retries[i], 0, now) // used before
	}
}

// Of records what an allowed check has taken, for Revise. Call it before the check is used again.
func (h *Charges) Of(d *rule.Check, now int64) rule.Charge {
	c := rule.Charge{Ref: h.entries.Save(d)}
	if d.GrantedAt() == 0 && d.Passed() {
		c.Cost = 0 // the request passed uncounted, so there is nothing to give back
	}
	c.Note(d, now)
	return c
}

// Revise changes a charge to cost hits: it takes more, whether or not they have room, or gives some
// back, in the windows where they were counted. Each change is applied once, whatever other workers
// do.
func (h *Charges) Revise(c *rule.Charge, cost uint64, now int64) {
	before, at := c.Cost, c.At
	if before == 0 {
		at = now
	}
	h.change(c, cost, now)
	h.meter.Revise(c, before, at)
}

// change changes the hits of a charge.
func (h *Charges) change(c *rule.Charge, cost uint64, now int64) {
	if cost == c.Cost {
		return
	}
	d := h.check.Restore(&c.Ref)
	numbers := c.Numbers[:len(c.Rule.Limits)]
	lost := false
	switch written := h.entries.Update(d, entry.Adopts|entry.Hastens, now, func() (writes, lists bool) {
		if lost = !d.Slot.Found() && c.Cost != 0; !lost {
			d.Counter.Revise(numbers, c.At, c.Cost, cost, now)
		}
		return !lost, false
	}); {
	case lost:
		h.entries.ReviseElsewhere(c, cost, now)
	case written && cost > c.Cost:
		d.NoteExcess(now)
		h.observer.Charged(d, 0, now)
		if c.Cost == 0 {
			c.Note(d, now)
		}
	case written:
	case cost > c.Cost:
		d.Cost = cost - c.Cost
		h.entries.Keep(d) // they count once they are written
	default:
		h.tallies.GivenUp++ // the hits stay counted
	}
	c.Cost = cost
}

// TakeBack gives back hits of the key of a check that was looked at, as far as they are on credit and no push has them. It
// returns how many are left to [Charges.GiveBack].
func (h *Charges) TakeBack(d *rule.Check, hits uint64, now int64) (left uint64) {
	d.Cost, d.Numbers = hits, d.Counter.Numbers(d.Numbers[:0])
	given := h.ledger.GiveBack(d)
	d.Unheard = h.ledger.Unheard(d, now)
	if d.Cost = 0; given > 0 {
		h.observer.Charged(d, -int64(given), now)
	}
	return hits - given
}

// GiveBack gives back hits of a check's key that count now, whoever counted them, the newest first. It
// never gives back more than are known here. If nothing is, the backend is to give back what it knows of, unless the check has heard of
// that: then the backend may only have counted hits on credit since.
func (h *Charges) GiveBack(d *rule.Check, hits uint64, now int64) {
	heard := d.Heard
	h.entries.Locate(d)
	given := uint64(0)
	switch done := h.entries.Update(d, entry.Adopts|entry.Hastens|entry.Frees, now, func() (writes, lists bool) {
		if given = 0; d.Slot.Found() {
			given = d.Counter.GiveBackNewest(hits)
		}
		return given > 0, false
	}); {
	case !done:
		h.tallies.GivenUp++ // the hits stay counted
	case given > 0:
		d.Unheard = h.ledger.Unheard(d, now)
		h.observer.Charged(d, -int64(given), now)
	case !d.Slot.Found():
		d.Cost, d.Unheard = hits, h.ledger.Unheard(d, now)
		for i := 0; heard && i < len(d.Rule.Limits); i++ {
			d.Cost = min(d.Cost, uint64(d.Unheard[i][0]))
		}
		c := rule.Charge{Ref: h.entries.Save(d)}
		c.Note(d, now)
		h.entries.ReviseElsewhere(&c, 0, now)
	}
}

// Block blocks a check's key, by what its rule says.
func (h *Charges) Block(d *rule.Check, now int64) {
	began := false
	if h.entries.Update(d, entry.Adopts|entry.Hastens, now, func() (writes, lists bool) {
		writes, began = d.Counter.Block(d.Rule.Extends)
		return writes, false
	}) && began {
		h.tallies.Blocked++
	}
}

// HoldBack blocks a check's key until a time, on all nodes, if its rule has a hold: see
// [window.NewHold]. It reports whether the key was not blocked before.
func (h *Charges) HoldBack(s *rule.Ref, until, now int64) (began bool) {
	d := h.check.Restore(s)
	h.entries.Update(d, entry.Adopts|entry.Hastens|entry.Frees, now, func() (writes, lists bool) {
		writes, began = d.Counter.BlockUntil(until)
		return writes, false
	})
	return began
}

// Renew keeps the hits that a request holds counted, by moving them to the present bucket. Call it
// every [window.RenewEvery].
func (h *Charges) Renew(c *rule.Charge, now int64) {
	if c.Cost == 0 {
		return
	}
	d := h.check.Restore(&c.Ref)
	numbers := c.Numbers
	if !h.entries.Update(d, entry.Adopts, now, func() (writes, lists bool) {
		numbers = c.Numbers
		d.Counter.Renew(numbers[:len(c.Rule.Limits)], c.Cost)
		return true, false
	}) {
		h.tallies.GivenUp++ // the next renewal is early enough
		return
	}
	c.Numbers = numbers
}

// Release gives back the hits that a request has held. Call it once. If nodes lease ahead for the rule, the next
// request of this process gets them without asking. Otherwise the backend hears of them at once: a
// client that sends its requests one by one to several nodes would be refused by every node that
// does not have its place.
func (h *Charges) Release(c *rule.Charge, now int64) {
	if c.Cost == 0 {
		return
	}
	if c.Rule.Hasty() || !c.Rule.Synced() || h.rules.Retires(c.Rule) {
		h.Revise(c, 0, now)
		return
	}
	d := h.check.Restore(&c.Ref)
	switch done := h.entries.Update(d, entry.Adopts, now, func() (writes, lists bool) {
		if !d.Slot.Found() {
			return false, false
		}
		d.Counter.Relend(c.Numbers[:len(c.Rule.Limits)], c.Cost)
		return true, false
	}); {
	case !done:
		h.tallies.GivenUp++ // the places expire by themselves
	case !d.Slot.Found():
		h.entries.ReviseElsewhere(c, 0, now)
	}
	c.Cost = 0
}

// Spent reports whether a charge's counter is certainly above a limit. Hits on their way to the
// backend or back don't count. With a backend, the counter must also have been above at an earlier
// call, at least a push and its answer ago: others may be about to give back leases, and a grant
// may be on its way here.
func (h *Charges) Spent(c *rule.Charge, now int64) bool {
	d := h.check.Restore(&c.Ref)
	h.entries.Read(d, now)
	for i := range d.Counter.States {
		d.Counter.States[i].Doubt()
	}
	switch excess, _ := d.Counter.Excess(); {
	case excess == 0:
		c.AboveFrom = 0
		return false
	case !d.Rule.Synced():
		return true
	case c.AboveFrom == 0:
		c.AboveFrom = now
	}
	return now-c.AboveFrom >= d.Rule.Interval+h.link.Timeout
}
