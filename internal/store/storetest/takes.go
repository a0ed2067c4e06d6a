package storetest

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// room returns a room of a counter named after id, with a window of a minute, in which a unit costs
// cost hits. A token bucket holds its limit.
func room(kind uint8, id byte, limit, cost uint64) wire.Room {
	r := wire.Room{LimitCounter: item(kind, id, minute, epoch).LimitCounter, Limit: limit, Cost: cost}
	if window.Kind(kind).Bucketed() {
		r.Precision = 15e9
	}
	if window.Kind(kind).Bursts() {
		r.Burst = limit
	}
	return r
}

func logRoom(id byte, limit, cost uint64) wire.Room {
	r := room(buckets, id, limit, cost)
	r.Precision = 1
	return r
}

// algorithms returns a room of each algorithm, with different counters.
func algorithms(limit, cost uint64) (rooms []wire.Room) {
	for kind := range uint8(window.LastKind) {
		if window.Kind(kind + 1).Blocks() {
			continue // nothing is taken from it
		}
		rooms = append(rooms, room(kind+1, byte(len(rooms)+1), limit, cost))
		if kind+1 == buckets {
			rooms = append(rooms, logRoom(byte(len(rooms)+1), limit, cost))
		}
	}
	return rooms
}

func take(least, most uint64, rooms ...wire.Room) wire.Take {
	return wire.Take{Least: least, Most: most, Rooms: rooms}
}

func lease(least, most uint64, rooms ...wire.Room) wire.Take {
	return wire.Take{Least: least, Most: most, Lease: true, Rooms: rooms}
}

// counting returns rooms that count rejected hits.
func counting(rooms ...wire.Room) []wire.Room {
	for i := range rooms {
		rooms[i].CountRejected = true
	}
	return rooms
}

// next returns the next push of a sender.
func (b *bench) next(items []wire.Item, takes ...wire.Take) *wire.Push {
	b.seq++
	return &wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq, Items: items, Takes: takes}
}

// decide pushes, and wants a valid answer. It is safe for concurrent use.
func (b *bench) decide(p *wire.Push, nodes uint64) store.Outcome {
	b.t.Helper()
	out, err := b.store.Push(b.t.Context(), p, nodes)
	if err != nil {
		b.t.Errorf("push %d: %v", p.Sequence, err)
		return nothing(p)
	}
	if out.Answer.Nodes != nodes {
		b.t.Errorf("push %d: answer of %d nodes, want %d", p.Sequence, out.Answer.Nodes, nodes)
	}
	if len(out.Answer.Totals) != len(p.Items) || len(out.Answer.Grants) != len(p.Takes) {
		b.t.Errorf("push %d: %d totals and %d grants, want %d and %d", p.Sequence, len(out.Answer.Totals), len(out.Answer.Grants), len(p.Items), len(p.Takes))
		return nothing(p)
	}
	for i, g := range out.Answer.Grants {
		if t := p.Takes[i]; g.Units != 0 && (g.Units < t.Least || g.Units > t.Most) {
			b.t.Errorf("push %d: take %d has %d units, want 0, or %d to %d", p.Sequence, i, g.Units, t.Least, t.Most)
		}
		if !out.Duplicate && g.AtNanos != out.Answer.NowNanos {
			b.t.Errorf("push %d: take %d decided at %d, want the answer's time, %d", p.Sequence, i, g.AtNanos, out.Answer.NowNanos)
		}
		if len(g.Totals) != len(p.Takes[i].Rooms) {
			b.t.Errorf("push %d: take %d has totals of %d rooms, want %d", p.Sequence, i, len(g.Totals), len(p.Takes[i].Rooms))
			return nothing(p)
		}
		size := len(wire.AppendAnswer(nil, &wire.Answer{Grants: []wire.Grant{g}})) - len(wire.AppendAnswer(nil, &wire.Answer{}))
		if size > p.Takes[i].AnswerSize() {
			b.t.Errorf("push %d: take %d has an answer of %d bytes, want at most %d", p.Sequence, i, size, p.Takes[i].AnswerSize())
		}
	}
	return out
}

// nothing returns the outcome of a push that had no effect.
func nothing(p *wire.Push) (out store.Outcome) {
	out.Answer.Totals, out.Answer.Grants = make([]wire.Total, len(p.Items)), make([]wire.Grant, len(p.Takes))
	for i := range p.Takes {
		out.Answer.Grants[i].Totals = make([]wire.Total, len(p.Takes[i].Rooms))
	}
	return out
}

// take pushes a take as the next push, for a namespace with a single node, and wants a number of
// units.
func (b *bench) take(t wire.Take, want uint64) wire.Grant {
	b.t.Helper()
	return b.takeAmong(1, t, want)
}

// takeAmong is take for a namespace with a number of nodes.
func (b *bench) takeAmong(nodes uint64, t wire.Take, want uint64) wire.Grant {
	b.t.Helper()
	grant := b.decide(b.next(nil, t), nodes).Answer.Grants[0]
	if grant.Units != want {
		b.t.Fatalf("push %d: %d units of a take from %d to %d of %+v, want %d", b.seq, grant.Units, t.Least, t.Most, t.Rooms, want)
	}
	return grant
}

// used reads a room's counter, and wants a number of hits.
func (b *bench) used(r wire.Room, want uint64) {
	b.t.Helper()
	asked := store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}.RoomItem(&r, 0)
	out := b.decide(&wire.Push{Namespace: "ns", Sender: 99, Sequence: 1, Floor: 1, Items: items(asked)}, 1)
	if got := sumOf(out.Answer.Totals[0]); got != want {
		b.t.Fatalf("kind %d: %d hits, want %d", r.Kind, got, want)
	}
}

func sumOf(t wire.Total) (sum uint64) {
	for _, h := range t.Hits {
		sum += h
	}
	return sum
}

// givenBack returns an item that gives back hits of a grant's room: to the windows of the grant's
// time, or to the window whose start is in the grant's total.
func givenBack(r wire.Room, g wire.Grant, total wire.Total, hits int64) wire.Item {
	it := store.Calendar{NowNanos: g.AtNanos}.RoomItem(&r, 0)
	if window.Kind(r.Kind).Started() {
		it.Newest = total.Newest
	}
	it.Hits[0] = -hits
	return it
}

// node is a node that uses the counter of a room alone.
type node struct {
	limit window.Limit
	state window.State
}

func nodeOf(r wire.Room) *node {
	return &node{limit: window.Limit{Max: r.Limit, Burst: r.Burst, Shape: window.Shape{
		Kind: window.Kind(r.Kind), Width: int64(r.WidthMillis) * 1e6, Precision: int64(r.Precision),
	}}}
}

