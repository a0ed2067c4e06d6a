package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/feed"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/window"
)

// answers takes the backend's answers into the table.
type answers struct {
	tallies  *entry.Tallies
	link     *link.Link
	rules    *rule.Set
	entries  *entry.Entries
	waits    *waits
	outbox   *outbox
	pushes   *pushes
	requests *requests
	feed     *feed.Feed

	total  wire.Total
	totals [wire.MaxLimits]window.Totals
	check  rule.Check // of the key whose answer is taken in
}

// takeIn keeps the answer to a batch, and reports whether the batch was answered.
func (a *answers) takeIn(b *batch, outcome link.Outcome, answer []byte) (taken bool) {
	switch {
	case outcome == link.PushRefused:
		if said := &b.head.Advance; said.Present {
			a.outbox.credit.Hear(said, &wire.Near{}, b.head.Sequence, b.sentAt, 0)
		}
		a.outbox.giveUp(b)
		a.link.Failed(outcome, b.sentAt)
		return false
	case outcome != link.PushAnswered:
		a.outbox.fail(b, outcome)
		return false
	case !b.accept(answer, &a.total):
		a.outbox.fail(b, link.PushGarbled)
		return false
	}
	a.outbox.ended(b)
	b.state = answered
	a.hear(b)
	if said := &b.head.Advance; said.Present && b.head.Sender == a.outbox.sender {
		a.outbox.credit.Hear(said, &b.reader.Near, b.head.Sequence, b.sentAt, int64(b.reader.NowNanos))
	}
	return true
}

// hear takes in what every answer tells: the time, the nodes and the overrides. That to a poll comes late.
func (a *answers) hear(b *batch) {
	at := int64(b.reader.NowNanos)
	a.rules.Share(a.link.Answered(b.inquires == feed.Poll, b.sentAt, at, b.reader.Nodes))
	if a.feed.Hear(b.inquires, &b.reader.Overrides, b.sentAt, at) {
		a.requests.ticks.hurry(true)
	}
}

// takePoll takes in the outcome of a poll.
func (a *answers) takePoll(b *batch, outcome link.Outcome, answer []byte) {
	answered := outcome == link.PushAnswered && b.accept(answer, &a.total)
	b.state = filling
	if answered {
		a.hear(b)
	} else {
		a.feed.Hear(feed.Poll, nil, 0, 0)
	}
}

// settle takes answers into the table until the deadline. It returns false if there is more.
func (a *answers) settle(deadline int64) (done bool) {
	handled := 0
	for i := 0; i < len(a.outbox.batches); {
		b := a.outbox.batches[i]
		if b.state != answered {
			i++
			continue
		}
		for b.settled < len(b.items) {
			if late(a.outbox.host, handled, deadline) {
				return false
			}
			a.settleKey(b)
			handled++
		}
		for b.settledAsks < len(b.asks) {
			if late(a.outbox.host, handled, deadline) {
				return false
			}
			if a.settleAsk(b, b.asks[b.settledAsks]) {
				b.settledAsks++
			}
			handled++
		}
		if b.lacks != 0 {
			a.outbox.again(b)
			i++
			continue
		}
		a.outbox.finish(b)
	}
	return true
}

// again has a batch sent again, unchanged, that was answered but for some of it, even where the backend
// says that it has applied nothing of that: the network may have brought the push to another backend,
// too, which has. The backend is there, so this is no failure of a callout.
func (c *outbox) again(b *batch) {
	b.body, b.push = b.push, b.body[:0]
	b.state, b.partly = failed, true
	b.failures = min(b.failures, partlyFailures)
	c.pause(b)
	c.lookAway()
}

