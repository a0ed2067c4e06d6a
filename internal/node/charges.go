package node

import "weir/window"

// charges applies the final cost of requests that have passed.
type charges struct {
	tallies  *Tallies
	link     *link
	keys     *keys
	pushes   *pushes
	watch    *watch
	accounts *accounts
	decider  *decider
	push     window.Push // of a counter that the table has lost
}

// revise changes a charge to cost hits: it takes more, whether or not they have room, or gives some
// back, in the windows where they were counted. Each change is applied once, whatever other workers
// do.
func (h *charges) revise(c *Charge, cost uint64, now int64) {
	before, at := c.Cost, c.at
	if before == 0 {
		at = now
	}
	h.change(c, cost, now)
	if h.accounts.of(c.Rule) && (cost != before || c.counted != c.Model) {
		h.account(c, before, at)
	}
}

// account records the change in usage of a charge whose cost was before. It belongs to the day of
// the request.
//
//go:noinline
func (h *charges) account(c *Charge, before uint64, at int64) {
	d := &h.decider.charged
	h.keys.restore(d, &c.Saved)
	h.keys.read(d, h.link.now()) // the budget needs the counter
	if c.counted == c.Model {
		h.accounts.add(d, int64(c.Cost-before), c.Model, at)
		return
	}
	h.accounts.add(d, -int64(before), c.counted, at)
	h.accounts.add(d, int64(c.Cost), c.Model, at)
	c.counted = c.Model
}

// accountFor records the usage of hits that were forced.
func (h *charges) accountFor(d *Demand, now int64) {
	if h.accounts.of(d.Rule) {
		h.accounts.add(d, int64(d.Cost), d.Model, now)
	}
}

// change changes the hits of a charge.
func (h *charges) change(c *Charge, cost uint64, now int64) {
	if cost == c.Cost {
		return
	}
	d := &h.decider.charged
	h.keys.restore(d, &c.Saved)
	numbers := c.numbers[:len(c.Rule.Limits)]
	lost := false
	switch written := h.keys.update(d, adopts|hastens, now, func() (writes, lists bool) {
		if lost = !d.slot.Found() && c.Cost != 0; !lost {
			d.Counter.Revise(numbers, c.at, c.Cost, cost, now)
		}
		return !lost, false
	}); {
	case lost:
		h.reviseElsewhere(c, cost, now)
	case written && cost > c.Cost:
		d.noteExcess(now)
		h.watch.warnOf(d, now)
		if c.Cost == 0 {
			c.note(d, now)
		}
	case written:
	case cost > c.Cost:
		d.Cost = cost - c.Cost
		h.decider.hold(d) // they count once they are written
	default:
		h.tallies.GivenUp++ // the hits stay counted
	}
	c.Cost = cost
}

// giveBack gives back hits that count now, whoever counted them.
func (h *charges) giveBack(d *Demand, hits uint64, now int64) {
	given := uint64(0)
	switch done := h.keys.update(d, adopts|hastens, now, func() (writes, lists bool) {
		if given = 0; d.slot.Found() {
			given = d.Counter.GiveBackNewest(hits)
		}
		return given > 0, false
	}); {
	case !done:
		h.tallies.GivenUp++ // the hits stay counted
	case given > 0:
		h.decider.refusals.forget(d.address)
		if h.accounts.of(d.Rule) {
			h.accounts.add(d, -int64(given), d.Model, now)
		}
	case !d.slot.Found(): // the backend may know of some
		d.Cost = hits
		c := Charge{Saved: h.keys.save(d)}
		c.note(d, now)
		h.reviseElsewhere(&c, 0, now)
	}
}

// renew moves the hits that a request holds to the present bucket, so that they stay counted.
func (h *charges) renew(c *Charge, now int64) {
	if c.Cost == 0 {
		return
	}
	d := &h.decider.charged
	h.keys.restore(d, &c.Saved)
	numbers := c.numbers
	if !h.keys.update(d, adopts, now, func() (writes, lists bool) {
		numbers = c.numbers
		d.Counter.Renew(numbers[:len(c.Rule.Limits)], c.Cost)
		return true, false
	}) {
		h.tallies.GivenUp++ // the next renewal is early enough
		return
	}
	c.numbers = numbers
}

// release gives back the hits that a request has held. If nodes lease ahead for the rule, the next
// request of this process gets them without asking. Otherwise the backend hears of them at once: a
// client that sends its requests one by one to several nodes would be refused by every node that
// does not have its place.
func (h *charges) release(c *Charge, now int64) {
	if c.Cost == 0 {
		return
	}
	if c.Rule.hasty() || !c.Rule.Synced() || h.pushes.dismissed(c.Rule) {
		h.revise(c, 0, now)
		return
	}
	d := &h.decider.charged
	h.keys.restore(d, &c.Saved)
	switch done := h.keys.update(d, adopts, now, func() (writes, lists bool) {
		if !d.slot.Found() {
			return false, false
		}
		d.Counter.Relend(c.numbers[:len(c.Rule.Limits)], c.Cost)
		return true, false
	}); {
	case !done:
		h.tallies.GivenUp++ // the places expire by themselves
	case !d.slot.Found():
		h.reviseElsewhere(c, 0, now)
	}
	c.Cost = 0
}

// spent reports whether a charge's counter is certainly above a limit. Hits on their way to the
// backend or back don't count. With a backend, the counter must also have been above at an earlier
// call, at least a push and its answer ago: others may be about to give back leases, and a grant
// may be on its way here.
func (h *charges) spent(c *Charge, now int64) bool {
	d := &h.decider.charged
	h.keys.restore(d, &c.Saved)
	h.keys.read(d, now)
	for i := range d.Counter.States {
		d.Counter.States[i].Doubt()
	}
	switch excess, _ := d.Counter.Excess(); {
	case excess == 0:
		c.aboveFrom = 0
		return false
	case !d.Rule.Synced():
		return true
	case c.aboveFrom == 0:
		c.aboveFrom = now
	}
	return now-c.aboveFrom >= d.Rule.Interval+h.link.timeout
}

// reviseElsewhere pushes a charge's change when the table has lost its counter.
func (h *charges) reviseElsewhere(c *Charge, cost uint64, now int64) {
	for i := range c.Rule.Limits {
		l := &c.Rule.Limits[i]
		hits := int64(cost) - int64(c.Cost)
		if l.Kind.Blocks() {
			continue // requests take nothing from a block
		}
		if hits < 0 {
			hits = -int64(l.Returnable(uint64(-hits), c.at, now))
		}
		if hits == 0 || !c.Rule.Synced() {
			continue
		}
		push := &h.push
		push.Newest, push.Hits, push.Ages = c.numbers[i], append(push.Hits[:0], hits), push.Ages[:0]
		switch {
		case l.Kind.Bucketed():
			push.Ages = append(push.Ages, 0)
		case l.Kind.Refills() && hits < 0:
			push.Newest = uint64(c.at)
		}
		if !h.keys.keepOrphan(c.id, l, push, now+2*l.Width) && hits > 0 {
			h.tallies.Lost += uint64(hits)
		}
	}
}