// take decides a take as the node does without a backend.
func (n *node) take(now time.Time, t wire.Take) (units uint64) {
	n.limit.Advance(&n.state, now.UnixNano())
	cost := t.Rooms[0].Cost
	if !n.limit.Allows(&n.state, t.Least*cost) {
		return 0
	}
	units = min(t.Most, n.limit.Remaining(&n.state)/cost)
	n.limit.Count(&n.state, units*cost)
	// Nothing is pending, because the store gets the hits at once.
	n.state.Claim()
	n.state.EndFlight()
	return units
}

func testTakes(t *testing.T, b *bench) {
	b.clock.advance(10 * time.Second)
	for _, cost := range []uint64{1, 3} {
		for _, r := range algorithms(12, cost) {
			r.Ordinal = uint8(cost)
			for i := range 12 / cost {
				if got, want := sumOf(b.take(take(1, 1, r), 1).Totals[0]), (i+1)*cost; got != want {
					t.Fatalf("kind %d: total %d after %d units of %d, want %d", r.Kind, got, i+1, cost, want)
				}
			}
			if g := b.take(take(1, 1, r), 0); sumOf(g.Totals[0]) != 12 {
				t.Errorf("kind %d: totals %+v of a refused take, want 12", r.Kind, g.Totals)
			}
			b.used(r, 12)
			// Counters of the same name in other namespaces are different.
			p := b.next(nil, take(1, 99, r))
			p.Namespace = "other"
			if g := b.decide(p, 1).Answer.Grants[0]; g.Units != 12/cost {
				t.Errorf("kind %d: %d units in another namespace, want %d", r.Kind, g.Units, 12/cost)
			}
		}
	}
	if got, want := b.sum("ns"), int64(2*12*len(algorithms(12, 1))); got != want {
		t.Errorf("sum of counters %d, want %d", got, want)
	}
	// The grant is at least Least and at most Most, and in between all that is there.
	r := room(fixed, 9, 10, 2)
	b.take(take(6, 9, r), 0)
	b.take(take(1, 3, r), 3)
	b.take(take(3, 3, r), 0)
	b.take(take(1, 9, r), 2)
	b.take(take(1, 9, r), 0)
	if out := b.decide(b.next(nil, take(1, 99, room(fixed, 10, 10, 1))), 1); out.Applied != 10 || out.Dropped != 0 || out.Returned != 0 || out.Duplicate {
		t.Errorf("outcome %+v, want 10 applied", out)
	}
}

// testTakesOfOneNode compares the store with a node that decides alone, and wants room again
// exactly when the node has some.
func testTakesOfOneNode(t *testing.T, b *bench) {
	burst, fine := room(tokens, 11, 7, 1), room(buckets, 12, 100, 1)
	burst.Burst, fine.Precision = 20, minute*1e6/64
	rooms := append(algorithms(10, 1), burst, fine, room(sliding, 13, 1, 1), room(sliding, 14, 1000, 1))
	for i, r := range rooms {
		alone, random := nodeOf(r), rand.New(rand.NewPCG(uint64(i), 1))
		wants := func(asked wire.Take) uint64 {
			t.Helper()
			want := alone.take(b.clock.now(), asked)
			b.take(asked, want)
			return want
		}
		granted, waited := 0, 0
		for range 60 {
			pause := time.Duration(random.Int64N(int64(5*time.Second)/1000)) * time.Microsecond
			if random.IntN(20) == 0 {
				pause *= 30
			}
			b.clock.advance(pause)
			least := 1 + random.Uint64N(2)
			r.Cost = 1 + random.Uint64N(max(1, r.Limit/4))
			asked := take(least, least+random.Uint64N(3), r)
			if wants(asked) > 0 {
				granted++
				continue
			}
			// The store can't know when held places are released.
			held := window.Kind(r.Kind).Held()
			if at, ok := alone.limit.FitsAt(&alone.state, least*r.Cost); ok && !held && random.IntN(2) == 0 {
				// The store's clock has microseconds.
				if before := time.Unix(0, (at-1)/1000*1000); before.After(b.clock.now()) {
					b.clock.set(before)
					b.take(asked, 0)
				}
				b.clock.set(time.Unix(0, (at+999)/1000*1000))
				if wants(asked) == 0 {
					t.Fatalf("kind %d: no room at %d", r.Kind, at)
				}
				waited++
			}
		}
		if granted == 0 || waited == 0 && !window.Kind(r.Kind).Held() {
			t.Errorf("kind %d: %d granted at once and %d when there was room again, want some of both", r.Kind, granted, waited)
		}
	}
}

func testTakesRooms(t *testing.T, b *bench) {
	// A take gets hits in all rooms or in none: a full room refuses for all.
	for full, it := range algorithms(4, 2) {
		rooms := algorithms(9, 2)
		for i := range rooms {
			rooms[i].ID[1] = byte(1 + full)
		}
		rooms[full].Limit, rooms[full].Burst = it.Limit, it.Burst
		b.take(take(1, 1, rooms...), 1)
		if g := b.take(take(1, 9, rooms...), 1); len(g.Totals) != len(rooms) {
			t.Fatalf("totals %+v, want one of each room", g.Totals)
		}
		for i, total := range b.take(take(1, 1, rooms...), 0).Totals {
			if sumOf(total) != 4 {
				t.Errorf("total %+v of room %d, want 4: a refused take gets nothing from any", total, i)
			}
		}
	}
	// Units are the same in all rooms, hits are not.
	a, c := room(fixed, 7, 100, 10), room(sliding, 8, 100, 7)
	b.take(take(1, 99, a, c), 10)
	b.used(a, 100)
	b.used(c, 70)

	// Takes see the items of their push and the takes before them. The totals of items include all
	// takes.
	r := room(fixed, 9, 10, 1)
	it := item(fixed, 9, minute, epoch, 5)
	out := b.decide(b.next(items(it), take(1, 1, r), take(5, 9, r), take(3, 9, r), take(1, 1, r)), 1)
	for i, want := range []struct{ units, total uint64 }{{1, 6}, {0, 6}, {4, 10}, {0, 10}} {
		if g := out.Answer.Grants[i]; g.Units != want.units || sumOf(g.Totals[0]) != want.total {
			t.Errorf("take %d: %+v, want %+v", i, g, want)
		}
	}
	if got := out.Answer.Totals[0].Hits; !slices.Equal(got, totals(10)) || out.Applied != 10 {
		t.Errorf("totals %v, %d applied; want 10 and 10", got, out.Applied)
	}
	// Takes also see hits that their push gives back.
	it.Hits[0] = -4
	if g := b.decide(b.next(items(it), take(4, 9, r)), 1).Answer.Grants[0]; g.Units != 4 {
		t.Errorf("%d units after 4 were given back, want them", g.Units)
	}
}

