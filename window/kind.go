package window

// This file is the one place that says what kinds of limits there are: what users write and read,
// what a kind has in common with others, what is a fault of a limit, and in the end what each
// algorithm decides for itself. An algorithm has a file of its own. Nothing but these files tells
// one kind from another.

// Kind names an algorithm. Its numbers are part of the formats of shared data and of the wire; they
// are never reused.
type Kind uint8

const (
	// FixedWindow counts in windows that start at multiples of their width since the Unix epoch.
	FixedWindow Kind = 1
	// FirstHitWindow counts in windows that start with the first hit after the last one ended.
	FirstHitWindow Kind = 2
	// SlidingWindow weighs the previous window's hits by the share of it that a window ending now
	// still covers.
	SlidingWindow Kind = 3
	// SlidingBuckets counts in buckets of a precision, and looks at those that a window ending now
	// covers. With a precision of one nanosecond that is a sliding log: each hit has its own time,
	// and hits of the same nanosecond are counted together.
	SlidingBuckets Kind = 4
	// TokenBucket starts full, and gets its tokens back one at a time from the moment that it is
	// taken from.
	TokenBucket Kind = 5
	// InFlight counts requests at the same time. See inflight.go.
	InFlight Kind = 6
	// Block keeps that a key was refused. See block.go.
	Block Kind = 7
)

// Algorithm names an algorithm that a configuration may give a limit.
type Algorithm struct {
	Name string
	// Kind and Precision are the limit's if it has no option.
	Kind      Kind
	Precision int64
	// With is the kind that each option makes of it; 0 if it does not have that.
	With [3]Kind
}

// Option is a field of a limit's configuration that some algorithms have.
type Option uint8

const (
	// Start says that windows start with a hit.
	Start Option = iota
	// Precision gives the width of buckets.
	Precision
	// Burst gives the quota.
	Burst
)

// Algorithms are written by users. The first is the default.
var Algorithms = []Algorithm{
	{Name: "sliding_window", Kind: SlidingWindow, With: [3]Kind{Precision: SlidingBuckets}},
	{Name: "fixed_window", Kind: FixedWindow, With: [3]Kind{Start: FirstHitWindow}},
	{Name: "sliding_log", Kind: SlidingBuckets, Precision: LogPrecision},
	{Name: "token_bucket", Kind: TokenBucket, With: [3]Kind{Burst: TokenBucket}},
	{Name: "in_flight", Kind: InFlight, Precision: inFlightPrecision},
}

// names are read by users: the backend lists counters by them.
var names = [...]string{
	FixedWindow:    "fixed_window",
	FirstHitWindow: "first_hit_window",
	SlidingWindow:  "sliding_window",
	SlidingBuckets: "sliding_buckets",
	TokenBucket:    "token_bucket",
	InFlight:       "in_flight",
	Block:          "block",
}

// LastKind is the last of the table. Numbers begin with 1, and none is left out.
const LastKind = Kind(len(names) - 1)

// logName is the name of SlidingBuckets with LogPrecision.
const logName = "sliding_log"

// Known reports whether there is such a kind.
func (k Kind) Known() bool { return k != 0 && k <= LastKind }

// Clocked reports whether windows are those of the clock, which start at multiples of their width
// since the Unix epoch. A window is named by its start divided by the width.
func (k Kind) Clocked() bool { return k == FixedWindow || k == SlidingWindow }

// Started reports whether there is one window, which a hit starts. It is named by that start.
func (k Kind) Started() bool { return k == FirstHitWindow || k == TokenBucket }

// Bucketed reports whether hits are counted in buckets of a precision. A bucket is named by its
// start divided by the precision.
func (k Kind) Bucketed() bool { return uint32(bucketed)>>(k&31)&1 != 0 }

// bucketed has a bit for each bucketed kind.
const bucketed = 1<<SlidingBuckets | 1<<InFlight | 1<<Block

