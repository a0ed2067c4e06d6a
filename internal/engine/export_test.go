package engine

import (
	"math"

	"weir/internal/counter"
	"weir/internal/engine/feed"
	"weir/internal/engine/straight"
	"weir/internal/wire"
)

// This file is all that tests see of the package's layout; the others are of package engine_test.

const (
	AnswerBytes  = answerBytes
	LeastUnsent  = leastUnsent
	LeaveNanos   = leaveNanos
	MaxAsking    = maxAsking
	MaxBatches   = maxBatches
	MaxBehind    = maxBehind
	MaxCollected = maxCollected
	MaxIdleParts = maxIdleParts
	MaxUnsent    = maxUnsent
	MaxWaiting   = maxWaiting
)

// The backend, as the worker knows it.

// Away is the partitions that get no push now.
func (e *Engine) Away() wire.PartitionSet { return e.outbox.away }

// BreakerOpen reports whether the breaker is open.
func (e *Engine) BreakerOpen() bool { return e.link.Open() }

// ReadLink takes in what other workers have found out about the backend, as each tick does.
func (e *Engine) ReadLink() { e.link.Read() }

// PassedAlone reports whether a request has ever passed without the backend, and the most nodes known
// of while such hits counted.
func (e *Engine) PassedAlone() (peak uint64, ever bool) { return e.link.CountsAlone(0, math.MaxInt64) }

// Shift moves the backend's clock, as the worker knows it.
func (e *Engine) Shift(by int64) {
	now := e.link.HostNow()
	e.link.Answered(true, now, e.link.ToBackend(now)+by, e.Nodes())
}

// AskForList makes the worker ask at the next tick for the list of overrides that it wants.
func (e *Engine) AskForList() { e.feed.AskAtOnce() }

// Counters.

// InForce is the rule with the limits by which a check is decided now.
func (e *Engine) InForce(d *Check) *Rule {
	e.entries.Locate(d)
	return d.Rule
}

// Write writes the counter of a check that was looked at, unless another worker was faster.
func (e *Engine) Write(d *Check, now int64) bool { return e.entries.Write(d, now) }

// Line is how many requests of all workers wait for room at a check's key.
func (e *Engine) Line(d *Check) int { return e.requests.lines.Waiting(d.Address) }

// Calm reports whether the keys with hits to push begin with a block of which none is due.
func (e *Engine) Calm() bool { return e.pending.Dirty.Calm(e.link.Now()) }

// PushDue pushes the hits that are due at a time, until a deadline. It returns false if time ran out.
func (e *Engine) PushDue(now, deadline int64) (done bool) { return e.pushes.pushDue(now, deadline) }

// Unpushed calls visit with the hits that neither a counter in the table has nor a push: those of
// evicted counters, and those that were advanced.
func (e *Engine) Unpushed(visit func(c wire.LimitCounter, hits int64)) {
	items := e.ledger.Unsent()
	for _, o := range e.pending.Orphans() {
		items = append(items, o.Item)
	}
	for i := range items {
		for _, hits := range items[i].Hits {
			visit(items[i].LimitCounter, hits)
		}
	}
}

// OnCredit calls visit with advanced hits that no push has, which name no push, and with those of pushes that
// are not settled.
func (e *Engine) OnCredit(visit func(sender, sequence uint64, item *wire.Item)) {
	items := e.ledger.Unsent()
	for i := range items {
		visit(0, 0, &items[i])
	}
	for _, b := range e.outbox.batches {
		push, err := wire.DecodePush(b.appendTo(nil))
		for i := range b.items {
			if err == nil && b.state != answered && b.items[i].Ahead != nil {
				visit(b.head.Sender, b.head.Sequence, &push.Items[i])
			}
		}
	}
}

// The part of each limit that the worker may advance.

// Part is what the worker would tell the backend of its part.
func (e *Engine) Part() wire.Advance {
	c := e.credit // asking changes it
	return c.Says(e.outbox.sender, e.outbox.sequence, false)
}

// DropPart ends the part.
func (e *Engine) DropPart() { e.credit.Drop() }

// HearPart takes in the answer to the push of a sequence.
func (e *Engine) HearPart(n *wire.Near, sequence uint64, answeredAt int64) {
	e.credit.Hear(&wire.Advance{}, n, sequence, 0, answeredAt)
}

