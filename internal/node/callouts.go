package node

import (
	"weir/internal/wire"
)

const (
	// maxBatches bounds the pushes that have no answer yet. While the backend is away hits pile up
	// in the table instead, where there is one number for all hits of a key.
	maxBatches = 8
	// maxUnanswered bounds the batches that are not done, those that failed among them: with so
	// many nobody waits.
	maxUnanswered = 64
	// maxBehind is how many later pushes may be answered before one that the backend refuses is
	// given up: a backend remembers so many of a sender's sequences, and more.
	maxBehind = 2048
	// usualBytes and usualItems are what a batch has that a tick fills. The runtime keeps a word
	// for itself in front of items, and they should fill a size class all the same.
	usualBytes = 16 << 10
	usualItems = 511
	// maxIdleTakes bounds the takes that are kept to be used again, and maxIdleParts the keys and
	// waiters that each keeps room for.
	maxIdleTakes = 2048
	maxIdleParts = 16
	// tickNanos is how long a tick may work, and tickKeys how many keys or requests it handles
	// between two looks at the clock.
	tickNanos = int64(1e6)
	tickKeys  = 16
)

// connected reports whether the backend can be reached, as far as is known.
func (n *Node) connected(now int64) bool { return n.link.connected(now - n.link.offset) }

// adopt reports whether this worker is to push what a demand's counter is about to take or give
// back.
func (n *Node) adopt(d *Demand, now int64) bool {
	return d.Counter.Adopt(now, !n.link.open())
}

// late reports whether a tick's time is over, looking at the clock for some keys only.
//
//go:noinline
func (n *Node) late(handled int, deadline int64) bool {
	return handled%tickKeys == tickKeys-1 && n.hostNow() >= deadline
}

// hurry asks for ticks every millisecond while there is more to do than usual.
func (n *Node) hurry(more bool) {
	if n.hurried == more {
		return
	}
	millis := n.tickMillis
	if n.hurried = more; more {
		millis = 1
	}
	n.options.Host.TickEvery(millis)
}

// newBatch begins a batch.
func (n *Node) newBatch() *batch { return n.newBatchOf(false) }

// newBatchOf begins a batch that asks for overrides, and has nothing else, or one that does not.
func (n *Node) newBatchOf(asks bool) (b *batch) {
	if oldest := n.oldest(); oldest != nil && oldest.state != answered && n.sequence-oldest.sequence >= maxBehind {
		n.giveUp(oldest)
	}
	if last := len(n.idle) - 1; last >= 0 {
		b = n.idle[last]
		n.idle = n.idle[:last]
	} else {
		b = &batch{body: make([]byte, 0, usualBytes), items: make([]pushed, 0, usualItems)}
	}
	n.sequence++
	*b = batch{sender: n.sender, sequence: n.sequence, body: b.body, items: b.items[:0], takes: b.takes[:0]}
	floor := b.sequence
	if oldest := n.oldest(); oldest != nil {
		floor = oldest.sequence
	}
	b.asks = asks
	b.body = wire.AppendPushHeader(b.body[:0], &wire.Push{
		Namespace: n.options.Namespace, Node: n.id, Sender: n.sender, Sequence: b.sequence, Floor: floor, Known: n.known(asks),
	}, 0)
	b.head = len(b.body)
	n.batches = append(n.batches, b)
	return b
}

// oldest is the first of this sender's batches that aren't done. There may be others, which were
// inherited.
func (n *Node) oldest() *batch {
	for _, b := range n.batches {
		if b.sender == n.sender {
			return b
		}
	}
	return nil
}

// send sends a batch that was filled, and forgets one that stayed empty.
func (n *Node) send(b *batch) {
	switch {
	case b == nil || b.state != filling:
	case len(b.items)+len(b.takes) == 0:
		n.finish(b)
	default:
		n.post(b)
	}
}

// post makes a callout of a batch. Its answer, or the lack of one, arrives later.
func (n *Node) post(b *batch) {
	if b.state == filling {
		b.close()
	}
	b.state, b.sentAt = sent, n.hostNow()
	b.tries++
	if !n.options.Host.Send(b.body, Ticket{batch: b, sender: b.sender, sequence: b.sequence}) {
		n.fail(b, PushUnsent)
	}
}

// postEmpty sends a batch of nothing, for what every answer tells, and for overrides.
func (n *Node) postEmpty() {
	b := n.newBatchOf(true)
	b.ends = n.now() + longestPause
	n.post(b)
}

// fail has a batch sent again after a pause. Nobody waits for it any more.
func (n *Node) fail(b *batch, why Outcome) {
	n.Tallies.Failed++
	n.ended(b)
	b.state = failed
	n.pause(b)
	if n.link.failed(n.hostNow(), b.sentAt) {
		n.turn(why)
	}
	for _, t := range b.takes {
		n.release(t)
	}
}

