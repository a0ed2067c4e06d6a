package node

// maxHasty bounds the keys that the backend is to hear of at once. The others wait until they are due.
const maxHasty = 1 << 10

// hasten has [Node.PushCharges] push what a demand's key has pending, if the backend decides its rule.
// Others count what is pending with their leases.
//
//go:noinline
func (n *Node) hasten(d *Demand) {
	if d.Rule.exact() && !d.Rule.Watched && len(n.hastyKeys) < maxHasty && d.Counter.Pending() {
		n.hastyKeys = append(n.hastyKeys, hastyKey{d.address, d.Rule})
	}
}

// PushCharges has the backend hear at once of what responses have cost, where it decides each request,
// and of grants that have gone back. Keys with a push that is not answered yet follow when it is. Ticks
// do so too.
func (n *Node) PushCharges() {
	if len(n.hastyKeys) == 0 && !n.hasty {
		return
	}
	if n.link.open() {
		n.hastyKeys, n.hasty = n.hastyKeys[:0], false // they are pushed when they are due
		return
	}
	var b *batch
	for len(n.hastyKeys) > 0 {
		if b = n.room(b); b == nil {
			return
		}
		last := len(n.hastyKeys) - 1
		key := n.hastyKeys[last]
		n.hastyKeys = n.hastyKeys[:last]
		n.claimPending(b, n.at(key.rule, key.address))
	}
	for ; n.hasty && len(n.orphans) > 0; n.addOrphan(b) {
		if b = n.room(b); b == nil {
			return
		}
	}
	n.hasty = false
	n.send(b)
}

// claimPending adds what a demand's key has pending to a batch, unless a push of it is out, or another
// worker is always faster.
func (n *Node) claimPending(b *batch, d *Demand) {
	for range n.table.Attempts() {
		now := n.now()
		if n.read(d, now); !d.slot.Found() || !d.Counter.Pending() || !d.Counter.Identified() || !d.Counter.Claim(now) {
			return
		}
		if n.write(d, now) {
			n.addClaimed(b, d)
			return
		}
	}
}
