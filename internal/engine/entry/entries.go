// Package entry keeps counters in the table that the workers of a process share. It alone reads and
// writes them, names their keys for the backend, and knows which of them have hits to push.
package entry

import (
	"weir/internal/counter"
	"weir/internal/engine/link"
	"weir/internal/engine/pending"
	"weir/internal/engine/rule"
	"weir/sharedata"
	"weir/window"
)

// Entries has the counters of a process's keys, in the table, and their names.
type Entries struct {
	tallies  *Tallies
	link     *link.Link
	Variants Variants
	Table    *sharedata.Table
	// Recalls means that the worker remembers pages that it wrote recently.
	Recalls bool
	Recent  sharedata.Recent
	payload []byte      // an encoded counter
	push    window.Push // of hits elsewhere
	// local means that all rules count in this process only. Then there is no backend, and
	// identities, the names of keys there, are not used.
	local      bool
	Identities counter.Identities
	names      *names // names of keys whose requests wait; nil if no rule reveals names
	pending    *pending.Pending
	Retries    []rule.Ref // hits that lost every race to be written
	refusals   *refusals
}

// New returns the keys of a node, in a table that is opened as of says. owner is nil if overrides have no effect here.
func New(tallies *Tallies, link *link.Link, rules *rule.Set, pending *pending.Pending, owner Owner, secret string, recalls bool, data sharedata.Data, of *sharedata.Options) (k Entries, err error) {
	k = Entries{tallies: tallies, link: link, pending: pending, Variants: newVariants(rules, link, owner), Recalls: recalls, local: !rules.Synced, refusals: new(refusals)}
	if !k.local {
		k.Identities = counter.NewIdentities(secret)
	}
	for i := range rules.List {
		if rules.List[i].Reveal != 0 && k.names == nil {
			k.names = &names{}
		}
	}
	of.BytesPerCounter, of.Salt = rules.BytesPerCounter(), k.Identities.Salt()
	if k.Table, err = sharedata.Open(data, *of, link.Random); err != nil {
		return k, err
	}
	for i := range rules.List {
		if of := k.Table.Group(rules.List[i].Prefix); rules.List[i].Group != of { // others may be reading it
			rules.List[i].Group = of
		}
	}
	return k, nil
}

// Locate finds the address of a check's counter from its key.
func (k *Entries) Locate(d *rule.Check) {
	d.Address, d.ID = k.Table.Address(d.Rule.Group, d.Key), [16]byte{}
	d.Begin()
	if d.Heard = false; k.Variants.moved != nil {
		d.Rule = k.Variants.inForce(d.Rule, d.Address, k.Table, d.Key)
	}
	d.Over = d.Rule.Spare
	if k.Recalls {
		d.Slot.Recent = &k.Recent
	}
}

// Identity returns the key's name in the backend. The check's counter, which was read, has the
// name unless the rule does not synchronise.
//
//go:noinline
func (k *Entries) Identity(d *rule.Check) [16]byte {
	if d.ID == [16]byte{} {
		if d.ID = d.Counter.Sync().ID; !d.Rule.Synced() || !d.Counter.Identified() {
			d.ID = k.Identities.Of(d.Key)
		}
	}
	return d.ID
}

// At makes a check on a rule at an address without a request, with the limits that apply now.
//
//go:noinline
func (k *Entries) At(d *rule.Check, r *rule.Rule, a sharedata.Address) *rule.Check {
	if k.Variants.moved != nil || r.Override {
		r = k.Variants.inForce(r, a, k.Table, nil)
	}
	d.Ref = rule.Ref{Rule: r, Address: a}
	return d
}

// Save saves a check that was decided, or looked at, for [Engine.ForceRef].
func (k *Entries) Save(d *rule.Check) rule.Ref {
	if !k.local {
		k.Identity(d)
		if prefix := len(d.Rule.Prefix); d.Rule.Reveal != 0 && len(d.Key) > prefix {
			k.names.keep(d.ID, d.Key[prefix:], d.Rule)
		}
	}
	return d.Ref
}

// CountOrRead counts a check's hits in the slot if it can, and otherwise is Read. A recalled page serves
// only to be written.
func (k *Entries) CountOrRead(d *rule.Check, now int64, how Taking, recall bool) (counted, found bool) {
	if recall && k.Recalls && d.Cost != 0 && k.Table.Recall(&d.Slot, d.Address) && d.CountInPlace(now, how == Revocable) {
		return true, true
	}
	found = k.Table.Read(&d.Slot, d.Address)
	if found && d.Cost != 0 && d.CountInPlace(now, how == Revocable) {
		return true, true
	}
	k.decode(d, found)
	d.Counter.Advance(now)
	return false, found
}

