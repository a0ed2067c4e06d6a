package node

// maxHasty bounds the keys that are pushed at once. Further keys wait until they are due.
const maxHasty = 1 << 10

// hasten makes [Node.PushCharges] push the pending hits of a demand's key, if the backend decides
// its rule or is asked for each of its places. For other rules, leases account for pending hits.
//
//go:noinline
func (p *pushes) hasten(d *Demand) {
	if d.Rule.hasty() && !d.Rule.Watched && len(p.hastyKeys) < maxHasty && d.Counter.Pending() {
		p.hastyKeys = append(p.hastyKeys, hastyKey{d.address, d.Rule})
	}
}

// pushCharges pushes the costs of responses for rules where the backend decides each request, and
// grants that go back. Keys with an unanswered push follow after its answer. Ticks call it too.
func (p *pushes) pushCharges() {
	if len(p.hastyKeys) == 0 && !p.hasty {
		return
	}
	if p.link.open() {
		p.hastyKeys, p.hasty = p.hastyKeys[:0], false // they are pushed when they are due
		return
	}
	var b *batch
	for len(p.hastyKeys) > 0 {
		if b = p.room(b); b == nil {
			return
		}
		last := len(p.hastyKeys) - 1
		key := p.hastyKeys[last]
		p.hastyKeys = p.hastyKeys[:last]
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
	for range p.keys.table.Attempts() {
		now := p.link.now()
		if p.keys.read(d, now); !d.slot.Found() || !d.Counter.Pending() || !d.Counter.Identified() || !d.Counter.Claim(now) {
			return
		}
		again := d.Counter.Own(false, now) // whoever was to review a lease does not know the new due time
		if p.keys.write(d, now) {
			p.addClaimed(b, d)
			if again {
				p.enlist(d)
			}
			return
		}
	}
}
