// Package window decides whether hits fit a limit.
//
// It holds the algorithms alone: values in, values out. Time is an argument, in nanoseconds since
// the Unix epoch. Nothing here reads a clock, does I/O or allocates. A [Limit] is configuration, a
// [State] has all that a limit knows of one key. Arithmetic is in integers and exact. A product
// that can exceed 64 bits is taken in 128.
//
// The use is always the same. [Limit.Advance] brings a state to the present. Then [Limit.Allows],
// [Limit.Remaining], [Limit.FitsAt] and [Limit.ResetAt] answer for that moment, and [Limit.Count]
// counts hits in it.
package window

import "math"

const (
	// MaxHits is the most hits that one window counts. If there are more, it counts this many. It
	// is far above the greatest limit, and the greatest integer that a double holds exactly, so
	// that every store can keep it.
	MaxHits = 1<<53 - 1
	// MinWidth is the shortest window, 1 ms in nanoseconds.
	MinWidth = int64(1e6)
	// MaxWidth is the longest window, 366 days in nanoseconds.
	MaxWidth = int64(366 * 24 * 3600 * 1e9)
	// MaxLimit is the largest limit, and burst, that can be configured: the largest integer of a
	// structured field (RFC 9651, 3.3.1).
	MaxLimit = 999_999_999_999_999
	// MinSubBuckets is the fewest buckets of a window with a precision above a nanosecond.
	MinSubBuckets = 2
	// MaxSubBuckets is the most buckets of a window with a precision above a nanosecond.
	MaxSubBuckets = 64
	// LogPrecision makes SlidingBuckets a sliding log.
	LogPrecision = int64(1)
	// maxTime bounds the clock. It is in the year 2259, so that the end of the window after the
	// next always fits an int64.
	maxTime = math.MaxInt64 - 3*MaxWidth
	// maxBack is how far the clock may go back; or one window, if that is longer. Until the clock
	// has caught up, the state waits. If a state is farther ahead, it comes from a clock that was
	// wrong. It is forgotten, as it would lock its key out.
	maxBack = int64(10e9)
)

// Shape says what a limit counts and for how long, but not how much it allows. Limits of the same
// shape read each other's states. So a state outlives a change of its limit's number.
type Shape struct {
	Kind Kind
	// Ordinal tells limits of one rule apart that would have the same shape otherwise: 0 for the
	// first, at most 7.
	Ordinal uint8
	// Width is the window in nanoseconds, in whole milliseconds, from MinWidth to MaxWidth.
	Width int64
	// Precision is the width of a bucketed kind's buckets in nanoseconds: LogPrecision, or Width
	// divided by MinSubBuckets to MaxSubBuckets.
	Precision int64
}

// SetOrdinals sets the ordinals of one rule's limits, so that no two have the same shape.
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

// Alike reports whether the shapes are the same but for their ordinals.
func (s Shape) Alike(other Shape) bool {
	s.Ordinal = other.Ordinal
	return s == other
}

// Limit is one limit of a rule.
type Limit struct {
	Shape
	// Max is the most hits that a window may hold, or the tokens that come back in one; 0 rejects
	// everything.
	Max uint64
	// Burst is how many tokens a full bucket has, at least 1. It is 0 for a kind that has no burst.
	Burst uint64
	// Calendar, if it is not nil, says where the windows of a FixedWindow are. Then Width is the
	// usual width.
	Calendar Calendar
}

// Quota is the most hits that pass at once.
func (l *Limit) Quota() uint64 {
	if l.Kind.Bursts() && l.Max != 0 {
		return l.Burst
	}
	return l.Max
}

// Span is the time that the quota is for: the window, or the time that fills the bucket. whole is
// false if that is no whole number of nanoseconds, the limit is 0, or windows differ.
func (l *Limit) Span() (nanos int64, whole bool) {
	switch {
	case l.Max == 0 || l.Calendar != nil || l.Kind.Held():
		return 0, false
	case l.Kind.Bursts():
		return l.fillTime()
	}
	return l.Width, true
}

// State holds all that a limit knows of one key. The zero value has seen no hit.
type State struct {
	// Newest is the time of the newest hit. After [Limit.Advance] it is the present.
	Newest int64
	// Start is for kinds that start with a hit. A FirstHitWindow with hits began then. A
	// TokenBucket that is not full was full until then; its start moves on by whole windows, as
	// hits that have worn off are forgotten.
	Start int64
	// Hits are those of the window that Newest is in, and for SlidingWindow those of the window
	// before.
	Hits [2]Hits
	// Buckets are SlidingBuckets' buckets that have hits, oldest first.
	Buckets []Bucket

	// ends is the end of the window of the clock that Newest is in. It is 0 until Advance has
	// worked it out. It is kept because divisions are slow.
	ends int64
}