func testTakesOfNothing(t *testing.T, b *bench) {
	for _, r := range algorithms(5, 0) {
		// It only asks, and starts no window.
		if g := b.take(take(1, 3, r), 3); sumOf(g.Totals[0]) != 0 {
			t.Errorf("kind %d: totals %+v, want nothing counted", r.Kind, g.Totals)
		}
		if got := b.counters("ns"); slices.ContainsFunc(got, func(c store.LimitCounter) bool { return c.LimitCounter == r.LimitCounter }) {
			t.Fatalf("kind %d: counters %+v, want none of it", r.Kind, got)
		}
		free, none := r, r
		free.Cost, none.Limit, none.Burst = 1, 0, 0
		b.take(take(1, 1, none), 0)
		b.take(take(5, 5, free), 5)
		// A window that is just full keeps its limit; a window above its limit does not.
		b.take(take(1, 3, r), 3)
		over := store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}.RoomItem(&r, 1)
		b.decide(b.next(items(over)), 1)
		b.take(take(1, 3, r), 0)
		b.used(r, 6)
		over.Hits[0] = -6
		b.decide(b.next(items(over)), 1)
	}
	// A room without a cost also refuses for the others.
	full, r := room(fixed, 7, 1, 1), room(fixed, 8, 9, 1)
	b.push(items(item(fixed, 7, minute, epoch, 2)), totals(2))
	full.Cost = 0
	b.take(take(1, 1, r, full), 0)
	b.used(r, 0)
}

func testTakesRejected(t *testing.T, b *bench) {
	for _, r := range counting(algorithms(10, 2)...) {
		b.take(take(4, 4, r), 4)
		// The rejected Least is counted. A bucket stops at empty.
		g := b.take(take(2, 5, r), 0)
		want := uint64(12)
		if window.Kind(r.Kind).Refills() {
			want = 10
		}
		if got := sumOf(g.Totals[0]); got != want {
			t.Errorf("kind %d: total %d, want %d", r.Kind, got, want)
		}
		b.used(r, want)
		// A cost that can never pass is not counted, and neither is a cost above the largest number
		// of hits.
		b.take(take(6, 6, r), 0)
		r.Cost = wire.MaxHits
		b.take(take(2, 5, r), 0)
		r.Cost, r.Limit = 1, 0
		b.take(take(1, 1, r), 0)
		r.Limit, r.CountRejected = 10, false
		b.take(take(1, 1, r), 0)
		b.used(r, want)
		r.CountRejected = true
		if g := b.take(take(1, 1, r), 0); !window.Kind(r.Kind).Refills() {
			if want++; sumOf(g.Totals[0]) != want {
				t.Errorf("kind %d: totals %+v, want %d", r.Kind, g.Totals, want)
			}
		}
		b.used(r, want)
	}
	// Rejected hits count only in rooms without room for them.
	rooms := counting(room(fixed, 7, 5, 3), room(sliding, 8, 9, 4), room(firstHit, 9, 1, 1), room(tokens, 10, 100, 7))
	b.take(take(1, 1, rooms...), 1)
	out := b.decide(b.next(nil, take(1, 1, rooms...)), 1)
	if got, want := []uint64{6, 4, 2, 7}, out.Answer.Grants[0].Totals; !slices.EqualFunc(want, got, func(t wire.Total, sum uint64) bool { return sumOf(t) == sum }) {
		t.Errorf("totals %+v, want %v", want, got)
	}
	if out.Applied != 4 {
		t.Errorf("outcome %+v, want what was rejected applied, 4", out)
	}
	// A lease that leaves hits for others is not refused for lack of room.
	r := counting(room(fixed, 11, 1000, 1))[0]
	b.takeAmong(10, take(1, 990, r), 990)
	b.takeAmong(10, lease(1, 1, r), 0)
	b.used(r, 990)
	b.takeAmong(10, take(1, 99, r), 10)
	b.takeAmong(10, lease(1, 1, r), 0)
	b.used(r, 1001)
	// Neither is a lease of a limit too small to be leased.
	r = counting(room(fixed, 12, 100, 1))[0]
	b.takeAmong(10, lease(1, 1, r), 0)
	b.used(r, 0)
}

func testLeases(t *testing.T, b *bench) {
	for _, r := range algorithms(640, 1) {
		// Each of two nodes leases a quarter of the rest, until that is less than a hit.
		for _, want := range []uint64{160, 120, 90, 67, 50, 38, 28, 21, 16, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 0, 0} {
			b.takeAmong(2, lease(1, 640, r), want)
		}
		b.used(r, 637)
		// Requests get the hits that leases leave.
		b.takeAmong(2, take(1, 640, r), 3)
		b.takeAmong(2, lease(1, 640, r), 0)
		// A single node, or a node among an unknown number, gets the same as a node among two.
		for i, of := range []struct{ nodes, want uint64 }{
			{0, 160}, {1, 160}, {3, 106}, {10, 32}, {320, 1}, {321, 0}, {math.MaxUint64, 0},
		} {
			r.Ordinal = uint8(1 + i)
			b.takeAmong(of.nodes, lease(1, 640, r), of.want)
			b.used(r, of.want)
		}
		// A lease gets no more than is useful, and nothing if it would be less.
		r.Ordinal = 10
		b.takeAmong(2, lease(1, 50, r), 50)
		b.takeAmong(2, lease(148, 640, r), 0)
		b.takeAmong(2, lease(147, 640, r), 147)
		b.used(r, 197)
		// A lease gets whole units, in all rooms.
		r.Ordinal, r.Cost = 11, 3
		b.takeAmong(2, lease(54, 640, r), 0)
		b.takeAmong(2, lease(1, 640, r), 53)
		b.used(r, 159)
		less := r
		less.Limit, less.Burst, less.Ordinal = 128, 128, 12
		b.takeAmong(2, lease(1, 640, r, less), 10)
		b.used(r, 189)
		b.used(less, 30)
		// A limit of a hundred can't be leased, nor can rooms taken with it. Requests get all of
		// it.
		small := r
		small.Limit, small.Burst, small.Ordinal = 100, 100, 13
		b.takeAmong(2, lease(1, 640, small), 0)
		b.takeAmong(2, lease(1, 640, r, small), 0)
		b.used(r, 189)
		b.takeAmong(2, take(1, 640, small), 33)
		small.Limit, small.Burst, small.Ordinal = 101, 101, 14
		b.takeAmong(2, lease(1, 640, small), 8)
	}
	// A bucket's quota is the number of tokens that it holds, whatever its rate.
	holds := room(tokens, 9, 10, 1)
	holds.Burst = 640
	b.takeAmong(2, lease(1, 640, holds), 160)
	holds = room(tokens, 10, 640, 1)
	holds.Burst = 100
	b.takeAmong(2, lease(1, 640, holds), 0)
	// Hits that earlier takes of the push got are gone.
	r := room(fixed, 9, 640, 1)
	out := b.decide(b.next(items(item(fixed, 9, minute, epoch, 28)), lease(1, 640, r), take(1, 1, r), lease(1, 640, r)), 2)
	for i, want := range []uint64{153, 1, 114} {
		if got := out.Answer.Grants[i].Units; got != want {
			t.Errorf("take %d: %d units, want %d", i, got, want)
		}
	}
}

