package window

// Only this file tells the kinds of limits apart. Each has a file of its own, with its algorithm, and
// the functions at the end of this file choose among these. A kind without a case has the function
// of its trait. They are switches, because a table of functions, which Go does not inline, makes the
// plugin 60 KB larger.

// Kind identifies an algorithm. The numbers are part of the formats of shared data and of the wire,
// so a number is never reused.
type Kind uint8

const (
	// FixedWindow counts in windows that start at multiples of their width since the Unix epoch.
	FixedWindow Kind = 1
	// FirstHitWindow counts in windows that start with the first hit after the last one ended.
	FirstHitWindow Kind = 2
	// SlidingWindow adds the previous window's hits, weighted by the share of it that a window
	// ending now still covers.
	SlidingWindow Kind = 3
	// SlidingBuckets counts in buckets of a precision, and adds up those that a window ending now
	// covers. A precision of one nanosecond makes it a sliding log: each hit has its own time, and
	// only hits of the same nanosecond share a bucket.
	SlidingBuckets Kind = 4
	// TokenBucket starts full. From the moment that a token is taken, tokens come back one at a
	// time.
	TokenBucket Kind = 5
	// InFlight counts requests at the same time. See inflight.go.
	InFlight Kind = 6
	// Block records that a key was refused. See block.go.
	Block Kind = 7
)

// Algorithm describes an algorithm that a configuration may choose for a limit.
type Algorithm struct {
	Name string
	// Kind and Precision are those of a limit without options.
	Kind      Kind
	Precision int64
	// With is the kind of a limit with each option; 0 if the algorithm does not have that option.
	With [3]Kind
}

// Option is a field in the configuration of a limit that only some algorithms have.
type Option uint8

const (
	// Start makes windows start with a hit.
	Start Option = iota
	// Precision sets the width of buckets.
	Precision
	// Burst sets the quota.
	Burst
)

// Algorithms are the algorithms that a configuration may name. The first is the default.
var Algorithms = []Algorithm{
	{Name: "sliding_window", Kind: SlidingWindow, With: [3]Kind{Precision: SlidingBuckets}},
	{Name: "fixed_window", Kind: FixedWindow, With: [3]Kind{Start: FirstHitWindow}},
	{Name: "sliding_log", Kind: SlidingBuckets, Precision: LogPrecision},
	{Name: "token_bucket", Kind: TokenBucket, With: [3]Kind{Burst: TokenBucket}},
	{Name: "in_flight", Kind: InFlight, Precision: inFlightPrecision},
}

// names are the names of kinds that users see, such as in the backend's lists of counters.
var names = [...]string{
	FixedWindow:    "fixed_window",
	FirstHitWindow: "first_hit_window",
	SlidingWindow:  "sliding_window",
	SlidingBuckets: "sliding_buckets",
	TokenBucket:    "token_bucket",
	InFlight:       "in_flight",
	Block:          "block",
}

// LastKind is the highest kind. Kinds are numbered from 1 without gaps.
const LastKind = Kind(len(names) - 1)

// logName is the name of SlidingBuckets with LogPrecision.
const logName = "sliding_log"

// Known reports whether the kind exists.
func (k Kind) Known() bool { return k != 0 && k <= LastKind }

// Clocked reports whether windows start at multiples of their width since the Unix epoch. Such a
// window's number is its start divided by its width.
func (k Kind) Clocked() bool { return k == FixedWindow || k == SlidingWindow }

// Started reports whether there is a single window, which starts with a hit. Its number is its
// start.
func (k Kind) Started() bool { return k == FirstHitWindow || k == TokenBucket }

// Bucketed reports whether hits are counted in buckets of a precision. A bucket's number is its
// start divided by the precision.
func (k Kind) Bucketed() bool { return uint32(bucketed)>>(k&31)&1 != 0 }

// bucketed has the bit 1<<kind of each bucketed kind.
const bucketed = 1<<SlidingBuckets | 1<<InFlight | 1<<Block

// Windows is how many windows count at the same time. It is 0 for a bucketed kind, whose buckets
// follow from the precision, and for an unknown kind.
func (k Kind) Windows() int {
	switch {
	case k.looksBack():
		return 2
	case k.Bucketed() || !k.Known():
		return 0
	}
	return 1
}

// looksBack reports whether the previous window of the clock counts too.
func (k Kind) looksBack() bool { return k == SlidingWindow }

// AtOnce reports whether all hits of a window come back together, when the window ends.
func (k Kind) AtOnce() bool { return k == FixedWindow || k == FirstHitWindow }

// Refills reports whether hits come back one at a time, at the rate of the limit. States and pushes
// of such a kind therefore carry the limit.
func (k Kind) Refills() bool { return k == TokenBucket }

// Bursts reports whether the quota is the limit's burst.
func (k Kind) Bursts() bool { return k == TokenBucket }