// settleKey takes in the answers for all limits of the next key.
func (a *answers) settleKey(b *batch) {
	first := b.settled
	key := &b.items[first]
	last := first
	for last < len(b.items) && last-first < wire.MaxLimits && b.items[last].sameKey(key) {
		b.reader.Next(&a.total)
		a.keepTotal(last - first)
		last++
	}
	b.settled = last
	if key.Limit == done {
		return
	}
	missing := wire.Answered
	for i := first; i < last; i++ {
		missing = max(missing, b.reader.Missing(i))
	}
	if missing != wire.Answered {
		b.lacks |= wire.PartitionOf(key.id(b))
		return
	}
	switch {
	case key.Ahead != nil:
		part := key.Ahead.End(true) // its totals were read last
		a.learn(&part, int64(b.reader.NowNanos))
		for i := first; i < last; i++ {
			b.items[i].Ahead = nil
		}
	case key.Rule != nil:
		a.settleTotals(b, first)
	}
	if !b.reader.Whole() {
		for i := first; i < last; i++ {
			b.items[i].Rule, b.items[i].Limit = nil, done
		}
	}
}

// settleTotals takes in the totals of a key's limits, of which the batch's items from the first one on
// were read last.
func (a *answers) settleTotals(b *batch, first int) {
	key := &b.items[first]
	d := a.entries.At(&a.check, key.Rule, key.Address)
	now := a.link.Now()
	if !a.entries.Update(d, entry.Hastens|entry.AsStored, now, func() (writes, lists bool) {
		if !d.Slot.Found() || a.stray(d) {
			return false, false
		}
		for i := first; i < b.settled; i++ {
			if limit := int(b.items[i].Limit); limit < len(d.Counter.States) {
				d.Counter.Settle(limit, b.items[i].Claim, int64(b.reader.NowNanos), &a.totals[i-first])
			}
		}
		newer := d.Counter.Heard(int64(b.reader.NowNanos))
		pending := d.Counter.Pending()
		if d.Counter.Trim(key.relied, now); newer {
			d.Counter.RunDry(now, a.link.Random.Fraction())
		}
		d.NoteExcess(now)
		return true, d.Counter.Pending() && d.Counter.Own(pending, now)
	}) {
		// The hits stay in flight until they are abandoned: counted here, and in the backend.
		a.tallies.GivenUp++
	}
}

// keepTotal keeps the total that was read last for limit i.
//
//go:noinline
func (a *answers) keepTotal(i int) {
	t := &a.totals[i]
	t.Newest = a.total.Newest
	t.Hits = append(t.Hits[:0], a.total.Hits...)
	t.Ages = append(t.Ages[:0], a.total.Ages...)
}

// settleAsk takes in the grant for a batch's next ask, or continues the next of the requests that
// wait for it, of which there may be many. It reports whether that was all.
func (a *answers) settleAsk(b *batch, t *ask) (done bool) {
	missing := b.reader.Missing(len(b.items) + b.settledAsks)
	switch {
	case t.done || missing != wire.Answered:
		a.skipGrant(b)
		if t.done {
			return true
		}
		for i := range t.parts {
			b.lacks |= wire.PartitionOf(t.parts[i].ID)
		}
		a.waits.release(t)
		return true
	case !t.settled:
		t.settled = true
		a.takeGrant(b, t)
		t.done = len(t.turns) == 0 || !t.lease
		return t.done
	}
	for t.resumed < len(t.turns) {
		w := t.turns[t.resumed]
		t.resumed++
		if !w.waits() {
			continue
		}
		// A request of several rules continues once all were answered, or one was refused.
		if w.wait.asked--; w.wait.asked <= 0 || !t.granted {
			checks := a.requests.takeUp(w.wait)
			a.requests.goOn(w, checks, a.requests.decider.decide(checks, a.link.Now()), t.granted)
			break
		}
	}
	t.done = t.resumed == len(t.turns)
	return t.done
}

// skipGrant skips the grant for a batch's next ask.
//
//go:noinline
func (a *answers) skipGrant(b *batch) {
	var grant wire.Grant
	for rooms, _ := b.reader.NextGrant(&grant); rooms > 0; rooms-- {
		b.reader.NextRoom(&a.total)
	}
}

