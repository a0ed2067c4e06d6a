package counter

import (
	"math"

	"weir/window"
)

// Verdict is a counter's answer to a request for hits.
type Verdict uint8

const (
	// Rejected means that the hits have no room.
	Rejected Verdict = iota
	// Allowed means that the hits have room, and may be taken.
	Allowed
	// Unsure means that only the backend knows whether the hits have room.
	Unsure
)

// Lease is an entry's record of its dealings with the backend, apart from hits.
type Lease struct {
	// Dry is until when the backend is not asked for more, because it had none.
	Dry Due
	// Since is when the lease had Granted hits, less those that went back unused since.
	Since   Due
	Granted uint64
	// Pace is how many hits this node has recently used per horizon.
	Pace uint64
	// Worn is until when the wear of leased tokens was applied.
	Worn Due
	// Short is how many hits the backend did not have when Dry was set: it may have fewer. 0 is 1.
	Short uint64
	// Refused is how often in a row the backend had fewer hits than requests asked for.
	Refused uint8
}

// none reports whether there is nothing to record.
func (l *Lease) none() bool {
	return l.Dry|l.Since|l.Worn == 0 && l.Granted|l.Pace|l.Short == 0 && l.Refused == 0
}

const (
	// maxRefused bounds Refused: pauses double at most that often.
	maxRefused = 5
	// doubtful is how many refusals in a row may be due to unused leases of others. After these and
	// their pauses the others have given the leases back.
	doubtful = 3
)

// Share sets how many nodes share the rule's limits; 0 if unknown. Rules start with 0.
func (r *Rule) Share(nodes uint64) {
	if r.kin == nil {
		r.kin = &kin{}
	}
	r.kin.nodes = nodes
}

// Verdict decides whether cost hits may be taken at the counter's time. They come from the lease.
// Otherwise the backend must be asked, unless it has just refused: then it is asked again when hits
// have come back, or after a pause if they come back too fast for that. A refusal of a larger request
// says nothing about a smaller request that has room.
func (c *Shared) Verdict(cost uint64, now int64) Verdict {
	allows := c.Allows(cost)
	switch {
	case allows && (cost == 0 || c.Leased() >= cost):
		return Allowed
	case cost == 0 || !c.Possible(cost) || !allows && c.forgets() || c.dryFor(now) > 0 && (!allows || c.quantum() > 1 && c.Lacks(cost) >= c.lease.Short):
		return Rejected
	}
	return Unsure
}

// Stale reports whether it is time to ask again for a full key, though its windows have to end before
// hits come back by themselves: others may have given back leases. In the study of bench/fleet a
// request that waited for the answer was refused nearly always. Such waits were 98 of the 232 of 1,000
// requests that waited at 300 nodes with limits of 1,000 a minute. Where hits come back singly, 24 of
// 1,000 requests would be refused falsely instead of none.
func (c *Shared) Stale(now int64) bool {
	if !c.synced || c.lease.Refused == 0 || c.dryFor(now) > 0 {
		return false
	}
	full := false
	for i := range c.States {
		if l := &c.rule.Limits[i]; !l.Allows(&c.States[i], 1) {
			if full = l.Kind == window.FixedWindow && l.Max > 0; !full {
				return false
			}
		}
	}
	return full
}

// dryFor is how long the backend is not to be asked, in nanoseconds.
//
//go:noinline
func (c *Shared) dryFor(now int64) int64 {
	if c.lease.Dry == 0 {
		return 0
	}
	if in := c.lease.Dry.In(now); in > 0 && in <= 2*c.rule.longest() {
		return in
	}
	return 0 // the time has passed, or is from a wrong clock
}

// DryUntil is the time until which hits within the limits are refused because the backend had no
// more; now if there is no such time.
func (c *Shared) DryUntil(now int64) int64 { return now + c.dryFor(now) }