// Held reports whether requests hold their hits, and give them back when they end.
func (k Kind) Held() bool { return k == InFlight }

// Name is the name of the algorithm that users see; "" if the kind is unknown.
func (s Shape) Name() string {
	switch {
	case !s.Kind.Known():
		return ""
	case s.IsLog():
		return logName
	}
	return names[s.Kind]
}

// Named returns the kind with a name that users see; 0 if there is none.
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

// Fault says why a limit is invalid. Each reader of limits has its own text for it.
type Fault uint8

const (
	// Sound means that the limit has no fault.
	Sound Fault = iota
	// WrongWidth means a width that is not in whole milliseconds from MinWidth to MaxWidth.
	WrongWidth
	// UnknownKind means a kind that does not exist.
	UnknownKind
	// NeedlessPrecision means a precision for a kind that has none.
	NeedlessPrecision
	// WrongPrecision means a precision that neither is LogPrecision nor divides the width into an
	// allowed number of buckets.
	WrongPrecision
	// WrongMax means a limit above MaxLimit.
	WrongMax
	// LargeLog means a log with a limit above [Shape.LargestLog].
	LargeLog
	// NeedlessBurst means a burst for a kind that has none.
	NeedlessBurst
	// WrongBurst means a burst that is not from 1 to MaxLimit.
	WrongBurst
	// NeedlessCalendar means a calendar for another kind than FixedWindow.
	NeedlessCalendar
)

// Fault returns the first fault of a shape. A store may also count in a single bucket, which nobody
// can configure, and ordinals may be as large as their encoding allows.
func (s Shape) Fault() Fault { return s.fault(1) }

