package storetest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// tenSeconds returns rooms with a window of 10 s: a sliding log, and sub-buckets of 2.5 s.
func tenSeconds(limit uint64) []wire.Room {
	rooms := []wire.Room{logRoom(1, limit, 1), room(buckets, 2, limit, 1)}
	for i := range rooms {
		rooms[i].WidthMillis = 10_000
	}
	rooms[1].Precision = 2_500_000_000
	return rooms
}

// at returns an item of a room from a sender whose clock is ahead of the store's, or behind it.
func (b *bench) at(r wire.Room, ahead time.Duration, n int64) wire.Item {
	now := uint64(b.clock.now().Add(ahead).UnixNano())
	it := store.Calendar{NowNanos: now}.RoomItem(&r, 0)
	it.Hits[0] = n
	return it
}

// takeOften takes a hit 50 times within 5 s, and wants a number of them to pass.
func (b *bench) takeOften(r wire.Room, want uint64) {
	b.t.Helper()
	passed := uint64(0)
	for range 50 {
		b.clock.advance(100 * time.Millisecond)
		passed += b.decide(b.next(nil, take(1, 1, r)), 1).Answer.Grants[0].Units
	}
	if passed != want {
		b.t.Errorf("precision %d: %d of 50 takes passed, want %d", r.Precision, passed, want)
	}
}

// testBucketsFastSender pushes hits of a sender whose clock is more than a window ahead. They count
// as hits of the time when they come.
func testBucketsFastSender(t *testing.T, b *bench) {
	for i, test := range []struct {
		pushed []int64
		passed uint64
		left   [2]uint64 // after the pushed hits have left a log, and sub-buckets
	}{
		{nil, 5, [2]uint64{0, 5}},
		{[]int64{2}, 3, [2]uint64{2, 5}},
		{[]int64{1, 1, 1, 1, 1}, 0, [2]uint64{5, 5}},
		{[]int64{1, 1, 1, 3, 1, 4}, 0, [2]uint64{5, 5}},
	} {
		for kind, r := range tenSeconds(5) {
			r.Ordinal = uint8(i)
			b.clock.set(epoch)
			for age, n := range test.pushed {
				it := b.at(r, 30*time.Second-time.Duration(age), n)
				if out := b.decide(b.next(items(it)), 1); out.Applied != n {
					t.Errorf("outcome %+v, want %d applied", out, n)
				}
			}
			b.takeOften(r, test.passed)
			b.clock.set(epoch.Add(10*time.Second - time.Microsecond))
			b.take(take(1, 99, r), 0)
			b.clock.advance(time.Microsecond)
			if test.left[kind] > 0 {
				b.take(take(1, 99, r), test.left[kind])
			}
			b.take(take(1, 99, r), 0)
		}
	}
}

// testBucketsBelieved pushes hits that are a window ahead, which count at their time, and hits that
// are a bucket further ahead, which count now.
func testBucketsBelieved(t *testing.T, b *bench) {
	for _, r := range tenSeconds(5) {
		for further, leaves := range []time.Duration{20 * time.Second, 10 * time.Second} {
			r.Ordinal = uint8(further)
			b.clock.set(epoch)
			b.decide(b.next(items(b.at(r, 10*time.Second+time.Duration(uint64(further)*r.Precision), 4))), 1)
			b.take(take(1, 99, r), 1)
			b.clock.advance(leaves - time.Microsecond)
			b.used(r, []uint64{4, 5}[further])
			b.take(take(2, 2, r), 0)
			b.clock.advance(time.Microsecond)
			b.used(r, 0)
			if c := b.counters("ns"); slices.ContainsFunc(c, func(c store.LimitCounter) bool { return c.LimitCounter == r.LimitCounter }) {
				t.Errorf("counters %+v, want none of what has left", c)
			}
		}
	}
}

