package node

import (
	"weir/internal/counter"
	"weir/internal/wire"
	"weir/window"
)

// takeIn keeps the answer to a batch, and reports whether it was one.
func (n *Node) takeIn(b *batch, outcome Outcome, answer []byte) (taken bool) {
	switch {
	case outcome == PushRefused:
		n.giveUp(b)
		n.turn(outcome)
		return false
	case outcome != PushAnswered:
		n.fail(b, outcome)
		return false
	case !b.accept(answer, &n.total):
		n.fail(b, PushGarbled)
		return false
	}
	n.ended(b)
	b.state = answered
	if n.link.answered(b.sentAt, n.hostNow(), int64(b.reader.NowNanos), b.reader.Nodes) {
		n.turn(PushAnswered)
	}
	n.share(uint64(n.link.shared.nodes))
	n.hear(b)
	return true
}

// settle takes answers into the table. It reports false if there is more.
func (n *Node) settle(deadline int64) (done bool) {
	handled := 0
	for i := 0; i < len(n.batches); {
		b := n.batches[i]
		if b.state != answered {
			i++
			continue
		}
		for b.settled < len(b.items) {
			if n.late(handled, deadline) {
				return false
			}
			n.settleKey(b)
			handled++
		}
		for b.taken < len(b.takes) {
			if n.late(handled, deadline) {
				return false
			}
			if n.settleTake(b, b.takes[b.taken]) {
				b.taken++
			}
			handled++
		}
		if b.lacks {
			n.again(b)
			i++
			continue
		}
		n.finish(b)
	}
	return true
}

// again has a batch sent again that was answered but for some of it. The backend is there, so this
// is no failure of a callout.
func (n *Node) again(b *batch) {
	b.body, b.push = b.push, b.body[:0]
	b.state, b.partly = failed, true
	n.pause(b)
}

// settleKey takes in the answers for all limits of the next key.
func (n *Node) settleKey(b *batch) {
	first := b.settled
	key := &b.items[first]
	last := first
	for last < len(b.items) && last-first < maxLimits && b.items[last].sameKey(key) {
		b.reader.Next(&n.total)
		n.keepTotal(last - first)
		last++
	}
	b.settled = last
	if key.limit == done {
		return
	}
	missing := wire.Answered
	for i := first; i < last; i++ {
		missing = max(missing, b.reader.Missing(i))
	}
	switch {
	case missing != wire.Answered && !b.untouched:
		b.lacks = true // the batch comes again as it is, so that nothing of it may be pushed otherwise
		return
	case missing != wire.Answered && !n.putBack(b, first):
		n.handOver(b, first)
	case missing == wire.Answered && key.rule != nil:
		n.settleTotals(b, first)
	}
	if !b.reader.Whole() {
		for i := first; i < last; i++ {
			b.items[i].rule, b.items[i].limit = nil, done
		}
	}
}

// settleTotals takes in the totals of a key's limits, of which the batch's items from the first one on
// were read last.
func (n *Node) settleTotals(b *batch, first int) {
	key := &b.items[first]
	d := n.at(key.rule, key.address)
	for range n.table.Attempts() {
		n.fetch(d)
		if !d.slot.Found() || n.stray(d) {
			return
		}
		for i := first; i < b.settled; i++ {
			if limit := int(b.items[i].limit); limit < len(d.Counter.States) {
				d.Counter.Settle(limit, b.items[i].claim, int64(b.reader.NowNanos), &n.totals[i-first])
			}
		}
		d.Counter.Heard(int64(b.reader.NowNanos))
		now := n.now()
		pending := d.Counter.Pending()
		d.Counter.Trim(now)
		d.Counter.RunDry(now, n.options.Random.fraction())
		n.noteExcess(d, now)
		again := d.Counter.Pending() && d.Counter.Own(pending, now)
		if n.write(d, now) {
			if again {
				n.enlist(d)
			}
			n.hasten(d)
			return
		}
	}
	// The hits stay in flight until they are abandoned: counted here, and in the backend.
	n.Tallies.GivenUp++
}

// handOver has another batch push what a key had in this one, of which the backend has applied nothing.
//
//go:noinline
func (n *Node) handOver(b *batch, first int) {
	other := n.newBatch()
	for i := first; i < b.settled; i++ {
		moved := b.items[i]
		begins := int32(len(other.body))
		other.body = append(other.body, b.push[moved.begins:moved.ends]...)
		moved.begins, moved.ends = begins, int32(len(other.body))
		other.items = append(other.items, moved)
	}
	other.ends = b.ends
	other.close()
	other.state, other.partly = failed, true
	n.pause(other)
}

