// Package window decides whether hits fit a limit.
//
// It has only the algorithms: values in, values out. Time is an argument, in nanoseconds since the
// Unix epoch. Nothing here reads a clock, does I/O or allocates. A [Limit] is configuration; a
// [State] is everything that a limit remembers of one key. Arithmetic is exact, in integers, with
// 128-bit products. Callers synchronise: nothing here may be used concurrently with a change of the
// same State.
//
// The use is always the same. [Limit.Advance] brings a state to the present. Then [Limit.Allows],
// [Limit.Remaining], [Limit.FitsAt] and [Limit.ResetAt] answer for that moment, and [Limit.Count]
// counts hits in it.
package window

import "math"

const (
	// MaxHits is the most hits that a window counts; further hits are dropped from the count. It is
	// far above the largest limit, and the largest integer that a double represents exactly, so
	// that every store can keep it.
	MaxHits = 1<<53 - 1
	// MinWidth is the shortest window, 1 ms in nanoseconds.
	MinWidth = int64(1e6)
	// MaxWidth is the longest window, 366 days in nanoseconds.
	MaxWidth = int64(366 * 24 * 3600 * 1e9)
	// MaxLimit is the largest limit and burst of a configuration: the largest integer of a
	// structured field (RFC 9651, 3.3.1).
	MaxLimit = 999_999_999_999_999
	// MinSubBuckets is the fewest buckets of a window that is not a log.
	MinSubBuckets = 2
	// MaxSubBuckets is the most buckets of a window that is not a log.
	MaxSubBuckets = 64
	// LogPrecision makes SlidingBuckets a sliding log.
	LogPrecision = int64(1)
	// maxTime bounds the clock. It lies in the year 2259, so the end of the window after the next
	// always fits an int64.
	maxTime = math.MaxInt64 - 3*MaxWidth
	// maxBack is how far the clock may go back, in nanoseconds; a longer window allows more. The
	// state waits until the clock has caught up. A state farther ahead comes from a clock that was
	// wrong: its hits count as hits of now, since it would lock its key out.
	maxBack = int64(10e9)
)

// Shape says what a limit counts and for how long, but not how much it allows. Limits of the same
// shape read each other's states, so a state survives a change of the limit's number.
type Shape struct {
	Kind Kind
	// Ordinal distinguishes limits of a rule that otherwise have the same shape: 0 for the first,
	// at most 7.
	Ordinal uint8
	// Width is the window in nanoseconds, in whole milliseconds, from MinWidth to MaxWidth.
	Width int64
	// Precision is the width of a bucket in nanoseconds, for bucketed kinds only: LogPrecision, or
	// Width divided by MinSubBuckets to MaxSubBuckets.
	Precision int64
}

// SetOrdinals sets the ordinals of one rule's limits so that no two have the same shape.
func SetOrdinals(limits []Limit) {
	for i := range limits {
		limits[i].Ordinal = 0
		for j := range limits[:i] {
			if limits[j].Alike(limits[i].Shape) {
				limits[i].Ordinal++
			}
		}
	}
}

// Alike reports whether two shapes differ at most in their ordinals.
func (s Shape) Alike(other Shape) bool {
	s.Ordinal = other.Ordinal
	return s == other
}

// Limit is one limit of a rule.
type Limit struct {
	Shape
	// Max is the most hits in a window, or the tokens that come back per window; 0 rejects
	// everything.
	Max uint64
	// Burst is the number of tokens in a full bucket, at least 1; 0 for kinds without a burst.
	Burst uint64
	// Calendar, if it is not nil, says where the windows of a FixedWindow begin and end. Width is
	// then their usual width.
	Calendar Calendar
}

// Quota is the most hits that pass at once.
func (l *Limit) Quota() uint64 {
	if l.Kind.Bursts() && l.Max != 0 {
		return l.Burst
	}
	return l.Max
}

// Span is the time that the quota is for: the window, or the time in which an empty bucket fills.
// whole is false if that is no whole number of nanoseconds, the limit is 0, or window lengths
// differ.
func (l *Limit) Span() (nanos int64, whole bool) {
	switch {
	case l.Max == 0 || l.Calendar != nil || l.Kind.Held():
		return 0, false
	case l.Kind.Bursts():
		return fillTime(l)
	}
	return l.Width, true
}