// testBucketsSetBack sets the store's clock back. Earlier hits then count as hits of now, until
// they have left the window that ends with them.
func testBucketsSetBack(t *testing.T, b *bench) {
	for i, back := range []time.Duration{5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute} {
		for _, r := range tenSeconds(5) {
			r.Ordinal = uint8(i)
			full := r
			full.ID[1] = 1
			b.clock.set(epoch)
			b.take(take(2, 2, r), 2)
			b.decide(b.next(items(b.at(full, 0, 9))), 1)
			b.clock.advance(-back)
			b.takeOften(full, 0)
			b.clock.set(epoch.Add(-back))
			b.takeOften(r, 3)
			b.used(r, 5)
			b.clock.set(epoch.Add(10*time.Second - time.Microsecond))
			b.take(take(4, 4, full), 0)
			if back >= 15*time.Second {
				b.used(r, 2)
				b.take(take(1, 99, r), 3)
			}
			b.clock.advance(time.Microsecond)
			b.take(take(5, 5, full), 5)
			b.clock.advance(10 * time.Second)
			b.used(r, 0)
			if back == 5*time.Second {
				continue
			}
			// Hits ahead do not displace today's hits.
			full.ID[1] = 2
			b.clock.set(epoch)
			old := b.at(full, 0, -9)
			b.decide(b.next(items(b.at(full, 0, 9))), 1)
			b.clock.advance(-back)
			b.decide(b.next(items(b.at(full, 0, 3))), 1)
			b.take(take(1, 99, full), 0)
			if out := b.decide(b.next(items(old)), 1); out.Returned != 9 {
				t.Errorf("outcome %+v, want 9 returned", out)
			}
			b.used(full, 3)
			b.take(take(1, 99, full), 2)
		}
	}
}

// testBucketsAheadReturned gives back hits that were counted ahead of the store's clock.
func testBucketsAheadReturned(t *testing.T, b *bench) {
	const far, near = 30 * time.Second, 5 * time.Second
	for i, test := range []struct {
		name string
		run  func(push func(ahead time.Duration, n int64))
		want uint64
		// unbacked is how many of the returned hits were never counted.
		unbacked int64
	}{
		{"far ahead", func(push func(time.Duration, int64)) {
			push(far, 5)
			b.clock.advance(time.Second)
			push(far-time.Second, -2)
		}, 3, 0},
		{"far ahead, before them", func(push func(time.Duration, int64)) {
			push(far, -2)
			b.clock.advance(time.Second)
			push(far-time.Second, 5)
		}, 5, 2},
		{"far ahead, before some of them", func(push func(time.Duration, int64)) {
			push(far, 1)
			b.clock.advance(3 * time.Second)
			push(far-3*time.Second, -3)
			push(far-3*time.Second, 4)
		}, 4, 2},
		{"far ahead, of several times", func(push func(time.Duration, int64)) {
			push(0, 1)
			push(far, 1)
			b.clock.advance(3 * time.Second)
			push(far, 1)
			b.clock.advance(3 * time.Second)
			push(far-6*time.Second, -1)
			push(far-3*time.Second, -1)
		}, 1, 0},
		{"ahead", func(push func(time.Duration, int64)) {
			push(near, 5)
			b.clock.advance(time.Second)
			push(near-time.Second, -2)
		}, 3, 0},
		{"ahead, when the clock has caught up", func(push func(time.Duration, int64)) {
			push(near, 5)
			b.clock.advance(near + time.Second)
			push(-time.Second, -2)
		}, 3, 0},
		{"ahead, before them", func(push func(time.Duration, int64)) {
			push(near, -2)
			b.clock.advance(time.Second)
			push(near-time.Second, 5)
		}, 5, 2},
		{"of the time before the clock was set back", func(push func(time.Duration, int64)) {
			push(0, 5)
			b.clock.advance(-time.Minute)
			push(0, 1)
			push(time.Minute, -3)
		}, 3, 0},
		{"more than there are, which is of today's no hit", func(push func(time.Duration, int64)) {
			push(far, 2)
			push(far, -3)
			b.clock.advance(3 * time.Second)
			push(0, 2)
		}, 2, 1},
	} {
		for _, r := range tenSeconds(10) {
			r.Ordinal = uint8(i)
			b.clock.set(epoch)
			var unbacked int64
			test.run(func(ahead time.Duration, n int64) {
				t.Helper()
				out := b.decide(b.next(items(b.at(r, ahead, n))), 1)
				unbacked += out.Dropped
				if out.Applied != max(0, n) || out.Returned+out.Dropped != max(0, -n) {
					t.Errorf("%s, precision %d: outcome %+v of %d hits", test.name, r.Precision, out, n)
				}
			})
			if unbacked != test.unbacked {
				t.Errorf("%s, precision %d: %d hits were dropped, want %d", test.name, r.Precision, unbacked, test.unbacked)
			}
			asked := b.at(r, 0, 0)
			out := b.decide(&wire.Push{Namespace: "ns", Sender: 99, Sequence: 1, Floor: 1, Items: items(asked)}, 1)
			if got := sumOf(out.Answer.Totals[0]); got != test.want {
				t.Errorf("%s, precision %d: %d hits are left, want %d", test.name, r.Precision, got, test.want)
			}
			b.take(take(1, 99, r), 10-test.want)
		}
	}
}