// testTakesReturned gives back granted hits, as nodes give back leased hits that they have not
// used.
func testTakesReturned(t *testing.T, b *bench) {
	for _, r := range algorithms(120, 2) {
		b.clock.set(epoch.Add(7 * time.Second))
		b.take(take(1, 1, r), 1)
		b.clock.advance(100 * time.Millisecond) // twice this is too short for a token to come back
		g := b.take(lease(1, 99, r), 14)
		b.clock.advance(100 * time.Millisecond)
		back := givenBack(r, g, g.Totals[0], 18)
		if out := b.decide(b.next(items(back)), 1); out.Returned != 18 || out.Dropped != 0 {
			t.Errorf("kind %d: outcome %+v, want 18 returned", r.Kind, out)
		}
		b.used(r, 12)
		b.take(take(55, 55, r), 0)
		b.take(take(54, 54, r), 54)
		b.take(take(1, 1, r), 0)
		// Hits that come back after the window's end make no room in another.
		b.clock.advance(2*time.Minute + time.Second)
		b.take(take(1, 1, r), 1)
		if out := b.decide(b.next(items(back)), 1); out.Dropped != 18 {
			t.Errorf("kind %d: outcome %+v, want 18 dropped", r.Kind, out)
		}
		b.take(take(1, 99, r), 59)
	}
	// A push that gives back hits before these have arrived makes no more room than the limit.
	b.clock.set(epoch)
	for _, r := range algorithms(12, 1) {
		r.Ordinal = 1
		early := store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}.RoomItem(&r, 0)
		early.Hits[0] = -4
		b.decide(b.next(items(early)), 1)
		b.take(take(1, 99, r), 12)
		b.take(take(1, 99, r), 0)
	}
}

func testTakesOnce(t *testing.T, b *bench) {
	b.clock.advance(50 * time.Second)
	for _, r := range algorithms(100, 2) {
		r.WidthMillis = day
		if window.Kind(r.Kind).Bucketed() && r.Precision != 1 {
			r.Precision = day * 1e6 / 4
		}
		push := func(seq, floor uint64, takes ...wire.Take) *wire.Push {
			return &wire.Push{Namespace: "ns", Sender: uint64(r.ID[0]) + 100, Sequence: seq, Floor: floor, Takes: takes}
		}
		again := func(p *wire.Push, at time.Time, want ...uint64) {
			t.Helper()
			out := b.decide(p, 1)
			if !out.Duplicate || out.Applied != 0 || out.Returned != 0 || out.Dropped != 0 {
				t.Errorf("kind %d, sequence %d: outcome %+v, want a duplicate", r.Kind, p.Sequence, out)
			}
			for i, g := range out.Answer.Grants {
				if g.Units != want[i] || !at.IsZero() && g.AtNanos != uint64(at.UnixNano()) {
					t.Errorf("kind %d, sequence %d: take %d has %d units, decided at %d; want %d, at %d", r.Kind, p.Sequence, i, g.Units, g.AtNanos, want[i], at.UnixNano())
				}
			}
		}
		first := push(1, 1, take(1, 3, r), take(1, 2, r), take(99, 99, r))
		if out := b.decide(first, 1); out.Duplicate || out.Applied != 10 {
			t.Fatalf("kind %d: outcome %+v, want 10 applied", r.Kind, out)
		}
		at := b.clock.now()
		b.clock.advance(time.Second)
		// Later pushes come in any order, also without takes.
		third := push(3, 1, take(1, 1, r))
		b.decide(third, 1)
		b.decide(push(4, 0), 1)
		b.decide(push(2, 1, take(1, 1, r)), 1)
		for range 2 {
			again(first, at, 3, 2, 0)
			again(third, at.Add(time.Second), 1)
		}
		// The answer has the present totals.
		if g := b.decide(first, 1).Answer.Grants[1]; sumOf(g.Totals[0]) != 14 {
			t.Errorf("kind %d: totals %+v of a duplicate, want 14", r.Kind, g.Totals)
		}
		// The grants are remembered as long as the sender may send the push again.
		b.clock.advance(store.SenderLife - time.Millisecond)
		again(third, at.Add(time.Second), 1)
		b.decide(push(5, 3, take(1, 1, r)), 1)
		again(third, at.Add(time.Second), 1)
		again(first, time.Time{}, 0, 0, 0)
		again(push(2, 2, take(1, 1, r)), time.Time{}, 0)
		b.used(r, 16)
		// A push below the floor that never came before gets nothing either.
		b.decide(push(9, 9, take(1, 1, r)), 1)
		again(push(8, 8, take(1, 1, r)), time.Time{}, 0)
		b.used(r, 18)
		b.clock.advance(-store.SenderLife)
	}
	// A refused take is not tried again, even if there is room by then, and its rejected hits count
	// once.
	r := counting(room(fixed, 7, 4, 1))[0]
	refused := b.next(nil, take(5, 5, r), take(1, 9, r), take(1, 1, r))
	for range 3 {
		if g := b.decide(refused, 1).Answer.Grants; g[0].Units != 0 || g[1].Units != 4 || g[2].Units != 0 || sumOf(g[2].Totals[0]) != 5 {
			t.Errorf("grants %+v, want 0, 4 and 0 units, and one rejected", g)
		}
		b.push(items(item(fixed, 7, minute, b.clock.now(), 0)), totals(5))
		b.seq-- // a read is not recorded
	}
}