// Advanced is how many hits of a check's key are advanced and not counted.
func (e *Engine) Advanced(d *Check) uint64 { return e.ledger.Uncounted(d.Address) }

// Questions for hits.

// Ask is a question for hits.
type Ask = ask

// NewAsk returns a question of a request for hits of rules.
func NewAsk(rules ...*Rule) *Ask {
	t := &ask{least: 1, most: 1}
	for _, r := range rules {
		t.parts = append(t.parts, Ref{Rule: r, Cost: 1})
	}
	return t
}

// AnswerSize is the most bytes that the answer takes.
func (t *ask) AnswerSize() int { return t.answerSize() }

// Wanted is how many hits it asks for; 0 once all of its requests have left.
func (t *ask) Wanted() uint64 {
	if !t.wanted() {
		return 0
	}
	return t.most
}

// Capacity is for how many keys and requests it keeps memory.
func (t *ask) Capacity() (keys, requests int) { return cap(t.parts), cap(t.turns) }

// Prefetch asks for hits of a check that was looked at, for requests to come.
func (e *Engine) Prefetch(d *Check) { e.acquires.prefetch(d) }

// Unsent are the questions that are in no push yet.
func (e *Engine) Unsent() []*Ask { return e.acquires.unsent }

// Spare are the questions that are kept for reuse.
func (e *Engine) Spare() []*Ask { return e.waits.spare }

// Find returns the question for leases that has the key of another one.
func (e *Engine) Find(t *Ask) *Ask {
	return e.waits.leases.find(&Check{Ref: t.parts[0]}, t.ahead, t.parts[0].Cost)
}

// Listed is how many questions for leases can be found by their keys.
func (e *Engine) Listed() (n int) {
	for _, t := range e.waits.leases {
		for ; t != nil; t = t.next {
			n++
		}
	}
	return n
}

// Forget has a question not be found by its key any more.
func (e *Engine) Forget(t *Ask) { e.waits.forget(t) }

// Pushes.

// Idle is how many pushes are kept for reuse, and how many of them are different.
func (e *Engine) Idle() (kept, different int) {
	seen := map[*batch]bool{}
	for _, b := range e.outbox.idle {
		seen[b] = true
	}
	return len(e.outbox.idle), len(seen)
}

// Push is a push that is not done.
type Push struct {
	Sender, Sequence uint64
	Body             []byte // its answer, if that is not settled
	Filling          bool   // not sent yet
}

// Pushes are the pushes that are not done, in the order of their sequence.
func (e *Engine) Pushes() (pushes []Push) {
	for _, b := range e.outbox.batches {
		body := b.body
		if b.state != answered {
			body = b.appendTo(nil)
		}
		pushes = append(pushes, Push{b.head.Sender, b.head.Sequence, body, b.state == filling})
	}
	return pushes
}

// Batch is a push of questions that is being filled.
type Batch struct {
	of *Engine
	b  *batch
}

// NewBatch begins a push.
func (e *Engine) NewBatch() Batch { return Batch{e, e.outbox.newBatch(feed.None)} }

// Add adds a question.
func (b Batch) Add(t *Ask) { b.of.acquires.encode(b.b, t, b.of.link.Now()) }

// Fits reports whether there is room for another question.
func (b Batch) Fits(t *Ask) bool { return b.b.fits(t) }

// AnswerSize is the most bytes that the answer takes.
func (b Batch) AnswerSize() int { return b.b.answers }

// Body returns the push.
func (b Batch) Body() []byte { return b.b.appendTo(nil) }

// GoAround makes the node decide all requests the general way.
func (e *Engine) GoAround() { e.straight = false }

// Remembers reports whether the refusal of a located check is remembered.
func (e *Engine) Remembers(d *Check, now int64) bool { return e.entries.Remembers(d, now) }

// DecideOne decides a request of one check the straight way, if that can.
func (e *Engine) DecideOne(checks []Check, now int64) counter.Verdict {
	e.entries.Locate(&checks[0])
	verdict := straight.One(&e.entries, &checks[0], now, e.rules.Yields)
	if verdict == counter.Rejected {
		e.decider.reject(checks, now)
	}
	return verdict
}
