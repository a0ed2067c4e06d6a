// Package model decides as the algorithms do, as simply as their definitions. It keeps the hits,
// asks one question about them, and finds every time and number by asking that question again.
// Tests compare package window, and the numbers that clients read, with the model.
//
// The model shares no code with the package under test. Its numbers are exact.
package model

import (
	"math/bits"
	"sort"
)

// Algorithm is an algorithm that a configuration can name.
type Algorithm uint8

const (
	// FixedWindow counts in windows of the clock.
	FixedWindow Algorithm = iota
	// FirstHit counts in windows that start with a hit.
	FirstHit
	// SlidingWindow also weighs the previous window of the clock.
	SlidingWindow
	// SubBuckets counts whole sub-buckets of a precision. With a precision of a nanosecond it is
	// the sliding log.
	SubBuckets
	// TokenBucket gives hits back at a constant rate.
	TokenBucket
)

// Limit is a limit of a configuration.
type Limit struct {
	Algorithm Algorithm
	// Max is the configuration's limit. Only a token bucket has Burst.
	Max, Burst uint64
	// Window and Precision are in nanoseconds. Only sub-buckets have Precision.
	Window, Precision int64
}

// Quota returns the most hits that fit at once.
func (l *Limit) Quota() uint64 {
	if l.Algorithm == TokenBucket && l.Max > 0 {
		return l.Burst
	}
	return l.Max
}

// Counter has the hits of one key. Times are in Unix nanoseconds. A time before the newest hit
// counts as the time of that hit. If the gap shows that the hit's clock was wrong, the hit becomes one of
// now, and the others move with it.
type Counter struct {
	Limit
	// hits are in the order of their times. If windows start with a hit, there is only one, with
	// the start's time and the window's sum. A token bucket too has only one, which starts when the
	// bucket was full.
	hits   []hit
	newest int64
}

type hit struct {
	at   int64
	cost uint64
}

// clockWrong is how far a counter may be ahead in time, in nanoseconds. If the window is longer,
// the window is the bound.
const clockWrong = int64(10e9)

// Fits reports whether cost hits fit at a time, if no others come before it.
func (c *Counter) Fits(at int64, cost uint64) bool {
	c.moveTo(at)
	quota := c.Quota()
	if c.Max == 0 || cost > quota {
		return false
	}
	at = max(at, c.newest)
	room := quota - cost
	switch c.Algorithm {
	case FixedWindow:
		return c.since(at-at%c.Window) <= room
	case FirstHit:
		return c.since(at-c.Window+1) <= room
	case SlidingWindow:
		start := at - at%c.Window
		current := c.since(start)
		previous := c.since(start-c.Window) - current
		// current + previous·(rest of the window)/window + cost ≤ limit
		return current <= room && atMost(previous, start+c.Window-at, room-current, c.Window)
	case SubBuckets:
		return c.since((at/c.Precision-c.Window/c.Precision+1)*c.Precision) <= room
	default:
		// taken − time·limit/window ≤ burst − cost. Only whole tokens come back.
		return len(c.hits) == 0 || c.hits[0].cost <= room || atMost(c.hits[0].cost-room, c.Window, c.Max, at-c.hits[0].at)
	}
}

// moveTo moves hits of a clock that was wrong to a time: into its window of the clock or its sub-bucket, or
// else by the whole gap.
func (c *Counter) moveTo(at int64) {
	if c.newest-at <= max(c.Window, clockWrong) {
		return
	}
	unit := int64(1)
	switch c.Algorithm {
	case FixedWindow, SlidingWindow:
		unit = c.Window
	case SubBuckets:
		unit = c.Precision
	}
	gap := (c.newest/unit - at/unit) * unit
	for i := range c.hits {
		c.hits[i].at -= gap
	}
	c.newest = at
}

// since returns the number of hits at a time or later.
func (c *Counter) since(from int64) (sum uint64) {
	for i := len(c.hits) - 1; i >= 0 && c.hits[i].at >= from; i-- {
		sum += c.hits[i].cost
	}
	return sum
}

// atMost reports whether a·b ≤ c·d.
func atMost(a uint64, b int64, c uint64, d int64) bool {
	hi, lo := bits.Mul64(a, uint64(b))
	hi2, lo2 := bits.Mul64(c, uint64(d))
	return hi < hi2 || hi == hi2 && lo <= lo2
}

// Take counts hits at a time, whether or not they fit.
func (c *Counter) Take(at int64, cost uint64) {
	if cost == 0 {
		return
	}
	c.moveTo(at)
	at = max(at, c.newest)
	started := c.Algorithm == FirstHit || c.Algorithm == TokenBucket
	if started && c.Fits(at, c.Quota()) {
		c.hits = c.hits[:0]
	}
	c.newest = at
	if last := len(c.hits) - 1; last >= 0 && (started || c.hits[last].at == at) {
		c.hits[last].cost += cost
		return
	}
	if len(c.hits) > 64 {
		gone := sort.Search(len(c.hits), func(i int) bool { return c.hits[i].at >= at-2*c.Window })
		c.hits = c.hits[:copy(c.hits, c.hits[gone:])]
	}
	c.hits = append(c.hits, hit{at: at, cost: cost})
}

// Remaining returns the most hits that fit at a time.
func (c *Counter) Remaining(at int64) uint64 {
	none := sort.Search(int(c.Quota())+1, func(cost int) bool { return !c.Fits(at, uint64(cost)) })
	return uint64(max(none-1, 0))
}

// Wait returns how many units, in nanoseconds each, must pass until cost hits fit if no others
// come. ok is false if they never fit.
func (c *Counter) Wait(at int64, cost uint64, unit int64) (units int64, ok bool) {
	if c.Max == 0 || cost > c.Quota() {
		return 0, false
	}
	enough := 1
	for !c.Fits(at+int64(enough)*unit, cost) {
		enough *= 2
	}
	return int64(sort.Search(enough, func(n int) bool { return c.Fits(at+int64(n)*unit, cost) })), true
}

// Reset returns in how many nanoseconds the window ends, or all hits have come back. It is 0 if no
// window of the clock runs, and no hit is counted.
func (c *Counter) Reset(at int64) int64 {
	if c.Algorithm == FixedWindow || c.Algorithm == SlidingWindow {
		return c.Window - at%c.Window
	}
	nanos, _ := c.Wait(at, c.Quota(), 1)
	return nanos
}
