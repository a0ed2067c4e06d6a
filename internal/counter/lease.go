package counter

import (
	"math"
	"math/bits"

	"weir/window"
)

// Verdict is what a counter says of a cost.
type Verdict uint8

const (
	// Rejected hits have no room.
	Rejected Verdict = iota
	// Allowed hits have room, and may be taken.
	Allowed
	// Unsure says that only the backend knows whether the hits have room.
	Unsure
)

const (
	// horizonShare is the part of the shortest window that a lease is asked to last for, as a
	// divisor, and longestHorizon bounds it in intervals.
	horizonShare   = 4
	longestHorizon = 16
	// reviewShare is how often within a horizon a lease is reviewed, as a divisor.
	reviewShare = 4
	// leastHorizon is the part of a horizon that a lease lasts for at least, as a divisor.
	leastHorizon = 8
	// lowShare is the part of a lease at which more is asked for, as a divisor.
	lowShare = 4
)

// Lease is what an entry knows of its dealings with the backend, beyond its hits.
type Lease struct {
	// Dry is until when the backend is not asked for more, as it had no more.
	Dry Due
	// Since is when the lease was as large as Granted.
	Since   Due
	Granted uint64
	// Pace is how many hits this node has used in a horizon of late.
	Pace uint64
	// Scarce says how far there is less than is asked for: how often that was so lately, less how
	// often it was not.
	Scarce uint8
}

// none tells that nothing is known.
func (l *Lease) none() bool {
	return l.Dry|l.Since == 0 && l.Granted|l.Pace == 0 && l.Scarce == 0
}

// maxScarce bounds Scarce: pauses between wishes, and what these ask for, double that often at
// most.
const maxScarce = 4

// Share tells the rule how many nodes keep its limits together, 0 for an unknown number. Rules
// start with 0.
func (r *Rule) Share(nodes uint64) {
	if r.nodes == nodes && len(r.splits) == len(r.Limits) {
		return
	}
	r.nodes = nodes
	r.splits = make([]window.Split, len(r.Limits))
	for i := range r.Limits {
		r.splits[i] = r.Limits[i].Split(nodes)
	}
}

// Overshoot is the most hits above a limit of the rule that its nodes can admit together.
func (r *Rule) Overshoot() (hits uint64) {
	for i := range r.splits {
		hits = max(hits, r.splits[i].Overshoot(r.nodes))
	}
	return hits
}

// Leases reports whether hits of the rule's keys are leased ahead of the requests that take them.
// Else each is granted when it is asked for.
//
//go:noinline
func (r *Rule) Leases() bool {
	for i := range r.Limits {
		if !r.Limits[i].Leases() {
			return false
		}
	}
	return true
}

// horizon is how long a lease should last, in nanoseconds.
//
//go:noinline
func (r *Rule) horizon() int64 {
	shortest := int64(math.MaxInt64)
	for i := range r.Limits {
		shortest = min(shortest, r.Limits[i].Width)
	}
	return max(dueUnit, min(shortest/horizonShare, longestHorizon*r.SyncRate))
}

// LongestDue is how far ahead the rule's keys are due at most, in nanoseconds.
func (r *Rule) LongestDue() int64 { return max(r.SyncRate, r.horizon()/reviewShare) }

// Verdict says whether cost hits may be taken at the time that the counter was brought to. They
// come out of the lease, or are few enough to be free; else the backend has to be asked, unless it
// was just now, and had no more.
func (c *Counter) Verdict(cost uint64, now int64) Verdict {
	allows := c.Allows(cost)
	switch {
	case allows && (cost == 0 || c.Leased() >= cost || c.free(cost, now)):
		return Allowed
	case cost == 0 || !c.Possible(cost) || c.dryFor(now) > 0:
		return Rejected
	}
	return Unsure
}

// Leased is how many hits may be taken without asking.
//
//go:noinline
func (c *Counter) Leased() uint64 {
	leased := uint64(math.MaxUint64)
	for i := range c.States {
		leased = min(leased, c.rule.Limits[i].Leased(&c.States[i]))
	}
	return leased
}

// free reports whether so many hits may be taken without a lease. A key that had one lately gets
// another.
func (c *Counter) free(cost uint64, now int64) bool {
	if len(c.rule.splits) == 0 || c.lease.Since != 0 && -c.lease.Since.In(now) < 2*c.rule.horizon() {
		return false
	}
	for i := range c.States {
		split, s := &c.rule.splits[i], &c.States[i]
		if s.Unheard()+cost > split.Free || !c.rule.Limits[i].Allows(s, cost+split.Reserve) {
			return false
		}
	}
	return true
}

// dryFor is for how many nanoseconds the backend is not to be asked.
//
//go:noinline
func (c *Counter) dryFor(now int64) int64 {
	if c.lease.Dry == 0 {
		return 0
	}
	if in := c.lease.Dry.In(now); in > 0 && in <= 2*c.rule.horizon() {
		return in
	}
	return 0 // it has passed, or comes from a clock that was wrong
}

