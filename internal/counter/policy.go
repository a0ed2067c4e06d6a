package counter

import (
	"math"

	"weir/window"
)

// A lease's policy: how many hits a node asks for, when, and for how long it keeps them. A backend gives
// at most what [window.Limit.Ahead] says, which both know. The numbers stand where the study of
// bench/overshoot finds few false refusals at few callouts: ten nodes and a thousand, limits of 1,000 in
// 5 and in 60 seconds, offered once to ten times, in even, skewed, moving and bursting traffic.
// RATIONALE.md says why there are leases at all.

const (
	// horizonShare is the part of the shortest window that a lease is to last for, as a divisor: it is
	// used up, or has gone back, before the window ends.
	horizonShare = 4
	// longestHorizon bounds that in intervals. With four there were 5 % fewer callouts than with two, and
	// 6.1 false refusals of 1,000 instead of 3.6, at five times a limit of 1,000 on ten nodes.
	longestHorizon = 2
	// tokenHorizon bounds it for token buckets, as tokens that come back while others are leased
	// are lost. When ten nodes emptied a bucket of 1,000, they lost 6 % with two intervals, 4 %
	// with one interval and 1 % with half an interval. The shorter the horizon is, the more
	// requests wait.
	tokenHorizon = 1
	// leastHorizon is the part of a horizon that a lease lasts for at least, as a divisor, near the end
	// of a window.
	leastHorizon = 8

	// lowShare is the part of a lease at which more is asked for, as a divisor: the answer is there before
	// the rest is used up.
	lowShare = 4
	// leastPace is the part of an interval that a pace is measured for at least, as a divisor: two hits may
	// come at once by chance.
	leastPace = 4

	// mostStanding bounds a lease that stands for a key which is hit seldom, and standingShare is the
	// part of the largest lease that it has at most, as a divisor: a key that is hit each few seconds
	// would ask for each hit.
	mostStanding  = 8
	standingShare = 4
	// After standsFor times standingPause, or standsFor intervals if an interval is longer, such a
	// lease goes back if nobody has used it.
	standsFor     = 4
	standingPause = int64(4e9)

	// longestPauses is how many horizons the longest pause between questions for a full key has. Pauses
	// double up to it, as others have less and less to give back.
	longestPauses = 4
)

// horizon is how long a lease should last, in nanoseconds.
//
//go:noinline
func (r *Rule) horizon() int64 {
	shortest, intervals := int64(math.MaxInt64), int64(longestHorizon)
	for i := range r.Limits {
		shortest = min(shortest, r.Limits[i].Width)
		if r.Limits[i].Kind.Refills() {
			intervals = tokenHorizon
		}
	}
	return max(dueUnit, min(shortest/horizonShare, intervals*r.Interval))
}

// longest is how long nobody asks for more of a key that stays full, in nanoseconds.
func (r *Rule) longest() int64 { return longestPauses * r.horizon() }

// Leases reports whether hits of the rule's keys are leased ahead of the requests that take them.
// Else each is granted when it is asked for.
//
//go:noinline
func (r *Rule) Leases() bool {
	for i := range r.Limits {
		if r.Limits[i].Parts(r.nodes()) == 0 {
			return false
		}
	}
	return true
}

// Ahead is how many hits are worth leasing for requests to come, beyond those of the lease: those of
// the next horizon at the rate of late, or a few of a key that is hit seldom, but no more than a
// node's part of what is left. It is 0 for a key that nothing is known of.
func (c *Counter) Ahead(now int64) uint64 {
	used, from := c.used()
	if used == 0 && from == 0 {
		return 0
	}
	pace, horizon := max(c.pace(used, from, now), float64(c.lease.Pace)), c.rule.horizon()
	// A lease ends with its window.
	pace *= max(1.0/leastHorizon, float64(c.endsIn(now, horizon))/float64(horizon))
	want := max(uint64(min(pace, window.MaxHits)), c.standing())
	return sub(min(want, c.most()), c.Leased())
}

