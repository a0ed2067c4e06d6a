package counter

import (
	"math"

	"weir/window"
)

// Verdict is a counter's answer to a cost.
type Verdict uint8

const (
	// Rejected hits have no room.
	Rejected Verdict = iota
	// Allowed hits have room, and may be taken.
	Allowed
	// Unsure says that only the backend knows whether the hits have room.
	Unsure
)

// Lease holds what an entry knows of its dealings with the backend, beyond its hits.
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

// sub is a − b, or 0.
func sub(a, b uint64) uint64 { return a - min(a, b) }

// unheard is how many hits the backend has not heard of, in the limit with the most.
func (c *Counter) unheard() (hits uint64) {
	for i := range c.States {
		hits = max(hits, c.States[i].Unheard())
	}
	return hits
}

// Grant takes in a grant for limit i; see [window.Limit.Lease]. The fields that the counter knows
// itself, Newer and Nodes, need not be set. After the last limit call Granted and Heard.
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
