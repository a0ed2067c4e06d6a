package store

import (
	"context"

	"weir/internal/wire"
)

// Granter has a word on the takes of a store in whose place another store keeps the limits. The store
// calls it while it is locked, so a Granter neither waits nor calls the store.
type Granter interface {
	// Whole is the counter of an item with the hits of all stores, if own has those of this store. It
	// may return own, and does not change it.
	Whole(c Calendar, namespace string, item *wire.Item, own *Contents) *Contents

	// Most is the most units that a take may get. own has the hits that this store counts of a counter.
	// ctx is that of the push.
	Most(ctx context.Context, c Calendar, namespace string, take *wire.Take, own func(wire.LimitCounter) *Contents) uint64
}
