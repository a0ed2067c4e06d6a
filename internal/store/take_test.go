package store_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// threeTakes are valid: with two limits, a lease, and with a rule that counts rejected hits.
func threeTakes() []wire.Take {
	bucket, rejected := room(tokens, 0xbb, 10, 3), room(firstHit, 0xcc, 10, 1)
	bucket.Burst, rejected.CountRejected = 101, true
	return []wire.Take{take(2, 5, room(fixed, 0xaa, 10, 1), room(buckets, 0xaa, 10, 3)), lease(1, 9, bucket), take(11, 11, rejected)}
}

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
		p := &wire.Push{Namespace: "api", Sender: 1, Sequence: 1, Floor: 1, Takes: threeTakes()}
		must.OK(t, store.Check(p))
		test.change(p)
		if err := store.Check(p); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

// A sender can read the largest answer to a push that Check accepts.
func TestLargestAnswer(t *testing.T) {
	t.Parallel()
	p := &wire.Push{Namespace: "api", Sender: 1, Sequence: 1, Floor: 1, Takes: threeTakes()[:1]}
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
	must.OK(t, store.Check(p))
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
	must.Between(t, len(wire.AppendAnswer(nil, answer)), wire.MaxAnswer*99/100, wire.MaxAnswer, "bytes of an answer")
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
		must.Equal(t, c.Units(take, []wire.Total{c.Total(bucket, &item)}, 1), test.want, "%v later: units", test.after)
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

// Of each algorithm so much can be had as the limit says, and in between its least and its most a take gets all that is
// there.
func TestTakes(t *testing.T) {
	t.Parallel()
	for _, cost := range []uint64{1, 3} {
		for _, r := range rooms(12, cost) {
			l := newLedger(t)
			l.set(10 * second)
			for i := range 12 / cost {
				must.EqualOrEnd(t, sumOf(l.take(take(1, 1, r), 1).Totals[0]), (i+1)*cost, "kind %d: total after %d units of %d", r.Kind, i+1, cost)
				l.counted(r, int64(cost), 0, 0)
			}
			must.Equal(t, sumOf(l.take(take(1, 1, r), 0).Totals[0]), 12, "kind %d: total of a refused take", r.Kind)
			l.counted(r, 0, 0, 0)
			// Neither a proxy's clock that is ahead nor the store's that is set back makes room.
			for _, back := range []time.Duration{second, 2 * second, -1} {
				l.set(10*second - back)
				l.take(take(1, 99, r), 0)
			}
			l.used(r, 12)
		}
	}
	l, r := newLedger(t), room(fixed, 1, 10, 2)
	for _, step := range []struct{ least, most, want uint64 }{{6, 9, 0}, {1, 3, 3}, {3, 3, 0}, {1, 9, 2}, {1, 9, 0}} {
		l.take(take(step.least, step.most, r), step.want)
	}
	// Tokens that would have returned before the clock was set back can still be taken.
	r = room(tokens, 2, 600, 1)
	l.set(10 * second)
	l.take(take(595, 595, r), 595)
	l.set(9 * second)
	l.take(take(1, 5, r), 5)
	l.take(take(1, 1, r), 0)
	for _, r := range []wire.Room{room(buckets, 3, 12, 1), logRoom(4, 12, 1)} {
		l.set(50 * second)
		l.push(l.moved(r, 30*second, 5))
		l.push(l.moved(r, -45*second, 5))
		l.take(take(3, 3, r), 0)
		l.take(take(1, 99, r), 2)
	}
}

// node is a node that uses the counter of a room alone.
type node struct {
	limit window.Limit
	state window.State
}

// take decides a take as the node does without a backend.
func (n *node) take(now uint64, t wire.Take) (units uint64) {
	n.limit.Advance(&n.state, int64(now))
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

// A store decides as a node that decides alone, and has room again exactly when the node has some.
func TestTakesOfOneNode(t *testing.T) {
	t.Parallel()
	burst, fine := room(tokens, 11, 7, 1), room(buckets, 12, 100, 1)
	burst.Burst, fine.Precision = 20, uint64(minute/64)
	for i, r := range append(rooms(10, 1), burst, fine, room(sliding, 13, 1, 1), room(sliding, 14, 1000, 1)) {
		l, random := newLedger(t), rand.New(rand.NewPCG(uint64(i), 1))
		alone := &node{limit: window.Limit{Max: r.Limit, Burst: r.Burst, Shape: r.Shape()}}
		granted, waited := 0, 0
		for range 200 {
			pause := time.Duration(random.Int64N(int64(5 * second)))
			if random.IntN(20) == 0 {
				pause *= 30
			}
			l.pass(pause)
			least := 1 + random.Uint64N(2)
			r.Cost = 1 + random.Uint64N(max(1, r.Limit/4))
			asked := take(least, least+random.Uint64N(3), r)
			if want := alone.take(l.NowNanos, asked); l.take(asked, want).Units > 0 {
				granted++
				continue
			}
			// The store can't know when held places are released.
			if at, ok := alone.limit.FitsAt(&alone.state, least*r.Cost); ok && !window.Kind(r.Kind).Held() && random.IntN(2) == 0 {
				if before := uint64(at) - 1; before > l.NowNanos {
					l.NowNanos = before
					l.take(asked, 0)
				}
				l.NowNanos = uint64(at)
				want := alone.take(l.NowNanos, asked)
				if l.take(asked, want); want == 0 {
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

// A take gets hits in all rooms or in none: a full room refuses for all, also one that costs nothing.
func TestTakesOfSeveralRooms(t *testing.T) {
	t.Parallel()
	for full := range rooms(4, 2) {
		l, all := newLedger(t), rooms(9, 2)
		all[full].Limit, all[full].Burst = 4, min(all[full].Burst, 4)
		l.take(take(1, 1, all...), 1)
		l.take(take(1, 9, all...), 1)
		for i, total := range l.take(take(1, 1, all...), 0).Totals {
			must.Equal(t, sumOf(total), 4, "total %+v of room %d: a refused take gets nothing from any", total, i)
		}
	}
	l, a, c := newLedger(t), room(fixed, 1, 100, 10), room(sliding, 2, 100, 7)
	l.take(take(1, 99, a, c), 10)
	l.used(a, 100)
	l.used(c, 70)
	over, r := room(fixed, 3, 1, 0), room(fixed, 4, 9, 1)
	l.push(l.RoomItem(&over, 2))
	l.take(take(1, 1, r, over), 0)
	l.used(r, 0)
	// Somebody else may say that fewer can be had, or refuse.
	up := take(2, 9, r)
	for _, test := range []struct{ most, want uint64 }{{1, 0}, {4, 4}, {9, 5}} {
		must.Equal(t, l.DecideUpTo(&up, test.most, 1, l).Units, test.want, "up to %d: units", test.most)
		up.Least = 1
	}
	r.CountRejected = true
	free := room(sliding, 5, 9, 1)
	free.CountRejected = true
	refused := take(1, 1, r, free)
	if g := l.Refuse(&refused, l); g.Units != 0 || sumOf(g.Totals[0]) != 10 || sumOf(g.Totals[1]) != 0 {
		t.Errorf("%+v of a take that was refused elsewhere, want a hit of the room that is full", g)
	}
}

func TestTakesRejected(t *testing.T) {
	t.Parallel()
	for _, r := range rooms(10, 2) {
		l := newLedger(t)
		r.CountRejected = true
		l.take(take(4, 4, r), 4)
		// The rejected Least is counted. A bucket stops at empty.
		want := uint64(12)
		if window.Kind(r.Kind).Refills() {
			want = 10
		}
		must.Equal(t, sumOf(l.take(take(2, 5, r), 0).Totals[0]), want, "kind %d: total", r.Kind)
		// A cost that can never pass is not counted, and neither is one above the largest number of hits.
		l.take(take(6, 6, r), 0)
		for _, change := range []func(r *wire.Room){
			func(r *wire.Room) { r.Cost = wire.MaxHits }, func(r *wire.Room) { r.Cost, r.Limit = 1, 0 }, func(r *wire.Room) { r.CountRejected = false },
		} {
			other := r
			change(&other)
			l.take(take(2, 5, other), 0)
			l.used(r, want)
		}
		r.Cost = 1
		if l.take(take(1, 1, r), 0); !window.Kind(r.Kind).Refills() {
			want++
		}
		l.used(r, want)
	}
	// Rejected hits count only in rooms without room for them.
	l, several := newLedger(t), []wire.Room{room(fixed, 7, 5, 3), room(sliding, 8, 9, 4), room(firstHit, 9, 1, 1), room(tokens, 10, 100, 7)}
	for i := range several {
		several[i].CountRejected = true
	}
	l.take(take(1, 1, several...), 1)
	for i, total := range l.take(take(1, 1, several...), 0).Totals {
		must.Equal(t, sumOf(total), []uint64{6, 4, 2, 7}[i], "room %d: total %+v", i, total)
	}
	l.counted("rejected", 4, 0, 0)
	// A lease that leaves hits for others is not refused for lack of room, nor is one of a limit too small to be leased.
	r, small := room(fixed, 11, 1000, 1), room(fixed, 12, 100, 1)
	r.CountRejected, small.CountRejected = true, true
	l.among(10, take(1, 990, r), 990)
	l.among(10, lease(1, 1, r), 0)
	l.used(r, 990)
	l.among(10, take(1, 99, r), 10)
	l.among(10, lease(1, 1, r), 0)
	l.used(r, 1001)
	l.among(10, lease(1, 1, small), 0)
	l.used(small, 0)
}

func TestLeases(t *testing.T) {
	t.Parallel()
	for _, r := range rooms(640, 1) {
		l := newLedger(t)
		// Each of two nodes leases a quarter of the rest, until that is less than a hit.
		for _, want := range []uint64{160, 120, 90, 67, 50, 38, 28, 21, 16, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 0, 0} {
			l.among(2, lease(1, 640, r), want)
		}
		// Requests get the hits that leases leave.
		l.among(2, take(1, 640, r), 3)
		l.among(2, lease(1, 640, r), 0)
		small, less := r, r
		small.Cost, less.Cost = 3, 3
		small.Limit, small.Burst, small.Ordinal = 100, min(r.Burst, 100), 1
		less.Limit, less.Burst, less.Ordinal = 128, min(r.Burst, 128), 2
		larger := small
		larger.Limit, larger.Burst = 101, min(r.Burst, 101)
		of3 := r
		of3.Cost = 3
		for name, test := range map[string]struct {
			nodes, least, most uint64
			rooms              []wire.Room
			want               uint64
		}{
			"an unknown number of nodes": {0, 1, 640, []wire.Room{r}, 160}, "a single node": {1, 1, 640, []wire.Room{r}, 160},
			"three": {3, 1, 640, []wire.Room{r}, 106}, "ten": {10, 1, 640, []wire.Room{r}, 32},
			"the most": {320, 1, 640, []wire.Room{r}, 1}, "too many": {321, 1, 640, []wire.Room{r}, 0},
			"all":                      {math.MaxUint64, 1, 640, []wire.Room{r}, 0},
			"no more than is useful":   {2, 1, 50, []wire.Room{r}, 50},
			"less than is useful":      {2, 161, 640, []wire.Room{r}, 0},
			"just as much":             {2, 160, 640, []wire.Room{r}, 160},
			"whole units":              {2, 1, 640, []wire.Room{of3}, 53},
			"too few of them":          {2, 54, 640, []wire.Room{of3}, 0},
			"whole units in all rooms": {2, 1, 640, []wire.Room{of3, less}, 10},
			"a limit of a hundred":     {2, 1, 640, []wire.Room{small}, 0},
			"a room taken with it":     {2, 1, 640, []wire.Room{of3, small}, 0},
			"a limit of more":          {2, 1, 640, []wire.Room{larger}, 8},
		} {
			fresh := newLedger(t)
			before := fresh.NowNanos
			if fresh.among(test.nodes, lease(test.least, test.most, test.rooms...), test.want); t.Failed() || before != fresh.NowNanos {
				t.Fatalf("kind %d: %s", r.Kind, name)
			}
			for _, r := range test.rooms {
				fresh.used(r, test.want*r.Cost)
			}
		}
		newLedger(t).among(2, take(1, 640, small), 33)
	}
	// A bucket's quota is the number of tokens that it holds, whatever its rate.
	for _, test := range []struct{ limit, burst, want uint64 }{{10, 640, 160}, {640, 100, 0}} {
		r := room(tokens, 9, test.limit, 1)
		r.Burst = test.burst
		newLedger(t).among(2, lease(1, 640, r), test.want)
	}
}

// Far more hits are given back than were counted. With every algorithm, afterwards no more pass than the limit.
func TestReturnedUnbacked(t *testing.T) {
	t.Parallel()
	const unbacked = 1_000_000
	for _, ahead := range []time.Duration{0, 2 * second, 90 * second} {
		for _, r := range rooms(10, 1) {
			l := newLedger(t)
			nothing := func(when string) {
				t.Helper()
				it := l.moved(r, ahead, 0)
				for i := range it.Hits { // all that can be named, also of the window before
					it.Hits[i] = -unbacked
				}
				l.push(it)
				l.counted(when, 0, 0, int64(len(it.Hits))*unbacked)
			}
			l.set(7 * second)
			nothing("a fresh key")
			must.Equal(t, len(l.counters), 0, "kind %d, %v ahead: counters of nothing but what was given back", r.Kind, ahead)
			l.often(r, 10)
			l.pass(2*minute + 10*second)
			nothing("a key that has rested")
			l.take(take(1, 99, r), 10)
			l.often(r, 0)
			// Pushed hits don't make up for it either.
			l.pass(2*minute + 10*second)
			nothing("a key that has rested")
			l.push(l.RoomItem(&r, 4))
			l.counted(r, 4, 0, 0)
			l.often(r, 6)
		}
	}
}

// Hits stay between zero and the largest number, whatever comes, in the narrowest and the widest windows.
func TestExtremes(t *testing.T) {
	t.Parallel()
	const most = uint64(wire.MaxHits)
	for _, r := range rooms(most, most) {
		l := newLedger(t)
		for _, step := range []struct {
			n           int64
			want        uint64
			app, re, dr int64
		}{
			{wire.MaxHits - 1, most - 1, wire.MaxHits - 1, 0, 0}, {1, most, 1, 0, 0}, {1, most, 1, 0, 0}, {wire.MaxHits, most, wire.MaxHits, 0, 0},
			{-wire.MaxHits, 0, 0, wire.MaxHits, 0}, {-wire.MaxHits, 0, 0, 0, wire.MaxHits}, {5, 5, 5, 0, 0}, {-7, 0, 0, 5, 2}, {-1, 0, 0, 0, 1},
			{3, 3, 3, 0, 0}, {-2, 1, 0, 2, 0}, {-1, 0, 0, 1, 0},
		} {
			l.push(l.moved(r, 0, step.n))
			l.counted(step, step.app, step.re, step.dr)
			l.used(r, step.want)
		}
		// Hits above the largest number fit nowhere, even if the product overflows. They are not counted as rejected either.
		of := func(ordinal uint8, cost uint64) wire.Room {
			other := r
			other.Ordinal, other.Cost, other.CountRejected = ordinal, cost, cost == most
			return other
		}
		for _, step := range []struct {
			nodes uint64
			take  wire.Take
			want  uint64
		}{
			{1, take(2, most, of(1, most)), 0}, {1, take(most, most, of(1, most)), 0}, {1, lease(most, most, of(1, most)), 0},
			{1, take(1<<32, 1<<32, of(1, 1<<32)), 0}, {1, take(1, most, of(1, most)), 1}, {1, take(1, most, of(1, most)), 0},
			{1, take(1, 1, of(1, 1)), 0}, {1, take(most, most, of(2, 1)), most}, {1, take(1, 1, of(2, 1)), 0},
			{2, lease(1, most, of(3, 1)), most / 4}, {1, lease(1, most, of(4, most/4+1)), 0}, {1, lease(1, most, of(4, most/8)), 2},
			{1, lease(1, 1<<33, of(5, 1<<31)), most >> 33}, {math.MaxUint64, lease(1, most, of(6, 1)), most >> 33},
			{1, take(1, 1, of(7, 1)), 1}, {1, take(2, 2, of(7, most)), 0},
		} {
			l.among(step.nodes, step.take, step.want)
		}
		l.used(of(1, 1), most)
		l.used(of(7, 1), 1)
		for ordinal, width := range []uint64{1, wire.MaxWidthMillis} {
			narrow := of(uint8(8+ordinal), 1)
			narrow.WidthMillis, narrow.Limit, narrow.Burst = width, 9, 9
			if window.Kind(r.Kind).Bucketed() && r.Precision != 1 {
				narrow.Precision = width * 1e6 / 64
			}
			for _, want := range []uint64{8, 1, 0} {
				l.take(take(1, 8, narrow), want)
			}
		}
	}
	// One bucket holds nothing, and another lasts for long.
	l, none, long := newLedger(t), room(tokens, 1, 10, 1), room(tokens, 2, 1, 1)
	none.Burst, long.Burst = 0, 1000
	l.take(take(1, 1, none), 0)
	l.take(take(1, 2000, long), 1000)
	l.pass(minute)
	l.take(take(1, 2000, long), 1)
}

// Hits and takes at random add up.
func TestTakesAndItems(t *testing.T) {
	t.Parallel()
	random, l := rand.New(rand.NewPCG(10, 11)), newLedger(t)
	all := rooms(300, 1)
	for i := range all {
		all[i].WidthMillis = uint64(day / time.Millisecond)
		switch kind := window.Kind(all[i].Kind); {
		case kind.Refills():
			all[i].Limit = 1 // returns in a day
		case all[i].Precision == 1:
			all[i].Limit = wire.MaxHits // hits above the limit are forgotten
		case kind.Bucketed():
			all[i].Precision = uint64(day / 64)
		}
	}
	sums := make([]uint64, len(all))
	for range 400 {
		l.pass(time.Duration(random.Int64N(int64(second / 4))))
		i := random.IntN(len(all))
		pushed := random.Uint64N(5)
		l.push(l.RoomItem(&all[i], pushed))
		l.counted(i, int64(pushed), 0, 0)
		sums[i] += pushed
		asked := take(1+random.Uint64N(3), 3+random.Uint64N(9))
		asked.Lease = random.IntN(2) == 0
		chosen := random.Perm(len(all))[:1+random.IntN(3)]
		for _, i := range chosen {
			r := all[i]
			r.Cost = 1 + random.Uint64N(3)
			asked.Rooms = append(asked.Rooms, r)
		}
		g := l.Decide(&asked, 1+random.Uint64N(5), l)
		applied := int64(0)
		for j, i := range chosen {
			sums[i] += g.Units * asked.Rooms[j].Cost
			applied += int64(g.Units * asked.Rooms[j].Cost)
		}
		l.counted(asked, applied, 0, 0)
	}
	for i, r := range all {
		l.used(r, sums[i])
	}
}
