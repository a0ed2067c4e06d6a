package accesslog

import (
	"container/heap"
	"io"
	"time"
)

const (
	// Patience is how far a request may be behind others of its log and still be put in order:
	// lines are written when requests end.
	Patience = time.Minute
	// maxHeld bounds the requests that wait for earlier requests.
	maxHeld = 1 << 16
)

// Disorder counts requests that were out of order.
type Disorder struct {
	// Moved requests were put in order. Late requests came too late for that, and count at the time
	// that the order had reached.
	Moved, Late int64
	// Most is the farthest that a request was behind.
	Most time.Duration
}

// order puts the requests of a log in order.
type order struct {
	Disorder
	next     func() (Request, error)
	held     earliest
	number   int64
	newest   int64 // time that was read
	released int64 // time that was returned
	err      error
}

type held struct {
	Request
	number int64
}

// earliest is a heap, which is changed in place and repaired by heap.Fix, because heap.Push would
// allocate.
type earliest []held

func (e earliest) Len() int { return len(e) }

func (e earliest) Less(i, j int) bool {
	return e[i].Time < e[j].Time || e[i].Time == e[j].Time && e[i].number < e[j].number
}

func (e earliest) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push and Pop exist only for heap.Interface.
func (e *earliest) Push(any) {}

func (e *earliest) Pop() any { return nil }

func (o *order) read() (Request, error) {
	for o.err == nil && (len(o.held) == 0 || len(o.held) < maxHeld && o.newest-o.held[0].Time < int64(Patience)) {
		var r Request
		if r, o.err = o.next(); o.err == nil {
			o.add(r)
		}
	}
	if len(o.held) == 0 || o.err != nil && o.err != io.EOF { //nolint:errorlint // a reader's own
		return Request{}, o.err
	}
	r := o.pop()
	o.released = r.Time
	return r, nil
}

func (o *order) add(r Request) {
	if o.number++; o.number == 1 {
		o.newest, o.released = r.Time, r.Time-int64(Patience)
	}
	if behind := o.newest - r.Time; behind > 0 {
		o.Most = max(o.Most, time.Duration(behind))
		if r.Time < o.released {
			o.Late++
			r.Time = o.released
		} else {
			o.Moved++
		}
	}
	o.newest = max(o.newest, r.Time)
	o.held = append(o.held, held{r, o.number})
	heap.Fix(&o.held, len(o.held)-1)
}

func (o *order) pop() Request {
	first, last := o.held[0].Request, len(o.held)-1
	o.held[0], o.held[last] = o.held[last], held{}
	if o.held = o.held[:last]; last > 0 {
		heap.Fix(&o.held, 0)
	}
	return first
}
