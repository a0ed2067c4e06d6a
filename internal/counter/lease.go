package counter

import (
	"math"

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
	// horizonShare is the part of the shortest window that a lease is to last for, as a divisor, and
	// longestHorizon bounds it in intervals.
	horizonShare   = 4
	longestHorizon = 2
	// leastHorizon is the part of a horizon that a lease lasts for at least, as a divisor.
	leastHorizon = 8
	// lowShare is the part of a lease at which more is asked for, as a divisor.
	lowShare = 4
	// leastPace is the part of an interval that a pace is measured for at least, as a divisor.
	leastPace = 4
	// mostStanding bounds a lease that stands for a key which is hit seldom, and standingShare is the
	// part of the largest lease that it has at most, as a divisor. After standsFor times standingPause,
	// or as many intervals if these are longer, it goes back if nobody has used it.
	mostStanding  = 8
	standingShare = 4
	standsFor     = 4
	standingPause = int64(4e9)
	// longestPauses is how many horizons the longest pause between questions has.
	longestPauses = 4
)

// Lease is what an entry knows of its dealings with the backend, beyond its hits.
type Lease struct {
	// Dry is until when the backend is not asked for more, as it had no more.
	Dry Due
	// Since is when the lease was as large as Granted, but for what has gone back since, unused.
	Since   Due
	Granted uint64
	// Pace is how many hits this node has used in a horizon of late.
	Pace uint64
	// Worn is until when a lease of tokens has worn, by what has come back.
	Worn Due
	// Refused is how often in a row the backend had less than requests have asked for.
	Refused uint8
}

// none reports whether nothing is known.
func (l *Lease) none() bool {
	return l.Dry|l.Since|l.Worn == 0 && l.Granted|l.Pace == 0 && l.Refused == 0
}

const (
	// maxRefused bounds Refused: pauses double that often at most.
	maxRefused = 5
	// doubtful is how many refusals in a row may be due to hits that others have leased and not used.
	// After these and their pauses they have given them back.
	doubtful = 3
)

// Share tells the rule how many nodes keep its limits together, 0 for an unknown number. Rules
// start with 0.
func (r *Rule) Share(nodes uint64) {
	if r.kin == nil {
		r.kin = &kin{}
	}
	r.kin.nodes = nodes
}

