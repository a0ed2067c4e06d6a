package engine

import (
	"slices"

	"weir/internal/engine/credit"
	"weir/internal/engine/entry"
	"weir/internal/engine/feed"
	"weir/internal/engine/jitter"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/meter"
	"weir/internal/wire"
)

const (
	// maxBatches bounds the pushes without an answer. While the backend is away hits gather in the
	// table instead, where all hits of a key are one number.
	maxBatches = 8
	// maxUnanswered bounds the batches that are not done, failed batches included. At that number
	// no request waits.
	maxUnanswered = 64
	// maxBehind is how many later pushes may be answered before a refused push is given up. A
	// backend remembers at least that many of a sender's sequences. If the backend has answered the
	// push in part, the push stays, and later pushes have another sender.
	maxBehind = 2048
	// partlyFailures bounds the pauses of a batch whose answer is incomplete: until it is complete,
	// nothing else is sent to the partitions concerned.
	partlyFailures = 3
	// usualBytes and usualItems are the size of a batch that a tick fills. Together with the
	// runtime's word in front of them, the items fill a size class.
	usualBytes = 16 << 10
	usualItems = 511
)

// outbox has a worker's pushes that are not done.
type outbox struct {
	tallies *entry.Tallies
	host    Host
	link    *link.Link
	feed    *feed.Feed
	waits   *waits
	credit  *credit.Credit
	ledger  *ledger.Ledger

	namespace string
	id        uint64 // of the table, and thus of the process
	worker    uint64 // the worker's name in reports
	sender    uint64 // of further pushes
	sequence  uint64
	batches   []*batch // not done, in the order of their sequence
	poll      batch    // the worker's poll
	message   []byte   // the last one sent
	idle      []*batch
	away      wire.PartitionSet // partitions that incomplete answers lacked, or may have
	shared    wire.PartitionSet // partitions of which no more questions of several are asked meanwhile
	asking    int               // callouts that requests wait for
	tests     bool              // a push is to test whether the backend is back
}

// newBatch begins a batch. One that asks for overrides has nothing else.
func (c *outbox) newBatch(how feed.Inquiry) (b *batch) {
	if oldest := c.oldest(); oldest != nil && oldest.state != answered && c.sequence-oldest.head.Sequence >= maxBehind {
		if oldest.partly {
			c.sender = nextSender(c.sender)
		} else {
			c.giveUp(oldest)
		}
	}
	if last := len(c.idle) - 1; last >= 0 {
		b = c.idle[last]
		c.idle = c.idle[:last]
	} else {
		b = &batch{body: make([]byte, 0, usualBytes), items: make([]pushed, 0, usualItems)}
	}
	c.sequence++
	floor := c.sequence
	if oldest := c.oldest(); oldest != nil {
		floor = oldest.head.Sequence
	}
	*b = batch{body: b.body[:0], items: b.items[:0], asks: b.asks[:0], inquires: how, head: wire.Push{
		Namespace: c.namespace, Node: c.id, Sender: c.sender, Sequence: c.sequence, Floor: floor, Known: c.feed.Known(how),
		Advance: c.credit.Says(c.sender, c.sequence, how != feed.None),
	}}
	c.batches = append(c.batches, b)
	return b
}

// nextSender returns another name for the sender, as random as the first: a step of Knuth's MMIX
// generator.
func nextSender(sender uint64) uint64 { return sender*6364136223846793005 + 1442695040888963407 }

// oldest returns this sender's first batch that isn't done. There may also be inherited batches.
func (c *outbox) oldest() *batch {
	for _, b := range c.batches {
		if b.head.Sender == c.sender {
			return b
		}
	}
	return nil
}

// send sends a batch, or drops it if it is empty.
func (c *outbox) send(b *batch) {
	switch {
	case b == nil || b.state != filling:
	case len(b.items)+len(b.asks) == 0:
		c.finish(b)
	default:
		c.post(b)
	}
}

// post makes a callout of a batch. Its end is reported later.
func (c *outbox) post(b *batch) {
	if b.state == filling {
		c.seal(b)
	}
	b.state, b.sentAt = sent, c.host.Now()
	if !c.hand(b) {
		c.fail(b, link.PushUnsent)
	}
}

// hand gives a batch's message to the host, which keeps none of it.
func (c *outbox) hand(b *batch) (sent bool) {
	c.message = b.appendTo(c.message[:0])
	return c.host.Send(c.message, Ticket{batch: b, sender: b.head.Sender, sequence: b.head.Sequence})
}

// account sends a message about usage.
func (c *outbox) account(m *meter.Message) (sent bool) {
	return c.host.Send(m.Body, Ticket{used: m, sender: m.Sender, sequence: m.Sequence})
}

// seal ends the filling of a batch.
func (c *outbox) seal(b *batch) {
	b.head.Advance.Settled = b.head.Advance.Present && c.ledger.Settles(b.ahead, c.link.Now())
}

