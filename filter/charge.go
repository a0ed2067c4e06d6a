package filter

import (
	"weir/internal/node"
	"weir/internal/usage"
)

// charge has the hits that a request has taken of a rule, until its response has told the cost.
type charge struct {
	_ [0]func() // or else Go makes a function that compares values

	node.Charge
	rule *requestRule
	// taken is how many hits the request took at first: those that it costs besides, or if the rule
	// reserves, those that it costs if nothing else is known.
	taken  uint64
	reader *usage.Reader // of the body; nil if that is not read
	ending usage.Ending  // of the body, if that is a stream
	// measure is that of a shadow rule that has not decided yet: then nothing was taken, and due is
	// the response's cost, if it has told.
	measure *measure
	due     uint64
	told    bool
	// since is when the request began to hold what it has taken.
	since int64
	// spent says that the response has cost more than was reserved, and than is left.
	spent bool
}

// soFar is the least that the response has cost, as far as it has come. A stream that is cut when
// it has cost too much may tell only at its end: until then an event stands for one token.
func (c *charge) soFar() (cost uint64, found bool) {
	cost, found = c.reader.Cost()
	if n := c.reader.Untold(); n > 0 && c.rule.guesses {
		return min(cost+c.reader.Guessed(n), usage.Most), true
	}
	return cost, found
}

// exceeds returns the cost of the response so far, and reports whether that is more than was taken.
func (c *charge) exceeds() (cost uint64, exceeds bool) {
	if c.reader == nil {
		return 0, false
	}
	cost, found := c.soFar()
	return cost, found && c.isMore(cost)
}

func (c *charge) isMore(cost uint64) bool { return !c.rule.reserves || cost > c.taken }

// finish has it cost what the response has told.
func (c *charge) finish(e *engine, cost uint64, now int64) {
	if !c.rule.reserves {
		cost += c.taken
	}
	c.costs(e, min(cost, usage.Most), now)
}

// costs has the request cost so much, whatever it has taken.
func (c *charge) costs(e *engine, cost uint64, now int64) {
	if c.measure != nil {
		c.due, c.told = cost, true
		return
	}
	e.revise(&c.Charge, cost, now)
}

// release gives back what a request has held.
func (c *charge) release(e *engine, h *holders, now int64) {
	if c.measure != nil {
		c.due, c.told = 0, true
		return
	}
	h.places -= min(h.places, c.Cost)
	e.node.Release(&c.Charge, now)
}

// settle has the rule take what the response has turned out to cost, and no more than that. It reports
// whether a response is at fault that has not told.
func (c *charge) settle(e *engine, h *holders, course course, now int64) (unread bool) {
	if c.rule.hold != 0 {
		c.release(e, h, now)
		return false
	}
	cost, found := uint64(0), false
	switch {
	case c.reader == nil:
	case course.ended:
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
	case found && (course.ended || c.isMore(cost)):
		c.finish(e, cost, now)
	case found:
		c.finish(e, c.taken, now)
	case course.failed && c.rule.reserves && !c.rule.keeps:
		c.finish(e, 0, now)
	default:
		return course.ended && !course.failed
	}
	return false
}

// course is how a response goes.
type course struct {
	failed bool // by its status
	ended  bool // whole
	cuts   bool // it can be ended if it costs too much
	cut    bool // its client gets no more
}
