package node

// pushCharges pushes the costs of responses for rules where the backend decides each request, and
// grants that go back. Keys with an unanswered push follow after its answer. Ticks call it too.
func (p *pushes) pushCharges() {
	if len(p.keys.hastyKeys) == 0 && !p.hasty {
		return
	}
	if p.link.open() {
		p.keys.hastyKeys, p.hasty = p.keys.hastyKeys[:0], false // they are pushed when they are due
		return
	}
	var b *batch
	for len(p.keys.hastyKeys) > 0 {
		if b = p.room(b); b == nil {
			return
		}
		last := len(p.keys.hastyKeys) - 1
		key := p.keys.hastyKeys[last]
		p.keys.hastyKeys = p.keys.hastyKeys[:last]
		p.claimPending(b, p.keys.at(key.rule, key.address))
	}
	for ; p.hasty && len(p.keys.orphans) > 0; p.addOrphan(b) {
		if b = p.room(b); b == nil {
			return
		}
	}
	p.hasty = false
	p.callouts.send(b)
}

// claimPending adds the pending hits of a demand's key to a batch, unless its last push has no
// answer yet or other workers win every race.
func (p *pushes) claimPending(b *batch, d *Demand) {
	now := p.link.now()
	claimed := false
	if p.keys.update(d, 0, now, func() (writes, lists bool) {
		claimed = d.slot.Found() && d.Counter.Pending() && d.Counter.Identified() && d.Counter.Claim(now)
		return claimed, claimed && d.Counter.Own(false, now) // whoever was to review a lease does not know the new due time
	}) && claimed {
		p.addClaimed(b, d)
	}
}
