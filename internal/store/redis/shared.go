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

// shared is a take whose rooms lie in several partitions. No step joins these. So they are asked
// one after the other, in an order that all takes keep to. Each is asked for what those before have
// granted. If one refuses, or has less, the others get back what they granted too much. Each step
// has a record of its own, so that all of it can be done again, with the same answer.
//
// Until that is done, nobody else can have what was granted first. So never too much passes. But a
// take may be refused for hits that another take is about to give back.
type shared struct {
	take   *wire.Take
	answer *wire.Grant
	// parts are in the order of partitions. The first asked of them have answered.
	parts []sharedPart
	asked int
	// units is how many all of those asked have granted.
	units uint64
	// forgotten says that the sender has had its answer long ago: then nothing is left to do.
	forgotten bool
	// missing says that the take broke off: a partition has failed.
	missing wire.Missing
	// last are the batches that give back.
	last []*batch
}

type sharedPart struct {
	partition uint32
	rooms     []int // indices of the take's
	batch     *batch
	grant     wire.Grant
}

// newShared divides a take into parts. It is shared if there are several.
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

// share does what the first round, in which the first part of each take was asked, has left to do.
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
	// Hits that takes did not get in the end were not applied.
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

// spoil breaks off takes that have something to settle where a broken-off take may have something,
// too.
//
// A step's script of a partition must hold the same takes when the push comes again: it is noted
// together. So while it isn't known what some take has to do there, no take does anything.
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

// settles reports whether settle has something to do in one of these partitions.
func (t *shared) settles(partitions map[uint32]bool) bool {
	for n := range t.parts {
		if partitions[t.parts[n].partition] && !t.settled(n) {
			return true
		}
	}
	return false
}

// settled reports whether a part has granted what the take gets.
func (t *shared) settled(n int) bool {
	return n < t.asked && (t.forgotten || t.parts[n].grant.Units == t.units)
}

// lose breaks a take off. The grants of its parts stay until it comes again.
func (t *shared) lose(missing wire.Missing) { t.missing, t.units = max(t.missing, missing), 0 }

// ask asks part n, if there is one and all before it have granted something.
func (t *shared) ask(r *round, n int) {
	if n == len(t.parts) || n != t.asked || t.units == 0 {
		return
	}
	part := &t.parts[n]
	part.batch = r.take(t.take, t.units, modeOf(t.take), part.rooms, &part.grant)
}

// hear takes in the answer of the part before n, if it was asked.
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

// apart reports whether a part has counted its hits in windows that the answer's one time does not
// name.
func (t *shared) apart(part *sharedPart) bool {
	here, named := store.Calendar{NowNanos: part.grant.AtNanos}, store.Calendar{NowNanos: t.parts[0].grant.AtNanos}
	return slices.ContainsFunc(part.rooms, func(i int) bool {
		room := &t.take.Rooms[i]
		// A window that started with a hit is named by its total.
		return !window.Kind(room.Kind).Started() && here.RoomItem(room, 0).Newest != named.RoomItem(room, 0).Newest
	})
}

// settle gives back what parts have granted too much, and has those that were not asked count what
// was rejected.
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

// giveBack gives back what a part has granted above what the take gets, and asks for what its rooms
// have then.
func (t *shared) giveBack(r *round, part *sharedPart) {
	for i, of := range part.rooms {
		room, total := &t.take.Rooms[of], &part.grant.Totals[i]
		item := store.Calendar{NowNanos: part.grant.AtNanos}.RoomItem(room, 0)
		hits := (max(part.grant.Units, t.units) - t.units) * room.Cost
		if window.Kind(room.Kind).Blocks() {
			hits = 0 // it has counted none
		}
		if kind := window.Kind(room.Kind); kind.Started() {
			// A window that began since, or is empty, does not have them any more.
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

// finish puts together the answer.
func (t *shared) finish() {
	*t.answer = wire.Grant{Units: t.units, AtNanos: t.parts[0].grant.AtNanos, Totals: make([]wire.Total, len(t.take.Rooms))}
	for n := range t.parts {
		for i, of := range t.parts[n].rooms {
			t.answer.Totals[of] = t.parts[n].grant.Totals[i]
		}
	}
}
