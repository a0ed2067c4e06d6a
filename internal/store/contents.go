package store

import (
	"weir/internal/wire"
	"weir/window"
)

// Contents are all that a store keeps of a counter. Stores that compute in Go change them with
// [Calendar.Add] and read them with [Calendar.Total]. Others do alike.
type Contents struct {
	// Limit is how many tokens come back to a token bucket in a window. It is that of the last
	// sender that took tokens. Others have the bucket converted to theirs.
	Limit uint64
	// Windows are windows of the clock, or buckets of a precision, newest first, or the one window
	// that started with its first hit, or the token bucket if it is not full.
	Windows []Window
}

// algorithm is how stores that compute in Go treat the counters of a kind. Each has a file of its
// own.
type algorithm interface {
	// add is [Calendar.Add].
	add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool)
	// total is [Calendar.Total].
	total(c Calendar, r *Contents, item *wire.Item) wire.Total
	// counts reports whether a window of the counter counts.
	counts(c Calendar, of *LimitCounter, w Window) bool
	// used is [Calendar.Used].
	used(c Calendar, r *Contents, of wire.LimitCounter) uint64
	// settled is [Calendar.Settled].
	settled(c Calendar, item *wire.Item) uint64
	// present is the total of a room as package window may be told it: it has no start that lies
	// ahead.
	present(c Calendar, room *wire.Room, total *wire.Total) wire.Total
}

// algorithmOf is that of a kind. Kinds whose hits are kept and added alike share one.
func algorithmOf(kind uint8) algorithm {
	switch k := window.Kind(kind); {
	case k.Bucketed():
		return subBuckets{}
	case k.Refills():
		return tokenBucket{}
	case k.Started():
		return firstHit{}
	}
	return clockWindows{}
}

// Add adds an item's hits to the contents of its counter, and says in out what became of them.
// changed is false if none was added. Otherwise the contents can be read until expires. Another
// window of theirs may expire later: a store keeps the latest expiry that it was told, or for kinds
// that refill the last that it was told.
func (c Calendar) Add(r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	return algorithmOf(item.Kind).add(c, r, item, out)
}

// Used is about how many hits of a limit the contents of a counter take. It only serves to choose
// what to evict. As in the plugin's table, hits of the window before count in full.
func (c Calendar) Used(r *Contents, of wire.LimitCounter) uint64 {
	return algorithmOf(of.Kind).used(c, r, of)
}

// Total answers an item from the contents of its counter.
func (c Calendar) Total(r *Contents, item *wire.Item) wire.Total {
	return algorithmOf(item.Kind).total(c, r, item)
}