// testTakesLate sends takes again as late as possible: after an outage of nearly a day, or when
// their windows have ended. Meanwhile others use the store, which makes it forget expired data.
func testTakesLate(t *testing.T, b *bench) {
	for _, width := range []uint64{60 * minute, day, 30 * day} {
		for _, r := range algorithms(100, 2) {
			b.clock.set(epoch)
			if r.WidthMillis = width; window.Kind(r.Kind).Bucketed() && r.Precision != 1 {
				r.Precision = width * 1e6 / 4
			}
			r.Ordinal = uint8(bits.TrailingZeros64(width))
			p := b.next(nil, take(1, 3, r))
			p.Sender, p.Floor = 100+uint64(r.ID[0])+width, 0
			first := b.decide(p, 1)
			again := time.Duration(p.AgainNanos())
			for _, late := range []time.Duration{12 * time.Minute, again / 2, again, again + store.SenderLife - time.Second} {
				b.clock.set(epoch.Add(late))
				other := room(fixed, 99, 100, 1)
				for range 4 {
					b.decide(b.next(nil, take(1, 1, other)), 1)
				}
				out := b.decide(p, 1)
				if g := out.Answer.Grants[0]; !out.Duplicate || out.Applied != 0 || g.Units != 3 || g.AtNanos != first.Answer.Grants[0].AtNanos {
					t.Errorf("kind %d, window %v, %v later: outcome %+v, want a duplicate of 3 units", r.Kind, time.Duration(width)*time.Millisecond, late, out)
				}
			}
		}
	}
}

// testTakesTurned sends takes again when their windows have ended.
func testTakesTurned(t *testing.T, b *bench) {
	for _, r := range algorithms(10, 1) {
		b.clock.set(epoch.Add(59 * time.Second))
		p := b.next(nil, take(1, 5, r))
		p.Floor = 0
		first := b.decide(p, 1).Answer.Grants[0]
		b.clock.set(epoch.Add(61 * time.Second))
		again := b.decide(p, 1).Answer.Grants[0]
		if !reflect.DeepEqual(again, first) {
			t.Errorf("kind %d: %+v in the next window, want what it was, %+v", r.Kind, again, first)
		}
		// The old window lacks the hits of the next, unless windows of the kind go on.
		p = b.next(nil, take(1, 1, r))
		p.Floor = 0
		b.decide(p, 1)
		b.clock.advance(time.Second)
		want := uint64(6)
		if r.Kind == fixed || r.Kind == sliding {
			want = 5
		}
		p.Sequence--
		p.Takes[0].Most = 5
		if g := b.decide(p, 1).Answer.Grants[0]; g.Units != 5 || g.AtNanos != first.AtNanos || sumOf(g.Totals[0]) != want {
			t.Errorf("kind %d: %+v after another take, want 5 units of the first time, and a total of %d", r.Kind, g, want)
		}
		p.Sequence++
	}
}

// testTakesInAnyOrder sends a sender's pushes in any order, several times, and some at once.
func testTakesInAnyOrder(t *testing.T, b *bench) {
	const limit, sequences = 30, 24
	random := rand.New(rand.NewPCG(8, 9))
	r := room(fixed, 1, limit, 1)
	var pushes []*wire.Push
	for seq := uint64(1); seq <= sequences; seq++ {
		most := 1 + random.Uint64N(3)
		p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: seq, Floor: 1, Takes: []wire.Take{take(1, most, r), take(1, 1, r)}}
		pushes = append(pushes, slices.Repeat([]*wire.Push{p}, 1+random.IntN(3))...)
	}
	random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
	var mu sync.Mutex
	granted := make(map[uint64][]uint64)
	var queue atomic.Int64
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := queue.Add(1) - 1; i < int64(len(pushes)); i = queue.Add(1) - 1 {
				var units []uint64
				for _, g := range b.decide(pushes[i], 1).Answer.Grants {
					units = append(units, g.Units)
				}
				mu.Lock()
				if had, known := granted[pushes[i].Sequence]; known && !slices.Equal(had, units) {
					t.Errorf("sequence %d: units %v, want what a copy has, %v", pushes[i].Sequence, units, had)
				}
				granted[pushes[i].Sequence] = units
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	sum := uint64(0)
	for _, units := range granted {
		sum += units[0] + units[1]
	}
	if sum != limit {
		t.Errorf("%d units granted, want the limit, %d", sum, limit)
	}
	b.used(r, limit)
}

// testTakesHammer lets many senders take one unit at a time, each push twice at the same time.
func testTakesHammer(t *testing.T, b *bench) {
	const limit, senders, takes = 40, 8, 8
	rooms := algorithms(limit, 1)
	var units [senders][takes + 1][2][]uint64
	var pushes sync.WaitGroup
	for sender := range units {
		for copied := range 2 {
			pushes.Go(func() {
				for seq := uint64(1); seq <= takes; seq++ {
					p := &wire.Push{Namespace: "ns", Sender: uint64(sender), Sequence: seq, Floor: seq - min(seq, 2)}
					for _, r := range rooms {
						p.Takes = append(p.Takes, take(1, 1, r))
					}
					for _, g := range b.decide(p, 1).Answer.Grants {
						units[sender][seq][copied] = append(units[sender][seq][copied], g.Units)
					}
				}
			})
		}
	}
	pushes.Wait()
	for i, r := range rooms {
		sum := uint64(0)
		for sender := range units {
			for seq := 1; seq <= takes; seq++ {
				// A copy below the floor has no grants.
				sum += max(units[sender][seq][0][i], units[sender][seq][1][i])
			}
		}
		if sum != limit {
			t.Errorf("kind %d: %d units granted, want the limit, %d", r.Kind, sum, limit)
		}
		b.used(r, limit)
	}
}

// testLeasesHammer lets ten nodes lease all that they can, and then take the rest for requests. The
// sum of the leases does not depend on the order: once a lease is refused, all further leases are.
func testLeasesHammer(t *testing.T, b *bench) {
	const limit, nodes = 1000, 10
	for _, test := range []struct {
		room          wire.Room
		leased, taken uint64
	}{
		{room(fixed, 1, limit, 1), 981, 19},
		{room(tokens, 2, limit, 1), 981, 19},
		{room(sliding, 3, limit, 3), 314, 19},
	} {
		r := test.room
		var leased, taken atomic.Uint64
		var work sync.WaitGroup
		for node := range uint64(nodes) {
			work.Go(func() {
				asked, got := lease(1, 100, r), &leased
				for seq := uint64(1); seq <= 2*limit; seq++ {
					p := &wire.Push{Namespace: "ns", Sender: 100*uint64(r.ID[0]) + node, Sequence: seq, Floor: seq, Takes: []wire.Take{asked}}
					units := b.decide(p, nodes).Answer.Grants[0].Units
					got.Add(units)
					switch {
					case units > 0:
					case asked.Lease:
						asked, got = take(1, 1, r), &taken
					default:
						return
					}
				}
				t.Errorf("kind %d: node %d is never refused", r.Kind, node)
			})
		}
		work.Wait()
		if leased.Load() != test.leased || taken.Load() != test.taken {
			t.Errorf("kind %d: %d units leased and %d taken, want %d and %d", r.Kind, leased.Load(), taken.Load(), test.leased, test.taken)
		}
		b.used(r, (test.leased+test.taken)*r.Cost)
	}
}

