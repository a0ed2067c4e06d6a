package credit

import (
	"weir/internal/engine/entry"
	"weir/internal/wire"
)

// Unsent returns the hits that no push has, for each key and limit. It is for tests.
func (a *Credit) Unsent() (items []wire.Item) {
	for _, h := range a.ledger.unsent {
		for i := range h.Rule.Limits {
			h.push(i, &a.push)
			item := entry.Item(h.id, &h.Rule.Limits[i], &a.push)
			item.Hits = []int64{item.Hits[0]}
			items = append(items, item)
		}
	}
	return items
}
