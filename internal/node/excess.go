package node

// noteExcess notes by how much a counter of a rule that charges later is above a limit. The rule may
// be one of a configuration that came before.
//
//go:noinline
func (n *Node) noteExcess(d *Demand, now int64) {
	if d.Rule.excess == nil {
		return
	}
	if hits, until := d.Counter.Excess(); hits > 0 {
		d.Rule.excess.note(above{hits, until}, now)
	}
}

// readExcess takes what other workers have noted.
func (n *Node) readExcess() {
	for i := range n.rules {
		if x := n.rules[i].excess; x != nil {
			x.read()
		}
	}
}
