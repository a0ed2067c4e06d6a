package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/feed"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/engine/settle"
	"weir/internal/wire"
	"weir/window"
)

// answers takes in the backend's answers: which key and which request they are for.
type answers struct {
	link     *link.Link
	rules    *rule.Set
	settler  *settle.Settler
	waits    *waits
	outbox   *outbox
	requests *requests
	feed     *feed.Feed

	total  wire.Total
	totals [wire.MaxLimits]window.Totals
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
		if b.lacking {
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
	var limits [wire.MaxLimits]int32
	for last < len(b.items) && last-first < wire.MaxLimits && b.items[last].sameKey(key) {
		b.reader.Next(&a.total)
		a.keepTotal(last - first)
		limits[last-first] = b.items[last].Limit
		last++
	}
	b.settled = last
	if key.Limit == done {
		return
	}
	lacks := false
	for i := first; i < last; i++ {
		if b.reader.Missing(i) != wire.Answered { // orphans are of any keys
			lacks, b.lacking = true, true
			b.lacks |= wire.PartitionOf(b.items[i].id(b))
		}
	}
	if lacks {
		return
	}
	switch {
	case key.Ahead != nil:
		part := key.Ahead.End(true) // its totals were read last
		a.settler.Learn(&part, int64(b.reader.NowNanos), 0, 0, &a.totals)
		for i := first; i < last; i++ {
			b.items[i].Ahead = nil
		}
	case key.Rule != nil:
		a.settler.Totals(&key.Origin, limits[:last-first], int64(b.reader.NowNanos), &a.totals)
	}
	if !b.reader.Whole() {
		for i := first; i < last; i++ {
			b.items[i].Rule, b.items[i].Limit = nil, done
		}
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
		a.blame(b, t)
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
			a.requests.goOn(w, checks, a.requests.decide(checks, a.link.Now()), t.granted, t.whole)
			break
		}
	}
	t.done = t.resumed == len(t.turns)
	return t.done
}

// blame takes in that an answer lacks a question's part. By which of several partitions, the answer does not tell: if none of them
// is known to be away, all may be, and each is asked once. If each is there by itself, the backend is too slow for several, and gets no
// more of these: all would stay.
func (a *answers) blame(b *batch, t *ask) {
	b.lacking = true
	switch of := t.partitions(); {
	case of&(of-1) == 0:
		b.lacks |= of
	case of&(b.lacks|b.suspects|a.outbox.away) != 0:
	case t.probed || of&^(b.shared|a.outbox.shared) == 0: // another ask's probes have told
		b.shared |= of
	default:
		t.probed = true
		b.suspects |= of
		a.requests.acquires.probe(t)
	}
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
	t.granted, t.whole = grant.Units > 0, grant.Units == t.most
	if !t.lease {
		a.settleRequest(b, t, &grant)
		return
	}
	a.readRooms(&b.reader, t.parts[0].Rule)
	if t.probes {
		a.outbox.acquit(t.partitions())
	}
	if t.parts[0].Cost == 0 {
		a.settler.Learn(&t.parts[0], int64(b.reader.NowNanos), 0, 0, &a.totals)
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
	t.grantedAt = int64(grant.AtNanos)
	w, looks := t.turns[0], t.parts[0].Looks
	if w.waits() && !looks {
		checks = a.requests.takeUp(w.wait)
		if verdict = a.judge(b, t); verdict == counter.Unsure {
			verdict = a.requests.doubt(w.wait, checks, t)
		}
		switch verdict {
		case counter.Allowed:
			t.pass(checks) // the other hits are taken, or none
			verdict = a.requests.decide(checks, a.link.Now())
		case counter.Rejected:
			t.granted = false // the backend does not know what leaves no room
		}
	}
	for i := range t.parts {
		part, back := &t.parts[i], uint64(0)
		if verdict != counter.Allowed {
			back = grant.Units * part.Cost
		}
		a.readRooms(&b.reader, part.Rule)
		a.settler.Learn(part, int64(b.reader.NowNanos), back, t.grantedAt, &a.totals)
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
		of, debts := a.settler.Judge(part, t.granted, int64(reader.NowNanos), &a.totals)
		if of == counter.Rejected {
			return of
		}
		if owes = owes || debts; of == counter.Unsure {
			verdict = of
		}
	}
	if t.granted {
		return verdict
	}
	if owes {
		return counter.Unsure
	}
	return counter.Rejected
}

// keepLease puts a grant into a key's entry.
func (a *answers) keepLease(t *ask, grant *wire.Grant, answered int64) {
	part := &t.parts[0]
	l := settle.Lease{Grant: window.Grant{Hits: grant.Units, At: int64(grant.AtNanos), Answered: answered}, Least: t.least, Most: t.most, Ahead: t.ahead}
	for i := range part.Rule.Limits {
		if part.Rule.Limits[i].Kind.Refills() {
			l.Wanted = t.needs()
		}
	}
	a.settler.Lease(part, &l, &a.totals, func(d *rule.Check) (relies uint64) {
		switch relies = t.relies; {
		case t.ahead: // the backend may refuse requests, or has, as it lacks just these hits
			relies = max(relies, a.waits.leases.needs(d))
		case grant.Units < t.least:
			relies = max(relies, t.needs())
		}
		return relies
	})
}
