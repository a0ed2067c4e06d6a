package pending

import "weir/internal/wire"

// BlockKeys is how many keys a block of the list of dirty keys has. It is for tests.
const BlockKeys = dirtyBlockKeys

// Orphans returns the hits of evicted counters that no push has. It is for tests.
func (p *Pending) Orphans() []Orphan { return p.orphans }

// Unsent returns the hits on credit that no push has, for each key and limit. It is for tests.
func (l *Ledger) Unsent() (items []wire.Item) {
	for _, h := range l.unsent {
		for i := range h.Rule.Limits {
			h.push(i, &l.push)
			item := Item(h.id, &h.Rule.Limits[i], &l.push)
			item.Hits = []int64{item.Hits[0]}
			items = append(items, item)
		}
	}
	return items
}