// Bucket is a bucket of SlidingBuckets.
type Bucket struct {
	// Number is the bucket's start divided by the precision.
	Number int64
	Hits
}

// Hits are the hits of one window, in parts: by how much of them the backend knows. A decision
// looks at the sum.
type Hits struct {
	// Total has the backend's hits, of all nodes, as far as they are known. Without a backend it is
	// all hits.
	Total uint64
	// Pending has the hits that were counted here and not pushed yet. If more was given back than
	// counted since the last push, it is negative.
	Pending int64
	// InFlight has the hits that were pushed and not answered yet, with a sign like Pending's.
	InFlight int64
	// Lease is the part of Total that was granted to this node and is not used yet.
	Lease uint64
}

// Sum is the hits of the window as far as this node knows. In doubt it is too many. So hits that
// are on their way back to the backend count until it has answered: its total may be without them
// already. Leased hits are not used yet, and are not in the sum.
func (h *Hits) Sum() uint64 {
	return uint64(max(int64(h.Total)+h.Pending+max(h.InFlight, 0)-int64(h.Lease), 0))
}

// idle reports whether all parts are 0. Hits that were given back make a part negative until the
// backend knows of them.
func (h *Hits) idle() bool { return h.Total|uint64(h.Pending|h.InFlight)|h.Lease == 0 }

func (h *Hits) count(cost uint64) { h.Pending = min(h.Pending+int64(min(cost, MaxHits)), MaxHits) }

func (h *Hits) giveBack(cost uint64) { h.giveUp(min(cost, h.Sum())) }

// Reset makes s a state that has seen no hit, and keeps its memory.
func (s *State) Reset() { *s = State{Buckets: s.Buckets[:0]} }

// Advance brings s to the present, and turns the windows that have ended. A state never goes back:
// if now is before its newest hit, the time of that hit counts as the present. If now is before it
// by more than the window and more than 10 seconds, the state is forgotten.
func (l *Limit) Advance(s *State, now int64) {
	if l.Kind.Clocked() && s.Newest <= now && now <= maxTime {
		if ends := l.end(s); now < ends {
			s.Newest, s.ends = now, ends
			return
		}
	}
	l.advance(s, now)
}

// present is the time that s is to be brought to. A state from a clock that was wrong is reset.
func (l *Limit) present(s *State, now int64) int64 {
	now = max(0, min(now, maxTime))
	if s.Newest-now > max(l.Width, maxBack) {
		s.Reset()
	}
	s.ends = 0
	return max(s.Newest, now)
}

// Allows reports whether cost hits fit at the time of s. Cost 0 asks whether the limit is kept as
// it stands.
func (l *Limit) Allows(s *State, cost uint64) bool {
	// This sum leaves out what has worn off of the window before, and what has come back to a
	// bucket. With that there is only more room.
	if all := s.Hits[0].Sum() + s.Hits[1].Sum(); !l.Kind.Bucketed() && l.Max != 0 && cost <= MaxHits && all+cost <= l.Quota() {
		return true
	}
	return l.allows(s, cost)
}

func (l *Limit) allows(s *State, cost uint64) bool {
	if l.Kind.Blocks() {
		return !l.Blocked(s)
	}
	quota := l.Quota()
	return l.Max != 0 && cost <= quota && l.used(s) <= quota-cost
}

// Share is the part of the quota that is used. It only serves to compare.
func (l *Limit) Share(s *State) float32 {
	var used uint64
	if l.Blocked(s) {
		return 1
	}
	if l.Kind.Clocked() {
		used = s.Hits[0].Sum() + s.Hits[1].Sum()
	} else {
		used = l.used(s)
	}
	return float32(used) / float32(max(l.Quota(), 1))
}

// Remaining is the most hits that would still pass at the time of s.
func (l *Limit) Remaining(s *State) uint64 {
	if l.Blocked(s) {
		return 0
	}
	if used, quota := l.used(s), l.Quota(); used < quota {
		return quota - used
	}
	return 0
}

// Excess is how many hits are above the quota at the time of s.
func (l *Limit) Excess(s *State) uint64 {
	used := l.used(s)
	return used - min(used, l.Quota())
}