// testTakesAndItems mixes hits and takes, and compares the sums.
func testTakesAndItems(t *testing.T, b *bench) {
	random := rand.New(rand.NewPCG(10, 11))
	rooms := algorithms(300, 1)
	for i := range rooms {
		rooms[i].WidthMillis = day
		switch {
		case window.Kind(rooms[i].Kind).Refills():
			rooms[i].Limit = 1 // returns in a day
		case rooms[i].Precision == 1:
			rooms[i].Limit = wire.MaxHits // hits above the limit are forgotten
		case window.Kind(rooms[i].Kind).Bucketed():
			rooms[i].Precision = day * 1e6 / 64
		}
	}
	sums := make([]uint64, len(rooms))
	for range 60 {
		b.clock.advance(time.Duration(random.Int64N(int64(time.Second)/1000)) * time.Microsecond)
		calendar := store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}
		p := b.next(nil)
		var of [][]int
		for range random.IntN(4) {
			i := random.IntN(len(rooms))
			pushed := random.Uint64N(5)
			p.Items = append(p.Items, calendar.RoomItem(&rooms[i], pushed))
			sums[i] += pushed
		}
		for range random.IntN(4) {
			asked := take(1+random.Uint64N(3), 3+random.Uint64N(9))
			asked.Lease = random.IntN(2) == 0
			chosen := random.Perm(len(rooms))[:1+random.IntN(3)]
			for _, i := range chosen {
				r := rooms[i]
				r.Cost = 1 + random.Uint64N(3)
				asked.Rooms = append(asked.Rooms, r)
			}
			p.Takes, of = append(p.Takes, asked), append(of, chosen)
		}
		out := b.decide(p, 1+random.Uint64N(5))
		var applied uint64
		for _, it := range p.Items {
			applied += uint64(it.Hits[0])
		}
		for k, g := range out.Answer.Grants {
			for j, i := range of[k] {
				sums[i] += g.Units * p.Takes[k].Rooms[j].Cost
				applied += g.Units * p.Takes[k].Rooms[j].Cost
			}
		}
		if out.Applied != int64(applied) || out.Dropped != 0 {
			t.Fatalf("push %d: outcome %+v, want %d applied", p.Sequence, out, applied)
		}
	}
	var all uint64
	for i, r := range rooms {
		b.used(r, sums[i])
		all += sums[i]
	}
	if got := b.sum("ns"); got != int64(all) {
		t.Errorf("sum of counters %d, want %d", got, all)
	}
}

// testTakesSkew pushes hits of proxies whose clock is ahead, and sets a store's clock back: neither
// makes room.
func testTakesSkew(t *testing.T, b *bench) {
	for _, r := range algorithms(12, 1) {
		b.clock.set(epoch.Add(10 * time.Second))
		b.take(take(1, 6, r), 6)
		b.clock.advance(-time.Second)
		b.take(take(1, 99, r), 6)
		b.take(take(1, 99, r), 0)
		b.clock.advance(-time.Second)
		b.take(take(1, 99, r), 0)
		b.clock.set(epoch.Add(10*time.Second + time.Millisecond))
		b.take(take(1, 99, r), 0)
		b.used(r, 12)
	}
	// Tokens that would have returned before the clock was set back can still be taken.
	r := room(tokens, 9, 600, 1)
	b.clock.set(epoch.Add(10 * time.Second))
	b.take(take(595, 595, r), 595)
	b.clock.advance(-time.Second)
	for range 5 {
		b.take(take(1, 1, r), 1)
	}
	b.take(take(1, 1, r), 0)
	b.clock.set(epoch.Add(50 * time.Second))
	now := uint64(b.clock.now().UnixNano())
	for _, r := range []wire.Room{room(buckets, 7, 12, 1), logRoom(8, 12, 1)} {
		of := func(ahead time.Duration) uint64 { return (now + uint64(ahead)) / r.Precision }
		ahead := bucketItem(r.ID[0], minute, r.Precision, 12, hits(of(30*time.Second), 5), hits(of(-45*time.Second), 5))
		b.decide(b.next(items(ahead)), 1)
		b.take(take(3, 3, r), 0)
		b.take(take(1, 99, r), 2)
	}
}

func testTakesInvalid(t *testing.T, b *bench) {
	for name, change := range map[string]func(p *wire.Push){
		"namespace":        func(p *wire.Push) { p.Namespace = "a*" },
		"sequence 0":       func(p *wire.Push) { p.Sequence, p.Floor = 0, 0 },
		"least 0":          func(p *wire.Push) { p.Takes[1].Least = 0 },
		"most below least": func(p *wire.Push) { p.Takes[1].Least = 3 },
		"most":             func(p *wire.Push) { p.Takes[1].Most = wire.MaxHits + 1 },
		"no rooms":         func(p *wire.Push) { p.Takes[1].Rooms = nil },
		"too many rooms":   func(p *wire.Push) { p.Takes[1].Rooms = many(wire.MaxItems - 1) },
		"kind":             func(p *wire.Push) { p.Takes[1].Rooms[1].Kind = uint8(window.LastKind) + 1 },
		"width":            func(p *wire.Push) { p.Takes[1].Rooms[1].WidthMillis = 0 },
		"precision":        func(p *wire.Push) { p.Takes[1].Rooms[1].Precision = 1 },
		"odd precision":    func(p *wire.Push) { p.Takes[1].Rooms[1] = room(buckets, 3, 9, 1); p.Takes[1].Rooms[1].Precision = 7e9 },
		"limit":            func(p *wire.Push) { p.Takes[1].Rooms[1].Limit = wire.MaxHits + 1 },
		"burst":            func(p *wire.Push) { p.Takes[1].Rooms[1].Burst = wire.MaxHits + 1 },
		"cost":             func(p *wire.Push) { p.Takes[1].Rooms[1].Cost = wire.MaxHits + 1 },
		"lease of nothing": func(p *wire.Push) { p.Takes[1].Lease, p.Takes[1].Rooms[1].Cost = true, 0 },
		"counter twice":    func(p *wire.Push) { p.Takes[1].Rooms[1].LimitCounter = p.Takes[1].Rooms[0].LimitCounter },
		"large answer":     func(p *wire.Push) { p.Takes[1].Rooms = manyLogs(52) },
		"an item":          func(p *wire.Push) { p.Items[0].Hits = nil },
		"items and rooms":  func(p *wire.Push) { p.Items = slices.Repeat(p.Items, wire.MaxItems-2) },
		"items and answers": func(p *wire.Push) {
			p.Items, p.Takes[1].Rooms = slices.Repeat(items(log(1, wire.MaxHits)), 28), manyLogs(24)
		},
	} {
		p := &wire.Push{Namespace: "ns", Sender: 3, Sequence: 5, Floor: 5, Items: items(item(fixed, 1, minute, epoch, 1)),
			Takes: []wire.Take{take(1, 1, room(fixed, 1, 9, 1)), take(1, 2, room(fixed, 1, 9, 1), room(sliding, 2, 9, 1))}}
		change(p)
		if _, err := b.store.Push(t.Context(), p, 1); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: error %v, want invalid", name, err)
		}
	}
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none: an invalid push changes nothing", got)
	}
	b.decide(&wire.Push{Namespace: "ns", Sender: 3, Sequence: 1, Floor: 1, Takes: []wire.Take{take(1, 1, room(fixed, 1, 9, 1))}}, 1)
	b.used(room(fixed, 1, 9, 1), 1)
}