// used is how many hits were taken from a time on, as far as is known.
func (c *Counter) used() (hits uint64, from Due) {
	if c.lease.Since != 0 {
		return c.unheard() + c.lease.Granted - min(c.Leased(), c.lease.Granted), c.lease.Since
	}
	return c.unheard(), c.sync.Claimed
}

// pace is how many hits a horizon has at the rate of those since a time; or within an interval, if
// that is unknown.
func (c *Counter) pace(hits uint64, from Due, now int64) float64 {
	since := c.rule.Interval
	if ago := -from.In(now); from != 0 && ago >= 0 && ago < longestPause {
		since = max(ago, dueUnit, c.rule.Interval/leastPace) // two hits may come at once by chance
	}
	return float64(hits) * float64(c.rule.horizon()) / float64(since)
}

// standing is how many hits a lease may have that is kept for a key which is hit seldom. It is 0 if
// tokens would come back meanwhile, which makes leases worthless.
func (c *Counter) standing() uint64 {
	for i := range c.rule.Limits {
		if c.rule.Limits[i].Kind.Refills() {
			return 0
		}
	}
	return min(mostStanding, c.most()/standingShare)
}

// most is the most hits that a lease should have. Those that it has are left of the limits, too.
func (c *Counter) most() (hits uint64) {
	hits = math.MaxUint64
	for i := range c.States {
		l := &c.rule.Limits[i]
		hits = min(hits, l.Ahead(l.Remaining(&c.States[i]), c.rule.nodes()))
	}
	return hits
}

// endsIn is for how many nanoseconds leases can be used, but no more than in.
func (c *Counter) endsIn(now, in int64) int64 {
	for i := range c.States {
		l := &c.rule.Limits[i]
		if l.Kind.Clocked() && l.Calendar == nil {
			in = min(in, l.Width-now%l.Width)
		} else if l.Kind.AtOnce() {
			if at, runs := l.ResetAt(&c.States[i]); runs {
				in = min(in, at-now)
			}
		}
	}
	return in
}

// reviewIn is when a lease that is used is to be reviewed: in an interval, or when it has ended.
func (c *Counter) reviewIn(now int64) int64 { return c.endsIn(now, c.rule.Interval-dueUnit) + dueUnit }

// Low reports whether taking cost hits has brought the lease below the part of it at which more is
// asked for, so that nobody has to wait.
func (c *Counter) Low(cost uint64) bool {
	leased, low := c.Leased(), c.lease.Granted/lowShare
	if low == 0 && (c.lease.Granted > 1 || c.lease.Pace > 0) {
		low = 1 // the key is hit again and again
	}
	return leased < low && leased+cost >= low
}

// Asks is how many hits a request of cost hits asks for. It is more than that where hits of a full
// limit come back too fast to ask for each.
func (c *Counter) Asks(cost uint64) uint64 { return max(cost, min(c.quantum(), c.lease.Pace)) }

// quantum is how many hits are worth asking for at once while the limits are full.
func (c *Counter) quantum() (hits uint64) {
	for i := range c.rule.Limits {
		hits = max(hits, c.rule.Limits[i].Quantum())
	}
	return hits
}

// dry decides when to ask again: when a hit comes back, or when others may have given back what they
// leased, which is the less likely the longer the key is full. Where hits come back too fast to ask
// for each, all nodes together ask as often as a quantum comes back.
func (c *Counter) dry(now int64, spread float64) {
	doubts := min(c.rule.Interval<<max(c.lease.Refused, 1)>>1, c.rule.longest())
	longest := float64(doubts) * (0.5 + spread)
	wait := 0.0
	for i := range c.States {
		l := &c.rule.Limits[i]
		at, ok := l.FitsAt(&c.States[i], 1)
		if wait = max(wait, float64(at-now)); !ok {
			wait = longest
		}
		if quantum := l.Quantum(); quantum > 1 {
			nodes := float64(max(1, c.rule.nodes()))
			wait = max(wait, float64(l.Return())*float64(quantum)*nodes*(0.5+spread))
		}
	}
	c.lease.Dry = DueAt(now + int64(min(wait, longest)))
}
