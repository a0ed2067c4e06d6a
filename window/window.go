// Package window decides whether hits fit a limit.
//
// It holds the algorithms alone: values in, values out. Time is an argument, in nanoseconds since the Unix epoch; nothing
// here reads a clock, does I/O or allocates. A [Limit] is configuration, a [State] is what a limit remembers of one key.
// Arithmetic is in integers and exact: where a product exceeds 64 bits it is taken in 128.
//
// The use is always the same: [Limit.Advance] brings a state to the present, the questions ([Limit.Allows],
// [Limit.Remaining], [Limit.FitsAt], [Limit.ResetAt]) are answered for that moment, and [Limit.Take] counts hits in it.
package window

import "math"

// Kind names an algorithm. Its numbers are part of the formats of shared data and of the wire; they are never reused.
type Kind uint8

const (
	// FixedWindow counts in windows that start at multiples of their width since the Unix epoch.
	FixedWindow Kind = 1
	// FirstHitWindow counts in windows that start with the first hit after the last one ended.
	FirstHitWindow Kind = 2
	// SlidingWindow weighs the previous window's hits by the share of it that a window ending now still covers.
	SlidingWindow Kind = 3
)

// Buckets is the number of windows whose hits a limit of this kind looks at, or 0 for an unknown kind.
func (k Kind) Buckets() int {
	switch k {
	case FixedWindow, FirstHitWindow:
		return 1
	case SlidingWindow:
		return 2
	}
	return 0
}

const (
	// MaxBuckets is the most windows that a state holds.
	MaxBuckets = 2
	// MaxHits is the most hits that one window counts; more are counted as this many. It is the greatest integer that a
	// double holds exactly, so that every store can keep it, and far above the greatest limit.
	MaxHits = 1<<53 - 1
	// MinWidth is the shortest window, 1 ms in nanoseconds.
	MinWidth = int64(1e6)
	// MaxWidth is the longest window, 366 days in nanoseconds.
	MaxWidth = int64(366 * 24 * 3600 * 1e9)
	// maxTime bounds the clock, in the year 2259, so that the end of the window after the next can always be represented.
	maxTime = math.MaxInt64 - 3*MaxWidth
)

// Shape says what a limit counts and for how long, but not how much it allows: two limits of the same shape read each
// other's counters, which is how a counter outlives a changed limit.
type Shape struct {
	Kind Kind
	// Ordinal tells limits of one rule apart that would have the same shape otherwise: 0 for the first, at most 7.
	Ordinal uint8
	// Width is the window in nanoseconds, in whole milliseconds, from MinWidth to MaxWidth.
	Width int64
}

// Limit is one limit of a rule.
type Limit struct {
	Shape
	// Max is the most hits that a window may hold; 0 rejects everything.
	Max uint64
}

// State is what a limit remembers of one key. The zero value has seen no hit.
type State struct {
	// Newest is the time of the newest hit, and the present once [Limit.Advance] was called.
	Newest int64
	// Start is when the window began, for FirstHitWindow while it has hits.
	Start int64
	// Hits are the hits of the window that Newest is in, and of those before it, as many as the kind has buckets.
	Hits [MaxBuckets]Hits
}

// Hits counts the hits of one window, divided by how far the backend knows of them. A decision looks at the sum.
type Hits struct {
	// Total is what the backend is known to have, of all nodes; without a backend, all hits.
	Total uint64
	// Diff is what was taken here and not pushed yet. It is negative if more was given back than taken since the last push.
	Diff int64
	// Flight is what was pushed and not answered yet, with a sign like Diff's.
	Flight int64
}

// Sum is the hits of the window as far as this node knows.
func (h *Hits) Sum() uint64 { return uint64(max(int64(h.Total)+h.Diff+h.Flight, 0)) }

