// Package straight decides simple requests in one step, on a node without a backend: nearly all that it has.
package straight

import (
	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
	"weir/sharedata"
)

// One decides a request of one located check and takes its hits, on a node without a backend. It knows no doubt and
// no second try: where these are needed, it takes nothing and returns unsure. yields means that some request may
// pass without room.
func One(k *entry.Entries, d *rule.Check, now int64, yields bool) counter.Verdict {
	switch {
	case d.Cost == 0:
		return counter.Unsure
	case !yields && k.MayRefuse(d) && k.Refused(d, now):
		d.Verdict = counter.Rejected
		return counter.Rejected
	}
	found := k.Recalls && k.Table.Recall(&d.Slot, d.Address) || k.Table.Borrow(&d.Slot, d.Address)
	if d.Slot.Lent() {
		defer d.Slot.Return()
	}
	if found && d.Counter.CountInPlace(&d.Rule.Rule, d.Slot.Payload(), now, d.Cost, false, false) {
		d.CountInSlot()
	} else {
		if d.Slot.Corrupt() || !d.Counter.Load(&d.Rule.Rule, d.Slot.Payload()) {
			return counter.Unsure
		}
		if d.Counter.Advance(now); d.Counter.Moved() {
			return counter.Unsure
		}
		if !d.Counter.Allows(d.Cost) {
			if d.Slot.Recalled() || yields || d.Slot.Lent() && d.Rule.CountRejected {
				return counter.Unsure
			}
			d.Verdict = counter.Rejected
			k.Remember(d, now)
			return counter.Rejected
		}
		d.Counter.Count(d.Cost)
	}
	if !k.Write(d, now) {
		return counter.Unsure
	}
	d.Write()
	return counter.Allowed
}

// InPlace decides hits of a key from a rule if the table lends the entry, and takes them there if they have room: see
// [counter.Rule.CountInPlace]. Otherwise it takes nothing. Many calls may run at the same time, beside the worker.
func InPlace(t *sharedata.Table, r *rule.Rule, key []byte, cost uint64, now int64, told *counter.Told) (verdict counter.Verdict) {
	held, found := t.Hold(t.Address(r.Group, key))
	if !found {
		return counter.Unsure
	}
	defer held.Let()
	meta := sharedata.Meta{}
	verdict, meta.ExpiresNanos, meta.Use = r.CountInPlace(held.Payload(), now, cost, told)
	switch {
	case verdict == counter.Allowed:
		held.Changed(meta)
	case r.CountRejected || r.Blocks:
		return counter.Unsure
	}
	return verdict
}
