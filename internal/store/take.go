package store

import (
	"weir/internal/wire"
	"weir/window"
)

// RoomItem returns an item that counts hits in a room at the clock's time.
func (c Calendar) RoomItem(room *wire.Room, hits uint64) wire.Item {
	kind := window.Kind(room.Kind)
	item := wire.Item{LimitCounter: room.LimitCounter, Limit: room.Limit, Hits: make([]int64, max(1, kind.Windows()))}
	item.Hits[0] = int64(hits)
	item.Newest = NumberAt(room.LimitCounter, c.NowNanos)
	if kind.Bucketed() {
		item.Ages = []uint64{0}
	}
	return item
}

// Units returns how many units of a take fit its rooms at the clock's time: 0, or from take.Least
// to take.Most. totals are the answers to RoomItem's items of no hits.
func (c Calendar) Units(take *wire.Take, totals []wire.Total, nodes uint64) uint64 {
	units := take.Most
	for i := range take.Rooms {
		units = min(units, c.unitsOf(take, &take.Rooms[i], &totals[i], nodes))
	}
	return units
}

// unitsOf returns how many units one room has: 0, or at least take.Least.
func (c Calendar) unitsOf(take *wire.Take, room *wire.Room, total *wire.Total, nodes uint64) uint64 {
	limit, state := c.state(room, total)
	least, overflows := Product(take.Least, room.Cost)
	if overflows || !limit.Allows(&state, least) {
		return 0
	}
	if room.Cost == 0 {
		return take.Most
	}
	left := limit.Remaining(&state)
	if !take.Lease {
		return min(take.Most, left/room.Cost)
	}
	units := min(take.Most, limit.Ahead(left, nodes)/room.Cost)
	if units < take.Least {
		return 0
	}
	return units
}

// Spare returns how many more hits a room could have had without giving the take less. total is the
// room's after the take, which has got its most.
func (c Calendar) Spare(take *wire.Take, room *wire.Room, total *wire.Total, nodes uint64) uint64 {
	limit, state := c.state(room, total)
	left := limit.Remaining(&state)
	if !take.Lease {
		return left
	}
	hits, _ := Product(take.Most, room.Cost)
	needs, overflows := Product(hits, limit.Parts(nodes))
	if overflows {
		return 0
	}
	return window.SaturatingSub(left+hits, needs)
}

// Product is a·b, limited to wire.MaxHits.
func Product(a, b uint64) (hits uint64, overflows bool) {
	if a != 0 && b > wire.MaxHits/a {
		return wire.MaxHits, true
	}
	return a * b, false
}

// Rejected returns how many hits a room counts for a take that was not granted.
func (c Calendar) Rejected(take *wire.Take, room *wire.Room, total *wire.Total) uint64 {
	hits, overflows := Product(take.Least, room.Cost)
	if !room.CountRejected || overflows {
		return 0
	}
	limit, state := c.state(room, total)
	if limit.Kind.Blocks() {
		return 0
	}
	if hits > limit.Quota() || limit.Allows(&state, hits) {
		return 0
	}
	return limit.Rejected(&state, hits)
}

// state converts a room to the types of package window.
func (c Calendar) state(room *wire.Room, total *wire.Total) (window.Limit, window.State) {
	limit := window.Limit{Shape: room.Shape(), Max: room.Limit, Burst: room.Burst}
	state := window.State{Newest: int64(c.NowNanos)}
	now := algorithmOf(room.Kind).present(c, room, total)
	totals := window.Totals{Newest: now.Newest, Hits: now.Hits, Ages: now.Ages}
	limit.Learn(&state, true, &totals)
	limit.Advance(&state, int64(c.NowNanos))
	return limit, state
}

// Ledger gives Decide access to the counters of rooms.
type Ledger interface {
	// Total answers an item from the hits counted so far.
	Total(item *wire.Item) wire.Total
	// Add counts an item's hits.
	Add(item *wire.Item)
}

// Decide decides a take at the clock's time, and counts the granted hits. Stores that do not
// compute in Go must do the same.
func (c Calendar) Decide(take *wire.Take, nodes uint64, in Ledger) wire.Grant {
	return c.DecideUpTo(take, take.Most, nodes, in)
}

// DecideUpTo is Decide for a take that may get at most this number of units.
func (c Calendar) DecideUpTo(take *wire.Take, most, nodes uint64, in Ledger) wire.Grant {
	items, totals, added := make([]wire.Item, len(take.Rooms)), make([]wire.Total, len(take.Rooms)), false
	for i := range items {
		items[i] = c.RoomItem(&take.Rooms[i], 0)
		totals[i] = in.Total(&items[i])
	}
	grant := wire.Grant{Units: min(most, c.Units(take, totals, nodes)), AtNanos: c.NowNanos, Totals: totals}
	if grant.Units < take.Least {
		grant.Units = 0
	}
	for i := range items {
		room := &take.Rooms[i]
		hits := grant.Units * room.Cost
		if grant.Units == 0 {
			hits = c.Rejected(take, room, &totals[i])
		}
		if hits != 0 && !window.Kind(room.Kind).Blocks() {
			items[i].Hits[0], added = int64(hits), true
			in.Add(&items[i])
			items[i].Hits[0] = 0
		}
	}
	for i := 0; added && i < len(items); i++ {
		totals[i] = in.Total(&items[i])
	}
	return grant
}

// Refuse counts the hits of rooms that count rejected requests, for a take that was refused
// elsewhere.
func (c Calendar) Refuse(take *wire.Take, in Ledger) wire.Grant {
	return c.DecideUpTo(take, 0, 0, in)
}

// Again answers a take that was decided before.
func (c Calendar) Again(take *wire.Take, units, atNanos uint64, in Ledger) wire.Grant {
	then := Calendar{NowNanos: atNanos}
	grant := wire.Grant{Units: units, AtNanos: atNanos, Totals: make([]wire.Total, len(take.Rooms))}
	for i := range take.Rooms {
		item := then.RoomItem(&take.Rooms[i], 0)
		grant.Totals[i] = in.Total(&item)
	}
	return grant
}
