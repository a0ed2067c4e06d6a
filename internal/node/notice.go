package node

// noticeDelay is above the time from a change of a counter until the list has the notice of it, in
// milliseconds.
const noticeDelay = 10_000

// notice takes in that someone changed a key's counter at the backend, so that this node's state of
// it is outdated.
func (v *overrides) notice(b *building, r *Rule) {
	o := &b.reader
	now := v.link.now()
	if !r.Synced() || (o.Notice.Newest()+noticeDelay)*1000 < v.variants.version || o.Until != 0 && uint64(now) >= o.Until*1e6 {
		return // it is known, or too old to matter
	}
	key, fits := v.variants.owner.AppendKey(b.key[:0], b.rule, o.Values)
	if b.key = key; !fits {
		b.unfit++
		return
	}
	address := v.keys.table.Address(r.group, key)
	v.refusals.forget(address)
	emptied := o.Notice.Reset > b.emptied
	b.newest = max(b.newest, o.Notice.Reset)
	d := v.keys.at(r, address)
	if !v.keys.update(d, 0, now, func() (writes, lists bool) {
		if !d.slot.Found() {
			return false, false
		}
		pending := d.Counter.Pending()
		writes = d.Counter.Reopen()
		if emptied && d.Counter.Emptied(int64(o.Notice.Reset)*1e6) {
			return true, d.Counter.Own(pending, now)
		}
		return writes, false
	}) {
		v.tallies.GivenUp++
	}
}