// takeGrant takes in the grant for a batch's next ask.
func (a *answers) takeGrant(b *batch, t *ask) {
	var grant wire.Grant
	b.reader.NextGrant(&grant)
	t.granted = grant.Units > 0
	if !t.lease {
		a.settleRequest(b, t, &grant)
		return
	}
	a.readRooms(&b.reader, t.parts[0].Rule)
	if t.parts[0].Cost == 0 {
		a.learn(&t.parts[0], int64(b.reader.NowNanos))
		return
	}
	a.keepLease(t, &grant, int64(b.reader.NowNanos))
}

// readRooms reads an answer's totals for a rule's limits.
//
//go:noinline
func (a *answers) readRooms(answer *wire.AnswerReader, r *rule.Rule) {
	for i := range r.Limits {
		answer.NextRoom(&a.total)
		a.keepTotal(i)
	}
}

// settleRequest takes in a grant for a single request, and decides the request. Hits that it needs
// besides are taken now. The grant goes back if those have no room, if the request is gone or was
// decided without the backend, or if there is no room for hits that the backend has not heard of.
func (a *answers) settleRequest(b *batch, t *ask, grant *wire.Grant) {
	var checks []rule.Check
	verdict := counter.Rejected
	at := int64(grant.AtNanos)
	t.grantedAt = at
	w, looks := t.turns[0], t.parts[0].Looks
	if w.waits() && !looks {
		checks = a.requests.takeUp(w.wait)
		switch verdict = a.judge(b, t); verdict {
		case counter.Allowed:
			t.pass(checks) // the other hits are taken, or none
			verdict = a.requests.decider.decide(checks, a.link.Now())
		case counter.Unsure:
			verdict = a.requests.doubt(w.wait, checks, t)
		case counter.Rejected:
			t.granted = false // the backend does not know what leaves no room
		}
	}
	for i := range t.parts {
		part := &t.parts[i]
		a.readRooms(&b.reader, part.Rule)
		for j := range part.Rule.Limits {
			if hits := grant.Units * part.Cost; hits > 0 && verdict != counter.Allowed {
				a.returnGrant(part, j, hits, at)
				a.totals[j].Subtract(&part.Rule.Limits[j], at, hits)
			}
		}
		a.learn(part, int64(b.reader.NowNanos))
	}
	switch {
	case checks != nil:
		a.requests.decideBy(w, checks, t, verdict)
	case looks && w.waits():
		a.requests.seen(w.wait, counter.Allowed)
	}
}

// judge decides a request by the answer to its ask, and by the hits that the backend may not have
// known then: hits and charges that passed here without it, and that are pending or in flight.
// Unsure means that the decision depends on which of these it has known. judge reads ahead of the
// batch's reader.
//
//go:noinline
func (a *answers) judge(b *batch, t *ask) counter.Verdict {
	reader, verdict, owes := b.reader, counter.Allowed, false
	for i := range t.parts {
		part := &t.parts[i]
		a.readRooms(&reader, part.Rule)
		d := a.entries.At(&a.check, part.Rule, part.Address)
		if a.entries.Read(d, a.link.Now()); a.stray(d) {
			continue
		}
		answered, cost := int64(reader.NowNanos), part.Cost
		if t.granted {
			cost = 0 // the totals include it
		}
		owes = owes || d.Counter.Owes() && !part.Rule.CountRejected
		if t.granted && d.Counter.Settled(answered) || a.fits(d, (*window.State).Presume, answered, cost) {
			continue
		}
		if a.entries.Read(d, a.link.Now()); !a.fits(d, (*window.State).Doubt, answered, cost) {
			return counter.Rejected
		}
		verdict = counter.Unsure
	}
	if t.granted {
		return verdict
	}
	if owes {
		return counter.Unsure
	}
	return counter.Rejected
}

// fits reports whether a cost has room next to an answer's totals and the assumed part of each
// state.
func (a *answers) fits(d *rule.Check, suppose func(s *window.State), answered int64, cost uint64) bool {
	for i := range d.Counter.States {
		suppose(&d.Counter.States[i])
		d.Counter.Learn(i, answered, &a.totals[i])
	}
	return d.Counter.Allows(cost)
}

