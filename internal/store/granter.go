package store

import (
	"context"

	"weir/internal/wire"
)

// Granter limits the takes of a store that keeps a region's part of the limits of another store.
// The store calls it while it is locked, so a Granter must neither wait nor call the store.
type Granter interface {
	// Whole returns the counter of an item with the hits of all stores. own has the hits of this
	// store. Whole may return own, and does not change it.
	Whole(c Calendar, namespace string, item *wire.Item, own *Contents) *Contents

	// Most returns the most units that a take may get. own returns the hits that this store counts
	// for a counter. ctx is that of the push.
	Most(ctx context.Context, c Calendar, namespace string, take *wire.Take, own func(wire.LimitCounter) *Contents) uint64
}