// Read loads a check's counter, and advances it to now. It reports whether the table has the key.
func (k *Entries) Read(d *rule.Check, now int64) (found bool) {
	found = k.Fetch(d)
	d.Counter.Advance(now)
	return found
}

// Fetch loads a check's counter, and reports whether the table has the key.
func (k *Entries) Fetch(d *rule.Check) (found bool) {
	found = k.Table.Read(&d.Slot, d.Address)
	k.decode(d, found)
	return found
}

// decode takes a check's counter from its slot, in which the key was found or not.
func (k *Entries) decode(d *rule.Check, found bool) {
	if d.Slot.Corrupt() {
		k.tallies.Corrupt++
	}
	if !found {
		d.Counter.Load(&d.Rule.Rule, nil)
	} else if !d.Counter.Load(&d.Rule.Rule, d.Slot.Payload()) {
		k.tallies.Corrupt++
	}
}

// Write writes a check's counter, unless another worker wrote its page since it was read.
func (k *Entries) Write(d *rule.Check, now int64) (written bool) {
	var meta sharedata.Meta
	meta.ExpiresNanos, meta.Use = d.Counter.Worth()
	if d.InSlot() {
		d.TakeNone()
		written = k.Table.Rewrite(&d.Slot, meta, now)
	} else {
		k.payload = d.Counter.Append(k.payload[:0], now)
		written = k.Table.Write(&d.Slot, k.payload, meta, now)
	}
	if !written {
		if !d.Slot.Recalled() {
			k.tallies.LostRaces++
		}
		return false
	}
	if d.Slot.Crowded() {
		d.Slot.Evicted(func(payload []byte) {
			k.tallies.Evicted++
			counter.Orphans(payload, k.KeepOrphan) // they would be lost otherwise
		})
	}
	return true
}

// own prepares the counter of a check for a change: the counter gets its identity. If the change is to be
// pushed and no other worker is to do so, this one adopts the key.
//
//go:noinline
func (k *Entries) own(d *rule.Check, now int64, pushes bool) (adopted bool) {
	adopted = pushes && d.Counter.Adopt(now, !k.link.Open())
	if !d.Counter.Identified() {
		d.Counter.Identify(k.Identity(d))
	}
	return adopted
}

// updating says what a change of a counter needs besides.
type updating uint8

const (
	// Adopts says that the change counts hits or gives some back, which some worker has to push. It becomes this
	// one if no other is to.
	Adopts updating = 1 << iota
	// Hastens says that the backend should hear of the change before the next request, if it decides the rule.
	Hastens
	// AsStored says that the change is of windows that may have ended, so the counter is not advanced before.
	AsStored
	// Frees says that a refusal of the key which the worker remembers no longer tells how it stands.
	Frees
)

// Update changes a check's counter, whatever other workers write meanwhile: it reads the counter, has
// change change it, and writes it, again until no other worker was faster. change reports whether
// there is anything to write, and whether this worker has to come back to the key then. If others win
// every race, update returns false.
//
//go:noinline
func (k *Entries) Update(d *rule.Check, how updating, now int64, change func() (writes, lists bool)) (done bool) {
	for range k.Table.Attempts() {
		if k.Fetch(d); how&AsStored == 0 {
			d.Counter.Advance(now)
		}
		adopted := how&Adopts != 0 && k.own(d, now, true)
		writes, lists := change()
		if !writes {
			return true
		}
		if !k.Write(d, now) {
			continue
		}
		if adopted || lists {
			k.enlist(d)
		}
		if how&Frees != 0 {
			k.Forget(d.Address)
		}
		if how&Hastens != 0 {
			k.hasten(d)
		}
		return true
	}
	return false
}

// enlist adds a check's key to the dirty keys.
//
//go:noinline
func (k *Entries) enlist(d *rule.Check) { k.pending.Dirty.Add(d.Address, d.Rule, d.Counter.Sync().Due) }

// hasten makes [Engine.PushCharges] push the pending hits of a check's key, if the backend decides
// its rule or is asked for each of its places. For other rules, leases account for pending hits.
//
//go:noinline
func (k *Entries) hasten(d *rule.Check) {
	if d.Rule.Hasty() && !d.Rule.Watched && d.Counter.Pending() {
		k.pending.Hasten(d.Rule, d.Address)
	}
}
