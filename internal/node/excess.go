package node

// excess is the most hits of late by which a key of a rule was above a limit, and when.
type excess struct {
	hits uint64
	at   int64
}

// noteExcess notes by how much a counter of a rule that charges later is above a limit.
//
//go:noinline
func (n *Node) noteExcess(d *Demand, now int64) {
	r := &n.rules[d.Rule.Index]
	if hits := d.Counter.Excess(); hits > 0 && hits >= r.excessAt(now) {
		r.excess = excess{hits, now}
	}
}

// excessAt is by how many hits a key may be above a limit still.
func (r *Rule) excessAt(now int64) uint64 {
	if r.excess.hits == 0 || now-r.excess.at >= r.Lasts() {
		return 0
	}
	return r.excess.hits
}