// State is everything that a limit remembers of one key. The zero value has seen no hit.
type State struct {
	// Newest is the time of the newest hit, in nanoseconds. After [Limit.Advance] it is the
	// present.
	Newest int64
	// Start is for kinds that start with a hit: the start of a FirstHitWindow with hits, or the
	// time when a TokenBucket was last full. A bucket's start moves on by whole windows as returned
	// tokens are dropped.
	Start int64
	// Hits are those of the window that contains Newest and, for SlidingWindow, of the window
	// before.
	Hits [2]Hits
	// Buckets are the non-empty buckets of a bucketed kind, oldest first. A log that a [Codec] has
	// read may have none, and be packed.
	Buckets []Bucket
	log     *packed

	// ends is the end of the window of the clock that contains Newest; 0 until Advance computes it.
	// It is cached because divisions are slow.
	ends int64
}

// Bucket is a bucket of a bucketed kind.
type Bucket struct {
	// Number is the bucket's start divided by the precision.
	Number int64
	Hits
}

// Hits are the hits of one window, split by how much of them the backend knows. Decisions use the
// Sum.
type Hits struct {
	// Total is the hits of all nodes, as the backend last told this node. Without a backend it is
	// all hits.
	Total uint64
	// Pending is the hits that were counted here and not pushed yet. It is negative if more was
	// given back than counted since the last push.
	Pending int64
	// InFlight is the hits that were pushed and not answered yet, signed like Pending.
	InFlight int64
	// Lease is the part of Total that was granted to this node and not used yet.
	Lease uint64
}

// Sum is the hits of the window as far as this node knows, rather too many than too few. Hits on
// their way back count until the backend has answered, because its total may lack them already.
// Leased hits are not used yet, and don't count.
func (h *Hits) Sum() uint64 {
	return uint64(max(int64(h.Total)+h.Pending+max(h.InFlight, 0)-int64(h.Lease), 0))
}

// idle reports whether all parts are 0. A part that gives hits back stays negative until the
// backend has heard of it.
func (h *Hits) idle() bool { return h.Total|uint64(h.Pending|h.InFlight)|h.Lease == 0 }

func (h *Hits) count(cost uint64) { h.Pending = min(h.Pending+int64(min(cost, MaxHits)), MaxHits) }

// giveBack gives back hits of somebody who gives them back once.
func (h *Hits) giveBack(cost uint64) (given uint64) {
	given = min(cost, h.Sum())
	h.giveUp(given)
	return given
}

// giveBackAny gives back hits, whoever counted them, but none that may be on their way back already.
func (h *Hits) giveBackAny(cost uint64) (given uint64) {
	return h.giveBack(min(cost, SaturatingSub(h.Sum(), h.returning())))
}

// returning is how many hits may be on their way back.
func (h *Hits) returning() uint64 { return uint64(max(-h.InFlight, 0)) }

// Reset makes s a state without hits, and keeps its memory.
func (s *State) Reset() { s.begin(0, 0, 0, 0) }

// begin makes s a state of these times with a sum of hits, and keeps its memory.
//
//go:noinline // at many places it would make the plugin larger
func (s *State) begin(newest, start, ends int64, total uint64) {
	s.Newest, s.Start, s.ends, s.Buckets = newest, start, ends, s.Buckets[:0]
	s.Hits[0], s.Hits[1] = Hits{Total: total}, Hits{}
	s.endLog()
}

// endLog drops a packed log.
func (s *State) endLog() {
	if s.log != nil {
		s.log.count = 0
	}
}

// Advance brings s to the time now, and drops windows that have ended. A state never goes back: if
// now is before its newest hit, the time of that hit is the present. If now is before it by more
// than the window and more than 10 seconds, the newest hit becomes one of now, and the others move with
// it.
func (l *Limit) Advance(s *State, now int64) {
	if l.Kind.Clocked() && s.Newest <= now && now <= maxTime {
		if ends := clockEnd(l, s); now < ends {
			s.Newest, s.ends = now, ends
			return
		}
	}
	advance(l, s, now)
}

// moveTo makes the newest hit of s, of a clock that was wrong, one of now. The backend has counted leased
// hits in windows to come, so they are dropped.
//
//go:noinline // it is rare, and its loops would be in every caller
func moveTo(l *Limit, s *State, now int64) {
	s.EndFlight()
	s.each(func(h *Hits) { h.Total, h.Lease = h.Total-min(h.Lease, h.Total), 0 })
	s.Start = max(0, s.Start-(s.Newest-now))
	if l.Kind.Bucketed() {
		moveBuckets(l, s, now)
	}
	s.Newest = now
}

// Allows reports whether cost hits fit at the time of s. A cost of 0 asks whether the limit is kept
// at present.
func (l *Limit) Allows(s *State, cost uint64) bool {
	// This sum ignores that hits of the previous window wear off and that tokens come back, which
	// only makes more room.
	if all := s.Hits[0].Sum() + s.Hits[1].Sum(); !l.Kind.Bucketed() && l.Max != 0 && cost <= MaxHits && all+cost <= l.Quota() {
		return true
	}
	return allows(l, s, cost)
}

