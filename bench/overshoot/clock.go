package main

import "container/heap"

const (
	millisecond = int64(1e6)
	second      = int64(1e9)
	minute      = 60 * second
	// monday is where simulated time begins: a start of all windows that are used here.
	monday = 1_767_571_200 * second
)

// clock is virtual time, and what is to happen. Nothing happens but in its order; what is due at the same time comes in the
// order in which it was asked for.
type clock struct {
	now    int64
	queue  events
	number uint64
}

// event is something to do at a time.
type event struct {
	at     int64
	number uint64
	do     func()
}

// at has something done at a time, or at once if that is over.
func (c *clock) at(at int64, do func()) {
	c.number++
	heap.Push(&c.queue, event{at: max(at, c.now), number: c.number, do: do})
}

// advance does what is due until a time, and makes it the present.
func (c *clock) advance(until int64) {
	for len(c.queue) > 0 && c.queue[0].at <= until {
		next := heap.Pop(&c.queue).(event)
		c.now = next.at
		next.do()
	}
	c.now = until
}

// timer has something done every so often.
type timer struct {
	clock  *clock
	do     func()
	period int64
	turn   int // of start and stop: what was started before the last turn is over
}

// start has it done after a time, and from then on every period.
func (t *timer) start(after int64) {
	t.turn++
	turn := t.turn
	var tick func()
	tick = func() {
		if t.turn == turn {
			t.do()
			t.clock.at(t.clock.now+t.period, tick)
		}
	}
	t.clock.at(t.clock.now+after, tick)
}

func (t *timer) stop() { t.turn++ }

// events is a heap by time.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push is heap.Interface's.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop is heap.Interface's.
func (e *events) Pop() any {
	last := len(*e) - 1
	next := (*e)[last]
	*e = (*e)[:last]
	return next
}
