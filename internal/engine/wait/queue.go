// Package wait has the requests that wait for room, with a line for each key: those of a worker in its own
// memory, and the order of all workers of a process in shared data.
package wait

import "weir/sharedata"

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
	now     func() int64
	within  func(nanos int64)
	of      map[sharedata.Address]*line
	due     alarms // when a line has something to do
	order   order
	waiting int
	ticked  int64
}

// NewQueue returns the queue of a worker. now is the clock. The queue calls within when it has something to
// do in that time.
func NewQueue(data sharedata.Data, namespace string, worker uint32, now func() int64, within func(nanos int64)) *Queue {
	return &Queue{now: now, within: within, of: map[sharedata.Address]*line{}, order: newOrder(data, namespace, worker)}
}

// Place is a request's place in a queue. Its memory may serve again when it has left.
type Place struct {
	// Of is the request. A parameter for its type would make the module 4 KB larger.
	Of any
	// Since is when the wait began, and Leaves when it ends.
	Since, Leaves int64
	// Delayed is how long the request waited, once it has left.
	Delayed int64

	line          *line
	ahead, behind *Place
	ticket        uint64 // in the order of all workers
}

// line has a key's requests of this worker, in the order of their coming. Only the first is decided.
type line struct {
	alarm       alarm // at dueAt, or when the entry is to be renewed
	queue       *Queue
	address     sharedata.Address
	first, last *Place
	waiting     int
	dueAt       int64 // when to decide the first again
	ends        int64 // when the wait of the last to join ends
	// renewAt is when to renew the line's entry in the order.
	renewAt int64
}

// Len is how many requests of this worker wait.
func (q *Queue) Len() int { return q.waiting }

// Waiting is how many requests of all workers wait at an address.
func (q *Queue) Waiting(a sharedata.Address) (n int) {
	seen := q.order.read(a, q.now())
	if l := q.of[a]; l != nil {
		n = l.waiting
	}
	return seen.waiting + n
}

// Join makes a request wait at an address from now until a time, unless most wait there already.
func (q *Queue) Join(p *Place, a sharedata.Address, now, until int64, most int) (joined bool) {
	if q.waiting >= maxWaiting {
		return false
	}
	l := q.of[a]
	if l == nil {
		l = &line{queue: q, address: a}
		l.alarm.of = l
	}
	e := l.entry(now, max(l.ends, until))
	ticket, joined := q.order.join(a, e, now, most)
	if !joined {
		return false
	}
	l.ends = max(l.ends, until)
	l.keptUntil(e.until)
	p.Since, p.Leaves, p.ticket = now, until, ticket
	p.line, p.ahead, p.behind = l, l.last, nil
	if l.last == nil {
		l.first, l.dueAt = p, now
		q.of[a] = l
	} else {
		l.last.behind = p
	}
	l.last = p
	l.waiting++
	q.waiting++
	l.wake()
	return true
}

// Tick takes in the time. If the clock has gone back, all lines are due.
func (q *Queue) Tick(now int64) {
	if now < q.ticked {
		for _, a := range q.due.list {
			a.at, a.of.dueAt, a.of.renewAt = now, now, now
			for p := a.of.first; p != nil; p = p.behind {
				p.rewind(now)
			}
		}
	}
	q.ticked = now
}

// Next returns the first request of the line that has something to do first, and when; nil if nobody waits
// for a time.
func (q *Queue) Next() (p *Place, at int64) {
	next := q.due.earliest()
	if next == nil {
		return nil, 0
	}
	return next.of.first, next.at
}

// Waits reports whether the request waits.
func (p *Place) Waits() bool { return p != nil && p.line != nil }

// Leads reports whether the request is the first of its worker's line.
func (p *Place) Leads() bool { return p.line.first == p }

// Turn reports whether it is time to decide the first request of a line, and whether it is first among all
// workers, too. It also renews the line's entry in the order.
func (p *Place) Turn(now int64) (due, first bool) {
	l := p.line
	seen := l.queue.order.read(l.address, now)
	if !seen.told || now >= l.renewAt {
		l.tell(now)
	}
	if l.dueAt > now {
		l.wake()
		return false, false
	}
	return true, p.ticket < seen.first
}

// Again has the first request of a line be decided again at a time, but not too soon, and at the end of its
// wait at the latest.
func (p *Place) Again(at, now int64) {
	l := p.line
	p.rewind(now) // if its line had no alarm when the clock went back
	l.dueAt = min(max(at, now+LeastDelay), p.Leaves)
	l.wake()
	// The host restarts the time between ticks, which must not delay earlier alarms.
	l.queue.within(l.queue.due.earliest().at - now)
}

// Rest has the line wait for a call of Again, or until its first request leaves.
func (p *Place) Rest() { p.line.queue.due.stop(&p.line.alarm) }

// Address is where the request waits.
func (p *Place) Address() sharedata.Address { return p.line.address }

// Leave removes the request from any place of its line, if it waits. The next request may have room too.
func (p *Place) Leave() {
	if !p.Waits() {
		return
	}
	l := p.line
	q := l.queue
	now := q.now()
	l.waiting--
	q.waiting--
	if p.behind == nil {
		l.last = p.ahead
	} else {
		p.behind.ahead = p.ahead
	}
	if p.ahead != nil {
		p.ahead.behind = p.behind
	} else if l.first = p.behind; l.first != nil {
		q.within(LeastDelay) // an answer may have admitted the previous request
		l.dueAt = now
	}
	l.tell(now)
	if l.first == nil {
		q.due.stop(&l.alarm)
		delete(q.of, l.address)
	} else if p.ahead == nil {
		l.wake()
	}
	p.line, p.ahead, p.behind = nil, nil, nil
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

// wake sets the line's alarm.
func (l *line) wake() { l.queue.due.set(&l.alarm, min(l.dueAt, l.renewAt)) }
