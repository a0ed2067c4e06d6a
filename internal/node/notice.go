package node

// noticeDelay is longer than it takes from a change of a counter until the list has the notice of it,
// in milliseconds.
const noticeDelay = 10_000

// notice takes in that somebody has changed a key's counter at the backend: what this node has of it
// is out of date.
func (n *Node) notice(b *building, r *Rule) {
	o := &b.reader
	now := n.now()
	if !r.Synced() || (o.Notice.Newest()+noticeDelay)*1000 < n.overrides.version || o.Until != 0 && uint64(now) >= o.Until*1e6 {
		return // it is known, or there is nobody left who would have to know
	}
	key, fits := n.options.Owner.AppendKey(b.key[:0], b.rule, o.Values)
	if b.key = key; !fits {
		b.unfit++
		return
	}
	address := n.table.Address(r.group, key)
	n.refusals.forget(address)
	emptied := o.Notice.Reset > b.emptied
	b.newest = max(b.newest, o.Notice.Reset)
	d := n.at(r, address)
	for range n.table.Attempts() {
		if n.read(d, now); !d.slot.Found() {
			return
		}
		pending, again := d.Counter.Pending(), false
		changed := d.Counter.Reopen()
		if emptied && d.Counter.Emptied(int64(o.Notice.Reset)*1e6) {
			changed, again = true, d.Counter.Own(pending, now)
		}
		if !changed || n.write(d, now) {
			if again {
				n.enlist(d)
			}
			return
		}
	}
	n.Tallies.GivenUp++
}
