package node

import (
	"weir/internal/counter"
	"weir/sharedata"
)

// keys has the counters of a process's keys, in the table, and their names.
type keys struct {
	tallies  *Tallies
	link     *link
	variants *variants
	table    *sharedata.Table
	// recalls means that the worker remembers pages that it wrote recently.
	recalls bool
	recent  sharedata.Recent
	payload []byte // an encoded counter
	// local means that all rules count in this process only. Then there is no backend, and
	// identities, the names of keys there, are not used.
	local      bool
	identities counter.Identities
	names      *names // names of keys whose requests wait; nil if no rule reveals names
	// scratch is what a push or an answer reads into.
	scratch Demand
	orphans orphans
	dirty   dirtyKeys
	hasty   hastyKeys
}

// newKeys returns the keys of a node, without their table.
func newKeys(tallies *Tallies, link *link, rules *ruleset, variants *variants, secret string, recalls bool) keys {
	k := keys{tallies: tallies, link: link, variants: variants, recalls: recalls, local: !rules.synced}
	if !k.local {
		k.identities = counter.NewIdentities(secret)
	}
	for i := range rules.list {
		if rules.list[i].Reveal != 0 && k.names == nil {
			k.names = &names{}
		}
	}
	return k
}

// unpushed is how many keys and evicted counters have hits that no push has.
func (k *keys) unpushed() int { return k.dirty.count + k.orphans.count() }

// inherit takes over what another node of the namespace has not pushed.
func (k *keys) inherit(from *keys) {
	k.orphans = append(k.orphans, from.orphans...)
	from.orphans = nil
	k.dirty.inherit(&from.dirty)
}

// locate finds the address of a demand's counter from its key.
func (k *keys) locate(d *Demand) {
	d.address, d.id = k.table.Address(d.Rule.group, d.Key), [16]byte{}
	d.by, d.grantedAt, d.Over, d.asks, d.heard = byRule, 0, false, false, false
	if k.variants.places != nil {
		d.Rule = k.variants.inForce(d.Rule, d.address)
	}
	if k.recalls {
		d.slot.Recent = &k.recent
	}
}

// identity returns the key's name in the backend. The demand's counter, which was read, has the
// name unless the rule does not synchronise.
//
//go:noinline
func (k *keys) identity(d *Demand) [16]byte {
	if d.id == [16]byte{} {
		if d.id = d.Counter.Sync().ID; !d.Rule.Synced() || !d.Counter.Identified() {
			d.id = k.identities.Of(d.Key)
		}
	}
	return d.id
}

// at returns a demand on a rule at an address without a request, with the limits that apply now. It
// is valid until the next call.
//
//go:noinline
func (k *keys) at(r *Rule, a sharedata.Address) *Demand {
	if k.variants.places != nil || r.override {
		r = k.variants.inForce(r, a)
	}
	k.scratch.Saved = Saved{Rule: r, address: a}
	return &k.scratch
}

// save saves a demand that was decided, or looked at, for [Node.ForceSaved].
func (k *keys) save(d *Demand) Saved {
	if !k.local {
		k.identity(d)
		if prefix := len(d.Rule.Prefix); d.Rule.Reveal != 0 && len(d.Key) > prefix {
			k.payload = appendName(k.payload[:0], d.Key[prefix:], d.Rule.Reveal)
			k.names.keep(d.id, k.payload)
		}
	}
	return d.Saved
}

// named is save with the identity of a demand on a rule that needs the backend.
func (k *keys) named(d *Demand) Saved {
	k.identity(d)
	return d.Saved
}

// restore makes a demand from its saved part.
//
//go:noinline
func (k *keys) restore(d *Demand, s *Saved) {
	d.Saved, d.Key = *s, d.Key[:0]
	d.Verdict, d.by, d.hits, d.grantedAt, d.asks, d.patient = counter.Allowed, byRule, untaken, 0, false, false
}

// read loads a demand's counter, and advances it to now.
func (k *keys) read(d *Demand, now int64) {
	k.fetch(d)
	d.Counter.Advance(now)
}

// fetch loads a demand's counter.
func (k *keys) fetch(d *Demand) { k.decode(d, k.table.Read(&d.slot, d.address)) }

func (k *keys) decode(d *Demand, found bool) {
	if d.slot.Corrupt() {
		k.tallies.Corrupt++
	}
	if !found {
		d.Counter.Load(&d.Rule.Rule, nil)
	} else if !d.Counter.Load(&d.Rule.Rule, d.slot.Payload()) {
		k.tallies.Corrupt++
	}
}

// write writes a demand's counter, unless another worker wrote its page since it was read.
func (k *keys) write(d *Demand, now int64) (written bool) {
	var meta sharedata.Meta
	meta.ExpiresNanos, meta.Use = d.Counter.Worth()
	if d.hits == inSlot {
		d.hits = untaken
		written = k.table.Rewrite(&d.slot, meta, now)
	} else {
		k.payload = d.Counter.Append(k.payload[:0], now)
		written = k.table.Write(&d.slot, k.payload, meta, now)
	}
	if !written {
		if !d.slot.Recalled() {
			k.tallies.LostRaces++
		}
		return false
	}
	if d.slot.Crowded() {
		d.slot.Evicted(k.rescueEvicted)
	}
	return true
}

// adopt reports whether this worker becomes the worker that pushes a demand's counter.
func (k *keys) adopt(d *Demand, now int64) bool {
	return d.Counter.Adopt(now, !k.link.open())
}

// updating says what a change of a counter needs besides.
type updating uint8

const (
	// adopts: the change counts hits or gives some back, which some worker has to push. It becomes this
	// one if no other is to.
	adopts updating = 1 << iota
	// hastens: the backend should hear of the change before the next request, if it decides the rule.
	hastens
	// asStored: the change is of windows that may have ended, so the counter is not advanced before.
	asStored
)

// update changes a demand's counter, whatever other workers write meanwhile: it reads the counter, has
// change change it, and writes it, again until no other worker was faster. change reports whether
// there is anything to write, and whether this worker has to come back to the key then. If others win
// every race, update returns false.
//
//go:noinline
func (k *keys) update(d *Demand, how updating, now int64, change func() (writes, lists bool)) (done bool) {
	for range k.table.Attempts() {
		if k.fetch(d); how&asStored == 0 {
			d.Counter.Advance(now)
		}
		adopted := how&adopts != 0 && k.adopt(d, now)
		if how&adopts != 0 && !d.Counter.Identified() {
			d.Counter.Identify(k.identity(d))
		}
		writes, lists := change()
		if !writes {
			return true
		}
		if !k.write(d, now) {
			continue
		}
		if adopted || lists {
			k.enlist(d)
		}
		if how&hastens != 0 {
			k.hasten(d)
		}
		return true
	}
	return false
}

// enlist adds a demand's key to the dirty keys.
//
//go:noinline
func (k *keys) enlist(d *Demand) { k.dirty.add(d.address, d.Rule, d.Counter.Sync().Due) }

// hasten makes [Node.PushCharges] push the pending hits of a demand's key, if the backend decides
// its rule or is asked for each of its places. For other rules, leases account for pending hits.
//
//go:noinline
func (k *keys) hasten(d *Demand) {
	if d.Rule.hasty() && !d.Rule.Watched && d.Counter.Pending() {
		k.hasty.add(d.Rule, d.address)
	}
}

// reject rejects the demand at an address, and no other.
func (k *keys) reject(demands []Demand, a sharedata.Address) {
	for i := range demands {
		if d := &demands[i]; d.address == a {
			d.Verdict = counter.Rejected
		}
	}
}
