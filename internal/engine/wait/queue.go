// Package wait has the requests that wait for room, with a line for each key: those of a worker in its own
// memory, and the order of all workers of a process in shared data.
package wait

import (
	"math"

	"weir/sharedata"
)

const (
	// LeastDelay is the least time between two decisions of a request that waits for room, in
	// nanoseconds.
	LeastDelay = int64(1e6)
	// grace is how much longer than its requests a line keeps its entry in the order, in nanoseconds.
	// Only an entry of a dead worker lasts that long.
	grace = int64(200e6)
	// maxWaiting bounds the requests of a worker that wait for room, and so their memory.
	maxWaiting = 1 << 14
)

// Queue has a worker's requests that wait for room. All times are of one clock, in nanoseconds. It is not
// safe for concurrent use.
type Queue struct {
	now    func() int64
	expect func(at int64)
	of     map[sharedata.Address]*line
	due    alarms // when a line has something to do
	order  order
	ticked int64
	// Count is how many requests of this worker wait.
	Count int
}

// NewQueue returns the queue of a worker. now is the clock. The queue calls expect with the time when it next has
// something to do.
func NewQueue(data sharedata.Data, namespace string, worker uint32, now func() int64, expect func(at int64)) *Queue {
	return &Queue{now: now, expect: expect, of: map[sharedata.Address]*line{}, order: newOrder(data, namespace, worker)}
}

// Place is a request's place in a queue. Its memory may serve again when it has left.
type Place struct {
	_ [0]func() // keeps Go from generating an equality function

	// Of is the request. A parameter for its type would make the module 4 KB larger.
	Of any
	// Address is where the request waits, Since when the wait began, and Leaves when it ends; 0 if it does not
	// wait.
	Address       sharedata.Address
	Since, Leaves int64
	// Delayed is how long the request waited, once it has left.
	Delayed int64

	line          *line
	ahead, behind *Place
	ticket        uint64 // in the order of all workers
}

// line has a key's requests of this worker, in the order of their coming. Only the first is decided.
type line struct {
	_ [0]func() // keeps Go from generating an equality function

	alarm       alarm // at dueAt, or when the entry is to be renewed
	queue       *Queue
	address     sharedata.Address
	first, last *Place
	waiting     int
	dueAt       int64 // when to decide the first again
	rests       bool  // the first is being decided
	ends        int64 // when the wait of the last to join ends
	// renewAt is when to renew the line's entry in the order.
	renewAt int64
}

// Waiting is how many requests of all workers wait at an address.
func (q *Queue) Waiting(a sharedata.Address) (n int) {
	seen := q.order.read(a, q.now())
	if l := q.of[a]; l != nil {
		n = l.waiting
	}
	return seen.waiting + n
}

// Wish is where and how long a request would wait.
type Wish struct {
	Address     sharedata.Address
	From, Until int64
	// Most is how many may wait there, and Fits decides whether to wait behind so many.
	Most int
	Fits func(ahead int) bool
	// Behind means that it only has to wait if others do.
	Behind bool
}

// Joined is what has become of a wish.
type Joined uint8

const (
	// Free means that nobody waits, so that the request need not.
	Free Joined = iota
	// Refused means that it does not fit, or that too many wait.
	Refused
	// Follows means that it waits behind others of this worker.
	Follows
	// Leads means that it is the first of this worker, and is decided by [Place.Again].
	Leads
)

// Join makes a request wait, if it has to and fits.
func (q *Queue) Join(p *Place, of any, w *Wish) Joined {
	a, now := w.Address, w.From
	switch ahead := q.Waiting(a); {
	case w.Behind && ahead == 0:
		return Free
	case !w.Fits(ahead) || q.Count >= maxWaiting:
		return Refused
	}
	l := q.of[a]
	if l == nil {
		l = &line{queue: q, address: a}
		l.alarm.of = l
	}
	e := l.entry(now, max(l.ends, w.Until))
	ticket, joined := q.order.join(a, e, now, w.Most)
	if !joined {
		return Refused
	}
	l.ends = max(l.ends, w.Until)
	l.keptUntil(e.until)
	p.Of, p.Address, p.Since, p.Leaves, p.ticket = of, a, now, w.Until, ticket
	p.line, p.ahead, p.behind = l, l.last, nil
	if l.last == nil {
		l.first, l.dueAt = p, now
		q.of[a] = l
	} else {
		l.last.behind = p
	}
	l.last = p
	l.waiting++
	q.Count++
	l.wake()
	if l.first == p {
		return Leads
	}
	return Follows
}