// testBucketsAheadReturnedLate lets a sender whose clock is more than a window ahead give back hits
// after others have taken the rest. Still no window exceeds the limit, and hits that count are
// given back.
func testBucketsAheadReturnedLate(t *testing.T, b *bench) {
	const far, near = 30 * time.Second, 12500 * time.Millisecond
	for i, test := range []struct {
		name string
		run  func(at func(after time.Duration), push func(ahead, age time.Duration, n, returned int64), take func(want uint64))
	}{
		{"others' hits are newer", func(at func(time.Duration), push func(ahead, age time.Duration, n, returned int64), take func(uint64)) {
			push(far, 0, 2, 0)
			at(6 * time.Second)
			take(3)
			at(7 * time.Second)
			push(far, 7*time.Second, -2, 2)
			take(2)
			at(10 * time.Second)
			take(0)
		}},
		{"they are a window old", func(at func(time.Duration), push func(ahead, age time.Duration, n, returned int64), take func(uint64)) {
			push(far, 0, 5, 0)
			at(10 * time.Second)
			take(5)
			at(11 * time.Second)
			push(far, 11*time.Second, -5, 0)
			take(0)
		}},
		{"it took a window to arrive", func(at func(time.Duration), push func(ahead, age time.Duration, n, returned int64), take func(uint64)) {
			push(near, 0, 5, 0)
			at(10 * time.Second)
			take(5)
			at(11 * time.Second)
			push(near, time.Second, -5, 0)
			take(0)
		}},
		{"the store's clock was set back since", func(at func(time.Duration), push func(ahead, age time.Duration, n, returned int64), take func(uint64)) {
			push(far, 0, 4, 0)
			at(-5 * time.Second)
			take(1)
			push(far, time.Second, -4, 4)
			take(4)
		}},
	} {
		for _, r := range tenSeconds(5) {
			r.Ordinal = uint8(i)
			b.clock.set(epoch)
			number := func(after time.Duration) uint64 {
				return store.NumberAt(r.LimitCounter, uint64(epoch.Add(after).UnixNano()))
			}
			test.run(func(after time.Duration) { b.clock.set(epoch.Add(after)) }, func(ahead, age time.Duration, n, returned int64) {
				t.Helper()
				it := b.at(r, 0, n)
				it.Newest = number(ahead + age)
				it.Ages[0] = it.Newest - number(ahead)
				if out := b.decide(b.next(items(it)), 1); out.Returned != returned || out.Applied != max(0, n) {
					t.Errorf("%s, precision %d: outcome %+v of %d hits, want %d returned", test.name, r.Precision, out, n, returned)
				}
			}, func(want uint64) {
				t.Helper()
				if got := b.decide(b.next(nil, take(1, 99, r)), 1).Answer.Grants[0].Units; got != want {
					t.Errorf("%s, precision %d: %d hits pass at %v, want %d", test.name, r.Precision, got, b.clock.now().Sub(epoch), want)
				}
			})
		}
	}
}

