package storetest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// testHits pushes hits of any size to counters of an algorithm, gives some back, takes some, and reads, at times to the
// nanosecond.
func testHits(_ *testing.T, b *bench, shape wire.Room) {
	random := rand.New(rand.NewPCG(12, uint64(shape.Kind)))
	limits := []uint64{0, 1, 2, 7, 10, 60, 999, 1000, 1001, 1 << 20, 1<<31 - 1, 1e9 + 7, 1 << 40, 1<<45 + 1, 1e14 + 31, window.MaxLimit}
	// A store may forget narrower windows by its own clock.
	widths := []uint64{minute, 10 * minute, day, wire.MaxWidthMillis}
	refills := window.Kind(shape.Kind).Refills()
	for step := range nightly.Or(3000, 150) {
		b.clock.advance(time.Duration(random.Int64N(1<<random.Int64N(26))) * time.Microsecond)
		id := random.IntN(4)
		r := wide(shape, widths[random.IntN(len(widths))])
		r.ID[1], r.Limit, r.Cost = byte(id), limits[(id*5+step%2*int(r.Burst&1))%len(limits)], 1+random.Uint64N(3)
		if refills && random.IntN(3) == 0 {
			r.Limit = limits[random.IntN(len(limits))]
		}
		if r.CountRejected = random.IntN(4) == 0; window.Kind(shape.Kind).Bursts() {
			r.Burst = 1 + random.Uint64N(1+2*r.Limit)
		}
		if random.IntN(2) == 0 {
			least := 1 + random.Uint64N(1+r.Limit/2)
			second := r
			second.Ordinal, second.Limit = 1, second.Limit+1
			asked := Take(least, least+random.Uint64N(1+r.Limit), r, second)
			asked.Rooms = asked.Rooms[:1+random.IntN(2)]
			b.push(nil, asked)
			continue
		}
		it := b.item(r, random.Int64N(1+int64(min(2*r.Limit, wire.MaxHits))))
		switch random.IntN(8) {
		case 0:
			it.Hits[0] = -it.Hits[0] / 2
		case 1:
			it.Hits[0] = random.Int64N(wire.MaxHits)
		case 2:
			it.Hits[0] = 0
		}
		if random.IntN(3) == 0 && !window.Kind(r.Kind).Clocked() {
			it.Newest -= random.Uint64N(r.WidthMillis*1e6) / max(1, r.Precision)
		}
		b.push([]wire.Item{it})
	}
	b.list()
}

// testLeases leases of counters of each algorithm, which depends on how many nodes there are.
func testLeases(_ *testing.T, b *bench) {
	for _, cost := range []uint64{1, 3} {
		for _, r := range Rooms(640, cost) {
			r.Ordinal = uint8(cost)
			less := r
			less.Limit, less.Burst, less.Ordinal = 128, min(r.Burst, 128), uint8(cost+1)
			for _, rooms := range [][]wire.Room{{r}, {r}, {r, less}, {less}, {r}} {
				asked := Take(1, 99, rooms...)
				asked.Lease = true
				b.push(nil, asked, Take(1, 1, rooms...), asked)
			}
		}
	}
	b.list()
}

// testEnds pushes hits of each algorithm, also for the window before, and for times to come. They can be read, and are
// listed, as long as the arithmetic says.
func testEnds(t *testing.T, b *bench) {
	var read []wire.Item
	for _, r := range Rooms(1000, 1) {
		for i, at := range []time.Duration{0, -20*time.Second - time.Nanosecond, 70 * time.Second} {
			r.Ordinal = uint8(i)
			b.clock.advance(at)
			it := b.item(r, int64(5+i))
			b.clock.advance(-at)
			b.push([]wire.Item{it})
			it.Hits = make([]int64, len(it.Hits))
			read = append(read, it)
		}
	}
	for _, at := range []time.Duration{
		0, 30 * time.Second, time.Minute - time.Millisecond, time.Minute, time.Minute + store.Grace - time.Millisecond, time.Minute + store.Grace,
		2*time.Minute - time.Millisecond, 2 * time.Minute, 2*time.Minute + store.Grace - time.Millisecond, 3 * time.Minute, 4 * time.Minute, time.Hour,
	} {
		b.clock.set(Epoch.Add(at))
		for i := range read {
			if window.Kind(read[i].Kind).Started() {
				read[i].Newest = uint64(b.clock.now().UnixNano())
			}
		}
		b.push(read)
		b.list()
	}
	must.Same(t, b.counters("ns"), nil, "counters")
	// What is kept no more does not come back with later hits.
	for _, r := range Rooms(1000, 1) {
		b.push([]wire.Item{b.item(r, 1)})
	}
	b.list()
}

