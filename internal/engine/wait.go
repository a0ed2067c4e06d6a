package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
	"weir/internal/engine/wait"
)

// maxWaiting bounds the waiting requests, and so their memory. Further requests are decided as if
// the backend were away, and don't wait for room.
const maxWaiting = 1 << 14

// Request is a request that may have to wait.
type Request interface {
	// Decided ends a wait with the verdict. It is called once, unless the request has left before.
	// The checks are those that the request waited with, after the decision, and are valid during
	// the call.
	Decided(checks []rule.Check, now int64, verdict counter.Verdict)
}

// Wait is the state that a node keeps of a request while it waits. It is part of the request's own
// memory, which may serve later requests. Set Request before anything else.
type Wait struct {
	Request Request
	// Patience is the longest time that the request waits for room, in nanoseconds, if its rules
	// delay requests. 0 leaves it to the rules, and a negative value means no wait.
	Patience int64

	// queue has the request while it waits, between those that began before and after it.
	queue         *queue
	before, after *Wait
	turn          uint32 // counts the waits
	until         int64  // when the wait ends, by the host's clock, or over
	rounds        int    // how often it asked for leases
	joins         int    // how often it waited for hits that were on their way
	asked         int    // how many leases it waits for
	// refused means that the backend has refused it, and that it goes on as hits for requests to come are
	// under way.
	refused  bool
	sighting observe.Sighting
	kept     []rule.Ref

	// room is the place of a request that waits for room, by the host's clock.
	room wait.Place
}

// Waiting reports whether the request waits.
func (w *Wait) Waiting() bool { return w.queue != nil || w.room.Leaves != 0 }

// patient reports whether the request waits if a check has no room.
func (w *Wait) patient(d *rule.Check) bool { return w.Patience >= 0 && d.Rule.Delays() }

// Delayed is how long the request has waited for room, in nanoseconds; 0 if it has not.
func (w *Wait) Delayed() int64 { return w.room.Delayed }

// Leave ends the wait of a request that has gone. Its Decided is not called.
func (w *Wait) Leave() {
	w.stopAsking()
	w.room.Leave()
	w.room.Delayed = 0
}

// stopAsking ends the request's wait for the backend.
func (w *Wait) stopAsking() {
	if w.queue != nil {
		w.queue.remove(w)
	}
}

// queue has the waiting requests in the order in which they began. Its links are in the requests'
// own memory, and a request unlinks itself when its wait ends, so that its memory can be reused at
// once.
type queue struct {
	first, last *Wait
	lastOver    *Wait // the last of those at the front whose waits are over
	length      int
}

// over is the end of a wait whose callout has failed: the request is to be decided without the backend.
const over = 0

// add makes a request wait until a time.
func (q *queue) add(w *Wait, until int64) {
	w.turn++
	w.until, w.rounds, w.joins, w.asked, w.refused = until, 0, 0, 0, false
	w.queue, w.before, w.after = q, q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.after = w
	}
	q.last = w
	q.length++
}

// end moves a request behind those at the front whose waits are over.
func (q *queue) end(w *Wait) {
	if w.until == over {
		return
	}
	q.unlink(w)
	if w.before = q.lastOver; w.before == nil {
		w.after, q.first = q.first, w
	} else {
		w.after, w.before.after = w.before.after, w
	}
	if w.after == nil {
		q.last = w
	} else {
		w.after.before = w
	}
	w.until, q.lastOver = over, w
}

//go:noinline
func (q *queue) remove(w *Wait) {
	if q.lastOver == w {
		q.lastOver = w.before
	}
	q.unlink(w)
	w.queue, w.before, w.after = nil, nil, nil
	q.length--
}

// unlink takes a request out of the order.
func (q *queue) unlink(w *Wait) {
	if w.before == nil {
		q.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		q.last = w.before
	} else {
		w.after.before = w.before
	}
}

// current returns the present turn of a request.
func (w *Wait) current() turn { return turn{wait: w, turn: w.turn} }

// endsBy reports whether the wait of some request ends by then. All of them wait equally long.
func (q *queue) endsBy(then int64) bool { return q.first != nil && q.first.until <= then }

// turn is one wait of a request, for structures that may outlast it. A request's memory is reused,
// so the turn shows whether the wait still goes on.
type turn struct {
	_ [0]func() // keeps Go from generating an equality function

	wait *Wait
	turn uint32
}

func (w turn) waits() bool { return w.wait.queue != nil && w.wait.turn == w.turn }

const (
	// maxIdleAsks bounds the asks kept for reuse, and maxIdleParts the capacity for keys and
	// requests that each keeps.
	maxIdleAsks  = 2048
	maxIdleParts = 16
)

// waits has the requests that wait for the backend.
type waits struct {
	queue  queue
	spare  []*ask
	leases *leaseAsks
}

// newAsk returns an empty ask.
//
//go:noinline
func (s *waits) newAsk(least, most uint64) *ask {
	last := len(s.spare) - 1
	if last < 0 {
		return &ask{least: least, most: most}
	}
	t := s.spare[last]
	s.spare = s.spare[:last]
	*t = ask{parts: t.parts[:0], least: least, most: most, turns: t.turns[:0]}
	return t
}

// forget unlinks an ask that nobody is to join any more.
//
//go:noinline
func (s *waits) forget(t *ask) {
	if t.lease && s.leases != nil {
		s.leases.remove(t)
	}
}

// recycle keeps an ask for reuse that nothing refers to.
//
//go:noinline
func (s *waits) recycle(t *ask) {
	s.forget(t)
	if len(s.spare) < maxIdleAsks {
		clear(t.parts)
		clear(t.turns)
		// Otherwise a key with many waiting requests would grow every kept ask in turn.
		if cap(t.turns) > maxIdleParts {
			t.turns = nil
		}
		if cap(t.parts) > maxIdleParts {
			t.parts = nil
		}
		s.spare = append(s.spare, t)
	}
}

// release ends the waits of an ask's requests, which are to be decided without the backend.
func (s *waits) release(t *ask) {
	s.forget(t)
	if t.done {
		return // its requests have gone on
	}
	for _, w := range t.turns {
		if w.waits() {
			s.queue.end(w.wait)
		}
	}
	if t.lease {
		t.turns = nil
	}
}
