package engine

import (
	"slices"

	"weir/internal/engine/feed"
	"weir/internal/engine/link"
)

// leastNanos is the time in a tick that is reserved for asks and waiting requests, in nanoseconds.
const leastNanos = tickNanos / 4

// Tick does the work that is due, for at most the time of a tick. The host calls it at the interval of TickEvery.
func (e *Engine) Tick() {
	e.Charges.Retry(e.link.Now())
	e.entries.Recent.Forget()
	if e.rules.Synced {
		e.synchronise()
	}
	if e.requests.lines != nil {
		e.requests.letGo()
	}
}

// synchronise is Tick for a node with a backend.
func (e *Engine) synchronise() {
	e.rules.ReadExcess()
	e.rules.Share(e.link.Read())
	start := e.ticks.host.Now()
	deadline := start + tickNanos
	done := e.answers.settle(deadline)
	adopted := e.feed.AdoptOverrides(func(handled int) bool { return late(e.ticks.host, handled, deadline) })
	e.outbox.resend(e.link.ToBackend(start))
	e.pending.DropEnded(e.link.ToBackend(start))
	// Requests that wait for nothing come before pushes, which could use up all the time again and
	// again.
	until := max(deadline, e.ticks.host.Now()+leastNanos)
	done = e.requests.giveUp(true, until) && done
	e.outbox.sendTest()
	news := false
	if e.link.Reach() != link.Near {
		e.acquires.drop()
		if keys, evicted := e.pending.Unpushed(); len(e.outbox.batches) == 0 && (keys+evicted > 0 || e.meter.Unfinished()) && e.link.Enter() {
			e.outbox.postEmpty() // it tests whether the backend is back, as no failed batch will
		}
		news = e.inquire()
	} else {
		news = e.inquire()
		e.pushes.pushCharges()
		if e.credit.Tick() && !e.outbox.crammed() && e.link.Enter() {
			e.outbox.postEmpty()
		}
		if done {
			done = e.pushes.pushDue(e.link.ToBackend(start), deadline)
		}
		until = max(deadline+askNanos, e.ticks.host.Now()+leastNanos)
		e.acquires.sendAll(until)
	}
	e.requests.giveUp(false, until)
	e.observer.Report()
	e.meter.Send(false)
	soon := e.ticks.host.Now() + int64(e.ticks.millis)*1e6
	e.requests.schedule(!done || !adopted || news || e.waits.queue.endsBy(soon))
}

// inquire asks the backend for news if it is time. soon means that the next tick should. A node that leaves needs none, and
// would wait for the answers.
func (e *Engine) inquire() (soon bool) {
	if e.rules.Leaving {
		return false
	}
	now := e.ticks.host.Now()
	how, known, soon := e.feed.Ask(feed.Outbox{
		Asks:  slices.ContainsFunc(e.outbox.batches, func(b *batch) bool { return b.inquires != feed.None }),
		Polls: e.outbox.polled(now), Crammed: e.outbox.crammed(), Quiet: !e.pushes.unfinished(),
	}, now+int64(e.ticks.millis)*1e6)
	switch {
	case how == feed.Question:
		e.outbox.postEmpty()
	case how == feed.Poll && !e.outbox.sendPoll(now, known):
		e.feed.Hear(feed.Poll, nil, 0, 0)
	}
	return soon
}

// Answered reports the end of a push: an answer or a failure. The node keeps the answer, and
// processes it as time permits.
func (e *Engine) Answered(t Ticket, outcome link.Outcome, answer []byte) {
	b := t.batch
	switch {
	case t.used != nil:
		e.meter.Answered(t.used, t.sender, t.sequence, outcome, answer)
		return
	case b == nil:
		e.observer.Answered(outcome, answer)
		return
	}
	if b.head.Sender != t.sender || b.head.Sequence != t.sequence || b.state != sent {
		return
	}
	if b.inquires == feed.Poll {
		e.answers.takePoll(b, outcome, answer)
		e.requests.schedule(e.ticks.hurried)
		return
	}
	now := e.ticks.host.Now()
	deadline := now + tickNanos
	if b.asking {
		e.acquires.quick = now-b.sentAt < 4*e.acquires.collect
	}
	more := false
	if e.answers.takeIn(b, outcome, answer) {
		more = !e.answers.settle(deadline) || e.pushes.crowded
		e.pushes.pushCharges()
		deadline = max(deadline, e.ticks.host.Now()+leastNanos)
		e.acquires.sendAll(deadline)
	}
	e.requests.giveUp(false, deadline)
	e.requests.schedule(e.ticks.hurried || more)
}

const (
	// idleMillis is the time between ticks of a node without a backend that delays requests.
	idleMillis = 1000
	// tickNanos is how long a tick may work.
	tickNanos = int64(1e6)
)

// ticks says when a node's host calls it.
type ticks struct {
	_ [0]func() // keeps Go from generating an equality function

	host    Host
	millis  uint32 // the usual time between ticks
	hurried bool   // there is more to do: ticks come every millisecond
	due     int64  // when requests that wait for room are to be decided, by the host's clock
	period  uint32 // that the host was last asked for
}

// hurry says whether there is more to do.
func (t *ticks) hurry(more bool) {
	if t.hurried != more {
		t.hurried = more
		t.set()
	}
}

// expect says when requests that wait for room are to be decided.
func (t *ticks) expect(at int64) {
	t.due = at
	t.set()
}

// set sets the host's timer. Nobody else does.
func (t *ticks) set() {
	millis := uint32(1)
	if !t.hurried {
		millis = uint32(max(1, min((t.due-t.host.Now()-1)/1e6+1, int64(t.millis))))
	}
	if t.period != millis {
		t.period = millis
		t.host.TickEvery(millis)
	}
}

// tickKeys is how many keys or requests a tick handles between two looks at the clock.
const tickKeys = 16

// late reports whether a tick's time is over. It checks the clock only once for some keys.
//
//go:noinline
func late(host Host, handled int, deadline int64) bool {
	return handled%tickKeys == tickKeys-1 && host.Now() >= deadline
}