// Silent reports whether taking cost hits leaves nothing to push.
func (c *Shared) Silent(cost uint64) bool {
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

// Grant takes in a grant for limit i: see [window.Limit.Lease]. g need not have Newer and Nodes,
// which the counter knows. After the last limit, call Granted and Heard.
func (c *Shared) Grant(i int, g window.Grant, total *window.Totals) (kept bool) {
	g.Newer, g.Nodes = c.newer(g.Answered), c.rule.nodes()
	return c.rule.Limits[i].Lease(&c.States[i], &g, total)
}

// Granted completes the grants of units, where least to most were asked for. ahead says whether they
// are for requests to come. Requests that wait need relied hits of the lease besides.
// spread, from 0 to 1, keeps nodes from asking all at once if there is less than they want.
func (c *Shared) Granted(units, least, most, relied uint64, ahead bool, now int64, spread float64) {
	// The lease before the grant.
	leased := c.Leased()
	if !c.rule.Leases() {
		c.trimLease(leased)
		if c.lease = (Lease{Since: DueAt(now), Worn: DueAt(now) + 1, Granted: leased}); units < most {
			c.dry(now, spread)
			c.lease.Short = short(units, least)
		}
		return
	}
	before := leased - min(units, leased)
	used := c.Unheard() + c.lease.Granted - min(before, c.lease.Granted)
	from := c.lease.Since
	if from == 0 {
		from = c.sync.Claimed
	}
	pace := c.pace(used, from, now)
	if elapsed := -from.In(now); from != 0 && elapsed >= 0 {
		weight := min(1, float64(elapsed)/float64(c.rule.horizon()))
		pace = float64(c.lease.Pace)*(1-weight) + pace*weight
	}
	if part := c.most(); ahead {
		leased = min(leased, max(part, relied))
	} else {
		leased -= before - min(before, max(part, relied)) // requests wait for these
	}
	c.trimLease(leased)
	c.lease.Since, c.lease.Worn, c.lease.Granted = DueAt(now), DueAt(now)+1, leased
	c.lease.Pace = uint64(min(math.Ceil(pace), window.MaxHits))
	switch {
	case ahead:
		if units > 0 && c.rule.renews() {
			c.lease.Refused = 0 // it is a new window, in which no request had to ask
		}
	case units < most && c.dryFor(now) > 0: // another worker asked at the same time, or a smaller request
		c.lease.Short = min(c.lease.Short, short(units, least))
	case units < most:
		c.lease.Refused = min(c.lease.Refused+1, maxRefused)
		c.dry(now, spread)
		c.lease.Short = short(units, least)
	default:
		c.lease.Refused = 0
	}
}

// short is how many hits a backend does not have that has granted units of at least least.
func short(units, least uint64) uint64 {
	if units > 0 || least == 1 {
		return 0 // it has given all that it had, or has none
	}
	return least
}

// RunDry records that a key is known to be full, so that no worker asks for more.
func (c *Shared) RunDry(now int64, spread float64) {
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

// Doubtful reports whether others may still give back leases of a full key, in the pause before the next
// question.
func (c *Shared) Doubtful(now int64) bool { return c.Hopes() && c.dryFor(now) > 0 }

// Hopes is Doubtful for a key that is asked for.
func (c *Shared) Hopes() bool { return c.rule.Leases() && c.lease.Refused <= doubtful }

// Review gives back the part of the lease that is no longer of use: by halves, except for the few
// hits that stay for a key that is hit seldom. It reports whether a lease is left to review again.
func (c *Shared) Review(now int64) (again bool) {
	leased := c.Leased()
	c.trimLease(leased) // hits that not all limits have leased are of no use
	if leased == 0 {
		return false
	}
	if c.sync.Due.In(now) > 0 {
		return true
	}
	age := -c.lease.Since.In(now)
	looked := age // the key was claimed at its last review
	if ago := -c.sync.Claimed.In(now); c.sync.Claimed != 0 && ago >= 0 {
		looked = min(age, ago)
	}
	if looked >= 0 && looked < max(dueUnit, c.reviewIn(now)>>dueShift<<dueShift) {
		c.sync.Due = DueAt(now + c.reviewIn(now)) // the key is due because of its hits, and the lease is new
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
		c.lease.Dry = 0 // the backend has hits again
	}
	if c.lease.Granted = keep; used > 0 {
		c.lease.Since = DueAt(now) // an unused lease stays equally long, whatever its size
	}
	c.sync.Due = DueAt(now + c.reviewIn(now))
	return keep > 0
}

// Trim gives back leased hits above this node's part of the hits left, by totals that have just
// arrived. If it is relied on, because requests wait that need it and more, it stays.
func (c *Shared) Trim(relied bool, now int64) {
	leased := c.Leased()
	c.lease.Worn = DueAt(now) + 1
	if most := c.most(); leased > most && !relied && c.rule.Leases() {
		c.trimLease(most)
		c.lease.Granted = min(c.lease.Granted, most)
	}
}

// ReturnLeases gives back all leases.
func (c *Use) ReturnLeases() { c.trimLease(0) }

// Own reports whether the worker that changed the counter must come back to it: to push hits that
// it has given back, if nothing was pending before and so no other worker pushes them, or to review
// the lease.
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

// Learn takes in totals for limit i that came without a push. answered is their time, by the
// backend's clock.
func (c *Shared) Learn(i int, answered int64, total *window.Totals) {
	c.rule.Limits[i].Learn(&c.States[i], c.newer(answered), total)
}
