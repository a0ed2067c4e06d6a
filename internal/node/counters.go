package node

import (
	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
)

// maxOrphans bounds the hits of evicted counters that wait to be pushed.
const maxOrphans = 1 << 12

// locate finds out where the counter of a demand is that has a key.
func (n *Node) locate(d *Demand) {
	d.address, d.named, d.passed = n.table.Address(d.Rule.group, d.Key), false, false
	d.grantedAt = 0
	if n.overrides.places != nil {
		d.Rule = n.inForce(d.Rule, d.address)
	}
	if n.options.Recalls {
		d.slot.Recent = &n.recent
	}
}

// identity is the key's name in the backend. The demand's counter has been read: it has the name,
// unless its rule does not synchronise.
//
//go:noinline
func (n *Node) identity(d *Demand) [16]byte {
	if !d.named {
		d.named = true
		if d.id = d.Counter.Sync().ID; !d.Rule.Synced() || !d.Counter.Identified() {
			d.id = n.identities.Of(d.Key)
		}
	}
	return d.id
}

// at is a demand of a rule at an address, for nobody's request, by the limits that are in force now. It
// is valid until the next call.
//
//go:noinline
func (n *Node) at(r *Rule, a sharedata.Address) *Demand {
	if n.overrides.places != nil || r.override {
		r = n.inForce(r, a)
	}
	n.scratch.Rule, n.scratch.address = r, a
	return &n.scratch
}

// Save saves a demand that was decided, or looked at, for [Node.ForceSaved].
func (n *Node) Save(d *Demand) Saved {
	s := Saved{Rule: d.Rule, Cost: d.Cost, address: d.address}
	if !n.local {
		s.id = n.identity(d)
		if prefix := len(d.Rule.Prefix); d.Rule.Reveal != 0 && len(d.Key) > prefix {
			n.payload = appendName(n.payload[:0], d.Key[prefix:], d.Rule.Reveal)
			n.sightings.names.keep(s.id, n.payload)
		}
	}
	return s
}

// restore makes a demand of what was saved of it.
//
//go:noinline
func (n *Node) restore(d *Demand, s *Saved) {
	d.Rule, d.Cost, d.Key = s.Rule, s.Cost, d.Key[:0]
	d.address, d.id, d.named = s.address, s.id, true
	d.Verdict, d.passed, d.debited, d.held, d.grantedAt = counter.Allowed, false, false, false, 0
}

// read gets a demand's counter as it was written last, and brings it to the present.
func (n *Node) read(d *Demand, now int64) {
	n.fetch(d)
	d.Counter.Advance(now)
}

// fetch gets a demand's counter as it was written last.
func (n *Node) fetch(d *Demand) { n.decode(d, n.table.Read(&d.slot, d.address)) }

func (n *Node) decode(d *Demand, found bool) {
	if d.slot.Corrupt() {
		n.Tallies.Corrupt++
	}
	if !found {
		d.Counter.Load(&d.Rule.Rule, nil)
	} else if !d.Counter.Load(&d.Rule.Rule, d.slot.Payload()) {
		n.Tallies.Corrupt++
	}
}

// write writes a demand's counter, unless another worker wrote its page since it was read.
func (n *Node) write(d *Demand, now int64) (written bool) {
	var meta sharedata.Meta
	meta.ExpiresNanos, meta.Use = d.Counter.Worth()
	if d.inSlot {
		d.inSlot = false
		written = n.table.Rewrite(&d.slot, meta, now)
	} else {
		n.payload = d.Counter.Append(n.payload[:0], now)
		written = n.table.Write(&d.slot, n.payload, meta, now)
	}
	if !written {
		if !d.slot.Recalled() {
			n.Tallies.LostRaces++
		}
		return false
	}
	if d.slot.Crowded() {
		d.slot.Evicted(n.rescueEvicted)
	}
	return true
}

// rescueEvicted keeps what an entry that had to make room has for the backend: its hits would be
// lost otherwise.
func (n *Node) rescueEvicted(payload []byte) {
	n.Tallies.Evicted++
	counter.Orphans(payload, func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		if n.local || !n.keepOrphan(id, l, push, ends) {
			n.Tallies.Lost += push.Added()
		}
	})
}

// keepOrphan takes pending hits of a counter that left the table, and reports whether there was
// room for them.
func (n *Node) keepOrphan(id [16]byte, l *window.Limit, push *window.Push, ends int64) bool {
	if len(n.orphans) == maxOrphans {
		return false
	}
	o := orphan{item: item(id, l, push), ends: ends}
	o.item.Hits = append([]int64(nil), o.item.Hits...)
	o.item.Ages = append([]uint64(nil), o.item.Ages...)
	n.orphans = append(n.orphans, o)
	return true
}