// many returns rooms of n counters, of all kinds without buckets.
func many(n int) (rooms []wire.Room) {
	for i := range n {
		r := room(unbucketed[i%len(unbucketed)], 0, 2, 1)
		binary.BigEndian.PutUint32(r.ID[4:], uint32(i))
		rooms = append(rooms, r)
	}
	return rooms
}

func manyLogs(n int) (rooms []wire.Room) {
	for i := range n {
		rooms = append(rooms, logRoom(byte(i), wire.MaxHits, 1))
	}
	return rooms
}

func testTakesLarge(t *testing.T, b *bench) {
	rooms := many(wire.MaxItems)
	b.take(take(1, 1, rooms...), 1)
	b.take(take(1, 1, rooms[7]), 1)
	// A full room refuses for all.
	b.take(take(1, 1, rooms...), 0)
	if got := b.sum("ns"); got != wire.MaxItems+1 {
		t.Errorf("sum %d, want %d", got, wire.MaxItems+1)
	}
	// Now each counter has its own take.
	p := b.next(nil)
	for _, r := range rooms {
		p.Takes = append(p.Takes, take(1, 2, r))
	}
	for i, g := range b.decide(p, 1).Answer.Grants {
		if want := uint64(1); g.Units != want && i != 7 || g.Units != 0 && i == 7 {
			t.Fatalf("take %d: %d units, want 1, and none of the counter that is full", i, g.Units)
		}
	}
}

func testTakesExtremes(t *testing.T, b *bench) {
	const most = uint64(wire.MaxHits)
	for _, r := range algorithms(most, most) {
		// Hits above the largest number fit nowhere, even if the product overflows.
		b.take(take(2, most, r), 0)
		b.take(take(most, most, r), 0)
		b.take(lease(most, most, r), 0)
		r.Cost = 1 << 32
		b.take(take(1<<32, 1<<32, r), 0)
		b.used(r, 0)
		r.Cost = most
		b.take(take(1, most, r), 1)
		b.take(take(1, most, r), 0)
		r.Cost = 1
		b.take(take(1, 1, r), 0)
		r.Ordinal = 1
		b.take(take(most, most, r), most)
		b.take(take(1, 1, r), 0)
		r.Ordinal = 2
		b.takeAmong(2, lease(1, most, r), most/4)
		r.Ordinal, r.Cost = 3, most/4+1
		b.takeAmong(1, lease(1, most, r), 0)
		r.Cost = most / 8
		b.takeAmong(1, lease(1, most, r), 2)
		r.Ordinal, r.Cost = 6, 1<<31
		b.takeAmong(1, lease(1, 1<<33, r), most>>33)
		r.Ordinal, r.Cost = 8, 1
		b.takeAmong(math.MaxUint64, lease(1, most, r), most>>33)
		// They are not counted as rejected either.
		r.Ordinal, r.Cost = 7, 1
		b.take(take(1, 1, r), 1)
		r.Cost, r.CountRejected = most, true
		b.take(take(2, 2, r), 0)
		b.used(r, 1)
		r.CountRejected = false
		// The narrowest and the widest windows.
		for ordinal, width := range []uint64{1, wire.MaxWidthMillis} {
			r.Ordinal, r.WidthMillis, r.Limit, r.Burst, r.Cost = uint8(4+ordinal), width, 9, 9, 1
			if window.Kind(r.Kind).Bucketed() && r.Precision != 1 {
				r.Precision = width * 1e6 / 64
			}
			// A single push has all takes, because a store may forget the narrowest window in the
			// meantime.
			out := b.decide(b.next(nil, take(1, 8, r), take(1, 8, r), take(1, 8, r)), 1)
			for i, want := range []uint64{8, 1, 0} {
				if got := out.Answer.Grants[i].Units; got != want {
					b.t.Errorf("kind %d, width %d ms, take %d: %d units, want %d", r.Kind, width, i, got, want)
				}
			}
		}
	}
	// One bucket holds nothing, and another lasts for long.
	r := room(tokens, 9, 10, 1)
	r.Burst = 0
	b.take(take(1, 1, r), 0)
	r = room(tokens, 10, 1, 1)
	r.Burst = 1000
	b.take(take(1, 2000, r), 1000)
	b.clock.advance(time.Minute)
	b.take(take(1, 2000, r), 1)
}

