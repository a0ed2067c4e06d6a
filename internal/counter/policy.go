package counter

import (
	"math"

	"weir/window"
)

// The lease policy: how many hits a node asks for, when, and for how long it keeps them. A backend
// gives at most [window.Limit.Ahead], which both sides know. The numbers are those for which the
// study in bench/overshoot finds few false refusals at few callouts: ten nodes, limits of 1,000 in 5
// and in 60 seconds, demand of one to ten times the limit, in even, skewed, moving and bursting
// traffic. RATIONALE.md says why there are leases at all.

const (
	// horizonShare is the divisor of the shortest window that gives the time a lease should last:
	// it is used up, or returned, before the window ends.
	horizonShare = 4
	// longestHorizon bounds that time, in intervals. Four intervals would make 5 % fewer callouts
	// than two, but 6.1 false refusals per 1,000 instead of 3.6, at five times a limit of 1,000 on
	// ten nodes.
	longestHorizon = 2
	// tokenHorizon bounds it for token buckets, because tokens that return while others are leased
	// are lost. When ten nodes emptied a bucket of 1,000, they lost 6 % with two intervals, 4 %
	// with one and 1 % with half an interval. A shorter horizon makes more requests wait.
	tokenHorizon = 1
	// leastHorizon is the divisor of a horizon that gives the least time of a lease near the end of
	// a window.
	leastHorizon = 8

	// lowShare is the divisor of a lease at which more is asked for: the answer arrives before the
	// rest is used up.
	lowShare = 4
	// leastPace is the divisor of an interval that gives the least time for measuring a pace: two
	// hits may come at once by chance.
	leastPace = 4

	// mostStanding bounds the lease that stays for a key that is hit seldom, and standingShare is
	// the divisor of the largest lease that bounds it too. Otherwise a key that is hit every few
	// seconds would ask for each hit. Without standingShare, 29.6 instead of 42.6 of 1,000 requests
	// of 300 nodes with limits of 10,000 a minute wait, and 6.4 instead of 6.7 are refused falsely
	// where 50 nodes share a limit of 1,000. So it is not for fixed windows. Where windows slide, the
	// least that was admitted would be 0.868 of what could be, instead of 0.902.
	mostStanding  = 8
	standingShare = 4
	// More than mostStanding hits stand for a key that is far from a large limit: the largest lease
	// divided by farShare, and at most farStanding. All nodes together keep at most a 2,048th of what
	// is left so.
	farShare    = 1024
	farStanding = 64
	// An unused lease of this kind goes back after standsFor times standingPause, or after
	// standsFor intervals if an interval is longer.
	standsFor     = 4
	standingPause = int64(4e9)

	// longestPauses is the longest pause between questions for a full key, in horizons. Pauses
	// double up to it, because others have less and less to give back.
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

// renews reports whether all hits of each limit come back when its window ends, by the clock.
func (r *Rule) renews() bool {
	for i := range r.Limits {
		if r.Limits[i].Kind != window.FixedWindow {
			return false
		}
	}
	return true
}

// longest is the longest pause between questions for a key that stays full, in nanoseconds.
func (r *Rule) longest() int64 { return longestPauses * r.horizon() }

// Leases reports whether hits of the rule's keys are leased ahead of the requests that take them.
// Otherwise each is granted when it is asked for.
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

// Ahead is how many hits are worth leasing for requests to come, beyond the present lease: those of
// the next horizon at the recent rate, or a few for a key that is hit seldom, but at most a node's
// part of the hits left. It is 0 for a new key.
func (c *Shared) Ahead(now int64) uint64 {
	used, from := c.used()
	if used == 0 && from == 0 {
		return 0
	}
	pace, horizon := max(c.pace(used, from, now), float64(c.lease.Pace)), c.rule.horizon()
	// A lease ends with its window.
	pace *= max(1.0/leastHorizon, float64(c.endsIn(now, horizon))/float64(horizon))
	want := max(uint64(min(pace, window.MaxHits)), c.standing())
	return window.SaturatingSub(min(want, c.most()), c.Leased())
}

// Stands is Ahead for a key of unknown pace that is worth a lease.
func (c *Shared) Stands() uint64 { return window.SaturatingSub(c.standing(), c.Leased()) }

// used is how many hits were taken since a time, as far as is known.
func (c *Shared) used() (hits uint64, from Due) {
	if c.lease.Since != 0 {
		return c.Unheard() + c.lease.Granted - min(c.Leased(), c.lease.Granted), c.lease.Since
	}
	return c.Unheard(), c.sync.Claimed
}

// pace is the number of hits per horizon at the rate since a time, or since an interval ago if that
// is unknown.
func (c *Shared) pace(hits uint64, from Due, now int64) float64 {
	since := c.rule.Interval
	if ago := -from.In(now); from != 0 && ago >= 0 && ago < longestPause {
		since = max(ago, dueUnit, c.rule.Interval/leastPace) // two hits may come at once by chance
	}
	return float64(hits) * float64(c.rule.horizon()) / float64(since)
}

// standing is the most hits of a lease that stays for a key that is hit seldom. It is 0 if tokens
// would return meanwhile, which makes leases worthless.
func (c *Use) standing() uint64 {
	for i := range c.rule.Limits {
		if c.rule.Limits[i].Kind.Refills() {
			return 0
		}
	}
	most := c.most()
	if !c.rule.renews() {
		most /= standingShare
	}
	return min(max(mostStanding, min(most/farShare, farStanding)), most)
}

// most is the most hits that a lease should have. Its present hits count as left in the limits.
func (c *Use) most() (hits uint64) {
	hits = math.MaxUint64
	for i := range c.States {
		l := &c.rule.Limits[i]
		hits = min(hits, l.Ahead(l.Remaining(&c.States[i]), c.rule.nodes()))
	}
	return hits
}

// endsIn is how long leases can be used, in nanoseconds, but at most in.
func (c *Use) endsIn(now, in int64) int64 {
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

// reviewIn is the time until a lease in use is reviewed: an interval, or until it ends.
func (c *Use) reviewIn(now int64) int64 { return c.endsIn(now, c.rule.Interval-dueUnit) + dueUnit }

// Low reports whether taking cost hits has brought the lease down to the level at which more is
// asked for, so that no request has to wait.
func (c *Shared) Low(cost uint64) bool {
	leased, low := c.Leased(), c.lease.Granted/lowShare
	if low == 0 && (c.lease.Granted > 1 || c.lease.Pace > 0) {
		low = 1 // the key is in steady use
	}
	return leased < low && leased+cost >= low
}

// Asks is how many hits a request of cost hits asks for: more than cost if hits of a full limit
// come back too fast to ask for each.
func (c *Shared) Asks(cost uint64) uint64 { return max(cost, min(c.quantum(), c.lease.Pace)) }

// Room is the most hits that the counter may have now, as far as this node knows: no more than the
// backend had if it has just refused.
func (c *Shared) Room(now int64) (hits uint64) {
	hits = math.MaxUint64
	for i := range c.States {
		hits = min(hits, c.rule.Limits[i].Remaining(&c.States[i]))
	}
	if c.synced && c.dryFor(now) > 0 && c.quantum() > 1 {
		hits = min(hits, c.Leased()+max(c.lease.Short, 1)-1)
	}
	return hits
}

// Lacks is how many hits a request of cost hits has to ask for: those that the lease lacks. If the lease has
// enough and the request waits all the same, it asks for all of them, as it may not use the lease.
func (c *Shared) Lacks(cost uint64) uint64 {
	if leased := c.Leased(); leased < cost {
		return cost - leased
	}
	return cost
}

// quantum is how many hits are worth asking for at once while the limits are full.
func (c *Use) quantum() (hits uint64) {
	for i := range c.rule.Limits {
		hits = max(hits, c.rule.Limits[i].Quantum())
	}
	return hits
}

// dry sets when to ask again: when a hit comes back, or when others may have given back leases,
// which is the less likely the longer the key has been full. If hits come back too fast to ask for
// each, all nodes together ask once per quantum.
func (c *Shared) dry(now int64, spread float64) {
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
	c.lease.Dry, c.lease.Short = DueAt(now+int64(min(wait, longest))), 0
}