// Turn has the line that is due first do what it has to: it renews its entry in the order, or its first
// request p is to be decided, and first says whether that is the first of all workers. The line then rests
// until [Place.Again] or [Place.Leave]. more is false if no line is due yet. If the clock has gone back, all
// are.
func (q *Queue) Turn() (p *Place, first, more bool) {
	now := q.now()
	if now < q.ticked {
		for _, a := range q.due.list {
			a.at, a.of.dueAt, a.of.renewAt = now, now, now
			for p := a.of.first; p != nil; p = p.behind {
				p.rewind(now)
			}
		}
	}
	q.ticked = now
	at, next := int64(math.MaxInt64), q.due.earliest()
	if next != nil {
		at = next.at
	}
	if at > now {
		q.expect(at)
		return nil, false, false
	}
	l := next.of
	seen := q.order.read(l.address, now)
	if !seen.told || now >= l.renewAt {
		l.tell(now)
	}
	if l.dueAt > now {
		l.wake()
		return nil, false, true
	}
	l.rests = true
	q.due.stop(&l.alarm)
	return l.first, l.first.ticket < seen.first, true
}

// Again has the first request of a line be decided again at a time, but not too soon, and at the end of its
// wait at the latest.
func (p *Place) Again(at, now int64) {
	l := p.line
	p.rewind(now) // if its line had no alarm when the clock went back
	l.dueAt, l.rests = min(max(at, now+LeastDelay), p.Leaves), false
	l.wake()
	// The host restarts the time between ticks, which must not delay earlier alarms.
	l.queue.expect(l.queue.due.earliest().at)
}

// Leave removes the request from any place of its line, if it waits. The next request may have room too.
func (p *Place) Leave() {
	l := p.line
	if l == nil {
		return
	}
	q := l.queue
	now := q.now()
	l.waiting--
	q.Count--
	if p.behind == nil {
		l.last = p.ahead
	} else {
		p.behind.ahead = p.ahead
	}
	if p.ahead != nil {
		p.ahead.behind = p.behind
	} else if l.first = p.behind; l.first != nil {
		q.expect(now) // an answer may have admitted the previous request
		l.dueAt, l.rests = now, false
	}
	l.tell(now)
	if l.first == nil {
		q.due.stop(&l.alarm)
		delete(q.of, l.address)
	} else if p.ahead == nil {
		l.wake()
	}
	p.line, p.ahead, p.behind, p.Leaves = nil, nil, nil, 0
	p.Delayed = max(now-p.Since, 1)
}

// rewind makes a wait that seems to begin in the future begin now: the clock has gone back.
func (p *Place) rewind(now int64) {
	if p.Since > now {
		p.Since, p.Leaves = now, p.Leaves-(p.Since-now)
	}
}

// entry is the line's entry in the order, given when the wait of its last request ends.
func (l *line) entry(now, ends int64) entry {
	e := entry{waiting: l.waiting, until: min(ends+grace, now+entryHolds)}
	if l.first != nil {
		e.first = l.first.ticket
	}
	return e
}

// keptUntil records until when the line has its entry.
func (l *line) keptUntil(until int64) {
	if l.renewAt = until; until <= l.ends {
		l.renewAt -= entryRenews
	}
}

// tell writes the line's entry for other workers. If they win every race, the line tries again when
// it wakes.
func (l *line) tell(now int64) {
	e := l.entry(now, l.ends)
	if l.keptUntil(e.until); !l.queue.order.tell(l.address, e, now) {
		l.renewAt = now + LeastDelay
	}
}

// wake sets the line's alarm, unless it rests.
func (l *line) wake() {
	if !l.rests {
		l.queue.due.set(&l.alarm, min(l.dueAt, l.renewAt))
	}
}
