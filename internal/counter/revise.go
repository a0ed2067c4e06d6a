package counter

import "weir/window"

// NumbersAt appends the numbers of the counter's windows that contain hits of a time.
func (c *Counter) NumbersAt(dst []uint64, at int64) []uint64 {
	for i := range c.States {
		dst = append(dst, c.rule.Limits[i].NumberAt(&c.States[i], at))
	}
	return dst
}

// GiveBackNewest gives back hits from all limits: see [window.Limit.GiveBackNewest]. It returns the most
// that a limit has given back.
func (c *Counter) GiveBackNewest(hits uint64) (given uint64) {
	for i := range c.States {
		given = max(given, c.rule.Limits[i].GiveBackNewest(&c.States[i], hits))
	}
	c.Reopen()
	return given
}

// Counted reports whether every limit counts that many hits, as far as is known here.
func (c *Counter) Counted(hits uint64) bool {
	for i := range c.States {
		if c.rule.Limits[i].Used(&c.States[i]) < hits {
			return false
		}
	}
	return true
}

// Revise changes the number of hits that were counted at a time, in windows with these numbers,
// from from to to. Additional hits come from the lease if it has them, and if none of the windows
// has passed. If there were none before, they are counted now.
func (c *Counter) Revise(numbers []uint64, at int64, from, to uint64, now int64) {
	if from == 0 || to > from && c.isIn(numbers) {
		c.Count(to - from)
		return
	}
	if to < from {
		c.Reopen()
	}
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if to > from {
			l.CountIn(s, numbers[i], to-from)
		} else {
			l.GiveBack(s, numbers[i], l.Returnable(from-to, at, now))
		}
	}
}

// Renew moves cost held hits from the windows with these numbers to the present, and updates the
// numbers. Hits whose window has passed are counted anew, whether or not they have room.
func (c *Counter) Renew(numbers []uint64, cost uint64) {
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
func (c *Counter) Blocked() bool {
	for i := range c.States {
		if l := &c.rule.Limits[i]; l.Kind.Blocks() && l.Used(&c.States[i]) > 0 {
			return true
		}
	}
	return false
}

// Block activates the limits that block, and reports whether that changed anything.
func (c *Counter) Block(extend bool) (changed bool) {
	for i := range c.States {
		changed = c.rule.Limits[i].Block(&c.States[i], extend) || changed
	}
	return changed
}

// BlockUntil is [window.Limit.BlockUntil] for the limits that block.
func (c *Counter) BlockUntil(until int64) (changed bool) {
	for i := range c.States {
		changed = c.rule.Limits[i].BlockUntil(&c.States[i], until) || changed
	}
	return changed
}

// Relend turns cost held hits in windows with these numbers back into leased hits.
func (c *Counter) Relend(numbers []uint64, cost uint64) {
	for i := range c.States {
		c.rule.Limits[i].Relend(&c.States[i], numbers[i], cost)
	}
}

func (c *Counter) isIn(numbers []uint64) bool {
	for i := range c.States {
		if c.rule.Limits[i].Number(&c.States[i]) != numbers[i] {
			return false
		}
	}
	return true
}

// Excess is the most hits by which the counter exceeds a limit, and the time from which they no
// longer count.
func (c *Counter) Excess() (hits uint64, until int64) {
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if above := window.SaturatingSub(l.Used(s), l.Quota()); above > 0 {
			hits, until = max(hits, above), max(until, l.ForgetAt(s))
		}
	}
	return hits, until
}