func allows(l *Limit, s *State, cost uint64) bool {
	used, quota := l.Used(s), l.Quota()
	if l.Kind.Blocks() {
		return used == 0
	}
	return l.Max != 0 && cost <= quota && used <= quota-cost
}

// Remaining is the most hits that still fit at the time of s.
func (l *Limit) Remaining(s *State) uint64 {
	if used, quota := l.Used(s), l.Quota(); used < quota {
		return quota - used
	}
	return 0
}

// FitsAt is the time from which cost hits fit if no other hits come, never before the time of s. ok
// is false if no waiting helps, because the cost is above the quota or the limit is 0.
func (l *Limit) FitsAt(s *State, cost uint64) (at int64, ok bool) {
	if l.Max == 0 || cost > l.Quota() {
		return 0, false
	}
	if l.Allows(s, cost) {
		return s.Newest, true
	}
	return moreAt(l, s, cost), true
}

// Standing is everything that a client learns about a limit.
type Standing struct {
	// Remaining is [Limit.Remaining].
	Remaining uint64
	// Next is the time until one more hit has room, in nanoseconds. It is 0 while nothing is used, and for requests
	// in flight while there is a place.
	Next int64
	// Reset is the time until [Limit.ResetAt], in nanoseconds. It is negative if there is none.
	Reset int64
}

// Standing returns how the limit stands at the time of s. Times in it count from now.
func (l *Limit) Standing(s *State, now int64) Standing {
	out := Standing{Remaining: l.Remaining(s), Reset: -1}
	// If everything remains, one more hit is above the limit and never fits.
	// For a place in flight there is room at any time, or none that can be foretold.
	if out.Remaining < l.Quota() && (out.Remaining == 0 || !l.Kind.Held()) {
		out.Next = moreAt(l, s, out.Remaining+1) - now
	}
	if at, ok := l.ResetAt(s); ok {
		out.Reset = at - now
	}
	return out
}

// Worth returns ForgetAt of s and the used part of the quota, which serves only for comparisons:
// the hits of a sliding window's previous window count in full.
func (l *Limit) Worth(s *State) (forgetAt int64, share float32) {
	if l.Kind.Clocked() {
		return clockForgetAt(l, s), shareOf(s.Hits[0].Sum()+s.Hits[1].Sum(), l.Max)
	}
	return l.ForgetAt(s), shareOf(l.Used(s), l.Quota())
}

// shareOf converts signed numbers, which takes one instruction.
func shareOf(used, quota uint64) float32 { return float32(int64(used)) / float32(int64(max(quota, 1))) }

// Count counts cost hits at the time of s, whether or not they fit. A cost of 0 changes nothing and
// starts no window.
func (l *Limit) Count(s *State, cost uint64) {
	if l.Kind.Clocked() {
		s.Hits[0].count(cost)
	} else if cost != 0 {
		countUnclocked(l, s, cost)
	}
}

// Rejected is how many hits of a rejected request are counted. A window may exceed its limit; a
// token bucket stops at empty.
func (l *Limit) Rejected(s *State, cost uint64) uint64 {
	if l.Kind.Refills() {
		return min(cost, l.Remaining(s))
	}
	return cost
}

// GiveBack returns cost hits to the window that they were counted in. number is the [Limit.Number]
// from after counting them. If the window has gone, nothing happens. Places have moved if the clock was set back meanwhile.
func (l *Limit) GiveBack(s *State, number, cost uint64) {
	if l.Kind.Held() && number > l.Number(s) {
		l.GiveBackNewest(s, cost)
		return
	}
	if h := windowOf(l, s, number); h != nil {
		h.giveBack(cost)
	}
}

// CountIn counts cost more hits in the window with a number. If that window has gone, it counts
// nothing. Tokens are taken now, because a bucket has no windows.
func (l *Limit) CountIn(s *State, number, cost uint64) {
	if l.Kind.Refills() {
		l.Count(s, cost)
	} else if h := windowOf(l, s, number); h != nil {
		h.count(cost)
	}
}

// Returnable is how many of the hits that were taken at a time can still be given back. For tokens
// these are the hits that can't have come back since.
func (l *Limit) Returnable(hits uint64, at, now int64) uint64 {
	if l.Kind.Refills() {
		return hits - min(hits, tokensIn(l, at, now))
	}
	return hits
}

// Number is the number of the window or bucket that s is in. For kinds that start with a hit it is
// the start.
func (l *Limit) Number(s *State) uint64 { return l.NumberAt(s, s.Newest) }