// testBucketsNothingReturned gives back hits while the store's clock is set back so far that it
// can't see them. Nothing is subtracted: the hits are there when the clock is right again.
func testBucketsNothingReturned(t *testing.T, b *bench) {
	for _, r := range tenSeconds(5) {
		b.clock.set(epoch)
		b.decide(b.next(items(b.at(r, 0, 3))), 1)
		b.clock.advance(-store.Ahead - 20*time.Second)
		if out := b.decide(b.next(items(b.at(r, 0, -1))), 1); out.Dropped != 1 {
			t.Errorf("precision %d: outcome %+v, want 1 dropped", r.Precision, out)
		}
		b.clock.set(epoch)
		b.used(r, 3)
	}
}

// testBucketsAheadUnseen sets the store's clock back so far that it sees only some of a counter's
// hits. These count, and the others don't matter.
func testBucketsAheadUnseen(_ *testing.T, b *bench) {
	for _, r := range tenSeconds(5) {
		once := r
		once.Limit = 100
		b.clock.set(epoch.Add(-8 * time.Second))
		b.decide(b.next(items(b.at(once, 0, 1))), 1)
		b.clock.set(epoch)
		b.decide(b.next(items(b.at(once, 0, 9))), 1)
		b.clock.advance(-store.Ahead - 5*time.Second)
		b.used(r, 1)
		b.take(take(1, 99, r), 4)
	}
}

// testBucketsAheadOnce sends hits ahead a second time, as late as their number still counts.
func testBucketsAheadOnce(t *testing.T, b *bench) {
	for _, r := range tenSeconds(5) {
		b.clock.set(epoch)
		p := &wire.Push{Namespace: "ns", Sender: 7 + uint64(r.ID[0]), Sequence: 1, Floor: 1, Items: items(b.at(r, store.Ahead, 3))}
		if out := b.decide(p, 1); out.Applied != 3 {
			t.Errorf("outcome %+v, want 3 applied", out)
		}
		for _, after := range []time.Duration{time.Second, 9 * time.Second, store.Ahead, store.Ahead + 7*time.Second} {
			b.clock.set(epoch.Add(after))
			if out := b.decide(p, 1); !out.Duplicate || out.Applied != 0 {
				t.Errorf("%v later: outcome %+v, want a duplicate", after, out)
			}
			if want := uint64(3); after < 10*time.Second {
				b.used(r, want)
			} else {
				b.used(r, 0)
			}
		}
	}
}

