package node

import (
	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
)

// keys are a process's keys: their counters, in the table, and their names.
type keys struct {
	tallies  *Tallies
	link     *link
	variants *variants
	table    *sharedata.Table
	// recalls says that the worker remembers pages that it has written, which are recent.
	recalls bool
	recent  sharedata.Recent
	payload []byte // an encoded counter
	// local says that the counters of all rules stay in this process. Then there is no backend, and
	// identities, the names of keys there, are of no use.
	local      bool
	identities counter.Identities
	names      *names // of keys whose requests wait; nil if no rule reveals any
	// demands are those of a request that has waited, or of hits that were held; a push or an
	// answer reads into scratch, and writes push.
	demands []Demand
	scratch Demand
	push    window.Push
	orphans []orphan // pending hits of counters that had to make room
}

// maxOrphans bounds the hits of evicted counters that wait to be pushed.
const maxOrphans = 1 << 12

// locate finds out where the counter of a demand is that has a key.
func (k *keys) locate(d *Demand) {
	d.address, d.id = k.table.Address(d.Rule.group, d.Key), [16]byte{}
	d.by, d.grantedAt, d.Over = byRule, 0, false
	if k.variants.places != nil {
		d.Rule = k.variants.inForce(d.Rule, d.address)
	}
	if k.recalls {
		d.slot.Recent = &k.recent
	}
}

// identity is the key's name in the backend. The demand's counter has been read: it has the name,
// unless its rule does not synchronise.
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

// at is a demand of a rule at an address, for nobody's request, by the limits that are in force now. It
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

// Save saves a demand that was decided, or looked at, for [Node.ForceSaved].
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

// named returns the saved part of a demand on a rule that needs the backend.
func (k *keys) named(d *Demand) Saved {
	k.identity(d)
	return d.Saved
}

// restore makes a demand of what was saved of it.
//
//go:noinline
func (k *keys) restore(d *Demand, s *Saved) {
	d.Saved, d.Key = *s, d.Key[:0]
	d.Verdict, d.by, d.hits, d.grantedAt = counter.Allowed, byRule, untaken, 0
}

// read gets a demand's counter as it was written last, and brings it to the present.
func (k *keys) read(d *Demand, now int64) {
	k.fetch(d)
	d.Counter.Advance(now)
}

// fetch gets a demand's counter as it was written last.
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

// rescueEvicted keeps what an entry that had to make room has for the backend: its hits would be
// lost otherwise.
func (k *keys) rescueEvicted(payload []byte) {
	k.tallies.Evicted++
	counter.Orphans(payload, func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		if k.local || !k.keepOrphan(id, l, push, ends) {
			k.tallies.Lost += push.Added()
		}
	})
}

// keepOrphan takes pending hits of a counter that left the table, and reports whether there was
// room for them.
func (k *keys) keepOrphan(id [16]byte, l *window.Limit, push *window.Push, ends int64) bool {
	if len(k.orphans) == maxOrphans {
		return false
	}
	o := orphan{item: item(id, l, push), ends: ends}
	o.item.Hits = append([]int64(nil), o.item.Hits...)
	o.item.Ages = append([]uint64(nil), o.item.Ages...)
	k.orphans = append(k.orphans, o)
	return true
}

// adopt reports whether this worker is to push what a demand's counter is about to take or give
// back.
func (k *keys) adopt(d *Demand, now int64) bool {
	return d.Counter.Adopt(now, !k.link.open())
}

// reject has the demand at an address find no room, and no other demand.
func (k *keys) reject(demands []Demand, a sharedata.Address) {
	for i := range demands {
		if d := &demands[i]; d.address == a {
			d.Verdict = counter.Rejected
		}
	}
}
