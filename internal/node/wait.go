package node

import (
	"weir/internal/counter"
)

// maxWaiting bounds the requests that wait, and with them memory. Further requests are decided as if the
// backend were away, and wait for no room.
const maxWaiting = 1 << 14

// line is where requests wait for room.
type line interface{ remove(w *Wait) }

// roomWait is a wait for room. Few requests have one, so that it is memory of its own, which serves the
// request's successors too.
type roomWait struct {
	// line has the request while it waits, between those that come before and after it, from a time until
	// another, by the host's clock.
	line          line
	ahead, behind *Wait
	since, leaves int64
	ticket        uint64 // its place in the order of all workers
	// delayed is for how long it has waited.
	delayed int64
}

// rewind has the request wait as if it had begun now, if it seems to have begun later: the clock has gone back.
func (r *roomWait) rewind(now int64) {
	if r.since > now {
		r.since, r.leaves = now, r.leaves-(r.since-now)
	}
}

// waitsForRoom reports whether the request waits for room.
func (w *Wait) waitsForRoom() bool { return w.room != nil && w.room.line != nil }

// Request is a request that may have to wait for the backend.
type Request interface {
	// Decided ends a wait. It is called once, unless the request has left before. The demands are
	// those that the request waited with, after the decision. They are valid during the call.
	Decided(demands []Demand, now int64, verdict counter.Verdict)
}

// Wait holds all that a node keeps of a request while it waits. It is a part of the request's own
// memory, which may serve one request after the other. Set Request before anything else.
type Wait struct {
	Request Request
	// Patience is for how many nanoseconds the request waits for room at most, where its rules
	// delay requests: 0 for as long as they say, and less for not at all.
	Patience int64

	// queue has it while it waits, between the requests that began before and after.
	queue         *queue
	before, after *Wait
	// entering is set while the caller doesn't know yet that the request waits.
	entering bool
	turn     uint32 // counts the waits
	until    int64  // by the host's clock
	rounds   int    // questions for leases
	asked    int    // leases that it waits for
	weight   uint64 // of the request for sightings
	kept     []Saved

	// room is where it waits for room; nil of a request that never has.
	room *roomWait
}

// Waiting reports whether the request waits.
func (w *Wait) Waiting() bool { return w.queue != nil || w.waitsForRoom() }

// Delayed is for how many nanoseconds the request has waited for room; 0 if it has not.
func (w *Wait) Delayed() int64 {
	if w.room == nil {
		return 0
	}
	return w.room.delayed
}

// Leave has a request that has gone wait no more. It is not told.
func (w *Wait) Leave() {
	w.stopAsking()
	if w.room == nil {
		return
	}
	if w.room.line != nil {
		w.room.line.remove(w)
	}
	w.room.delayed = 0
}

// stopAsking has a request wait for the backend no more.
func (w *Wait) stopAsking() {
	if w.queue != nil {
		w.queue.remove(w)
	}
}

// queue has the requests that wait, in the order in which they began, and no others: each has its
// place in its own memory, and leaves it when it waits no more. The memory may serve the next
// request at once.
type queue struct {
	first, last *Wait
	length      int
}

// add has a request wait until some time.
func (q *queue) add(w *Wait, until int64) {
	w.turn++
	w.until, w.rounds, w.asked = until, 0, 0
	w.queue, w.before, w.after = q, q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.after = w
	}
	q.last = w
	q.length++
}

//go:noinline
func (q *queue) remove(w *Wait) {
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
	w.queue, w.before, w.after = nil, nil, nil
	q.length--
}

// current is the present turn of a request.
func (w *Wait) current() turn { return turn{wait: w, turn: w.turn} }

// endsBy reports whether the time of a request that waits is over by then. All of them wait for
// equally long.
func (q *queue) endsBy(then int64) bool { return q.first != nil && q.first.until <= then }

// turn is one wait of a request, for what may outlast it. A request's memory is used again, so the
// turn tells whether it still waits.
type turn struct {
	_ [0]func() // keeps Go from generating an equality function

	wait *Wait
	turn uint32
}

func (w turn) waits() bool { return w.wait.queue != nil && w.wait.turn == w.turn }
