package memory

import (
	"math"
	"math/bits"
	"slices"

	"weir/internal/heap"
	"weir/internal/wire"
)

// maxGroups bounds the groups of a namespace. Further counters share one group.
const maxGroups = 1024

// groups divides a namespace's counters by the limit that they seem to belong to. The largest group
// makes room: a flood of one rule's keys resets no counter of a rule that has less.
type groups struct {
	byKey map[groupKey]*group
	heap  heap.Of[*group] // all groups, the largest first
	rest  *group          // counters beyond maxGroups; nil if there are none
}

// groupKey is the properties that all counters of a limit share.
type groupKey struct {
	limit wire.LimitCounter // without its ID
	quota uint64            // see standing
}

type group struct {
	of    *groups
	key   groupKey
	ranks ranks
	size  int // of all its counters
	index int // in the heap
}

// place puts a counter of a size that has used hits of a quota into its group, as the most recently
// hit.
func (g *groups) place(e *counterRow, used, quota uint64, size int) {
	if own := e.value.group; own == nil || own.key.quota != quota || own == g.rest {
		g.remove(e, size)
		e.value.quota, e.value.group = quota, g.of(e, quota)
		e.value.rank = rankOf(used, quota)
		e.value.group.ranks.add(e)
		e.value.group.grow(size)
		return
	}
	e.value.group.ranks.move(e, rankOf(used, quota))
}

// grow changes the group's size by by, which may be negative.
func (g *group) grow(by int) {
	g.size += by
	heap.Fix(&g.of.heap, g.index)
}

func (g *groups) of(e *counterRow, quota uint64) *group {
	key := groupKey{limit: e.key.LimitCounter, quota: quota}
	key.limit.ID = wire.ID{}
	if found := g.byKey[key]; found != nil {
		return found
	}
	if len(g.byKey) < maxGroups {
		added := &group{of: g, key: key}
		if g.byKey == nil {
			g.byKey = map[groupKey]*group{}
		}
		g.byKey[key] = added
		heap.Push(&g.heap, added)
		return added
	}
	if g.rest == nil {
		g.rest = &group{of: g}
		heap.Push(&g.heap, g.rest)
	}
	return g.rest
}

// remove removes a counter of a size from its group, if it has one.
func (g *groups) remove(e *counterRow, size int) {
	of := e.value.group
	if of == nil {
		return
	}
	e.value.group = nil
	of.ranks.remove(e)
	if of.grow(-size); of.size > 0 {
		return
	}
	heap.Remove(&g.heap, of.index)
	if of == g.rest {
		g.rest = nil
	} else {
		delete(g.byKey, of.key)
	}
}

// victim returns the counter that makes room for another. There must be a counter.
func (g *groups) victim() *counterRow { return g.heap[0].ranks.lowest() }

// Before has the largest group first.
func (g *group) Before(other *group) bool { return g.size > other.size }

// Placed implements [heap.Item].
func (g *group) Placed(index int) { g.index = index }

// A counter's worth is the share of its limit that was used at its last hit. A counter near its
// limit refuses soon; a reset of a counter far from its limit lets little more pass. Counters of
// nearly the same worth share a rank.
const (
	lastRank = 63 // the limit is used up
	// awayHits is the assumed distance to an unknown limit. A sender sends the limit only when it
	// takes hits.
	awayHits = 9
)

// rankOf returns the rank for used hits of a quota; 0 means an unknown quota.
func rankOf(used, quota uint64) uint8 {
	share := float32(used) / float32(max(quota, 1))
	if quota == 0 {
		share = float32(used) / float32(used+awayHits)
	}
	// The bits of positive floats have the same order as the floats. Without the last 21 bits, each
	// doubling has four ranks.
	const drop = 21
	one := int(math.Float32bits(1) >> drop)
	return uint8(min(max(0, int(math.Float32bits(share)>>drop)-one+lastRank), lastRank))
}

// standing is a counter's place among others.
type standing struct {
	// quota is how many hits fit the limit at once; 0 if that is not known.
	quota        uint64
	group        *group
	before, next *counterRow // with the same rank
	rank         uint8
}

// ranks has the rows by rank, each rank's least recently hit row first.
type ranks struct {
	lists    []rankList // of ranks with rows, ascending
	occupied uint64     // has bit r set if rank r has rows
}

type rankList struct{ first, last *counterRow }

// at returns the index that the list of a rank has or would have.
func (r *ranks) at(rank uint8) int { return bits.OnesCount64(r.occupied & (1<<rank - 1)) }

// lowest returns the row that makes room first: the least recently hit of the lowest rank. There
// must be a row.
func (r *ranks) lowest() *counterRow { return r.lists[0].first }

// move moves a row to a rank, as the most recently hit.
func (r *ranks) move(e *counterRow, rank uint8) {
	if e.value.rank == rank && e.value.next == nil {
		return
	}
	r.remove(e)
	e.value.rank = rank
	r.add(e)
}

func (r *ranks) add(e *counterRow) {
	at, bit := r.at(e.value.rank), uint64(1)<<e.value.rank
	if r.occupied&bit == 0 {
		r.occupied |= bit
		r.lists = slices.Insert(r.lists, at, rankList{e, e})
		return
	}
	list := &r.lists[at]
	e.value.before = list.last
	list.last.value.next = e
	list.last = e
}

func (r *ranks) remove(e *counterRow) {
	at := r.at(e.value.rank)
	list := &r.lists[at]
	before, next := e.value.before, e.value.next
	if before == nil {
		list.first = next
	} else {
		before.value.next = next
	}
	if next == nil {
		list.last = before
	} else {
		next.value.before = before
	}
	if list.first == nil {
		r.occupied &^= 1 << e.value.rank
		r.lists = slices.Delete(r.lists, at, at+1)
	}
	e.value.before, e.value.next = nil, nil
}