// putBack has what a key has in flight pushed later, of which the backend has applied nothing. It
// reports false if the counter is gone, or was claimed again since.
//
//go:noinline
func (n *Node) putBack(b *batch, first int) bool {
	key := &b.items[first]
	if key.rule == nil {
		return false
	}
	d := n.at(key.rule, key.address)
	for range n.table.Attempts() {
		n.fetch(d)
		if !d.slot.Found() || n.stray(d) {
			return false
		}
		pending := d.Counter.Pending()
		for i := first; i < b.settled; i++ {
			if limit := int(b.items[i].limit); limit >= len(d.Counter.States) || !d.Counter.Unclaim(limit, b.items[i].claim) {
				return false
			}
		}
		if n.write(d, n.now()) {
			if !pending && d.Counter.Pending() {
				n.enlist(d) // when its next push was due anyway
			}
			return true
		}
	}
	return false
}

// keepTotal keeps the total that was read last as that of limit i.
//
//go:noinline
func (n *Node) keepTotal(i int) {
	t := &n.totals[i]
	t.Newest = n.total.Newest
	t.Hits = append(t.Hits[:0], n.total.Hits...)
	t.Ages = append(t.Ages[:0], n.total.Ages...)
}

// settleTake takes in the grant of a batch's next take, or lets the next of the requests go on that
// wait for it: there may be many. It reports whether that was all.
func (n *Node) settleTake(b *batch, t *take) (done bool) {
	missing := b.reader.Missing(len(b.items) + b.taken)
	switch {
	case t.done || missing != wire.Answered:
		n.skipGrant(b)
		if t.done {
			return true
		}
		b.lacks = b.lacks || !b.untouched
		n.release(t)
		return true
	case !t.settled:
		t.settled = true
		n.settleGrant(b, t)
		t.done = len(t.waiters) == 0 || !t.lease
		return t.done
	}
	for t.told < len(t.waiters) {
		w := t.waiters[t.told]
		t.told++
		if !w.waits() {
			continue
		}
		// A request of several rules goes on when it has heard of all, or one had no hits.
		if w.wait.asked--; w.wait.asked <= 0 || !t.granted {
			n.retry(w, t.granted)
			break
		}
	}
	t.done = t.told == len(t.waiters)
	return t.done
}

// skipGrant passes over the grant of a batch's next take.
//
//go:noinline
func (n *Node) skipGrant(b *batch) {
	var grant wire.Grant
	for rooms, _ := b.reader.NextGrant(&grant); rooms > 0; rooms-- {
		b.reader.NextRoom(&n.total)
	}
}

// settleGrant takes in the grant of a batch's next take.
func (n *Node) settleGrant(b *batch, t *take) {
	var grant wire.Grant
	b.reader.NextGrant(&grant)
	t.granted = grant.Units > 0
	if !t.lease {
		n.settleRequest(b, t, &grant)
		return
	}
	n.readRooms(b, t.parts[0].rule)
	n.keepLease(t, &grant, int64(b.reader.NowNanos))
}

// readRooms reads what an answer has of a rule's limits.
//
//go:noinline
func (n *Node) readRooms(b *batch, r *Rule) {
	for i := range r.Limits {
		b.reader.NextRoom(&n.total)
		n.keepTotal(i)
	}
}

// settleRequest takes in a grant for a single request, and decides that. What it needs beside the
// grant is taken now. If there is no room for that, or the request is gone or was decided without
// the backend, or has no room beside what that has yet to hear of, the grant goes back.
func (n *Node) settleRequest(b *batch, t *take, grant *wire.Grant) {
	var demands []Demand
	verdict := counter.Rejected
	at := int64(grant.AtNanos)
	t.grantedAt = at
	w := t.waiters[0]
	if w.waits() {
		demands = n.takeUp(w.wait)
		switch verdict = n.judge(b, t); verdict {
		case counter.Allowed:
			verdict = n.takeRest(demands, t)
		case counter.Unsure:
			verdict = n.doubt(w.wait, demands, t)
		}
	}
	for i := range t.parts {
		part := &t.parts[i]
		n.readRooms(b, part.rule)
		for j := range part.rule.Limits {
			if hits := grant.Units * part.cost; hits > 0 && verdict != counter.Allowed {
				n.returnGrant(part, j, hits, at)
				part.rule.Limits[j].Without(&n.totals[j], at, hits)
			}
		}
		n.learn(part, int64(b.reader.NowNanos))
	}
	if demands != nil {
		n.decideBy(w, demands, t, verdict)
	}
}

