// Package sim simulates nodes, a backend and the network between them under a virtual clock, with
// the plugin's own engine and the backend's own store. Studies send requests to a [World], and
// measure which pass.
package sim

import "weir/internal/heap"

// Times are in nanoseconds.
const (
	Millisecond = int64(1e6)
	Second      = int64(1e9)
	Minute      = 60 * Second
	// Monday is the beginning of simulated time: a start of all windows in the studies.
	Monday = 1_767_571_200 * Second
)

// Clock is virtual time with the events to come. Events happen in the order of their times, and
// events at the same time in the order in which they were added.
type Clock struct {
	// Now is the present time.
	Now    int64
	queue  heap.Of[event]
	number uint64
}

// event is something to do at a time.
type event struct {
	at     int64
	number uint64
	do     func()
}

// Before implements [heap.Item].
func (e event) Before(other event) bool {
	return e.at < other.at || e.at == other.at && e.number < other.number
}

// Placed implements [heap.Item].
func (event) Placed(int) {}

// At calls do at a time, or at once if that has passed.
func (c *Clock) At(at int64, do func()) {
	c.number++
	heap.Push(&c.queue, event{at: max(at, c.Now), number: c.number, do: do})
}

// Advance runs all events until a time, and makes it the present.
func (c *Clock) Advance(until int64) {
	for len(c.queue) > 0 && c.queue[0].at <= until {
		next := heap.Pop(&c.queue)
		c.Now = next.at
		next.do()
	}
	c.Now = until
}

// timer calls a function periodically.
type timer struct {
	clock  *Clock
	do     func()
	period int64
	turn   int // number of the last start or stop; earlier starts have ended
}

// start calls the function after a time, and from then on in every period.
func (t *timer) start(after int64) {
	t.turn++
	turn := t.turn
	var tick func()
	tick = func() {
		if t.turn == turn {
			t.do()
			t.clock.At(t.clock.Now+t.period, tick)
		}
	}
	t.clock.At(t.clock.Now+after, tick)
}

func (t *timer) stop() { t.turn++ }
