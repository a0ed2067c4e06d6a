package counter

// Reopen takes in that hits were given back, here or at the backend, which may have hits again: the
// next request asks it. It reports whether that changed anything.
func (c *Shared) Reopen() (changed bool) {
	changed = c.lease.Dry != 0 || c.lease.Refused != 0
	c.lease.Dry, c.lease.Refused = 0, 0
	return changed
}

// Emptied ends the counter's lease because the counter was emptied at the backend at a time. The
// backend no longer counts the hits of a lease as old as that, and they are dropped. Some hits of a
// newer lease may be counted, so all of them go back. It reports whether there was a lease.
func (c *Shared) Emptied(at int64) (changed bool) {
	if !c.hasLease() {
		return false
	}
	if c.lease.Since.In(at) > 0 {
		c.ReturnLeases()
	} else {
		for i := range c.States {
			c.States[i].DropLease()
		}
	}
	c.lease.Granted = 0
	return true
}

// hasLease reports whether any limit has leased hits.
func (c *Use) hasLease() bool {
	for i := range c.States {
		if c.rule.Limits[i].Leased(&c.States[i]) > 0 {
			return true
		}
	}
	return false
}