func testNodes(t *testing.T, b *bench) {
	join := func(namespace string, node, want uint64) {
		t.Helper()
		if got, err := b.store.Join(t.Context(), namespace, node); err != nil || got != want {
			t.Fatalf("%s: %d nodes with %d, error %v; want %d", namespace, got, node, err, want)
		}
	}
	nodes := func(namespace string, node, want uint64) {
		t.Helper()
		if got, err := b.store.Nodes(t.Context(), namespace, node); err != nil || got != want {
			t.Fatalf("%s: %d nodes with %d, error %v; want %d", namespace, got, node, err, want)
		}
	}
	for i, node := range []uint64{0, 1, 1<<64 - 1, 1 << 53, 1<<53 + 1, 1<<63 + 1} {
		nodes("ns", node, uint64(i+1))
		join("ns", node, uint64(i+1))
		join("ns", node, uint64(i+1))
		nodes("ns", node, uint64(i+1))
	}
	// Other namespaces have other nodes.
	join("n", 1, 1)
	join("n", 1, 1)
	join("ns2", 2, 1)
	nodes("ns2", 1, 2)
	nodes("ns2", 2, 1)
	// Nodes that don't join again are forgotten, each at its own time.
	b.clock.advance(store.NodeLife - time.Second)
	join("ns", 1, 6)
	join("ns", 2, 7)
	join("ns", 2, 7)
	b.clock.advance(time.Second - time.Millisecond)
	join("ns", 1, 7)
	join("n", 3, 2)
	b.clock.advance(2 * time.Millisecond)
	join("ns", 1, 2)
	join("n", 3, 1)
	join("ns2", 3, 1)
	join("ns", 1, 2)
	b.clock.advance(store.NodeLife - 2*time.Millisecond)
	join("ns", 7, 2)
	b.clock.advance(time.Hour)
	join("ns", 7, 1)
	// Nodes are not listed as counters.
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	b.push(items(item(fixed, 1, minute, b.clock.now(), 1)), totals(1))
	join("ns", 7, 1)
	// Nodes that join at once are all counted.
	var joins sync.WaitGroup
	for node := range uint64(20) {
		joins.Go(func() {
			if got, err := b.store.Join(t.Context(), "crowd", node); err != nil || got < 1 || got > 20 {
				t.Errorf("%d nodes, error %v; want 1 to 20", got, err)
			}
		})
	}
	joins.Wait()
	join("crowd", 0, 20)
}

// testNodesOnce lets nodes join once. They count for a short time. Nodes that join again count
// longer.
func testNodesOnce(t *testing.T, b *bench) {
	nodes := func(want uint64) {
		t.Helper()
		if got, err := b.store.Nodes(t.Context(), "ns", 1); err != nil || got != want {
			t.Fatalf("%d nodes, error %v; want %d", got, err, want)
		}
	}
	join := func(node uint64) {
		t.Helper()
		if _, err := b.store.Join(t.Context(), "ns", node); err != nil {
			t.Fatal(err)
		}
	}
	join(1)
	b.clock.advance(store.Newcomer - time.Millisecond)
	join(1)
	join(2)
	nodes(2)
	for node := range uint64(100) {
		join(1000 + node)
	}
	nodes(102)
	b.clock.advance(store.Newcomer - time.Millisecond)
	join(2)
	nodes(102)
	b.clock.advance(time.Millisecond)
	nodes(2)
	b.clock.advance(store.NodeLife - store.Newcomer - time.Millisecond)
	nodes(2)
	b.clock.advance(time.Millisecond)
	// Node 1 asks, but is not active any more.
	nodes(2)
	join(1)
	nodes(2)
	b.clock.advance(store.Newcomer)
	nodes(1)
	// A forgotten node is new again.
	join(2)
	b.clock.advance(store.Newcomer)
	nodes(1)
}

// testNodesBounded lets more nodes join than are counted.
func testNodesBounded(t *testing.T, b *bench) {
	const lasting, workers, beyond = 3, 16, 8
	join := func(node uint64) {
		if _, err := b.store.Join(t.Context(), "ns", node); err != nil {
			t.Error(err)
		}
	}
	for node := range uint64(lasting) {
		join(node)
		join(node)
	}
	var joins sync.WaitGroup
	for worker := range uint64(workers) {
		joins.Go(func() {
			for node := lasting + worker; node < store.MaxNodes-workers; node += workers {
				join(node)
			}
		})
	}
	joins.Wait()
	for node := uint64(store.MaxNodes - workers); node < store.MaxNodes+beyond; node++ {
		join(node)
	}
	nodes := func(want uint64) {
		t.Helper()
		if got, err := b.store.Join(t.Context(), "ns", 0); err != nil || got != want {
			t.Fatalf("%d nodes, error %v; want %d", got, err, want)
		}
	}
	nodes(store.MaxNodes)
	if got, err := b.store.Join(t.Context(), "other", 0); err != nil || got != 1 {
		t.Errorf("%d nodes, error %v; want 1", got, err)
	}
	// The surplus nodes were not recorded, and there is room again when the others have expired.
	b.clock.advance(store.Newcomer)
	nodes(lasting)
	if got, err := b.store.Join(t.Context(), "ns", 99); err != nil || got != lasting+1 {
		t.Errorf("%d nodes, error %v; want %d", got, err, lasting+1)
	}
}

func testWidths(t *testing.T, b *bench) {
	var all []wire.LimitCounter
	var p []wire.Item
	for i, width := range []uint64{1000, 10_000, minute, 2 * minute, day} {
		for _, it := range []wire.Item{item(fixed, byte(i), width, epoch, 1), bucketItem(byte(i), width, width*1e6/2, 9, hits(uint64(epoch.UnixMilli())/width*2, 1))} {
			p, all = append(p, it), append(all, it.LimitCounter)
		}
	}
	b.decide(b.next(p), 1)
	for _, widths := range [][]uint64{nil, {minute}, {1000}, {day, 10_000}, {100}, {7}, {minute, minute}, {1000, 10_000, minute, 2 * minute, day}} {
		var got []wire.LimitCounter
		err := b.store.Counters(t.Context(), "ns", widths, func(c store.LimitCounter) error {
			got = append(got, c.LimitCounter)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(c wire.LimitCounter) bool { return len(widths) > 0 && !slices.Contains(widths, c.WidthMillis) })
		for _, c := range want {
			if !slices.Contains(got, c) {
				t.Errorf("widths %v: no counter %+v", widths, c)
			}
		}
		if len(got) != len(want) {
			t.Errorf("widths %v: %d counters, want %d", widths, len(got), len(want))
		}
	}
}

// Takes returns three valid takes: with two limits, a lease, and with a rule that counts rejected
// hits.
func Takes() []wire.Take {
	return []wire.Take{
		{Least: 2, Most: 5, Rooms: []wire.Room{
			{LimitCounter: wire.LimitCounter{ID: wire.ID{0xaa}, Kind: uint8(window.FixedWindow), WidthMillis: 60_000}, Limit: 10, Cost: 1},
			{LimitCounter: wire.LimitCounter{ID: wire.ID{0xaa}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 15e9}, Limit: 10, Cost: 3},
		}},
		{Least: 1, Most: 9, Lease: true, Rooms: []wire.Room{
			{LimitCounter: wire.LimitCounter{ID: wire.ID{0xbb}, Kind: uint8(window.TokenBucket), WidthMillis: 60_000}, Limit: 10, Burst: 101, Cost: 3},
		}},
		{Least: 11, Most: 11, Rooms: []wire.Room{
			{LimitCounter: wire.LimitCounter{ID: wire.ID{0xcc}, Kind: uint8(window.FirstHitWindow), WidthMillis: 60_000}, Limit: 10, Cost: 1, CountRejected: true},
		}},
	}
}
