package node

import (
	"bytes"

	"weir/internal/counter"
	"weir/internal/wire"
)

// build begins to make a table from a list.
func (v *overrides) build(version uint64, list []byte) *building {
	b := &building{overrideTable: overrideTable{version: version, list: list}, emptied: v.news.shared.emptied}
	count := 0
	for b.reader.Reset(list, 0); b.reader.Next(); {
		count++
	}
	size := 4
	for size*3/4 < count {
		size *= 2
	}
	if l, ok := v.variants.owner.(Listener); ok {
		b.listener = l
		l.BeginList()
	}
	b.places = make([]place, size)
	b.reader.Reset(list, 0)
	return b
}

// next adds the next override of the list to the table, and reports whether there was one.
// Everything after a malformed part is ignored.
func (v *overrides) next(b *building) bool {
	at := b.reader.At()
	if !b.reader.Next() {
		if b.reader.Err() != nil {
			v.tallies.Corrupt++
		}
		return false
	}
	// A list groups the overrides of a rule.
	b.name = counter.AppendPart(b.name[:0], b.reader.Rule)
	if !bytes.Equal(b.name, v.rules.list[b.rule].Prefix) {
		i := 0
		for i < len(v.rules.list) && !bytes.Equal(b.name, v.rules.list[i].Prefix) {
			i++
		}
		if i == len(v.rules.list) {
			if b.listener != nil {
				b.listener.Listed(&b.reader)
			}
			return true // a rule that only other nodes have
		}
		b.rule = i
	}
	r := &v.rules.list[b.rule]
	if len(b.reader.Limits) == 0 {
		v.notice(b, r)
		return true
	}
	limits, fits := wire.Fit(r.Limits, b.reader.Limits)
	if fits {
		b.key, fits = v.variants.owner.AppendKey(b.key[:0], b.rule, b.reader.Values)
	}
	if !fits {
		b.unfit++
		return true
	}
	r.Admit(limits)
	address := v.keys.table.Address(r.group, b.key)
	p := b.find(address)
	if p.at != 0 {
		return true // the same key in another form
	}
	*p = place{address: address, at: uint32(at) + 1, index: int32(b.rule), until: int64(b.reader.Until) * 1e6}
	if old := v.variants; old.places != nil {
		// Requests have used it before, so its variant can be kept.
		if q := old.find(p.address); q.rule != nil && bytes.HasPrefix(old.list[q.at-1:], b.list[at:b.reader.At()]) {
			p.rule = q.rule
		}
	}
	b.count++
	return true
}

// apply puts a finished table into force.
func (v *overrides) apply(b *building) {
	if b.count == 0 {
		b.places = nil // decisions can skip the search
	}
	v.variants.overrideTable = b.overrideTable
	if b.listener != nil {
		b.listener.EndList()
	}
	v.news.update(func(r *sharedNews) bool {
		newer := b.newest > r.emptied
		r.emptied = max(r.emptied, b.newest)
		return newer
	})
	for i := range v.rules.list {
		v.rules.list[i].overridden = false
	}
	for i := range b.places {
		if b.places[i].at != 0 {
			v.rules.list[b.places[i].index].overridden = true
		}
	}
}