// Held reports whether requests hold their hits, and give them back when they have ended.
func (k Kind) Held() bool { return k == InFlight }

// Windows is how many windows of a counter count at a time. It is 0 for a bucketed kind, where the
// precision says it, and for an unknown one.
func (k Kind) Windows() int {
	switch {
	case k.looksBack():
		return 2
	case k.Bucketed() || !k.Known():
		return 0
	}
	return 1
}

// looksBack reports whether the window of the clock before counts too.
func (k Kind) looksBack() bool { return k == SlidingWindow }

// AtOnce reports whether all hits of a window come back at once: when it ends.
func (k Kind) AtOnce() bool { return k == FixedWindow || k == FirstHitWindow }

// Refills reports whether hits come back one at a time, by the rate of the limit. That is why
// states and pushes of such a kind have the limit with them.
func (k Kind) Refills() bool { return k == TokenBucket }

// Bursts reports whether the quota of a limit is its burst.
func (k Kind) Bursts() bool { return k == TokenBucket }

// Name is the name of the shape's kind, for users; "" if it is unknown.
func (s Shape) Name() string {
	switch {
	case !s.Kind.Known():
		return ""
	case s.IsLog():
		return logName
	}
	return names[s.Kind]
}

// Named is the kind that users know by this name, 0 if there is none.
func Named(name string) Kind {
	if name == logName {
		return SlidingBuckets
	}
	for k := Kind(1); k <= LastKind; k++ {
		if names[k] == name {
			return k
		}
	}
	return 0
}

// IsLog reports whether the shape is that of a sliding log.
func (s Shape) IsLog() bool { return s.Precision == LogPrecision }

// Fault says why a limit is wrong. A reader of limits says it in its own words.
type Fault uint8

const (
	// Sound is of a limit that has no fault.
	Sound Fault = iota
	// WrongWidth is not in whole milliseconds from MinWidth to MaxWidth.
	WrongWidth
	// UnknownKind is none of the table.
	UnknownKind
	// NeedlessPrecision is of a kind that has none.
	NeedlessPrecision
	// WrongPrecision is not LogPrecision, and does not divide the width into so many buckets.
	WrongPrecision
	// WrongMax is above MaxLimit.
	WrongMax
	// LargeLog is of a log with a limit above [Limit.LargestLog].
	LargeLog
	// NeedlessBurst is of a kind that has none.
	NeedlessBurst
	// WrongBurst is not from 1 to MaxLimit.
	WrongBurst
	// NeedlessCalendar is of another kind than FixedWindow.
	NeedlessCalendar
)

// Fault is the first fault of a shape. Stores count in a single bucket too, which nobody
// configures; and ordinals are as large as there is room for.
func (s Shape) Fault() Fault { return s.fault(1) }

// fault wants at least so many buckets, if the shape is bucketed and not a log.
func (s *Shape) fault(least uint64) Fault {
	width, precision := uint64(s.Width), uint64(s.Precision)
	switch {
	case s.Width < MinWidth || s.Width > MaxWidth || s.Width%MinWidth != 0:
		return WrongWidth
	case !s.Kind.Known():
		return UnknownKind
	case !s.Kind.Bucketed():
		if precision != 0 {
			return NeedlessPrecision
		}
	case precision == 0:
		return WrongPrecision
	case !s.IsLog():
		if buckets := width / precision; buckets*precision != width || buckets < least || buckets > MaxSubBuckets {
			return WrongPrecision
		}
	}
	return Sound
}

// Fault is the first fault of a limit that somebody configures.
func (l *Limit) Fault() Fault {
	switch fault := l.fault(MinSubBuckets); {
	case fault != Sound:
		return fault
	case l.Calendar != nil && l.Kind != FixedWindow:
		return NeedlessCalendar
	case l.Max > MaxLimit:
		return WrongMax
	case l.IsLog() && l.Max > l.LargestLog():
		return LargeLog
	case !l.Kind.Bursts():
		if l.Burst != 0 {
			return NeedlessBurst
		}
	case l.Burst == 0 || l.Burst > MaxLimit:
		return WrongBurst
	}
	return Sound
}

