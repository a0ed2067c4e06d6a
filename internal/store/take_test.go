package store_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

// The error of a mistake in a take has its place.
func TestCheckTakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		change func(p *wire.Push)
		want   string
	}{
		{func(p *wire.Push) { p.Takes[1].Least = 0 }, "takes[1].least: want 1 to most, which is at most 2^53-1, got 0 and 9"},
		{func(p *wire.Push) { p.Takes[1].Least = 10 }, "takes[1].least: want 1 to most, which is at most 2^53-1, got 10 and 9"},
		{func(p *wire.Push) { p.Takes[0].Most = 1 << 53 }, "takes[0].least: want 1 to most, which is at most 2^53-1, got 2 and 9007199254740992"},
		{func(p *wire.Push) { p.Takes[2].Rooms = nil }, "takes[2].rooms: want at least one"},
		{func(p *wire.Push) { p.Takes[0].Rooms[1].Kind = 9 }, "takes[0].rooms[1].kind: want 1 to "},
		{func(p *wire.Push) { p.Takes[0].Rooms[1].Limit = 1 << 53 }, "takes[0].rooms[1]: want a limit, a burst and a cost of at most 2^53-1"},
		{func(p *wire.Push) { p.Takes[1].Rooms[0].Burst = 1 << 53 }, "takes[1].rooms[0]: want a limit, a burst and a cost of at most 2^53-1"},
		{func(p *wire.Push) { p.Takes[0].Rooms[1].Cost = 1 << 53 }, "takes[0].rooms[1]: want a limit, a burst and a cost of at most 2^53-1"},
		{func(p *wire.Push) { p.Takes[1].Rooms[0].Cost = 0 }, "takes[1].rooms[0].cost: want at least 1 for a lease"},
		{func(p *wire.Push) { p.Takes[0].Rooms[1] = p.Takes[0].Rooms[0] }, "takes[0].rooms[1]: want each counter once in a take, got the counter of rooms[0] again"},
		{func(p *wire.Push) {
			p.Takes = append(p.Takes, slices.Repeat(p.Takes[1:2], wire.MaxItems-3)...)
		}, "items: want at most 1024 with the rooms of takes, got 1025"},
		{func(p *wire.Push) {
			large := p.Takes[0]
			large.Rooms = []wire.Room{large.Rooms[1]}
			large.Rooms[0].Precision, large.Rooms[0].Limit = 1, wire.MaxHits
			p.Takes = slices.Repeat([]wire.Take{large}, 52)
		}, "items: want an answer of at most 1048576 bytes, got one of up to"},
	} {
		p := &wire.Push{Namespace: "api", Sender: 1, Sequence: 1, Floor: 1, Takes: storetest.Takes()}
		if err := store.Check(p); err != nil {
			t.Fatal(err)
		}
		test.change(p)
		if err := store.Check(p); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

// A sender can read the largest answer to a push that Check accepts.
func TestLargestAnswer(t *testing.T) {
	t.Parallel()
	p := &wire.Push{Namespace: "api", Sender: 1, Sequence: 1, Floor: 1, Takes: storetest.Takes()[:1]}
	room := p.Takes[0].Rooms[1]
	p.Takes[0].Rooms, room.Precision = nil, 1
	// Logs as long as possible, small items, and one more log, as long as Check allows.
	for id := range byte(50) {
		room.ID[0], room.Limit = id, wire.MaxBuckets
		p.Takes[0].Rooms = append(p.Takes[0].Rooms, room)
	}
	item := wire.Item{LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: 1}, Newest: 1, Hits: []int64{1}}
	p.Items = slices.Repeat([]wire.Item{item}, 950)
	room.ID[0] = 99
	p.Takes[0].Rooms = append(p.Takes[0].Rooms, room)
	last := &p.Takes[0].Rooms[50]
	for last.Limit = wire.MaxBuckets; store.Check(p) != nil && last.Limit > 0; {
		last.Limit--
	}
	if err := store.Check(p); err != nil {
		t.Fatal(err)
	}
	answer := &wire.Answer{NowNanos: 1<<64 - 1, Nodes: 1<<64 - 1, Grants: []wire.Grant{{Units: wire.MaxHits, AtNanos: 1<<64 - 1}}}
	for range p.Items {
		answer.Totals = append(answer.Totals, wire.Total{Newest: 1<<64 - 1, Hits: []uint64{wire.MaxHits}})
	}
	for _, room := range p.Takes[0].Rooms {
		total := wire.Total{Newest: 1<<64 - 1}
		for range min(room.Limit+1, wire.MaxBuckets) {
			total.Hits, total.Ages = append(total.Hits, 1<<64-1), append(total.Ages, 1<<64-1)
		}
		answer.Grants[0].Totals = append(answer.Grants[0].Totals, total)
	}
	if size := len(wire.AppendAnswer(nil, answer)); size > wire.MaxAnswer || size < wire.MaxAnswer*99/100 {
		t.Errorf("an answer of %d bytes, want at most %d, and hardly less", size, wire.MaxAnswer)
	}
}

