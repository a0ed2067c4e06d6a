package memory

import (
	"math"
	"math/bits"
)

// A counter's worth is the share of its limit that was used at its last hit: a counter that is near
// its limit refuses soon, and one that is far from it has little to tell. Counters of nearly the
// same worth have a rank in common.
const (
	lastRank = 63 // of all that is used, or more
	// awayHits is how far away the limit of a counter is taken to be while it is not known: a
	// sender tells it only when it takes hits.
	awayHits = 9
)

// rankOf is that of so many hits, of a limit of so many, or of an unknown limit if that is 0.
func rankOf(used, quota uint64) uint8 {
	share := float32(used) / float32(max(quota, 1))
	if quota == 0 {
		share = float32(used) / float32(used+awayHits)
	}
	// A float's bits ascend as it does. Without the last 21 there are four ranks for each doubling.
	const drop = 21
	one := int(math.Float32bits(1) >> drop)
	return uint8(min(max(0, int(math.Float32bits(share)>>drop)-one+lastRank), lastRank))
}

// standing is a counter's among others.
type standing struct {
	// quota is how many hits fit the limit at once, 0 if that is not known.
	quota        uint64
	before, next *counterRow // of its rank
	rank         uint8
}

// ranks has the rows of each rank, those first that were hit least recently.
type ranks struct {
	lists    [lastRank + 1]struct{ first, last *counterRow }
	occupied uint64 // a bit for each rank that has rows
}

// lowest is the row that makes room for another: of the lowest rank the one that was hit least
// recently. There must be one.
func (r *ranks) lowest() *counterRow { return r.lists[bits.TrailingZeros64(r.occupied)].first }

// move has a row stand in a rank, as the one that was hit last.
func (r *ranks) move(e *counterRow, rank uint8) {
	if e.value.rank == rank && e.value.next == nil {
		return
	}
	r.remove(e)
	e.value.rank = rank
	r.add(e)
}

func (r *ranks) add(e *counterRow) {
	list := &r.lists[e.value.rank]
	if e.value.before = list.last; list.last == nil {
		list.first = e
		r.occupied |= 1 << e.value.rank
	} else {
		list.last.value.next = e
	}
	list.last = e
}

func (r *ranks) remove(e *counterRow) {
	list := &r.lists[e.value.rank]
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
	}
	e.value.before, e.value.next = nil, nil
}
