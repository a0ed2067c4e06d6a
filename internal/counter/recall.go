package counter

// Recall takes in that somebody has changed the counter at the backend: the backend may have hits
// again, and is asked with the next request. If the counter was emptied there at a time that is not
// 0, a lease as old as that is of hits that nobody counts any more, and ends. One that has grown since
// stays. Recall reports whether anything has changed.
func (c *Counter) Recall(emptied int64) (changed bool) {
	if changed = c.lease.Dry != 0 || c.lease.Refused != 0; changed {
		c.lease.Dry, c.lease.Refused = 0, 0
	}
	if emptied == 0 || !c.hasLease() || c.lease.Since.In(emptied) > 0 {
		return changed
	}
	for i := range c.States {
		c.rule.Limits[i].DropLease(&c.States[i])
	}
	c.lease.Granted = 0
	return true
}

// hasLease reports whether any limit has leased hits.
func (c *Counter) hasLease() bool {
	for i := range c.States {
		if c.rule.Limits[i].Leased(&c.States[i]) > 0 {
			return true
		}
	}
	return false
}
