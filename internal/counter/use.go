package counter

import (
	"math"

	"weir/window"
)

// Use is what a key has used of each limit of its rule.
type Use struct {
	rule *Rule
	// States are in the order of the rule's limits.
	States []window.State
}

// turn makes the counter, with its content, that of another variant of its rule. It returns false
// if rule is not a variant.
//
//go:noinline
func (c *Use) turn(rule *Rule) bool {
	if c.rule == nil || rule.kin == nil || c.rule.kin != rule.kin {
		return false
	}
	c.rule = rule
	return true
}

// Allows reports whether cost hits fit every limit.
func (c *Use) Allows(cost uint64) bool {
	for i := range c.States {
		if !c.rule.Limits[i].Allows(&c.States[i], cost) {
			return false
		}
	}
	return true
}

// Possible reports whether cost hits would fit every limit of a new key.
func (c *Use) Possible(cost uint64) bool {
	for i := range c.rule.Limits {
		if cost > c.rule.Limits[i].Quota() {
			return false
		}
	}
	return true
}

//go:noinline
func (c *Use) countLeased(cost uint64) {
	for i := range c.States {
		c.rule.Limits[i].CountLeased(&c.States[i], cost)
	}
}

// Numbers appends the numbers of the counter's present windows, for GiveBack.
func (c *Use) Numbers(dst []uint64) []uint64 {
	for i := range c.States {
		dst = append(dst, c.rule.Limits[i].Number(&c.States[i]))
	}
	return dst
}

// GiveBack takes cost hits back from the windows with these numbers.
func (c *Use) GiveBack(numbers []uint64, cost uint64) {
	for i := range c.States {
		c.rule.Limits[i].GiveBack(&c.States[i], numbers[i], cost)
	}
}

// CountRejected counts cost hits of a rejected request.
func (c *Use) CountRejected(cost uint64) {
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		l.Count(s, l.Rejected(s, cost))
	}
}

// Leased is how many hits may be taken without asking the backend.
//
//go:noinline
func (c *Use) Leased() uint64 {
	leased := uint64(math.MaxUint64)
	for i := range c.States {
		leased = min(leased, c.rule.Limits[i].Leased(&c.States[i]))
	}
	return leased
}

//go:noinline
func (c *Use) trimLease(keep uint64) {
	for i := range c.States {
		c.States[i].ReturnLease(keep)
	}
}

// forgets reports whether a log has hits that are on their way to the backend, which may grant others without them:
// a full log would forget as many. They were decided without the backend.
func (c *Use) forgets() bool {
	for i := range c.States {
		if c.rule.Limits[i].IsLog() && c.States[i].Late() {
			return true
		}
	}
	return false
}

// Unheard is how many hits the backend has not heard of, by the limit with most.
func (c *Use) Unheard() (hits uint64) {
	for i := range c.States {
		hits = max(hits, c.States[i].Unheard())
	}
	return hits
}

// NumbersAt appends the numbers of the counter's windows that contain hits of a time.
func (c *Use) NumbersAt(dst []uint64, at int64) []uint64 {
	for i := range c.States {
		dst = append(dst, c.rule.Limits[i].NumberAt(&c.States[i], at))
	}
	return dst
}

// Counted reports whether every limit counts that many hits, as far as is known here, that are not on their way back.
func (c *Use) Counted(hits uint64) bool {
	for i := range c.States {
		if c.rule.Limits[i].Keeps(&c.States[i]) < hits {
			return false
		}
	}
	return true
}

// Renew moves cost held hits from the windows with these numbers to the present, and updates the
// numbers. Hits whose window has passed are counted anew, whether or not they have room.
func (c *Use) Renew(numbers []uint64, cost uint64) {
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if numbers[i] == l.Number(s) {
			continue
		}
		l.GiveBack(s, numbers[i], cost)
		l.Count(s, cost)
		numbers[i] = l.Number(s)
	}
}

// Blocked reports whether a limit blocks the key.
func (c *Use) Blocked() bool {
	for i := range c.States {
		if l := &c.rule.Limits[i]; l.Kind.Blocks() && l.Used(&c.States[i]) > 0 {
			return true
		}
	}
	return false
}

// Block activates the limits that block. It reports whether that changed anything, and whether the key was
// not blocked before.
func (c *Use) Block(extend bool) (changed, began bool) {
	began = !c.Blocked()
	for i := range c.States {
		changed = c.rule.Limits[i].Block(&c.States[i], extend) || changed
	}
	return changed, changed && began
}

// BlockUntil is Block by [window.Limit.BlockUntil].
func (c *Use) BlockUntil(until int64) (changed, began bool) {
	began = !c.Blocked()
	for i := range c.States {
		changed = c.rule.Limits[i].BlockUntil(&c.States[i], until) || changed
	}
	return changed, changed && began
}

// Relend turns cost held hits in windows with these numbers back into leased hits.
func (c *Use) Relend(numbers []uint64, cost uint64) {
	for i := range c.States {
		c.rule.Limits[i].Relend(&c.States[i], numbers[i], cost)
	}
}

func (c *Use) isIn(numbers []uint64) bool {
	for i := range c.States {
		if c.rule.Limits[i].Number(&c.States[i]) != numbers[i] {
			return false
		}
	}
	return true
}

// Excess is the most hits by which the counter exceeds a limit, and the time from which they no
// longer count.
func (c *Use) Excess() (hits uint64, until int64) {
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if above := window.SaturatingSub(l.Used(s), l.Quota()); above > 0 {
			hits, until = max(hits, above), max(until, l.ForgetAt(s))
		}
	}
	return hits, until
}
