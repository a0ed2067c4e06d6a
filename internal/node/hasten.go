package node

// maxHasty bounds the keys that the backend is to hear of at once. The others wait until they are due.
const maxHasty = 1 << 10

// hasten has [Node.PushCharges] push what a demand's key has pending, if the backend decides its
// rule, or is asked for each place of it. Others count what is pending with their leases.
//
//go:noinline
func (p *pushes) hasten(d *Demand) {
	if d.Rule.hasty() && !d.Rule.Watched && len(p.hastyKeys) < maxHasty && d.Counter.Pending() {
		p.hastyKeys = append(p.hastyKeys, hastyKey{d.address, d.Rule})
	}
}

// PushCharges has the backend hear at once of what responses have cost, where it decides each request,
// and of grants that have gone back. Keys with a push that is not answered yet follow when it is. Ticks
// do so too.
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

// claimPending adds what a demand's key has pending to a batch, unless a push of it is out, or another
// worker is always faster.
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