// DryUntil is the time until which a cost that the limits would allow is refused, as the backend
// had no more to give. It is now if there is no such time.
func (c *Counter) DryUntil(now int64) int64 { return now + c.dryFor(now) }

// Silent reports whether taking cost hits leaves nothing to push.
func (c *Counter) Silent(cost uint64) bool {
	if !c.synced || c.Leased() < cost {
		return false
	}
	for i := range c.rule.Limits {
		if c.rule.Limits[i].MovesLease(&c.States[i]) {
			return false
		}
	}
	return true
}

// Low reports whether taking cost hits has brought the lease below the part of it at which more is
// asked for, so that nobody has to wait.
func (c *Counter) Low(cost uint64) bool {
	leased := c.Leased()
	return leased < c.lease.Granted/lowShare && leased+cost >= c.lease.Granted/lowShare && c.rule.Leases()
}

// Want is how many hits a lease should have: those of the next horizon at the rate of late, and the
// least that are asked for now. Of a key that nothing is known of it is the least.
func (c *Counter) Want(least uint64, now int64) (most uint64) {
	used, from := c.used()
	if from == 0 && used == 0 || !c.rule.Leases() {
		return least
	}
	want := max(c.pace(used+least, from, now), float64(c.lease.Pace))
	// A lease ends with its window.
	horizon := float64(c.rule.horizon())
	want *= max(1.0/leastHorizon, min(1, float64(c.endsIn(now))/horizon))
	want = min(want, max(2*float64(c.left())/float64(max(c.rule.nodes, 1)), float64(uint64(1)<<c.lease.Scarce)))
	return max(least, uint64(min(want, float64(window.MaxHits))))
}

// endsIn is for how many nanoseconds leases can be used.
func (c *Counter) endsIn(now int64) int64 {
	in := c.rule.horizon() * reviewShare
	for i := range c.States {
		l := &c.rule.Limits[i]
		if l.Kind.Clocked() {
			in = min(in, l.Width-now%l.Width)
		} else if l.Kind.AtOnce() {
			if at, runs := l.ResetAt(&c.States[i]); runs {
				in = min(in, at-now)
			}
		}
	}
	return in
}

// reviewIn is when the lease is to be reviewed: some times within a horizon, and when it has ended.
func (c *Counter) reviewIn(now int64) int64 { return min(c.rule.LongestDue(), c.endsIn(now)+dueUnit) }

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
	since := c.rule.SyncRate
	if ago := -from.In(now); from != 0 && ago >= 0 && ago < longestPause {
		since = max(ago, dueUnit)
	}
	return float64(hits) * float64(c.rule.horizon()) / float64(since)
}

// left is how many hits are left for leases, as far as is known.
func (c *Counter) left() uint64 {
	left := uint64(math.MaxUint64)
	for i := range c.States {
		remaining := c.rule.Limits[i].Remaining(&c.States[i])
		if len(c.rule.splits) > 0 {
			remaining -= min(remaining, c.rule.splits[i].Reserve)
		}
		left = min(left, remaining)
	}
	return left
}

// Regular reports whether a key is hit so often that it is worth a lease, though its hits could be
// pushed as they come.
func (c *Counter) Regular(now int64) bool {
	if !c.rule.Leases() || c.sync.Claimed == 0 || -c.sync.Claimed.In(now) > c.rule.horizon() {
		return false
	}
	return c.unheard() > 0 && c.Want(1, now) >= 2
}

// unheard is how many hits the backend has not heard of, in the limit with the most.
func (c *Counter) unheard() (hits uint64) {
	for i := range c.States {
		hits = max(hits, c.States[i].Unheard())
	}
	return hits
}

// Grant takes in a grant for limit i, decided at one time of the backend's clock and answered at
// another, which are the same unless the push was sent again; see [window.Limit.Lease]. After the
// last limit call Granted and Heard.
func (c *Counter) Grant(i int, units uint64, at, answered int64, total *window.Totals) (kept bool) {
	return c.rule.Limits[i].Lease(&c.States[i], units, at, c.newer(answered), total)
}

// Granted ends the taking in of a grant of units where most were asked for. spread, from 0 to 1,
// keeps nodes from asking all at once if there is less than they want.
func (c *Counter) Granted(units, most uint64, now int64, spread float64) {
	// The lease was as large as this before the grant.
	leased := c.Leased()
	if !c.rule.Leases() {
		c.trimLease(leased)
		if c.lease = (Lease{Since: DueAt(now), Granted: leased}); units < most {
			c.dry(now, spread)
		}
		return
	}
	before := leased - min(units, leased)
	used := c.unheard() + c.lease.Granted - min(before, c.lease.Granted)
	from := c.lease.Since
	if from == 0 {
		from = c.sync.Claimed
	}
	pace := c.pace(used, from, now)
	if elapsed := -from.In(now); from != 0 && elapsed >= 0 {
		weight := min(1, float64(elapsed)/float64(c.rule.horizon()))
		pace = float64(c.lease.Pace)*(1-weight) + pace*weight
	}
	c.trimLease(leased)
	next := Lease{Since: DueAt(now), Granted: leased, Pace: uint64(min(pace+0.5, window.MaxHits)), Scarce: c.lease.Scarce}
	left, part := c.left(), max(c.rule.nodes, 1)<<next.Scarce
	switch {
	case left < part || units < most:
		next.Scarce = min(next.Scarce+1, c.mostScarce())
	case next.Scarce > 0 && left >= 4*part:
		next.Scarce--
	}
	c.lease = next
	// While there is a hit for each node, less than was asked for is but a share.
	if units < most && (units == 0 || left < part) {
		c.dry(now, spread)
	}
}