// Algorithms decide the following for themselves. All else is made of it, and of traits.

// advance brings s to the present: it forgets what does not count any more.
func (l *Limit) advance(s *State, now int64) {
	now = l.present(s, now)
	switch l.Kind {
	case FixedWindow, SlidingWindow:
		l.turn(s, now)
	case FirstHitWindow:
		l.expire(s, now)
	case SlidingBuckets, InFlight, Block:
		l.dropBuckets(s, now)
	case TokenBucket:
		l.refill(s, now)
	}
	s.Newest = now
}

// used is how many of the quota's hits are taken, rounded up.
func (l *Limit) used(s *State) uint64 {
	used := s.Hits[0].Sum()
	switch l.Kind {
	case SlidingWindow:
		used += l.weighed(s)
	case SlidingBuckets, InFlight, Block:
		used = sumBuckets(s)
	case TokenBucket:
		used -= l.returned(s, s.Newest)
	}
	return used
}

// moreAt is FitsAt of a cost that does not fit now, but can.
func (l *Limit) moreAt(s *State, cost uint64) int64 {
	switch l.Kind {
	case SlidingWindow:
		return l.fitsSlidingAt(s, cost)
	case InFlight:
		return s.Newest + inFlightPause
	case Block:
		return l.lastLeavesAt(s)
	case SlidingBuckets:
		return l.bucketsLeaveAt(s, l.used(s)-(l.Max-cost))
	case TokenBucket:
		return l.returnedAt(s, s.Hits[0].Sum()-(l.Burst-cost))
	}
	return l.end(s)
}

// ResetAt is the time when the window of s ends, the newest hit has left a sliding log, or the
// bucket is full. It is false if nothing runs: there were no hits, and it isn't a window of the
// clock.
func (l *Limit) ResetAt(s *State) (at int64, ok bool) {
	switch l.Kind {
	case FixedWindow, SlidingWindow:
		return l.end(s), true
	case InFlight:
		if l.Max == 0 || l.used(s) < l.Max {
			return s.Newest, false
		}
		return s.Newest + inFlightPause, true
	case TokenBucket: // what is leased is there
		if l.Max == 0 { // none ever comes back
			return s.Newest, false
		}
		at = l.returnedAt(s, s.Hits[0].Sum())
	default:
		at = l.ForgetAt(s)
	}
	return max(at, s.Newest), at > s.Newest
}

// Lasts is how long a hit can count at most, in nanoseconds: until its window has ended, or its token
// has come back to a bucket that was empty.
func (l *Limit) Lasts() int64 {
	switch l.Kind {
	case SlidingWindow:
		return 2 * l.Width
	case SlidingBuckets, InFlight, Block:
		return l.Width + l.Precision
	case TokenBucket:
		if nanos, _, ok := muldiv(l.Burst, uint64(l.Width), l.Max); ok && nanos < uint64(maxTime) {
			return int64(nanos) + 1
		}
		return maxTime
	}
	if l.Calendar != nil {
		return l.Width + calendarSlack
	}
	return l.Width
}

// calendarSlack is by how much a window of a calendar may be longer than is usual, as clocks are changed.
const calendarSlack = int64(25 * 3600 * 1e9)

// ForgetAt is the time from which s tells no more than a state that has seen no hit.
func (l *Limit) ForgetAt(s *State) int64 {
	switch {
	case l.Kind.Bucketed():
		return l.lastLeavesAt(s)
	case s.Hits[0].idle():
		if s.Hits[1].idle() {
			return s.Newest
		}
	case l.Kind == TokenBucket:
		return max(l.returnedAt(s, s.Hits[0].Sum()+s.Hits[0].Lease), s.Newest)
	case l.Kind == SlidingWindow:
		return l.end(s) + l.Width
	}
	return l.end(s)
}
