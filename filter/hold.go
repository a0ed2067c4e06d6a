package filter

import (
	"weir/window"
)

// renewedPerTick bounds the requests whose places are renewed in a tick.
const renewedPerTick = 4096

// holding is the place of a request among those that hold something.
type holding struct {
	_ [0]func() // or else Go makes a function that compares values

	holders       *holders // nil if it holds nothing
	before, after *charges
	renewed       int64
}

// holders are the requests of a plugin context that hold places, those first that were renewed longest ago.
type holders struct {
	_ [0]func() // or else Go makes a function that compares values

	first, last *charges
	// lost are places that were held for too long, and are taken for lost.
	lost uint64
}

// add adds a request that holds something from now on, or once more.
func (h *holders) add(c *charges, now int64) {
	h.remove(c)
	c.holders, c.renewed, c.before, c.after = h, now, h.last, nil
	if h.last == nil {
		h.first = c
	} else {
		h.last.after = c
	}
	h.last = c
}

// remove removes a request, if it is there.
func (h *holders) remove(c *charges) {
	if c.holders == nil {
		return
	}
	if c.before == nil {
		h.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		h.last = c.before
	} else {
		c.after.before = c.before
	}
	c.holders, c.before, c.after = nil, nil, nil
}

// renew has what requests hold count on. A place that a request has held for too long goes back.
//
//go:noinline
func (h *holders) renew(e *engine) {
	if h.first == nil {
		return
	}
	now := e.now()
	for range renewedPerTick {
		c := h.first
		if c == nil || now >= c.renewed && now-c.renewed < window.RenewEvery {
			break
		}
		h.add(c, now)
		for i := len(c.list) - 1; i >= 0; i-- {
			charge := &c.list[i]
			switch {
			case charge.rule.hold == 0 || charge.measure != nil:
			case now-charge.since < charge.rule.hold:
				e.node.Renew(&charge.Charge, now)
			default:
				h.lost += charge.Cost
				charge.release(e, now)
				c.drop(i)
			}
		}
	}
	e.node.PushCharges()
}