// Advance brings s to the present: windows that ended are turned. A state never goes back: a time before its newest hit
// counts as the time of that hit.
func (l *Limit) Advance(s *State, now int64) {
	now = max(s.Newest, min(now, maxTime))
	switch l.Kind {
	case FixedWindow, SlidingWindow:
		switch turned := now/l.Width - s.Newest/l.Width; {
		case turned == 0:
		case turned == 1 && l.Kind == SlidingWindow:
			s.Hits = [MaxBuckets]Hits{1: s.Hits[0]}
		default:
			s.Hits = [MaxBuckets]Hits{}
		}
	case FirstHitWindow:
		if now-s.Start >= l.Width {
			s.Start = 0
			s.Hits = [MaxBuckets]Hits{}
		}
	}
	s.Newest = now
}

// Allows tells whether cost hits fit at the time of s. A cost of 0 asks whether the limit is kept as it stands.
func (l *Limit) Allows(s *State, cost uint64) bool {
	if l.Max == 0 || cost > l.Max {
		return false
	}
	if l.Kind == SlidingWindow {
		return l.allowsSliding(s, cost)
	}
	return s.Hits[0].Sum() <= l.Max-cost
}

// Remaining is the most hits that would still pass at the time of s.
func (l *Limit) Remaining(s *State) uint64 {
	if l.Kind == SlidingWindow {
		return l.remainingSliding(s)
	}
	if used := s.Hits[0].Sum(); used < l.Max {
		return l.Max - used
	}
	return 0
}

// FitsAt is the time, at or after that of s, from which cost hits fit if nothing else comes. It is false if no waiting
// helps: the cost is above the limit, or the limit is 0.
func (l *Limit) FitsAt(s *State, cost uint64) (at int64, ok bool) {
	if l.Max == 0 || cost > l.Max {
		return 0, false
	}
	if l.Allows(s, cost) {
		return s.Newest, true
	}
	if l.Kind == SlidingWindow {
		return l.fitsSlidingAt(s, cost), true
	}
	return l.end(s), true
}

// ResetAt is the time when the window of s ends. It is false if no window runs: one that starts with its first hit has had
// none.
func (l *Limit) ResetAt(s *State) (at int64, ok bool) {
	if l.Kind == FirstHitWindow && s.Hits[0].Sum() == 0 {
		return 0, false
	}
	return l.end(s), true
}

// ForgetAt is the time from which s tells no more than a state that has seen no hit.
func (l *Limit) ForgetAt(s *State) int64 {
	switch {
	case l.Kind == SlidingWindow && s.Hits[0].Sum() != 0:
		return l.end(s) + l.Width
	case s.Hits[0].Sum()|s.Hits[1].Sum() != 0:
		return l.end(s)
	}
	return s.Newest
}

// Take counts cost hits at the time of s, whether or not they fit. A cost of 0 changes nothing, and starts no window.
func (l *Limit) Take(s *State, cost uint64) {
	if cost == 0 {
		return
	}
	if l.Kind == FirstHitWindow && s.Hits[0].Sum() == 0 {
		s.Start = s.Newest
	}
	s.Hits[0].Diff = min(s.Hits[0].Diff+int64(min(cost, MaxHits)), MaxHits)
}

// GiveBack takes cost hits back out of the window that they were counted in, as [Limit.Number] named it after they were
// taken. Of a window that has gone there is nothing to give back.
func (l *Limit) GiveBack(s *State, number, cost uint64) {
	// turned wraps for a window that is newer than s, and is then out of range too.
	if turned := l.Number(s) - number; turned < MaxBuckets {
		h := &s.Hits[turned]
		h.Diff -= int64(min(cost, h.Sum()))
	}
}

// Number identifies the window that s is in: its number, or for FirstHitWindow its start.
func (l *Limit) Number(s *State) uint64 {
	if l.Kind == FirstHitWindow {
		return uint64(s.Start)
	}
	return uint64(s.Newest / l.Width)
}

// end is the end of the window that s is in.
func (l *Limit) end(s *State) int64 {
	if l.Kind == FirstHitWindow {
		return s.Start + l.Width
	}
	return (s.Newest/l.Width + 1) * l.Width
}
