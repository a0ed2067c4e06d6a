// Package model decides as the algorithms do, and is as simple as their definitions: it keeps the
// hits, asks one question of them, and finds every time and number by asking it again. Tests
// compare package window, and what clients read, with it.
//
// It shares no code with what it is compared with. Its numbers are exact.
package model

import (
	"math/bits"
	"sort"
)

// Algorithm is one of those that a configuration can name.
type Algorithm uint8

const (
	// FixedWindow counts in windows of the clock.
	FixedWindow Algorithm = iota
	// FirstHit counts in windows that start with a hit.
	FirstHit
	// SlidingWindow weighs the window of the clock before.
	SlidingWindow
	// SubBuckets counts whole sub-buckets of a precision. With one of a nanosecond it is the
	// sliding log.
	SubBuckets
	// TokenBucket gives one hit back after the other.
	TokenBucket
)

// Limit is a limit as a configuration says it.
type Limit struct {
	Algorithm Algorithm
	// Max is the configuration's limit. Burst is of a token bucket only.
	Max, Burst uint64
	// Window and Precision are in nanoseconds. Precision is of sub-buckets only.
	Window, Precision int64
}

// Quota is the most hits that fit at once.
func (l *Limit) Quota() uint64 {
	if l.Algorithm == TokenBucket && l.Max > 0 {
		return l.Burst
	}
	return l.Max
}

// Counter is the hits of one key. Times are in Unix nanoseconds. A time before the newest hit
// counts as that hit's, unless it is so long before it that the hit's clock was wrong.
type Counter struct {
	Limit
	// hits are in the order of their times. If windows start with a hit, there is one, with the
	// start's time and the window's sum. So it is of a token bucket, which starts when it was full.
	hits   []hit
	newest int64
}

type hit struct {
	at   int64
	cost uint64
}

// clockWrong is how far a counter may be ahead, in nanoseconds, or by a window if that is longer.
const clockWrong = int64(10e9)

// Fits reports whether cost hits fit at a time, if no others come until then.
func (c *Counter) Fits(at int64, cost uint64) bool {
	quota := c.Quota()
	if c.Max == 0 || cost > quota {
		return false
	}
	if c.newest-at > max(c.Window, clockWrong) {
		return true
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
		// taken − time·limit/window ≤ burst − cost, of which only whole tokens come back.
		return len(c.hits) == 0 || c.hits[0].cost <= room || atMost(c.hits[0].cost-room, c.Window, c.Max, at-c.hits[0].at)
	}
}

// since is how many hits there were at a time or later.
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
	if c.newest-at > max(c.Window, clockWrong) {
		c.hits, c.newest = c.hits[:0], 0
	}
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

// Remaining is the most hits that fit at a time.
func (c *Counter) Remaining(at int64) uint64 {
	none := sort.Search(int(c.Quota())+1, func(cost int) bool { return !c.Fits(at, uint64(cost)) })
	return uint64(max(none-1, 0))
}

// Wait is the least number of units, in nanoseconds each, after which cost hits fit if no others
// come. It is false if they never do.
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

// Reset is in how many nanoseconds the window ends, or nothing is used any more. It is 0 if no
// window of the clock runs, and nothing is used.
func (c *Counter) Reset(at int64) int64 {
	if c.Algorithm == FixedWindow || c.Algorithm == SlidingWindow {
		return c.Window - at%c.Window
	}
	nanos, _ := c.Wait(at, c.Quota(), 1)
	return nanos
}
