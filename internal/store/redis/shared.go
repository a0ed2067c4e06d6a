package redis

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// shared is a take whose rooms lie in several partitions, which no script can join. So the
// partitions are asked one after the other, in the same order for all takes, each for the hits that
// the earlier have granted. If one refuses or grants less, the others get the surplus back. Each
// step has its own record, so the whole take can be repeated with the same answer.
//
// Until it ends, no other take can have the hits that were granted first. So never too many hits
// pass, but a take may be refused for hits that another take is about to give back.
type shared struct {
	take   *wire.Take
	answer *wire.Grant
	// parts are in the order of partitions. The first asked parts have answered.
	parts []sharedPart
	asked int
	// units is how many units all parts asked so far have granted.
	units uint64
	// forgotten means that the sender had its answer long ago, so nothing is left to do.
	forgotten bool
	// missing is set if the take was cut short because a partition failed.
	missing wire.Missing
	// last are the batches that give hits back.
	last []*batch
}

type sharedPart struct {
	partition uint32
	rooms     []int // indexes in the take's rooms
	batch     *batch
	grant     wire.Grant
}

// newShared divides a take into parts, one for each partition.
func newShared(keys keys, take *wire.Take, answer *wire.Grant) *shared {
	t := &shared{take: take, answer: answer, units: take.Most}
	for i := range take.Rooms {
		partition := keys.partition(take.Rooms[i].ID)
		at, known := slices.BinarySearchFunc(t.parts, partition, func(p sharedPart, partition uint32) int {
			return cmp.Compare(p.partition, partition)
		})
		if !known {
			t.parts = slices.Insert(t.parts, at, sharedPart{partition: partition})
		}
		t.parts[at].rooms = append(t.parts[at].rooms, i)
	}
	return t
}

// share completes takes after the first round, which has asked the first part of each.
func (r *run) share(ctx context.Context, takes []*shared) error {
	if len(takes) == 0 {
		return nil
	}
	for n := 1; ; n++ {
		next := r.round(":" + strconv.Itoa(n))
		for _, t := range takes {
			t.hear(n)
		}
		spoilt := make(map[uint32]bool)
		for _, t := range takes {
			if t.missing != wire.Answered && n < len(t.parts) {
				spoilt[t.parts[n].partition] = true
			}
		}
		for _, t := range takes {
			if n == t.asked && n < len(t.parts) && t.units > 0 && spoilt[t.parts[n].partition] {
				t.lose(wire.InDoubt)
			}
			t.ask(next, n)
		}
		if len(next.waves) == 0 {
			break
		}
		if err := next.do(ctx); err != nil {
			return err
		}
	}
	spoil(takes)
	last := r.round(":last")
	for _, t := range takes {
		if t.missing == wire.Answered {
			t.settle(last)
		}
	}
	returned := r.out.Returned
	if err := last.do(ctx); err != nil {
		return err
	}
	// Hits given back by takes count as never applied.
	r.out.Applied = max(0, r.out.Applied-(r.out.Returned-returned))
	r.out.Returned = returned
	for _, t := range takes {
		if slices.ContainsFunc(t.last, func(b *batch) bool { return b.missing != wire.Answered }) {
			t.lose(wire.InDoubt)
		}
		if t.missing == wire.Answered {
			t.finish()
		}
	}
	return nil
}

// spoil cuts short all takes that still have work in a partition where a take that was cut short
// may have work too.
//
// The script of a step and partition must have the same takes when the push is repeated, because
// its record covers them together. So while the work of a take there is unknown, no take does any
// there.
func spoil(takes []*shared) {
	spoilt := make(map[uint32]bool)
	lost := func(t *shared) {
		for i := range t.parts {
			spoilt[t.parts[i].partition] = true
		}
	}
	for _, t := range takes {
		if t.missing != wire.Answered {
			lost(t)
		}
	}
	for again := len(spoilt) > 0; again; {
		again = false
		for _, t := range takes {
			if t.missing == wire.Answered && t.settles(spoilt) {
				t.lose(wire.InDoubt)
				lost(t)
				again = true
			}
		}
	}
}

// settles reports whether settle has work in any of these partitions.
func (t *shared) settles(partitions map[uint32]bool) bool {
	for n := range t.parts {
		if partitions[t.parts[n].partition] && !t.settled(n) {
			return true
		}
	}
	return false
}

