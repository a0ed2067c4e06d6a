package node

// Warnings is how often decisions, and charges since, have left a key of a rule at WarnAt or above.
func (n *Node) Warnings(rule int) uint64 { return n.rules[rule].warnings }

// warn notes which limits decided demands have brought near their ends.
//
//go:noinline
func (n *Node) warn(demands []Demand, now int64) {
	for i := range demands {
		n.warnOf(&demands[i], now)
	}
}

// warnOf is warn of one demand, whose counter is as it was written.
func (n *Node) warnOf(d *Demand, now int64) {
	if d.Warned = 0; d.Rule.WarnAt == 0 {
		return
	}
	for i := range d.Counter.States {
		if d.near(i) {
			d.Warned |= 1 << i
		}
	}
	if d.Warned != 0 {
		n.rules[d.Rule.Index].warnings++
	}
}

// near reports whether limit i has been used as far as WarnAt says, or further. A limit of 0 has not:
// there is nothing to use.
func (d *Demand) near(i int) bool {
	l := &d.Rule.Limits[i]
	quota, remaining := l.Quota(), l.Remaining(&d.Counter.States[i])
	return quota > remaining && (quota-remaining)*1000 >= quota*uint64(d.Rule.WarnAt)
}