// fault requires at least that number of buckets from a bucketed shape that is not a log.
func (s Shape) fault(least uint64) Fault {
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

// Fault returns the first fault of a limit in a configuration.
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

// advance brings s to the present, and drops hits that no longer count.
func advance(l *Limit, s *State, now int64) {
	now = max(0, min(now, maxTime))
	if s.Newest-now > max(l.Width, maxBack) {
		moveTo(l, s, now)
	}
	s.ends, now = 0, max(s.Newest, now)
	switch k := l.Kind; {
	case k.Started():
		expireStarted(l, s, now)
	case k.Bucketed():
		dropBuckets(l, s, now)
	case k == SlidingWindow:
		turnSliding(l, s, now)
	case k.Clocked():
		turnFixed(l, s, now)
	}
	s.Newest = now
}

// expireStarted drops hits of a kind that starts with a hit.
func expireStarted(l *Limit, s *State, now int64) {
	if l.Kind.Refills() {
		refill(l, s, now)
	} else {
		expireFirstHit(l, s, now)
	}
}

// Used is how many hits of the quota are in use at the time of s, rounded up. It is above the quota
// if more hits were counted.
func (l *Limit) Used(s *State) uint64 {
	switch k := l.Kind; {
	case k == SlidingWindow:
		return usedSliding(l, s)
	case k == Block:
		return usedBlock(l, s)
	case k.Bucketed():
		return sumBuckets(s)
	case k.Refills():
		return usedTokens(l, s)
	}
	return s.Hits[0].Sum()
}

// Keeps is [Limit.Used] without the hits that may be on their way back.
func (l *Limit) Keeps(s *State) uint64 {
	moves := int64(0) // a hit that moves to another bucket stays
	for i := range s.Buckets {
		moves += s.Buckets[i].InFlight
	}
	return SaturatingSub(l.Used(s), s.Hits[0].returning()+s.Hits[1].returning()+uint64(max(-moves, 0)))
}

// moreAt is FitsAt for a cost that does not fit now, but will.
func moreAt(l *Limit, s *State, cost uint64) int64 {
	switch k := l.Kind; {
	case k == SlidingWindow:
		return slidingFitsAt(l, s, cost)
	case k == InFlight:
		return s.Newest + inFlightPause
	case k == Block:
		return lastLeavesAt(l, s, false)
	case k.Bucketed():
		return bucketsLeaveAt(l, s, sumBuckets(s)-(l.Max-cost))
	case k.Refills():
		return tokensFitAt(l, s, cost)
	case k.Started():
		return s.Start + l.Width
	}
	return clockEnd(l, s)
}

// ResetAt returns the time when the window of s ends, the newest hit has left the log or the
// sub-buckets, or the bucket is full. ok is false if there are no hits and no window of the clock.
func (l *Limit) ResetAt(s *State) (at int64, ok bool) {
	switch k := l.Kind; {
	case k.Clocked():
		return clockEnd(l, s), true
	case k == InFlight:
		at = inFlightResetAt(l, s)
	case k.Bucketed():
		at = lastLeavesAt(l, s, false)
	case k.Refills():
		at = tokensResetAt(l, s)
	default:
		at = l.ForgetAt(s)
	}
	return max(at, s.Newest), at > s.Newest
}

// ForgetAt is the time from which s says no more than a state without hits.
func (l *Limit) ForgetAt(s *State) int64 {
	switch k := l.Kind; {
	case k.Bucketed():
		return lastLeavesAt(l, s, true)
	case k.Refills():
		return tokensForgetAt(l, s)
	case k.Started():
		return firstHitForgetAt(l, s)
	}
	return clockForgetAt(l, s)
}

// Lasts is the longest time that a hit can count, in nanoseconds: until its window ends, or until
// its token is back in a bucket that was empty.
func (l *Limit) Lasts() int64 {
	switch k := l.Kind; {
	case k == SlidingWindow:
		return 2 * l.Width
	case k.Bucketed():
		return l.Width + l.Precision
	case k.Refills():
		return tokensLast(l)
	}
	return fixedLasts(l)
}

// NumberAt is [Limit.Number] for hits that were counted at an earlier time. s is the state that was
// written with them.
func (l *Limit) NumberAt(s *State, at int64) uint64 {
	switch {
	case l.Kind.Started():
		return uint64(s.Start)
	case l.Kind.Bucketed():
		return bucketNumber(l, at)
	}
	return clockNumber(l, at)
}

// windowOf returns the hits of the window with a number; nil if s has left it.
func windowOf(l *Limit, s *State, number uint64) *Hits {
	switch k := l.Kind; {
	case k == Block: // requests take nothing from a block
		return nil
	case k.Bucketed():
		return bucketWindow(s, number)
	case k.Refills(): // tokens come back whatever the start is by now
		return &s.Hits[0]
	case k.Started():
		return firstHitWindow(l, s, number)
	}
	return clockWindow(l, s, number)
}

// countUnclocked counts at least one hit at the time of s.
func countUnclocked(l *Limit, s *State, cost uint64) {
	switch k := l.Kind; {
	case k == Block:
	case k.Bucketed():
		countBucket(l, s, cost)
	default:
		countStarted(s, cost)
	}
}

// GiveBackNewest gives back hits that count now, whoever counted them, the newest first, or all if fewer count. It returns
// how many. They make room for as many hits, or for one fewer if some are of a sliding window's past, whose share is rounded.
func (l *Limit) GiveBackNewest(s *State, hits uint64) (given uint64) {
	hits = min(hits, MaxHits)
	switch k := l.Kind; {
	case k == SlidingWindow:
		return freeSliding(l, s, hits)
	case k == Block: // nothing that is given back ends a block
		return 0
	case k.Bucketed():
		return freeBuckets(s, hits)
	case k.Refills(): // the others have come back, or are on their way
		hits = min(hits, SaturatingSub(l.Used(s), s.Hits[0].returning()))
	}
	return s.Hits[0].giveBackAny(hits)
}

// settle takes in totals. Without newest, they only raise those of s. gaveBack says that they answer
// a push that gave hits back.
func settle(l *Limit, s *State, newest, gaveBack bool, total *Totals) {
	switch k := l.Kind; {
	case k.Bucketed():
		settleBuckets(l, s, newest, total)
	case len(total.Hits) == 0 || total.Newest > uint64(maxTime):
	case k.Refills():
		settleTokens(l, s, newest, gaveBack, int64(total.Newest), min(total.Hits[0], MaxHits))
	case k.Started():
		settleFirstHit(l, s, newest, int64(total.Newest), min(total.Hits[0], MaxHits))
	default:
		clockSettle(l, s, newest, total)
	}
}

// lease is Lease for a state that has come to the time of the grant.
func lease(l *Limit, s *State, g *Grant, total *Totals) (kept bool) {
	if l.Kind.Bucketed() && l.Kind != Block {
		return leaseBucket(l, s, g, total)
	}
	l.Learn(s, g.Newer, total)
	switch k := l.Kind; {
	case k == Block:
	case k.Refills():
		leaseTokens(l, s, g, total)
	case k.Started():
		return leaseFirstHit(s, g, total)
	default:
		clockLease(l, s, g)
	}
	return true
}

// LeaseNumber returns the number of the window or bucket in which the backend has counted a lease,
// for a push that gives it back. counts is false if the totals belong to another first-hit window,
// or to none: then the lease has ended with its own window.
func (l *Limit) LeaseNumber(at int64, total *Totals) (number uint64, counts bool) {
	switch k := l.Kind; {
	case k == Block:
		return 0, false
	case k.Bucketed():
		return bucketNumber(l, at), true
	case k.Refills():
		return uint64(at), true
	case k.Started():
		return firstHitLeaseNumber(at, total)
	}
	number = clockNumber(l, at)
	return number, l.Calendar == nil || total.Newest == number
}