// settled reports whether a part has granted exactly the take's units.
func (t *shared) settled(n int) bool {
	return n < t.asked && (t.forgotten || t.parts[n].grant.Units == t.units)
}

// lose cuts a take short. The grants of its parts stay until the push is repeated.
func (t *shared) lose(missing wire.Missing) { t.missing, t.units = max(t.missing, missing), 0 }

// ask asks part n if it exists and all earlier parts have granted units.
func (t *shared) ask(r *round, n int) {
	if n == len(t.parts) || n != t.asked || t.units == 0 {
		return
	}
	part := &t.parts[n]
	part.batch = r.take(t.take, t.units, modeOf(t.take), part.rooms, &part.grant)
}

// hear reads the answer of part n-1, if it was asked.
func (t *shared) hear(n int) {
	if n > len(t.parts) || t.parts[n-1].batch == nil {
		return
	}
	part := &t.parts[n-1]
	if part.batch.missing != wire.Answered {
		lost := wire.InDoubt
		if n == 1 {
			lost = part.batch.missing
		}
		t.lose(lost)
		return
	}
	t.asked, t.units = n, part.grant.Units
	if part.batch.state == stateForgotten {
		t.forgotten, t.units = true, 0
	}
	if t.take.Lease && t.apart(part) {
		t.units = 0
	}
}

// apart reports whether a part has counted its hits in windows other than those that the answer's
// time names.
func (t *shared) apart(part *sharedPart) bool {
	here, named := store.Calendar{NowNanos: part.grant.AtNanos}, store.Calendar{NowNanos: t.parts[0].grant.AtNanos}
	return slices.ContainsFunc(part.rooms, func(i int) bool {
		room := &t.take.Rooms[i]
		// The total names a window that started with a hit.
		return !window.Kind(room.Kind).Started() && here.RoomItem(room, 0).Newest != named.RoomItem(room, 0).Newest
	})
}

// settle gives back the surplus of parts that granted more than the take gets. Parts that were not
// asked count rejected hits, if a rule wants that.
func (t *shared) settle(r *round) {
	for n := range t.parts {
		part := &t.parts[n]
		switch {
		case t.settled(n):
		case n < t.asked:
			t.giveBack(r, part)
		case !t.forgotten && slices.ContainsFunc(part.rooms, func(i int) bool { return t.take.Rooms[i].CountRejected }):
			t.last = append(t.last, r.take(t.take, t.take.Most, modeRefused, part.rooms, &part.grant))
		default:
			part.grant = wire.Grant{AtNanos: t.parts[0].grant.AtNanos, Totals: make([]wire.Total, len(part.rooms))}
			t.giveBack(r, part)
		}
	}
}

// giveBack gives back the units that a part has granted beyond the take's, and reads the totals of
// its rooms afterwards.
func (t *shared) giveBack(r *round, part *sharedPart) {
	for i, of := range part.rooms {
		room, total := &t.take.Rooms[of], &part.grant.Totals[i]
		item := store.Calendar{NowNanos: part.grant.AtNanos}.RoomItem(room, 0)
		hits := (max(part.grant.Units, t.units) - t.units) * room.Cost
		if window.Kind(room.Kind).Blocks() {
			hits = 0 // a block counts no hits of takes
		}
		if kind := window.Kind(room.Kind); kind.Started() {
			// A window that began later, or is empty, does not have these hits any more.
			if len(total.Hits) == 0 || total.Hits[0] == 0 || total.Newest > part.grant.AtNanos {
				hits = 0
			} else if !kind.Refills() {
				item.Newest = total.Newest
			}
		}
		item.Hits[0] = -int64(hits)
		t.last = append(t.last, r.item(&item, total))
	}
}

// finish sets the take's answer.
func (t *shared) finish() {
	*t.answer = wire.Grant{Units: t.units, AtNanos: t.parts[0].grant.AtNanos, Totals: make([]wire.Total, len(t.take.Rooms))}
	for n := range t.parts {
		for i, of := range t.parts[n].rooms {
			t.answer.Totals[of] = t.parts[n].grant.Totals[i]
		}
	}
}