// testSetBack sets the store's clock back when windows can't be read any more, and later ones were hit since. Nothing of
// the old windows comes back. Each time hits every counter, as expired ones may exist or not.
func testSetBack(_ *testing.T, b *bench) {
	var first []wire.Item
	for i, at := range []time.Duration{0, time.Minute, time.Minute + store.Grace, 2*time.Minute + store.Grace, time.Second, 0} {
		b.clock.set(Epoch.Add(at))
		for j, r := range Rooms(9, 1) {
			it := b.item(r, 3)
			b.push([]wire.Item{it})
			if it.Hits = make([]int64, len(it.Hits)); i == 0 {
				first = append(first, it)
			}
			b.push(first[j : j+1])
		}
		b.list()
	}
}

// The largest push has many counters, again and again.
func testLarge(_ *testing.T, b *bench) {
	var batch []wire.Item
	for i, r := range many(wire.MaxItems) {
		batch = append(batch, b.item(r, int64(i+1)))
	}
	for range 3 {
		b.push(batch)
	}
	b.list()
}

// So many rooms may be taken from at once. A full one refuses for all, and each may have a take of its own.
func testTakesLarge(_ *testing.T, b *bench) {
	all := many(wire.MaxItems)
	var takes []wire.Take
	for _, r := range all {
		takes = append(takes, Take(1, 2, r))
	}
	for _, takes := range [][]wire.Take{{Take(1, 1, all...)}, {takes[7]}, {Take(1, 1, all...)}, takes} {
		b.push(nil, takes...)
	}
	b.list()
}

// A log may be long. Some of its buckets are hit again, and after a minute only the newest is left.
func testLargeLog(_ *testing.T, b *bench) {
	r := LogRoom(1, 4000, 1)
	for round := range uint64(3) {
		it := b.item(r, 1)
		for i := range uint64(700) {
			if age := (i + 1) * (1 + i%2*round) * 80_000_003; age < minute*1e6 && age > it.Ages[len(it.Ages)-1] {
				it.Ages, it.Hits = append(it.Ages, age), append(it.Hits, 1)
			}
		}
		b.push([]wire.Item{it})
	}
	b.list()
	// With a lower limit fewer are read, which changes nothing, and more may be forgotten.
	for _, limit := range []uint64{10, 4000, 1} {
		r.Limit = limit
		b.push([]wire.Item{b.item(r, 0)})
	}
	b.push([]wire.Item{b.item(r, 1)})
	b.list()
	b.clock.advance(time.Minute + store.Grace)
	b.push([]wire.Item{b.item(r, 1)})
	b.list()
}

// A counter may be twice in a batch, with others between. If a store divides the push, each answer still has all totals.
func testTwice(_ *testing.T, b *bench) {
	b.clock.advance(time.Second)
	var batch []wire.Item
	for round := range 2 {
		for i, r := range Rooms(99_991, 1) {
			it := b.item(r, int64(1+round))
			if window.Kind(r.Kind).Started() {
				it.Newest -= uint64(round) * 1e9
			}
			batch = append(batch, it)
			if i == 2 {
				batch = append(batch, b.item(r, 0))
			}
		}
	}
	b.push(batch)
	b.list()
}

