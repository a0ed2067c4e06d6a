package entry

import (
	"weir/internal/counter"
	"weir/internal/engine/rule"
)

// Taking says how to treat hits without room.
type Taking uint8

const (
	// Counted hits belong to a request that passes only if they have room.
	Counted Taking = iota
	// Revocable hits are counted hits of a request that a later check may still refuse.
	Revocable
	// Forced hits belong to a request that has passed.
	Forced
	// Refused hits belong to a request that doesn't pass, and are counted nevertheless.
	Refused
)

// Take takes the hits of a check that was read, unless they need room and have it no longer.
func (k *Entries) Take(d *rule.Check, now int64, how Taking) counter.Verdict {
	verdict := counter.Allowed
	if d.Low = false; d.Cost != 0 && !k.take(d, now, how) {
		verdict = k.takeAgain(d, now, how)
	}
	if how == Forced {
		k.hasten(d)
	}
	return verdict
}

// take tries once to write a check's counter with its hits.
func (k *Entries) take(d *rule.Check, now int64, how Taking) (taken bool) {
	synced, adopted := d.Rule.Synced(), false
	if synced {
		if d.Passed() {
			return true
		}
		// Refused hits never use a lease, so they must be pushed.
		adopted = k.own(d, now, how == Refused || !d.Counter.Silent(d.Cost))
	}
	switch {
	case d.InSlot():
	case how == Refused:
		d.Counter.CountRejected(d.Cost)
	case how == Revocable:
		d.Counter.CountRevocable(d.Cost)
	default:
		d.Counter.Count(d.Cost)
	}
	low := synced && d.Counter.Low(d.Cost)
	if !k.Write(d, now) {
		return false
	}
	d.Low = low
	if d.Write(); how == Revocable {
		d.Numbers = d.Counter.Numbers(d.Numbers[:0])
	}
	if adopted {
		k.enlist(d)
	}
	return true
}

// takeAgain continues after another worker was faster.
//
//go:noinline
func (k *Entries) takeAgain(d *rule.Check, now int64, how Taking) counter.Verdict {
	for attempt := 1; ; attempt++ {
		k.Read(d, now)
		if how == Counted || how == Revocable {
			if verdict := d.Decide(d.Cost, now); verdict != counter.Allowed {
				if verdict == counter.Rejected {
					k.Remember(d, now)
				}
				return verdict
			}
		}
		if attempt == k.Table.Attempts() {
			// The decision stands. The hits are added as soon as a write succeeds.
			k.Keep(d)
			d.Counter.Count(d.Cost)
			return counter.Allowed
		}
		if k.take(d, now, how) {
			return counter.Allowed
		}
	}
}

// GiveBack returns a check's hits to the windows that they were taken from. It reports whether they were in a slot
// only, which was recalled. Such a slot must be read again before it is written.
func (k *Entries) GiveBack(d *rule.Check, now int64) (recalled bool) {
	switch {
	case d.InSlot():
		d.TakeNone()
		d.Numbers = d.Counter.Numbers(d.Numbers[:0])
		d.Counter.GiveBack(d.Numbers, d.Cost)
		return d.Slot.Recalled()
	case d.Kept(): // the last of the retries belongs to this request
		d.TakeNone()
		k.Retries = k.Retries[:len(k.Retries)-1]
	case d.Written():
		d.TakeNone()
		if !k.Update(d, Adopts, now, func() (writes, lists bool) {
			d.Counter.GiveBack(d.Numbers, d.Cost)
			return d.Slot.Found(), false
		}) {
			k.tallies.GivenUp++
		}
	}
	return false
}

// maxRetries bounds the checks whose hits a worker keeps to write them later.
const maxRetries = 1024

// Keep keeps a check's hits, which lost every race to be written.
func (k *Entries) Keep(d *rule.Check) {
	k.tallies.GivenUp++
	if len(k.Retries) == maxRetries {
		k.tallies.Lost += d.Cost
		return
	}
	d.Keep()
	k.Retries = append(k.Retries, k.Save(d))
}
