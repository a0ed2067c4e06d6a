package node

// noteExcess notes by how much a counter of a rule that charges later is above a limit.
//
//go:noinline
func (n *Node) noteExcess(d *Demand, now int64) {
	r := &n.rules[d.Rule.Index]
	if hits := d.Counter.Excess(); hits > 0 && hits >= r.excessAt(now) {
		r.excess = excess{hits, now}
	}
}