// mostScarce bounds Scarce, so that no lease takes much of a limit.
func (c *Counter) mostScarce() uint8 {
	most := maxScarce
	for i := range c.rule.splits {
		most = min(most, bits.Len64(c.rule.splits[i].Quantum*3/2)-1)
	}
	return uint8(max(most, 0))
}

//go:noinline
func (c *Counter) trimLease(keep uint64) {
	for i := range c.States {
		c.rule.Limits[i].ReturnLease(&c.States[i], keep)
	}
}

// RunDry has nobody ask for more of a key that is known to be full.
func (c *Counter) RunDry(now int64, spread float64) {
	if c.dryFor(now) > 0 || c.Leased() > 0 || c.lease.none() {
		return
	}
	for i := range c.States {
		if !c.rule.Limits[i].Allows(&c.States[i], 1) {
			c.dry(now, spread)
			return
		}
	}
}

// dry decides when to ask again: when something has come back, but later the more often there was
// too little, and the smaller this node's part of what comes is. Others may give back leases
// meanwhile, so it is asked again after about a horizon.
func (c *Counter) dry(now int64, spread float64) {
	horizon := float64(c.rule.horizon())
	longest := horizon * (0.5 + spread)
	wait := 0.0
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		reserve := uint64(0)
		if len(c.rule.splits) > 0 {
			reserve = c.rule.splits[i].Reserve
		}
		fits, ok := l.FitsAt(s, max(1, min(reserve+1, l.Quota())))
		if !ok {
			wait = longest
			break
		}
		in := float64(max(fits-now, 0))
		if !c.rule.Leases() && in > 0 {
			longest = min(longest, max(in, wait)) // nobody has what could be given back
		} else if l.Kind.AtOnce() {
			if in > 0 {
				longest = min(longest, max(in, wait)) // all of it is there again
			} else {
				in = longest / reviewShare // by what is known here there is room: others have leased it
			}
		} else {
			// A hit comes back each so often, and this node's share of them is what it has used of
			// late.
			each := float64(l.Width) / float64(max(l.Max, 1))
			supply := horizon / each
			nodes := max(1, min(float64(c.rule.nodes), supply/max(1, float64(c.lease.Pace))))
			if pause := each * nodes * float64(uint(1)<<c.lease.Scarce) * (0.5 + spread); supply >= 1 {
				in = max(in, pause)
			} else {
				in = max(in, longest/reviewShare) // what others give back comes sooner
			}
		}
		wait = max(wait, in)
	}
	c.lease.Dry = DueAt(now+int64(min(wait, longest))) + 1
}

// Review looks whether the lease is still of use, some times within a horizon, and gives back what
// isn't. It reports whether there is a lease to review again.
func (c *Counter) Review(now int64) (again bool) {
	leased := c.Leased()
	c.trimLease(leased) // what one limit has leased, and others not, is of no use
	if leased == 0 {
		return false
	}
	if c.sync.Due.In(now) > 0 {
		return true
	}
	if young := c.reviewIn(now) + c.lease.Since.In(now); c.lease.Since != 0 && young > 0 && young <= c.rule.LongestDue() {
		c.sync.Due = DueAt(now + young) // the key is due for its hits, and the lease has only come
		return true
	}
	granted := max(c.lease.Granted, leased)
	if used := granted - leased; used < (granted+2*reviewShare-1)/(2*reviewShare) {
		leased = min(leased, used*reviewShare)
		c.trimLease(leased)
		c.lease.Dry = 0 // there is something to have again
	}
	c.lease.Granted, c.lease.Since = leased, DueAt(now)
	c.sync.Due = DueAt(now + c.reviewIn(now))
	return leased > 0
}

// ReturnLeases gives back all that is leased.
func (c *Counter) ReturnLeases() { c.trimLease(0) }

// Own reports whether the worker that has changed the counter is to come back to it: to push what it
// has given back, if nothing was pending before and so nobody else does, or to review the lease.
func (c *Counter) Own(wasPending bool, now int64) bool {
	switch {
	case wasPending:
		return false
	case c.Pending():
		c.sync.Due = DueAt(now)
	case c.Leased() > 0:
		c.sync.Due = DueAt(now+c.reviewIn(now)) + 1
	default:
		return false
	}
	return true
}

// Learn takes in totals of the backend for limit i that come with no push, answered at a time of
// its clock.
func (c *Counter) Learn(i int, answered int64, total *window.Totals) {
	c.rule.Limits[i].Learn(&c.States[i], c.newer(answered), total)
}
