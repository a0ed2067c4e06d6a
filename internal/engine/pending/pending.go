// Package pending has what the backend has yet to hear of the table: which of its keys have hits to push, and the hits
// of counters that have left it.
package pending

import (
	"slices"

	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Pending has what a worker has yet to push. It is ready for use once Away is set.
type Pending struct {
	Dirty   Dirty
	hasty   []hastyKey
	orphans []Orphan
	// Away is the partitions that get no push now.
	Away *wire.PartitionSet
	// HastyOrphans means that orphans, too, are hits that the backend should hear of before the next request.
	HastyOrphans bool
}

// Unpushed is how many keys and evicted counters have hits that no push has.
func (p *Pending) Unpushed() (keys, evicted int) { return p.Dirty.Count, len(p.orphans) }

// Inherit takes over what another node of the namespace has not pushed of its keys and evicted counters. It returns how many
// hits of these are lost as there is no room.
func (p *Pending) Inherit(from *Pending) (lost uint64) {
	room := min(len(from.orphans), maxOrphans-len(p.orphans))
	p.orphans = append(p.orphans, from.orphans[:room]...)
	for i := range from.orphans[room:] {
		lost += from.orphans[room+i].Added()
	}
	from.orphans = nil
	p.Dirty.inherit(&from.Dirty)
	return lost
}

// hastyKey is a key with hits that the backend should hear of before the next request.
type hastyKey struct {
	address sharedata.Address
	rule    *rule.Rule
}

// maxHasty bounds the keys that are pushed at once. Further keys wait until they are due.
const maxHasty = 1 << 10

// Hasten has a key pushed before the next request.
func (p *Pending) Hasten(r *rule.Rule, a sharedata.Address) {
	if len(p.hasty) < maxHasty {
		p.hasty = append(p.hasty, hastyKey{a, r})
	}
}

// VisitHasty calls visit with each key whose hits the backend should hear of before the next request, the last
// first. It returns false if visit has stopped it.
func (p *Pending) VisitHasty(visit func(r *rule.Rule, a sharedata.Address) Fate) (done bool) {
	for ; len(p.hasty) > 0; p.hasty = p.hasty[:len(p.hasty)-1] {
		if key := p.hasty[len(p.hasty)-1]; visit(key.rule, key.address) == Stop {
			return false
		}
	}
	return true
}

// maxOrphans bounds the hits of evicted counters that wait to be pushed.
const maxOrphans = 1 << 12

// Orphan has the hits of an evicted counter that the backend has not heard of.
type Orphan struct {
	Item wire.Item
	Ends int64
}

// Added is how many hits it adds in sum; 0 if it gives back more.
func (o *Orphan) Added() uint64 { return (&window.Push{Hits: o.Item.Hits}).Added() }

// Keep keeps hits of a counter that left the table, if there is room. Those of partitions that are away leave half of it to
// others.
func (p *Pending) Keep(id [16]byte, l *window.Limit, push *window.Push, ends int64) (kept bool) {
	if n := len(p.orphans); n >= maxOrphans || n >= maxOrphans/2 && p.Away.Has(id) {
		return false
	}
	o := Orphan{Item: rule.Item(id, l, push), Ends: ends}
	o.Item.Hits = append([]int64(nil), o.Item.Hits...)
	o.Item.Ages = append([]uint64(nil), o.Item.Ages...)
	p.orphans = append(p.orphans, o)
	return true
}

// DropEnded drops the hits of evicted counters that count no more at a time, once they may keep others from a place.
func (p *Pending) DropEnded(now int64) {
	if len(p.orphans) >= maxOrphans/2 {
		p.orphans = slices.DeleteFunc(p.orphans, func(o Orphan) bool { return now > o.Ends })
	}
}

// VisitOrphans calls visit with each orphan that can be pushed now: its partition is not away. It returns false
// if visit has stopped it.
func (p *Pending) VisitOrphans(visit func(o *Orphan) Fate) (done bool) {
	for i := len(p.orphans) - 1; i >= 0; i-- {
		o := &p.orphans[i]
		if p.Away.Has(o.Item.ID) {
			continue
		}
		if visit(o) == Stop {
			return false
		}
		last := len(p.orphans) - 1
		*o, p.orphans = p.orphans[last], p.orphans[:last]
	}
	return true
}