// judge is what becomes of a request by the answer to its take, together with what the backend may not
// have known when it gave that: charges and hits that passed here without it, and that are pending or on
// their way. Unsure says that it depends on what it has known. It reads ahead of the batch's reader.
//
//go:noinline
func (n *Node) judge(b *batch, t *take) counter.Verdict {
	reader, verdict, owes := b.reader, counter.Allowed, false
	for i := range t.parts {
		part := &t.parts[i]
		for j := range part.rule.Limits {
			reader.NextRoom(&n.total)
			n.keepTotal(j)
		}
		d := n.at(part.rule, part.address)
		if n.read(d, n.now()); part.cost == 0 || n.stray(d) {
			continue
		}
		answered, cost := int64(reader.NowNanos), part.cost
		if t.granted {
			cost = 0 // the totals have it
		}
		owes = owes || d.Counter.Owes() && !part.rule.CountRejected
		if t.granted && d.Counter.Settled(answered) || n.fits(d, (*window.State).Presume, answered, cost) {
			continue
		}
		if n.read(d, n.now()); !n.fits(d, (*window.State).Doubt, answered, cost) {
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

// fits reports whether a cost has room beside an answer's totals and what is supposed of each state.
func (n *Node) fits(d *Demand, suppose func(s *window.State), answered int64, cost uint64) bool {
	for i := range d.Counter.States {
		suppose(&d.Counter.States[i])
		d.Counter.Learn(i, answered, &n.totals[i])
	}
	return d.Counter.Allows(cost)
}

// doubt has a request ask again whose answer may not know of what is on its way, if that is of use: by
// then the backend will have heard. A request asks so often at most.
func (n *Node) doubt(w *Wait, demands []Demand, t *take) counter.Verdict {
	if w.rounds >= maxRounds || n.hostNow() >= w.until {
		return counter.Rejected
	}
	w.rounds++
	t.pass(demands)
	for i := range demands {
		if d := &demands[i]; d.passed {
			d.Verdict, d.passed = counter.Unsure, false
		}
	}
	return counter.Unsure
}

// keepLease puts a grant into a key's entry.
func (n *Node) keepLease(t *take, grant *wire.Grant, answered int64) {
	part, units, at := &t.parts[0], grant.Units, int64(grant.AtNanos)
	given := window.Grant{Hits: units, At: at, Answered: answered}
	if units > 0 {
		n.refusals.forget(part.address) // as of answers that are read before this one
	}
	for i := range part.rule.Limits {
		if part.rule.Limits[i].Kind.Refills() {
			given.Wanted = t.needs()
		}
	}
	d := n.at(part.rule, part.address)
	var lost [maxLimits]bool
	for range n.table.Attempts() {
		now := n.now()
		if n.read(d, now); n.stray(d) {
			break
		}
		if !d.Counter.Identified() {
			d.Counter.Identify(part.id)
		}
		owned := d.Counter.Pending()
		for i := range d.Counter.States {
			lost[i] = !d.Counter.Grant(i, given, &n.totals[i])
		}
		d.Counter.Granted(units, t.most, t.ahead, now, n.options.Random.fraction())
		d.Counter.Heard(answered)
		n.noteExcess(d, now)
		again := d.Counter.Own(owned, now)
		if n.write(d, now) {
			if again {
				n.enlist(d)
			}
			for i := range d.Counter.States {
				if lost[i] && units > 0 {
					n.returnGrant(part, i, units, at)
				}
			}
			return
		}
	}
	n.Tallies.GivenUp++
	for i := range part.rule.Limits {
		n.returnGrant(part, i, units, at)
	}
}

// stray reports whether an answer has no place in a demand's entry, which was read: the rule does not
// synchronise any more, and nor does the entry, which is newer. Its hits would be taken for some that
// the backend has yet to hear of.
func (n *Node) stray(d *Demand) bool { return n.dismissed(d.Rule) && !d.Counter.Identified() }

// returnGrant pushes hits that were granted for limit i, and have no place here, back to where they
// were counted.
func (n *Node) returnGrant(part *claimant, i int, hits uint64, at int64) {
	if hits == 0 {
		return
	}
	l := &part.rule.Limits[i]
	push := &n.push
	number, counts := l.LeaseNumber(at, &n.totals[i])
	if !counts {
		return
	}
	push.Newest = number
	push.Hits, push.Ages = append(push.Hits[:0], -int64(hits)), push.Ages[:0]
	if l.Kind.Bucketed() {
		push.Ages = append(push.Ages, 0)
	}
	n.hasty = n.hasty || part.rule.exact()
	n.keepOrphan(part.id, l, push, n.now()+2*l.Width) // if there is no room, the hits stay unused until their window ends
}

// learn keeps the totals of an answer in a key's entry, for the headers, and for the time when the
// backend is away.
func (n *Node) learn(part *claimant, answered int64) {
	d := n.at(part.rule, part.address)
	for range n.table.Attempts() {
		now := n.now()
		n.read(d, now)
		if n.stray(d) || !d.slot.Found() && n.nothing(len(d.Counter.States)) {
			return
		}
		if !d.Counter.Identified() {
			d.Counter.Identify(part.id)
		}
		for i := range d.Counter.States {
			d.Counter.Learn(i, answered, &n.totals[i])
		}
		d.Counter.Heard(answered)
		n.noteExcess(d, now)
		// What was counted before the rule had a backend is still to be pushed.
		adopted := (part.rule.Watched || d.Counter.Pending()) && n.adopt(d, now)
		if n.write(d, now) {
			if adopted {
				n.enlist(d)
			}
			return
		}
	}
	n.Tallies.GivenUp++
}

// nothing reports whether the first totals have no hits.
func (n *Node) nothing(limits int) bool {
	for i := range limits {
		for _, hits := range n.totals[i].Hits {
			if hits != 0 {
				return false
			}
		}
	}
	return true
}
