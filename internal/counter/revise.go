package counter

// GiveBackNewest gives back hits from all limits: see [window.Limit.GiveBackNewest]. It returns the most
// that a limit has given back.
func (c *Shared) GiveBackNewest(hits uint64) (given uint64) {
	for i := range c.States {
		given = max(given, c.rule.Limits[i].GiveBackNewest(&c.States[i], hits))
	}
	c.Reopen()
	return given
}

// Revise changes the number of hits that were counted at a time, in windows with these numbers,
// from from to to. Additional hits come from the lease if it has them, and if none of the windows
// has passed. If there were none before, they are counted now.
func (c *Shared) Revise(numbers []uint64, at int64, from, to uint64, now int64) {
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