// pause says when a batch is sent again.
func (n *Node) pause(b *batch) {
	pause := min(shortestPause<<min(b.failures, 10), longestPause)
	b.failures++
	b.retryAt = n.now() + n.options.Random.around(pause)
}

// crammed reports whether too many batches have no answer. Those that lack a part of it are sent
// again rarely, and hold up no others as long as there are not too many of any sort.
func (n *Node) crammed() bool {
	open := 0
	for _, b := range n.batches {
		if !b.partly {
			open++
		}
	}
	return open >= maxBatches || len(n.batches) >= maxUnanswered
}

// ended notes that a batch's callout has ended.
func (n *Node) ended(b *batch) {
	if b.asking {
		b.asking = false
		n.asking--
	}
}

// giveUp forgets a batch that the backend will never take.
func (n *Node) giveUp(b *batch) {
	n.Tallies.Lost += b.hits
	n.ended(b)
	takes := b.takes
	b.takes = nil
	n.finish(b)
	for _, t := range takes {
		n.release(t)
	}
}

//go:noinline
func (n *Node) finish(b *batch) {
	for i := range n.batches {
		if n.batches[i] == b {
			n.batches = append(n.batches[:i], n.batches[i+1:]...)
			break
		}
	}
	for _, t := range b.takes {
		n.recycle(t)
	}
	clear(b.takes)
	n.idle = append(n.idle, b)
}

// resend sends failed batches again once their pause is over, and forgets those that nobody can
// want any more. While the breaker is open one batch reports whether the backend is back. A callout
// that has not ended long after its timeout has failed.
func (n *Node) resend(now int64) {
	clock := n.hostNow()
	for _, b := range n.batches {
		if ago := clock - b.sentAt; b.state == sent && (ago > n.options.Timeout+longestPause || ago < -longestPause) {
			n.fail(b, PushLost)
		}
	}
	for i := len(n.batches) - 1; i >= 0; i-- {
		if b := n.batches[i]; b.state == failed && now > b.ends {
			n.finish(b)
		}
	}
	for i := range n.batches {
		// Another one each time, in case it is the batch that is at fault.
		b := n.batches[(i+int(n.link.shared.failures))%len(n.batches)]
		if b.state != failed || now < b.retryAt && b.retryAt-now <= 2*longestPause {
			continue
		}
		if !n.link.enter(n.hostNow(), n.options.Timeout) {
			return
		}
		n.post(b)
	}
}

// newTake makes a take of nothing yet.
func (n *Node) newTake(least, most uint64) *take {
	last := len(n.spare) - 1
	if last < 0 {
		return &take{least: least, most: most}
	}
	t := n.spare[last]
	n.spare = n.spare[:last]
	*t = take{parts: t.parts[:0], least: least, most: most, waiters: t.waiters[:0]}
	return t
}

// newLease makes a take of hits for the entry of a demand's key.
func (n *Node) newLease(d *Demand, least, most uint64) *take {
	t := n.newTake(least, most)
	t.lease = true
	t.parts = append(t.parts, claimant{address: d.address, rule: d.Rule, id: n.identity(d), cost: 1})
	return t
}

// recycle has a take used again that nothing refers to any more.
//
//go:noinline
func (n *Node) recycle(t *take) {
	if len(n.spare) < maxIdleTakes {
		clear(t.parts)
		clear(t.waiters)
		// A key that many wait for would leave its room to each of them in turn.
		if cap(t.waiters) > maxIdleParts {
			t.waiters = nil
		}
		if cap(t.parts) > maxIdleParts {
			t.parts = nil
		}
		n.spare = append(n.spare, t)
	}
}

// addTake adds a wish to a batch.
func (n *Node) addTake(b *batch, t *take, now int64) {
	n.rooms = n.rooms[:0]
	for i := range t.parts {
		part := &t.parts[i]
		for j := range part.rule.Limits {
			l := &part.rule.Limits[j]
			room := wire.Room{
				LimitCounter: counterOf(part.id, l, l.WidthAt(now)), Limit: l.Max, Burst: l.Burst, Cost: part.cost,
				CountRejected: !t.lease && part.rule.CountRejected,
			}
			n.rooms = append(n.rooms, room)
			b.ends = max(b.ends, now+int64(room.AgainNanos()))
		}
	}
	wanted := wire.Take{Least: t.least, Most: t.most, Lease: t.ahead, Rooms: n.rooms}
	b.reserve()
	b.body = wire.AppendTake(b.body, &wanted)
	b.answers += wanted.AnswerSize()
	b.rooms += len(n.rooms)
	b.takes = append(b.takes, t)
}

// release has the requests that wait for a take decided without the backend. Not at once, as
// another may be being decided: when released are.
func (n *Node) release(t *take) {
	for _, w := range t.waiters {
		switch {
		case !w.waits():
		case w.wait.entering:
			w.wait.Leave() // who makes it wait decides it
		default:
			n.released = append(n.released, w)
		}
	}
	if t.lease {
		t.waiters = nil
	}
}