// horizon is how long a lease should last, in nanoseconds.
//
//go:noinline
func (r *Rule) horizon() int64 {
	shortest, intervals := int64(math.MaxInt64), int64(longestHorizon)
	for i := range r.Limits {
		shortest = min(shortest, r.Limits[i].Width)
		if r.Limits[i].Kind.Refills() {
			intervals = 1 // tokens that come back before they were used are lost
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

// Verdict says whether cost hits may be taken at the time that the counter was brought to. They come
// out of the lease. Else the backend has to be asked, unless it has just refused: then it is asked
// again when hits have come back, or after a pause where they come back too fast for that.
func (c *Counter) Verdict(cost uint64, now int64) Verdict {
	allows := c.Allows(cost)
	switch {
	case allows && (cost == 0 || c.Leased() >= cost):
		return Allowed
	case cost == 0 || !c.Possible(cost) || c.dryFor(now) > 0 && (!allows || c.quantum() > 1):
		return Rejected
	}
	return Unsure
}

// dryFor is for how many nanoseconds the backend is not to be asked.
//
//go:noinline
func (c *Counter) dryFor(now int64) int64 {
	if c.lease.Dry == 0 {
		return 0
	}
	if in := c.lease.Dry.In(now); in > 0 && in <= 2*c.rule.longest() {
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
	leased, low := c.Leased(), c.lease.Granted/lowShare
	if low == 0 && (c.lease.Granted > 1 || c.lease.Pace > 0) {
		low = 1 // the key is hit again and again
	}
	return leased < low && leased+cost >= low
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

// sub is a − b, or 0.
func sub(a, b uint64) uint64 { return a - min(a, b) }

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

// unheard is how many hits the backend has not heard of, in the limit with the most.
func (c *Counter) unheard() (hits uint64) {
	for i := range c.States {
		hits = max(hits, c.States[i].Unheard())
	}
	return hits
}

// Grant takes in a grant for limit i; see [window.Limit.Lease]. What the counter knows itself of it
// need not be set. After the last limit call Granted and Heard.
func (c *Counter) Grant(i int, g window.Grant, total *window.Totals) (kept bool) {
	g.Newer, g.Nodes = c.newer(g.Answered), c.rule.nodes()
	return c.rule.Limits[i].Lease(&c.States[i], &g, total)
}

// Granted ends the taking in of a grant of units where most were asked for, ahead of requests or by
// them. spread, from 0 to 1, keeps nodes from asking all at once if there is less than they want.
func (c *Counter) Granted(units, most uint64, ahead bool, now int64, spread float64) {
	// The lease was as large as this before the grant.
	leased := c.Leased()
	if !c.rule.Leases() {
		c.trimLease(leased)
		if c.lease = (Lease{Since: DueAt(now), Worn: DueAt(now) + 1, Granted: leased}); units < most {
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
	if most := c.most(); ahead {
		leased = min(leased, most)
	} else {
		leased -= before - min(before, most) // requests wait for the rest
	}
	c.trimLease(leased)
	c.lease.Since, c.lease.Worn, c.lease.Granted = DueAt(now), DueAt(now)+1, leased
	c.lease.Pace = uint64(min(math.Ceil(pace), window.MaxHits))
	switch {
	case ahead:
	case units < most && c.dryFor(now) > 0: // another worker has asked at the same time
	case units < most:
		c.lease.Refused = min(c.lease.Refused+1, maxRefused)
		c.dry(now, spread)
	default:
		c.lease.Refused = 0
	}
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

// quantum is how many hits are worth asking for at once while the limits are full.
func (c *Counter) quantum() (hits uint64) {
	for i := range c.rule.Limits {
		hits = max(hits, c.rule.Limits[i].Quantum())
	}
	return hits
}

// Asks is how many hits a request of cost hits asks for. It is more than that where hits of a full
// limit come back too fast to ask for each.
func (c *Counter) Asks(cost uint64) uint64 { return max(cost, min(c.quantum(), c.lease.Pace)) }

// Doubtful reports whether others may still give back what they have leased of a key that is full.
func (c *Counter) Doubtful(now int64) bool {
	return c.rule.Leases() && c.lease.Refused <= doubtful && c.dryFor(now) > 0
}

// Review looks whether the lease is still of use, and gives back what isn't: by halves, but for the
// few hits that stand for a key which is hit seldom. It reports whether there is a lease to review
// again.
func (c *Counter) Review(now int64) (again bool) {
	leased := c.Leased()
	c.trimLease(leased) // what one limit has leased, and others not, is of no use
	if leased == 0 {
		return false
	}
	if c.sync.Due.In(now) > 0 {
		return true
	}
	age := -c.lease.Since.In(now)
	looked := age // the key was claimed when it was reviewed last
	if ago := -c.sync.Claimed.In(now); c.sync.Claimed != 0 && ago >= 0 {
		looked = min(age, ago)
	}
	if looked >= 0 && looked < max(dueUnit, c.reviewIn(now)>>dueShift<<dueShift) {
		c.sync.Due = DueAt(now + c.reviewIn(now)) // the key is due for its hits, and the lease has only come
		return true
	}
	used, stands := max(c.lease.Granted, leased)-leased, c.standing()
	keep := uint64(0)
	if used > 0 || leased > stands {
		c.lease.Pace = (c.lease.Pace + used*longestHorizon + min(used, 1)) / 2
		keep = min(leased, max(c.lease.Pace, used*longestHorizon, stands))
	} else if pause := max(c.rule.Interval, standingPause); age >= 0 && age < standsFor*pause {
		c.sync.Due = DueAt(now + c.endsIn(now, min(max(age, c.rule.Interval), pause)) + dueUnit)
		return true
	}
	if keep < leased {
		c.trimLease(keep)
		c.lease.Dry = 0 // there is something to have again
	}
	if c.lease.Granted = keep; used > 0 {
		c.lease.Since = DueAt(now) // a lease that nobody uses stands for as long however large it was
	}
	c.sync.Due = DueAt(now + c.reviewIn(now))
	return keep > 0
}

// Trim gives back what is more than this node's part of what is left, by totals that have just come.
func (c *Counter) Trim(now int64) {
	leased := c.Leased()
	c.lease.Worn = DueAt(now) + 1
	if most := c.most(); leased > most && c.rule.Leases() {
		c.trimLease(most)
		c.lease.Granted = min(c.lease.Granted, most)
	}
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
