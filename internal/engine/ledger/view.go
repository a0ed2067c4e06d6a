package ledger

import (
	"weir/internal/engine/rule"
	"weir/internal/wire"
)

// Unsent returns the hits on credit that no push has, for each key and limit. It is for tests.
func (l *Ledger) Unsent() (items []wire.Item) {
	for _, h := range l.unsent {
		for i := range h.Rule.Limits {
			h.push(i, &l.push)
			item := rule.Item(h.id, &h.Rule.Limits[i], &l.push)
			item.Hits = []int64{item.Hits[0]}
			items = append(items, item)
		}
	}
	return items
}
