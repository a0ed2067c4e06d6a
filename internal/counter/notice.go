package counter

// Reopen takes in that somebody has changed the counter at the backend, which may have hits again:
// it is asked with the next request. It reports whether anything has changed.
func (c *Counter) Reopen() (changed bool) {
	changed = c.lease.Dry != 0 || c.lease.Refused != 0
	c.lease.Dry, c.lease.Refused = 0, 0
	return changed
}

// Emptied ends the counter's lease, as it was emptied at the backend at a time. If the lease is as
// old, the backend does not count its hits any more, and they are gone. Some of a younger one may be
// counted: then all go back. It reports whether there was a lease.
func (c *Counter) Emptied(at int64) (changed bool) {
	if !c.hasLease() {
		return false
	}
	if c.lease.Since.In(at) > 0 {
		c.ReturnLeases()
	} else {
		for i := range c.States {
			c.rule.Limits[i].DropLease(&c.States[i])
		}
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