// testBucketsWander lets the clocks of senders and of the store jump, and compares the store with
// the simplest counter that follows the rules.
func testBucketsWander(t *testing.T, b *bench) {
	random := rand.New(rand.NewPCG(12, 13))
	const width = 60 * time.Second
	rooms := []wire.Room{logRoom(1, 7, 1), logRoom(2, 40, 1), room(buckets, 3, 80, 1), room(buckets, 4, 80, 1)}
	rooms[3].Precision = minute * 1e6 / 64
	plain := make([]plainBuckets, len(rooms))
	for i := range rooms {
		plain[i] = plainBuckets{of: rooms[i].LimitCounter, limit: rooms[i].Limit, hits: map[uint64]int64{}}
	}
	passed, jumps := 0, 0
	for range 600 {
		step := time.Duration(random.Int64N(int64(2 * time.Second)))
		if random.IntN(12) == 0 {
			jumps++
			step = time.Duration(random.Int64N(int64(5*width))) - 3*width
		}
		b.clock.set(b.clock.now().Add(step).Truncate(time.Microsecond))
		c := store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}
		for i := range rooms {
			r := &rooms[i]
			// Push a hit of now each time: a counter without hits goes by a clock that does not
			// jump.
			pushed := map[uint64]int64{store.NumberAt(r.LimitCounter, c.NowNanos): 1}
			for range random.IntN(4) {
				ahead := random.Int64N(int64(3*width)) - int64(width)
				number := store.NumberAt(r.LimitCounter, uint64(int64(c.NowNanos)+ahead))
				if numbers := plain[i].newestFirst(); len(numbers) > 0 && random.IntN(2) == 0 {
					number = numbers[random.IntN(len(numbers))]
				}
				pushed[number] += random.Int64N(12) - 5
			}
			it := bucketItem(r.ID[0], minute, r.Precision, r.Limit, newestFirst(pushed)...)
			it.Limit = r.Limit
			plain[i].push(c, &it)
			out := b.decide(b.next(items(it), take(1, 3, *r)), 1)
			g := out.Answer.Grants[0]
			want := uint64(3)
			if left := int64(r.Limit) - plain[i].sum(c); left < 3 {
				want = uint64(max(0, left))
			}
			if g.Units != want {
				t.Fatalf("push %d, counter %d: %d units, want %d", b.seq, i, g.Units, want)
			}
			if g.Units > 0 {
				passed++
				taken := c.RoomItem(r, g.Units)
				plain[i].push(c, &taken)
			}
			asked := c.RoomItem(r, 0)
			if got, want := bucketsOf(g.Totals[0]), plain[i].total(c, &asked); !slices.Equal(got, want) {
				t.Fatalf("push %d, counter %d: buckets %v, want %v", b.seq, i, got, want)
			}
		}
	}
	if passed < 100 || jumps < 20 {
		t.Errorf("%d takes passed, %d jumps; want more", passed, jumps)
	}
}

// plainBuckets is a counter's buckets by their numbers.
type plainBuckets struct {
	of    wire.LimitCounter
	limit uint64
	hits  map[uint64]int64
}

func (p *plainBuckets) newestFirst() (numbers []uint64) {
	for _, w := range newestFirst(p.hits) {
		numbers = append(numbers, w.Number)
	}
	return numbers
}

func (p *plainBuckets) push(c store.Calendar, it *wire.Item) {
	span, now, width := c.Span(p.of), store.NumberAt(p.of, c.NowNanos), p.of.WidthMillis*1e6/p.of.Precision
	for number := range p.hits {
		if number < span.Kept || number > span.Newest {
			delete(p.hits, number)
		}
	}
	for i, n := range it.Hits {
		number := it.Newest - it.Ages[i]
		if number < span.Oldest || number > span.Newest {
			continue
		}
		if n < 0 {
			oldestFirst := p.newestFirst()
			slices.Reverse(oldestFirst)
			for _, other := range append([]uint64{number}, oldestFirst...) {
				if other == number || other >= span.Oldest && other+width < number && it.Ages[i] < width {
					hits := min(-n, p.hits[other])
					p.hits[other] -= hits
					n += hits
				}
			}
			continue
		}
		if number > now+width {
			number = now
		}
		p.hits[number] += n
	}
	var ahead, today uint64
	for _, number := range p.newestFirst() {
		sum := &today
		if number > now {
			sum = &ahead
		}
		if p.hits[number] == 0 || p.of.Precision == 1 && *sum > p.limit {
			delete(p.hits, number)
			continue
		}
		*sum += uint64(p.hits[number])
	}
}

// sum returns the hits that count.
func (p *plainBuckets) sum(c store.Calendar) (sum int64) {
	span := c.Span(p.of)
	for number, n := range p.hits {
		if number >= span.Oldest && number <= span.Newest {
			sum += n
		}
	}
	return sum
}

func (p *plainBuckets) total(c store.Calendar, it *wire.Item) (found []store.Window) {
	span, sums, sum := c.Span(p.of), map[uint64]int64{}, uint64(0)
	for number, n := range p.hits {
		if number >= span.Oldest && number <= span.Newest && n > 0 {
			sums[min(number, it.Newest)] += n
		}
	}
	for _, w := range newestFirst(sums) {
		if p.of.Precision != 1 || sum <= p.limit {
			found = append(found, w)
		}
		sum += uint64(w.Hits)
	}
	return found
}