// FitsAt is the time from which cost hits fit if no others come. It is not before the time of s. ok
// is false if no waiting helps: the cost is above the quota, or the limit is 0.
func (l *Limit) FitsAt(s *State, cost uint64) (at int64, ok bool) {
	if l.Max == 0 || cost > l.Quota() {
		return 0, false
	}
	if l.Allows(s, cost) {
		return s.Newest, true
	}
	return l.moreAt(s, cost), true
}

// Standing holds all that a client is told of a limit at the time of s.
type Standing struct {
	// Remaining is as [Limit.Remaining] says.
	Remaining uint64
	// Next is in how many nanoseconds one more hit has room. It is 0 while nothing is used.
	Next int64
	// Reset is in how many nanoseconds [Limit.ResetAt] is. It is negative if nothing runs.
	Reset int64
}

// Standing sums up how the limit stands, for a clock that is at now.
func (l *Limit) Standing(s *State, now int64) Standing {
	out := Standing{Remaining: l.Remaining(s), Reset: -1}
	if l.Kind.Clocked() {
		out.Reset = l.end(s) - now
		// If everything remains, one more is above the limit and never fits.
		if out.Remaining < l.Max {
			out.Next = l.moreAt(s, out.Remaining+1) - now
		}
		return out
	}
	if at, ok := l.FitsAt(s, out.Remaining+1); ok {
		out.Next = at - now
	}
	if at, ok := l.ResetAt(s); ok {
		out.Reset = at - now
	}
	return out
}

// Worth is ForgetAt and Share of s.
func (l *Limit) Worth(s *State) (forgetAt int64, share float32) {
	if current := s.Hits[0].Sum(); l.Kind.Clocked() && current != 0 {
		if forgetAt = l.end(s); l.Kind.looksBack() {
			forgetAt += l.Width
		}
		return forgetAt, float32(current+s.Hits[1].Sum()) / float32(max(l.Max, 1))
	}
	return l.ForgetAt(s), l.Share(s)
}

// Count counts cost hits at the time of s, whether or not they fit. A cost of 0 changes nothing,
// and starts no window.
func (l *Limit) Count(s *State, cost uint64) {
	if l.Kind.Clocked() {
		s.Hits[0].count(cost)
	} else {
		l.countUnclocked(s, cost)
	}
}

func (l *Limit) countUnclocked(s *State, cost uint64) {
	switch {
	case cost == 0 || l.Kind.Blocks():
		return
	case l.Kind.Bucketed():
		l.countBucket(s, cost)
		return
	case s.Hits[0].idle():
		s.Start = s.Newest
	}
	s.Hits[0].count(cost)
}

// CountRejected counts the hits of a request that was rejected.
func (l *Limit) CountRejected(s *State, cost uint64) { l.Count(s, l.Rejected(s, cost)) }

// Rejected is how many of a rejected request's hits are counted. A window may exceed its limit by
// that. A token bucket stops at empty.
func (l *Limit) Rejected(s *State, cost uint64) uint64 {
	if l.Kind.Refills() {
		return min(cost, l.Remaining(s))
	}
	return cost
}

// GiveBack takes cost hits back out of the window that they were counted in. number is the
// [Limit.Number] from after they were counted. If the window has gone, there is nothing to give
// back.
func (l *Limit) GiveBack(s *State, number, cost uint64) {
	switch {
	case l.Kind.Blocks(): // nobody takes anything
	case l.Kind.Bucketed():
		for i := range s.Buckets {
			if uint64(s.Buckets[i].Number) == number {
				s.Buckets[i].giveBack(cost)
			}
		}
	case l.Kind.Started():
		// An answer may have told since that another node had the window's first hit. Then the
		// window starts earlier. A token bucket lacks these tokens, whatever start it has by now.
		if within := number - uint64(s.Start); within < uint64(l.Width) || l.Kind.Refills() {
			s.Hits[0].giveBack(cost)
		}
	default:
		// If the window is newer than s, turned wraps, and is out of range too.
		if turned := l.Number(s) - number; turned < uint64(len(s.Hits)) {
			s.Hits[turned].giveBack(cost)
		}
	}
}

// Number names the window or bucket that s is in. For kinds that start with a hit it is the start.
func (l *Limit) Number(s *State) uint64 {
	switch {
	case l.Kind.Started():
		return uint64(s.Start)
	case l.Kind.Bucketed():
		return uint64(s.Newest / l.Precision)
	}
	return l.numberAt(s.Newest)
}