// postEmpty sends an empty batch, for the news in every answer, and for overrides.
func (c *outbox) postEmpty() {
	b := c.newBatch(feed.Question)
	b.ends = c.link.Now() + jitter.LongestPause
	c.post(b)
}

// sendTest sends the push that is to test whether the backend is back, if a request has asked for it.
func (c *outbox) sendTest() {
	if c.tests {
		c.tests = false
		c.postEmpty()
	}
}

// fail schedules a batch to be sent again. No request waits for it any more.
func (c *outbox) fail(b *batch, why link.Outcome) {
	c.tallies.Failed++
	c.ended(b)
	b.state = failed
	c.pause(b)
	c.link.Failed(why, b.sentAt)
	for _, t := range b.asks {
		c.waits.release(t)
	}
}

// pause sets when a batch is sent again.
func (c *outbox) pause(b *batch) {
	b.retryAt = c.link.Now() + c.link.Random.Pause(b.failures)
	b.failures++
}

// crammed reports whether too many batches lack an answer. Those with an incomplete answer are sent
// again rarely, and delay no others unless there are too many in all.
func (c *outbox) crammed() bool {
	open := 0
	for _, b := range c.batches {
		if !b.partly {
			open++
		}
	}
	return open >= maxBatches || len(c.batches) >= maxUnanswered
}

// ended records that a batch's callout has ended.
func (c *outbox) ended(b *batch) {
	if b.asking {
		b.asking = false
		c.asking--
	}
}

// giveUp drops a batch that the backend will never accept.
func (c *outbox) giveUp(b *batch) {
	c.tallies.Lost += b.hits
	c.ended(b)
	asks := b.asks
	b.asks = nil
	c.finish(b)
	for _, t := range asks {
		c.unprobed(t)
		c.waits.release(t)
	}
}

// unprobed takes in that nothing tells any more what an ask was to tell.
func (c *outbox) unprobed(t *ask) {
	if t.probes {
		c.acquit(t.partitions())
	}
}

//go:noinline
func (c *outbox) finish(b *batch) {
	if i := slices.Index(c.batches, b); i >= 0 {
		c.batches = slices.Delete(c.batches, i, i+1)
	}
	c.lookAway()
	b.forgo()
	for _, t := range b.asks {
		c.unprobed(t)
		c.waits.recycle(t)
	}
	clear(b.asks)
	b.state = answered // a callout of it that hung may end yet
	c.idle = append(c.idle, b)
}

// resend sends failed batches again after their pause, and drops those whose hits count no more.
// While the breaker is open, one batch tests whether the backend is back. A callout that has not
// ended long after its timeout counts as failed.
func (c *outbox) resend(now int64) {
	clock := c.host.Now()
	for _, b := range c.batches {
		if ago := clock - b.sentAt; b.state == sent && (ago > c.link.Timeout+jitter.LongestPause || ago < -jitter.LongestPause) {
			c.fail(b, link.PushLost)
		}
	}
	for i := len(c.batches) - 1; i >= 0; i-- {
		if b := c.batches[i]; b.state == failed && now > b.ends {
			c.finish(b)
		}
	}
	first := c.tallies.Failed // another one each time, in case the batch itself causes the failure
	for i := range c.batches {
		b := c.batches[(uint64(i)+first)%uint64(len(c.batches))]
		if b.state != failed || now < b.retryAt && b.retryAt-now <= 2*jitter.LongestPause {
			continue
		}
		if !c.link.Enter() {
			return
		}
		c.post(b)
	}
}

// pollPatience is how long the host waits for the answer to a poll: by pollSlack longer than the backend waits
// for news, in nanoseconds.
const (
	pollPatience = wire.LongestPoll + pollSlack
	pollSlack    = jitter.LongestPause
)

// sendPoll sends the poll, with the part about overrides, and reports whether it is on its way.
func (c *outbox) sendPoll(now int64, known wire.Known) bool {
	b := &c.poll
	next := b.head.Sequence + 1
	*b = batch{
		head: wire.Push{Namespace: c.namespace, Node: c.id, Sender: c.worker, Sequence: next, Floor: next, Known: known},
		body: b.body[:0], inquires: feed.Poll, state: sent, sentAt: now,
	}
	if !c.hand(b) {
		b.state = filling
		return false
	}
	return true
}

// polled reports whether the poll is unanswered.
func (c *outbox) polled(now int64) bool {
	b := &c.poll
	ago := now - b.sentAt
	return b.state == sent && ago >= 0 && ago <= pollPatience+pollSlack
}

// lookAway updates the set of partitions that are away.
func (c *outbox) lookAway() {
	c.away, c.shared = 0, 0
	for _, b := range c.batches {
		c.away |= b.lacks | b.suspects
		c.shared |= b.shared
	}
}

// acquit ends the suspicion that some partitions are away.
func (c *outbox) acquit(of wire.PartitionSet) {
	for _, b := range c.batches {
		b.suspects &^= of
	}
	c.lookAway()
}
