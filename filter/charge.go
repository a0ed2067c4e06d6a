package filter

import (
	"weir/config"
	"weir/internal/engine"
	"weir/internal/usage"
)

// charge is a request's charge by one rule, until its response has told the cost.
type charge struct {
	_ [0]func() // keeps Go from generating an equality function

	engine.Charge
	bounds, further engine.Charge // the same hits, of a class's bound and a key's seat; no rule without one
	rule            *rule
	// taken is how many hits the request took at first. If the rule reserves, they stand for an
	// unknown cost of the response; otherwise the response's cost is added.
	taken  uint64
	reader *usage.Reader // of the body; nil if it is not read
	ending usage.Ending  // how to end the body, if it is a stream
	// measure is set while a shadow rule has not decided yet. Then nothing was taken, and due is
	// the response's cost, once known is set.
	measure *measure
	due     uint64
	known   bool
	// since is when the request began to hold its hits.
	since int64
	// spent means that the response cost more than was reserved, and more than is left.
	spent bool
}

// soFar is the least that the response has cost so far. A stream that may be cut often tells its
// tokens only at its end: until then each event counts as one token.
func (c *charge) soFar() (cost uint64, found bool) {
	cost, found = c.reader.Cost()
	if n := c.reader.Untold(); n > 0 && c.rule.config.Cut {
		return min(cost+c.reader.Guessed(n), usage.Most), true
	}
	return cost, found
}

// exceeds returns the cost of the response so far, and reports whether it is above the hits taken.
func (c *charge) exceeds() (cost uint64, exceeds bool) {
	if c.reader == nil {
		return 0, false
	}
	cost, found := c.soFar()
	return cost, found && c.isMore(cost)
}

func (c *charge) isMore(cost uint64) bool { return !c.rule.config.Reserve || cost > c.taken }

// finish charges the cost of the whole response.
func (c *charge) finish(e *decider, cost uint64, now int64) {
	if !c.rule.config.Reserve {
		cost += c.taken
	}
	c.costs(e, min(cost, usage.Most), now)
}

// costs sets the total charge of the request.
func (c *charge) costs(e *decider, cost uint64, now int64) {
	if c.measure != nil {
		c.due, c.known = cost, true
		return
	}
	e.revise(&c.Charge, cost, now)
	for _, of := range [...]*engine.Charge{&c.bounds, &c.further} {
		if of.Rule != nil {
			e.revise(of, cost, now)
		}
	}
}

// take records what a request that has passed has taken by check i.
func (c *charge) take(e *decider, checks []engine.Check, i int, now int64) {
	taken, bounds := engine.Taken(checks, i)
	c.Charge = e.node.Charges.Of(taken, now)
	for j := range bounds {
		c.further, c.bounds = c.bounds, e.node.Charges.Of(&bounds[j], now)
	}
}

// release gives back the places that a request has held.
func (c *charge) release(e *decider, h *holders, now int64) {
	if c.measure != nil {
		c.due, c.known = 0, true
		return
	}
	h.places -= min(h.places, c.Cost)
	e.node.Charges.Release(&c.Charge, now)
}

// settle charges the final cost of a response. unread reports whether a complete, successful
// response did not tell its cost.
func (c *charge) settle(e *decider, h *holders, course course, now int64) (unread bool) {
	if c.rule.config.Hold != 0 {
		c.release(e, h, now)
		return false
	}
	cost, found := uint64(0), false
	ended := course.ended && (c.reader == nil || !c.reader.Partial())
	switch {
	case c.reader == nil:
	case ended:
		cost, found = c.reader.Cost()
	default:
		cost, found = c.soFar()
	}
	if found {
		if model := c.reader.Model(); model != "" {
			c.Model = model
		}
	}
	switch {
	case found && (ended || c.isMore(cost)):
		c.finish(e, cost, now)
	case found:
		c.finish(e, c.taken, now)
		return course.ended && !course.failed // only its beginning was told
	case course.failed && c.rule.config.Reserve && (c.rule.config.OnFailure == config.GiveBack || c.rule.config.OnFailure == config.KeepBegun && !course.begun):
		c.finish(e, 0, now)
	default:
		if guess, exceeds := c.exceeds(); exceeds {
			c.finish(e, guess, now)
		}
		return course.ended && !course.failed
	}
	return false
}

// course says how a response proceeds.
type course struct {
	failed bool // its status is an error
	begun  bool // it failed by the proxy's own answer, and an upstream may have begun
	ended  bool // it came to its end
	cuts   bool // it may be ended early if it costs too much
	cut    bool // it was ended for the client
}
