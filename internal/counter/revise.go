package counter

// NumbersAt appends the numbers of the windows that hits of a time are in, which the counter has.
func (c *Counter) NumbersAt(dst []uint64, at int64) []uint64 {
	for i := range c.States {
		dst = append(dst, c.rule.Limits[i].NumberAt(&c.States[i], at))
	}
	return dst
}

// Revise makes hits that were counted at a time, in windows of these numbers, more or fewer. More
// come out of the lease if that has them, and if none of the windows has passed. Where there were
// none, they are counted now.
func (c *Counter) Revise(numbers []uint64, at int64, from, to uint64, now int64) {
	if from == 0 || to > from && c.isIn(numbers) {
		c.Count(to - from)
		return
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

// Renew moves cost hits that requests hold, and that were counted in windows of these numbers, to the
// present. It changes the numbers to those of now.
func (c *Counter) Renew(numbers []uint64, cost uint64) {
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		l.Renew(s, numbers[i], cost)
		numbers[i] = l.Number(s)
	}
}

// Blocked reports whether a limit blocks the key.
func (c *Counter) Blocked() bool {
	for i := range c.States {
		if c.rule.Limits[i].Blocked(&c.States[i]) {
			return true
		}
	}
	return false
}

// Block has the limits that block do so from now on. It reports whether that changes anything.
func (c *Counter) Block(extend bool) (changed bool) {
	for i := range c.States {
		changed = c.rule.Limits[i].Block(&c.States[i], extend) || changed
	}
	return changed
}

// Relend has cost hits that requests have held, and that were counted in windows of these numbers, leased
// again.
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

// Excess is by how many hits the counter is above a limit, the most of all, and the time from which they
// count no more.
func (c *Counter) Excess() (hits uint64, until int64) {
	for i := range c.States {
		l, s := &c.rule.Limits[i], &c.States[i]
		if above := l.Excess(s); above > 0 {
			hits, until = max(hits, above), max(until, l.ForgetAt(s))
		}
	}
	return hits, until
}