// A bucket's start is moved later by a whole window in the millisecond in which the window ends,
// and possibly before the end: that returns no token early.
func TestNoTokenComesBackEarly(t *testing.T) {
	t.Parallel()
	room := wire.Room{LimitCounter: wire.LimitCounter{Kind: uint8(window.TokenBucket), WidthMillis: 60_000}, Limit: 10, Burst: 10, Cost: 1}
	take := &wire.Take{Least: 1, Most: 99, Rooms: []wire.Room{room}}
	start := uint64(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()) + 466_289_000
	bucket := &store.Contents{Limit: 10, Windows: []store.Window{{Number: start, Hits: 18}}}
	for _, test := range []struct {
		after time.Duration
		want  uint64
	}{
		{48 * time.Second, 0}, {54*time.Second - 1, 0}, {54 * time.Second, 1}, {time.Minute - 1, 1}, {time.Minute, 2},
	} {
		c := store.Calendar{NowNanos: start + uint64(test.after)}
		item := c.RoomItem(&room, 0)
		if got := c.Units(take, []wire.Total{c.TokenTotal(&item, bucket)}, 1); got != test.want {
			t.Errorf("%v later: %d units, want %d", test.after, got, test.want)
		}
	}
}

// A take that got its most still gets it if its room has up to the spare hits more.
func TestSpare(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		room := wire.Room{
			LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: 60_000},
			Limit:        1 + random.Uint64N(2000), Cost: 1 + random.Uint64N(3),
		}
		if random.IntN(2) == 0 {
			room.Kind = uint8(window.SlidingWindow)
		}
		take := wire.Take{Least: 1, Most: 1 + random.Uint64N(20), Lease: random.IntN(2) == 0, Rooms: []wire.Room{room}}
		take.Least += random.Uint64N(take.Most)
		c := store.Calendar{NowNanos: 1e18 + random.Uint64N(60e9)}
		total := func(more uint64) wire.Total {
			item := c.RoomItem(&room, 0)
			return wire.Total{Newest: item.Newest, Hits: []uint64{more, room.Limit / 2}[:len(item.Hits)]}
		}
		had := random.Uint64N(room.Limit + 1)
		nodes := 1 + random.Uint64N(4)
		units := func(hits uint64) uint64 { return c.Units(&take, []wire.Total{total(hits)}, nodes) }
		if units(had) != take.Most {
			continue
		}
		after := total(had + take.Most*room.Cost)
		spare := c.Spare(&take, &room, &after, nodes)
		if units(had+spare) != take.Most || units(had+spare+1) == take.Most {
			t.Fatalf("%+v with %d hits: spare %d, but with these it gets %d, and with one more %d", take, had, spare, units(had+spare), units(had+spare+1))
		}
	}
}
