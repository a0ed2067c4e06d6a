package storetest

import (
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// everyShape returns rooms of a counter of each algorithm, with a limit of 100 a minute.
func everyShape(id byte) (rooms []wire.Room) {
	const limit = 100
	for _, c := range []wire.LimitCounter{
		{Kind: fixed}, {Kind: sliding}, {Kind: firstHit}, {Kind: tokens},
		{Kind: buckets, Precision: uint64(10 * time.Second)}, {Kind: buckets, Precision: uint64(window.LogPrecision)},
	} {
		c.ID, c.WidthMillis = wire.ID{0: id}, minute
		room := wire.Room{LimitCounter: c, Limit: limit, Cost: 1}
		if window.Kind(c.Kind).Bursts() {
			room.Burst = limit
		}
		rooms = append(rooms, room)
	}
	return rooms
}

// takeOf takes all available units, up to most, and returns their number.
func (b *bench) takeOf(rooms []wire.Room, most uint64) (units uint64) {
	b.t.Helper()
	b.seq++
	out, err := b.store.Push(b.t.Context(), &wire.Push{
		Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq, Takes: []wire.Take{{Least: 1, Most: most, Rooms: rooms}},
	}, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Answer.Grants[0].Units
}

// countersOf returns a key's counters by their shapes.
func (b *bench) countersOf(namespace string, id byte) map[wire.LimitCounter]store.LimitCounter {
	b.t.Helper()
	found, err := b.store.CountersOf(b.t.Context(), namespace, wire.ID{0: id})
	if err != nil {
		b.t.Fatal(err)
	}
	by := map[wire.LimitCounter]store.LimitCounter{}
	for _, c := range found {
		if _, twice := by[c.LimitCounter]; twice || c.ID != (wire.ID{0: id}) {
			b.t.Errorf("found %+v, of another key or twice", c)
		}
		by[c.LimitCounter] = c
	}
	return by
}

func (b *bench) calendar() store.Calendar {
	return store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}
}

// giveBack gives back hits of all counters of a key, as an operator's command does.
func (b *bench) giveBack(id byte, hits uint64) store.Outcome {
	b.t.Helper()
	b.seq++
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq}
	for _, c := range b.countersOf("ns", id) {
		p.Items = append(p.Items, b.calendar().GiveBack(&c, hits)...)
	}
	out, err := b.store.Push(b.t.Context(), p, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	// The push comes again, as if its answer was lost.
	if again, err := b.store.Push(b.t.Context(), p, 1); err != nil || len(p.Items) > 0 && !again.Duplicate {
		b.t.Fatalf("the push came again: %+v, %v", again, err)
	}
	return out
}

// A key's counters are found by its identity, each limit once, without counters of other keys.
func testCountersOf(t *testing.T, b *bench) {
	if got := b.countersOf("ns", 1); len(got) != 0 {
		t.Errorf("found %+v before there is any", got)
	}
	rooms := everyShape(1)
	if got := b.takeOf(rooms, 7); got != 7 {
		t.Fatalf("%d taken", got)
	}
	b.takeOf(everyShape(2), 3)
	found := b.countersOf("ns", 1)
	for i := range rooms {
		c, ok := found[rooms[i].LimitCounter]
		used, standing := b.calendar().Standing(&c, 100, 100)
		if !ok || used != 7 || standing.Remaining != 93 {
			t.Errorf("%+v: %d used, %d left of %+v", rooms[i].LimitCounter, used, standing.Remaining, c)
		}
		if used, _ := b.calendar().Standing(&c, window.MaxLimit, window.MaxLimit); used != 7 && c.Kind != tokens {
			t.Errorf("%+v of an unknown limit: %d used", rooms[i].LimitCounter, used)
		}
		if used, standing := b.calendar().Standing(&c, 5, 5); standing.Remaining != 0 && c.Kind != tokens || used != 7 && c.Kind != tokens {
			t.Errorf("%+v of a lower limit: %d used, %d left", rooms[i].LimitCounter, used, standing.Remaining)
		}
	}
	if len(found) != len(rooms) {
		t.Errorf("found %d counters, want %d", len(found), len(rooms))
	}
	if got := b.countersOf("another", 1); len(got) != 0 {
		t.Errorf("another namespace has %+v", got)
	}
	b.clock.advance(3 * time.Minute)
	if got := b.countersOf("ns", 1); len(got) != 0 {
		t.Errorf("found %+v when their windows have ended", got)
	}
}

// An emptied counter has room for the whole limit, once, in whatever window its hits were. Later
// hits count.
func testCountersEmptied(t *testing.T, b *bench) {
	for i, room := range everyShape(1) {
		t.Log(room.LimitCounter)
		room.ID = wire.ID{0: byte(i + 1)}
		rooms := []wire.Room{room}
		b.takeOf(rooms, 30)
		b.clock.advance(40 * time.Second)
		for b.takeOf(rooms, 1000) > 0 {
		}
		b.giveBack(byte(i+1), wire.MaxHits)
		for _, c := range b.countersOf("ns", byte(i+1)) {
			if used, _ := b.calendar().Standing(&c, 100, 100); used != 0 {
				t.Errorf("%+v: %d used", c, used)
			}
		}
		if got := b.takeOf(rooms, 1000); got != 100 {
			t.Errorf("%d pass then, want 100", got)
		}
		b.giveBack(byte(i+1), wire.MaxHits)
		b.giveBack(byte(i+1), wire.MaxHits)
		if got := b.takeOf(rooms, 1000); got != 100 {
			t.Errorf("emptied twice: %d pass then, want 100", got)
		}
	}
}

// Hits that are given back can pass again at once, up to the whole limit.
func testCountersRelieved(t *testing.T, b *bench) {
	for i, room := range everyShape(1) {
		t.Log(room.LimitCounter)
		room.ID = wire.ID{0: byte(i + 1)}
		rooms := []wire.Room{room}
		b.clock.set(epoch)
		b.takeOf(rooms, 100)
		b.clock.advance(50 * time.Second)
		b.takeOf(rooms, 1000)
		b.clock.advance(20 * time.Second) // into the next window of the clock
		b.takeOf(rooms, 1000)
		if got := b.takeOf(rooms, 1000); got != 0 {
			t.Fatalf("%d pass though it is full", got)
		}
		b.giveBack(byte(i+1), 30)
		if got := b.takeOf(rooms, 1000); got != 30 {
			t.Errorf("30 given back: %d pass", got)
		}
		b.giveBack(byte(i+1), 5000)
		if got := b.takeOf(rooms, 5000); got != 100 {
			t.Errorf("more given back than is counted: %d pass, want 100", got)
		}
	}
}