// keepLease puts a grant into a key's entry.
func (a *answers) keepLease(t *ask, grant *wire.Grant, answered int64) {
	part, units, at := &t.parts[0], grant.Units, int64(grant.AtNanos)
	given := window.Grant{Hits: units, At: at, Answered: answered}
	for i := range part.Rule.Limits {
		if part.Rule.Limits[i].Kind.Refills() {
			given.Wanted = t.needs()
		}
	}
	relies := t.relies
	if !t.ahead && units < t.least {
		relies = max(relies, t.needs())
	}
	d := a.entries.At(&a.check, part.Rule, part.Address)
	if t.ahead {
		// The backend may refuse requests, or has, as it lacks just these hits.
		relies = max(relies, a.waits.leases.needs(d))
	}
	var lost [wire.MaxLimits]bool
	now, kept, how := a.link.Now(), false, entry.Frees
	if units == 0 {
		how = 0
	}
	if !a.entries.Update(d, how, now, func() (writes, lists bool) {
		if kept = !a.stray(d); !kept {
			return false, false
		}
		d.Counter.Identify(part.ID)
		owned := d.Counter.Pending()
		for i := range d.Counter.States {
			lost[i] = !d.Counter.Grant(i, given, &a.totals[i])
		}
		d.Counter.Granted(units, t.least, t.most, relies, t.ahead, now, a.link.Random.Fraction())
		d.Counter.Heard(answered)
		d.NoteExcess(now)
		return true, d.Counter.Own(owned, now)
	}) {
		kept = false
	}
	if !kept {
		a.tallies.GivenUp++
	}
	for i := range part.Rule.Limits {
		if !kept || lost[i] {
			a.returnGrant(part, i, units, at)
		}
	}
}

// stray reports whether an answer has no place in a check's entry, which was read: the rule no
// longer synchronises, and the entry is newer and does not either. Its hits would seem to be
// unknown to the backend.
func (a *answers) stray(d *rule.Check) bool {
	return a.rules.Retires(d.Rule) && !d.Counter.Identified()
}

// returnGrant gives back hits that were granted for limit i and have no place here, in the window
// where they were counted.
func (a *answers) returnGrant(part *rule.Ref, i int, hits uint64, at int64) {
	if number, counts := part.Rule.Limits[i].LeaseNumber(at, &a.totals[i]); counts && hits > 0 {
		a.pushes.pending.HastyOrphans = a.pushes.pending.HastyOrphans || part.Rule.Exact()
		a.entries.Elsewhere(part, i, -int64(hits), number, a.link.Now()) // without room, the hits stay unused until their window ends
	}
}

// learn keeps an answer's totals in a key's entry, for the headers and for the time when the
// backend is away.
func (a *answers) learn(part *rule.Ref, answered int64) {
	d, now := a.entries.At(&a.check, part.Rule, part.Address), a.link.Now()
	if !a.entries.Update(d, 0, now, func() (writes, lists bool) {
		if a.stray(d) || !d.Slot.Found() && a.nothing(len(d.Counter.States)) {
			return false, false
		}
		d.Counter.Identify(part.ID)
		for i := range d.Counter.States {
			d.Counter.Learn(i, answered, &a.totals[i])
		}
		d.Counter.Heard(answered)
		d.NoteExcess(now)
		// Hits that were counted before the rule had a backend are still to be pushed.
		return true, (part.Rule.Watched || d.Counter.Pending()) && d.Counter.Adopt(now, a.link.Reach() == link.Near)
	}) {
		a.tallies.GivenUp++
	}
}

// nothing reports whether the first totals are all 0.
func (a *answers) nothing(limits int) bool {
	for i := range limits {
		for _, hits := range a.totals[i].Hits {
			if hits != 0 {
				return false
			}
		}
	}
	return true
}