// Takes see the items of their push and the takes before them, and the totals of items include all takes. A take gets hits
// in all rooms or in none, and rejected hits count where there is no room.
func testRooms(_ *testing.T, b *bench) {
	for i, r := range Rooms(10, 1) {
		r.ID[1] = 100
		b.push([]wire.Item{b.item(r, 5)}, Take(1, 1, r), Take(5, 9, r), Take(3, 9, r), Take(1, 1, r))
		b.push([]wire.Item{b.item(r, -4)}, Take(1, 9, r))
		other, free := r, r
		other.Ordinal, free.Cost = 1, 0
		b.push([]wire.Item{b.item(r, 2)}, Take(1, 1, other, free))
		if other.Cost = 0; i%2 == 0 {
			b.push(nil, Take(1, 3, other)) // it only asks, and starts no window
		}
	}
	b.push(nil, Take(1, 99, Room(fixed, 101, 100, 10), Room(sliding, 102, 100, 7)))
	b.list()
	for full := range Rooms(4, 2) {
		all := Rooms(9, 2)
		for i := range all {
			all[i].ID[1], all[i].CountRejected = byte(1+full), full%2 == 0
		}
		all[full].Limit, all[full].Burst = 4, min(all[full].Burst, 4)
		for _, most := range []uint64{1, 9, 1} {
			b.push(nil, Take(1, most, all...))
		}
	}
}

func testIsolation(t *testing.T, b *bench) {
	base := Room(fixed, 1, 9, 1)
	change := func(to func(r *wire.Room)) wire.Room {
		r := base
		to(&r)
		return r
	}
	others := []wire.Room{
		change(func(r *wire.Room) { r.ID[15] = 1 }), change(func(r *wire.Room) { copy(r.ID[:], "\x00\xff:{}*?[]\r\n\\\"'%") }),
		change(func(r *wire.Room) { r.Ordinal = 255 }), change(func(r *wire.Room) { r.WidthMillis *= 2 }),
		Room(sliding, 1, 9, 1), Room(firstHit, 1, 9, 1), Room(tokens, 1, 9, 1), LogRoom(1, 9, 1), Room(buckets, 1, 9, 1),
		change(func(r *wire.Room) { r.Kind, r.Precision = buckets, 30e9 }),
	}
	b.push([]wire.Item{b.item(base, 1)})
	for _, namespace := range []string{"n", "ns.ns_ns-NS09"} {
		out := b.send(&wire.Push{Namespace: namespace, Sender: 1, Sequence: 1, Floor: 1, Items: []wire.Item{b.item(base, 7)}, Takes: []wire.Take{Take(1, 99, base)}}, 1)
		if SumOf(out.Answer.Totals[0]) != 9 || out.Answer.Grants[0].Units != 2 || b.sum(namespace) != 9 {
			t.Errorf("%s: %+v, want hits of its own", namespace, out)
		}
	}
	for _, r := range others {
		b.push([]wire.Item{b.item(r, 7)})
	}
	b.push([]wire.Item{b.item(base, 0)})
	b.list()
	must.Equal(t, b.sum("s"), 0, "hits of a namespace without any")
}

// A read is not recorded, so its sequence can still be used, and it does not raise the floor.
func testReads(_ *testing.T, b *bench) {
	read := func(sequence uint64, n int64) {
		b.seq = sequence - 1
		var batch []wire.Item
		for _, r := range Rooms(9, 1) {
			batch = append(batch, b.item(r, n))
		}
		b.push(batch)
		b.list()
		b.clock.advance(time.Second)
	}
	read(9, 0)
	read(3, 1)
	read(9, 0)
	read(4, 1)
	// A read among hits starts no window either, and an empty push asks for the time.
	b.push([]wire.Item{b.item(Room(fixed, 1, 9, 1), 1), b.item(Room(firstHit, 99, 9, 1), 0)})
	b.push(nil)
	b.list()
}

// An invalid push changes nothing, and its sequence is not recorded. Package store tests what is invalid.
func testInvalid(t *testing.T, b *bench) {
	r := Room(fixed, 1, 9, 1)
	for name, change := range map[string]func(p *wire.Push){
		"namespace": func(p *wire.Push) { p.Namespace = "a*" },
		"floor":     func(p *wire.Push) { p.Floor = p.Sequence + 1 },
		"an item":   func(p *wire.Push) { p.Items[1].WidthMillis = 0 },
		"a take":    func(p *wire.Push) { p.Takes[1].Least = 0 },
	} {
		p := &wire.Push{Namespace: "ns", Sender: 3, Sequence: 5, Floor: 5, Items: []wire.Item{b.item(r, 1), b.item(r, 1)}, Takes: []wire.Take{Take(1, 1, r), Take(1, 1, r)}}
		change(p)
		_, err := b.store.Push(t.Context(), p, 1)
		must.Is(t, err, store.ErrInvalid, "%s", name)
	}
	b.list()
	if out := b.send(&wire.Push{Namespace: "ns", Sender: 3, Sequence: 1, Floor: 1, Takes: []wire.Take{Take(1, 1, r)}}, 1); out.Answer.Grants[0].Units != 1 {
		t.Errorf("outcome %+v, want a unit", out)
	}
	b.used(r, 1)
}

func testCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, push := b.store.Push(ctx, b.next([]wire.Item{b.item(Room(fixed, 1, 9, 1), 1)}), 1)
	_, join := store.Join(ctx, b.store, "ns", 1)
	for name, err := range map[string]error{
		"push": push, "join": join, "ping": b.store.Ping(ctx), "counters": b.store.Counters(ctx, "ns", nil, func(store.LimitCounter) error { return nil }),
	} {
		must.Is(t, err, context.Canceled, "%s", name)
	}
	must.Is(t, b.store.Ping(t.Context()), nil, "ping")
	b.list()
}

// A ping leaves nothing in other namespaces, and little in its own.
func testPings(t *testing.T, b *bench) {
	b.push([]wire.Item{b.item(Room(fixed, 1, 9, 1), 1)})
	for range 100 {
		must.OK(t, b.store.Ping(t.Context()))
	}
	b.list()
	b.clock.set(time.Now().Add(time.Minute))
	must.Same(t, b.counters(store.TrialNamespace), nil, "counters a minute after")
}

// Counters are visited by their widths, until the visit's end.
func testWidths(t *testing.T, b *bench) {
	all := []uint64{1000, 10_000, minute, 2 * minute, day}
	for i, width := range all {
		b.push([]wire.Item{b.item(wide(Room(fixed, byte(i), 9, 1), width), 1), b.item(wide(Room(buckets, byte(i), 9, 1), width), 1)})
	}
	for _, widths := range [][]uint64{nil, {minute}, {1000}, {day, 10_000}, {100}, {7}, {minute, minute}, all} {
		got, want := b.counters("ns", widths...), 0
		for c := range b.model.counters {
			if len(widths) > 0 && !slices.Contains(widths, c.WidthMillis) {
				continue
			}
			if want++; got[c].WidthMillis != c.WidthMillis {
				t.Errorf("widths %v: no counter %+v", widths, c)
			}
		}
		must.Equal(t, len(got), want, "widths %v: counters", widths)
	}
	enough, visits := errors.New("enough"), 0
	must.Is(t, b.store.Counters(t.Context(), "ns", nil, func(store.LimitCounter) error {
		visits++
		return enough
	}), enough, "a visit that ends")
	must.Equal(t, visits, 1, "visits until then")
}

// A key's counters are found by its identity, each limit once, without counters of other keys.
func testCountersOf(t *testing.T, b *bench) {
	want := func(namespace string, want int) {
		t.Helper()
		found := must.Get(store.CountersOf(t.Context(), b.store, namespace, wire.ID{1}))(t)
		must.EqualOrEnd(t, len(found), want, "found %+v", found)
		slices.SortFunc(found, func(a, b store.LimitCounter) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
		for i, c := range found {
			r := b.model.of(c.LimitCounter)
			if c.ID != (wire.ID{1}) || c.Ordinal != uint8(i) || c.Limit != r.Limit || !slices.Equal(newestFirst(c.Windows), newestFirst(r.Windows)) {
				t.Errorf("found %+v, want %+v", c, r)
			}
		}
	}
	want("ns", 0)
	all := Rooms(100, 1)
	for id := byte(1); id <= 2; id++ {
		for i := range all {
			all[i].ID, all[i].Ordinal = wire.ID{id}, uint8(i)
		}
		b.push(nil, Take(1, uint64(7*id), all...))
	}
	want("ns", len(all))
	want("another", 0)
	b.clock.advance(3 * time.Minute)
	want("ns", 0)
}
