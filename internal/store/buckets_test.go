package store_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// quarter is the number of the 15-second bucket at which the tests begin.
var quarter = epoch / uint64(15*second)

func quarters(id byte, pushed ...store.Window) wire.Item {
	return bucketItem(id, minute, 15*second, 10, pushed...)
}

// buckets pushes an item, and wants these buckets, newest first, in an answer of at most the size that the item allows for.
func (l *ledger) buckets(it wire.Item, want ...store.Window) wire.Total {
	l.t.Helper()
	total := l.push(it)
	if got := bucketsOf(total); !slices.Equal(got, want) {
		l.t.Fatalf("%v after epoch: buckets %v, want %v", time.Duration(l.NowNanos-epoch), got, want)
	}
	empty := len(wire.AppendAnswer(nil, &wire.Answer{}))
	if size := len(wire.AppendAnswer(nil, &wire.Answer{Totals: []wire.Total{total}})) - empty; size > it.AnswerSize() {
		l.t.Errorf("an answer of %d bytes, want at most %d", size, it.AnswerSize())
	}
	return total
}

// read wants these buckets of an item that counts nothing.
func (l *ledger) read(it wire.Item, want ...store.Window) wire.Total {
	l.t.Helper()
	it.Hits, it.Ages = nil, nil
	return l.buckets(it, want...)
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.set(20 * second)
	l.buckets(quarters(1, hits(quarter+1, 3), hits(quarter-2, 4), hits(quarter-3, 5)), hits(quarter+1, 3), hits(quarter-2, 4))
	l.counted("a bucket that the window has left", 7, 0, 5)
	// The answer has all buckets that count, and the newest of the item.
	l.buckets(quarters(1, hits(quarter, 1)), hits(quarter+1, 3), hits(quarter, 1), hits(quarter-2, 4))
	must.Equal(t, l.read(quarters(1, hits(quarter+2, 0)), hits(quarter+1, 3), hits(quarter, 1)).Newest, quarter+2, "newest, which is the one asked for")
	must.Equal(t, l.read(quarters(1, hits(quarter, 0)), hits(quarter+1, 3), hits(quarter, 1), hits(quarter-2, 4)).Newest, quarter+1, "newest, which is that of the newest bucket")
	l.buckets(quarters(3, hits(quarter+1, 3)), hits(quarter+1, 3))
	must.Equal(t, l.read(quarters(3, hits(quarter, 0)), hits(quarter+1, 3)).Newest, quarter+1, "newest, which is that of the only bucket")
	must.Same(t, l.contents(quarters(1).LimitCounter).Windows, []store.Window{hits(quarter+1, 3), hits(quarter, 1), hits(quarter-2, 4)}, "buckets")
	// They leave one by one, and those that have left do not come back with later buckets.
	l.set(45*second - 1)
	l.buckets(quarters(2, hits(quarter+2, 3), hits(quarter-1, 2)), hits(quarter+2, 3), hits(quarter-1, 2))
	l.set(45 * second)
	l.buckets(quarters(2, hits(quarter-1, 2)), hits(quarter+2, 3), hits(quarter-1, 2))
	l.counted("a bucket that the window has left", 0, 0, 2)
	l.set(2 * minute)
	l.read(quarters(2, hits(quarter, 0)))
	l.buckets(quarters(2, hits(quarter+8, 1)), hits(quarter+8, 1))
}

// Hits add up in any order to those that a single node would have counted.
func TestBucketSums(t *testing.T) {
	t.Parallel()
	for id, precision := range []time.Duration{1, minute / 64, 15 * second, minute} {
		random := rand.New(rand.NewPCG(7, uint64(precision)))
		l := newLedger(t)
		l.set(50 * second)
		sums := map[uint64]int64{}
		for range 100 {
			pushed := map[uint64]int64{}
			for range 1 + random.IntN(9) {
				pushed[(l.NowNanos-random.Uint64N(59)*1e9)/uint64(precision)] += 1 + random.Int64N(3)
			}
			for number, n := range pushed {
				if number+uint64(minute/precision) > l.NowNanos/uint64(precision) {
					sums[number] += n
				}
			}
			l.push(bucketItem(byte(id), minute, precision, wire.MaxHits, sorted(pushed)...))
		}
		l.read(bucketItem(byte(id), minute, precision, wire.MaxHits, hits(l.NowNanos/uint64(precision), 0)), sorted(sums)...)
	}
}

// A bucket has a largest number of hits, and given back hits leave nothing of a bucket without hits.
func TestBucketHits(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.buckets(quarters(1, hits(quarter, wire.MaxHits), hits(quarter-1, wire.MaxHits-1)), hits(quarter, wire.MaxHits), hits(quarter-1, wire.MaxHits-1))
	l.buckets(quarters(1, hits(quarter, 1), hits(quarter-1, 2)), hits(quarter, wire.MaxHits), hits(quarter-1, wire.MaxHits))
	l.buckets(log(1, wire.MaxHits, hits(epoch, wire.MaxHits), hits(epoch-1, 5), hits(epoch-2, 1)), hits(epoch, wire.MaxHits), hits(epoch-1, 5))
	for id, precision := range []time.Duration{1, 15 * second} {
		number := epoch / uint64(precision)
		of := func(n ...int64) wire.Item {
			var pushed []store.Window
			for i, n := range n {
				pushed = append(pushed, hits(number-uint64(i), n))
			}
			return bucketItem(byte(2+id), minute, precision, 100, pushed...)
		}
		l.buckets(of(5, 1), hits(number, 5), hits(number-1, 1))
		l.buckets(of(-7), hits(number-1, 1))
		l.counted(precision, 0, 5, 2)
		// Hits that are given back before they have arrived make no room.
		l.buckets(of(5), hits(number, 5), hits(number-1, 1))
		l.buckets(of(-5, -1))
		must.Same(t, l.contents(of().LimitCounter).Windows, nil, "kept")
		l.buckets(of(0, 0))
		l.counted("nothing", 0, 0, 0)
	}
	l.push(quarters(4, hits(quarter-4, -3)))
	l.counted("a bucket that has left", 0, 0, 3)
	// A log with a limit of 1 keeps what is over it at first, and gives back no hits that it does not count.
	l.buckets(log(5, 1, hits(epoch, -5), hits(epoch-1, 2), hits(epoch-2, 1)), hits(epoch-1, 2))
	l.counted("a log", 3, 0, 5)
}

// A log is exact to the nanosecond, and keeps so many of its newest hits that exceed its limit.
func TestLog(t *testing.T) {
	t.Parallel()
	l, now := newLedger(t), epoch
	const width = uint64(minute)
	l.buckets(log(1, 9, hits(now, 2), hits(now-width+1, 3), hits(now-width, 4)), hits(now, 2), hits(now-width+1, 3))
	l.counted("a hit as old as the window", 5, 0, 4)
	// The answer is for a window that ends with the item's newest.
	l.buckets(log(1, 9, hits(now+1, 1)), hits(now, 3))
	l.buckets(log(1, 9, hits(now, 1)), hits(now, 4), hits(now-width+1, 3))
	l.set(minute)
	must.Same(t, l.counting(log(1, 9).LimitCounter), []store.Window{hits(now+1, 1)}, "count, want the hit that came a nanosecond later")
	l.set(minute + store.Grace)
	l.read(log(1, 9, hits(now, 0)), hits(now+1, 1))

	l.set(0)
	l.buckets(log(2, 5, hits(now-1, 2), hits(now-3, 2), hits(now-5, 2)), hits(now-1, 2), hits(now-3, 2), hits(now-5, 2))
	// The oldest hits that would exceed the limit are forgotten, and are dropped if they come again.
	l.buckets(log(2, 5, hits(now-2, 2)), hits(now-1, 2), hits(now-2, 2), hits(now-3, 2))
	l.buckets(log(2, 5, hits(now-9, 7)), hits(now-1, 2), hits(now-2, 2), hits(now-3, 2))
	l.counted("forgotten hits", 7, 0, 0)
	// A read for a lower limit needs fewer, and changes nothing.
	l.read(log(2, 1, hits(now, 0)), hits(now-1, 2))
	l.read(log(2, 5, hits(now, 0)), hits(now-1, 2), hits(now-2, 2), hits(now-3, 2))
	l.buckets(log(2, 0, hits(now, 1)), hits(now, 1))
	// Buckets are bounded, whatever the limit, in what is kept and in answers.
	for round := range uint64(2) {
		var pushed, want []store.Window
		for i := range uint64(wire.MaxBuckets) {
			pushed = append(pushed, hits(now-1+round-2*i, 1))
			if want = append(want, pushed[i]); round == 1 {
				want[i] = hits(now-i, 1)
			}
		}
		l.buckets(log(3, wire.MaxHits, pushed...), want...)
	}
	for _, test := range []struct {
		limit uint64
		want  int
	}{{0, 65}, {5, 70}, {wire.MaxBuckets - 65, wire.MaxBuckets}, {wire.MaxHits, wire.MaxBuckets}} {
		must.Equal(t, store.MostBuckets(test.limit), test.want, "limit %d: at most buckets", test.limit)
	}
}

// Hits ahead must not fill an answer in place of the present ones, nor displace them in a log.
func TestBucketsAheadOfMany(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var ahead, present []store.Window
	base := epoch / 1e9 * 64
	for i := range uint64(64) {
		ahead, present = append(ahead, hits(base+1000-i, 1)), append(present, hits(base-i, 2))
	}
	of := func(pushed ...store.Window) wire.Item { return bucketItem(1, second, second/64, 10, pushed...) }
	l.push(of(ahead...))
	l.read(of(hits(base, 0)), hits(base, 64))
	answered := slices.Clone(present)
	answered[0].Hits += 64
	l.buckets(of(present...), answered...)
	// A clock that is set back loses nothing that still counts.
	l.buckets(log(2, 10, hits(epoch, 1)), hits(epoch, 1))
	l.set(-second)
	must.Equal(t, l.read(log(2, 10, hits(epoch-1e9, 0)), hits(epoch-1e9, 1)).Newest, epoch-1e9, "newest, which is the one asked for")
}

// step is what a sender does at a time of the store's clock, whose own clock is ahead: it pushes hits of a while before, or
// gives some back, and wants so many to be applied or returned. Without hits it takes all that it can get.
type step struct {
	at, ahead, age time.Duration
	hits, want     int64
}

// Clocks of senders are ahead, and the store's is set back. Whatever happens, no window has more than its limit of 5, and
// hits that count are given back.
func TestBucketsOfClocksThatAreOff(t *testing.T) {
	t.Parallel()
	const far, further, near, unseen = 30 * second, 12500 * time.Millisecond, 5 * second, store.Ahead + 5*second
	timelines := map[string][]step{
		"more than a window ahead, which counts when it comes": {
			{0, far, 0, 2, 2}, {5 * second, 0, 0, 0, 3}, {10*second - 1, 0, 0, 0, 0}, {10 * second, 0, 0, 0, 2}, {15 * second, 0, 0, 0, 3},
		},
		"more than the limit ahead":   {{0, far, 0, 9, 9}, {10*second - 1, 0, 0, 0, 0}, {10 * second, 0, 0, 0, 5}},
		"a bucket more than a window": {{0, further, 0, 4, 4}, {0, 0, 0, 0, 1}, {10*second - 1, 0, 0, 0, 0}, {10 * second, 0, 0, 0, 5}},
		"a window ahead, which counts at its time, too": {
			{0, 10 * second, 0, 4, 4}, {0, 0, 0, 0, 1}, {10 * second, 0, 0, 0, 1}, {20*second - 1, 0, 0, 0, 0}, {20 * second, 0, 0, 0, 5},
		},
		"given back":                       {{0, far, 0, 5, 5}, {second, far, second, -2, 2}, {second, 0, 0, 0, 2}},
		"given back before they come":      {{0, far, 0, -2, 0}, {second, far - second, 0, 5, 5}, {second, 0, 0, 0, 0}},
		"given back before some come":      {{0, far, 0, 1, 1}, {3 * second, far, 3 * second, -3, 1}, {3 * second, far - 3*second, 0, 4, 4}, {3 * second, 0, 0, 0, 1}},
		"of several times":                 {{0, 0, 0, 1, 1}, {0, far, 0, 1, 1}, {3 * second, far, 0, 1, 1}, {6 * second, far, 6 * second, -1, 1}, {6 * second, far, 3 * second, -1, 1}, {6 * second, 0, 0, 0, 4}},
		"near, given back":                 {{0, near, 0, 5, 5}, {second, near, second, -2, 2}, {second, 0, 0, 0, 2}},
		"near, when the clock has come up": {{0, near, 0, 5, 5}, {near + second, near, near + second, -2, 2}, {near + second, 0, 0, 0, 2}},
		"near, before they come":           {{0, near, 0, -2, 0}, {second, near, second, 5, 5}, {second, 0, 0, 0, 0}},
		"before the clock was set back":    {{0, 0, 0, 5, 5}, {-minute, 0, 0, 1, 1}, {-minute, minute, 0, -3, 3}, {-minute, 0, 0, 0, 2}},
		"more than there are":              {{0, far, 0, 2, 2}, {0, far, 0, -3, 2}, {3 * second, 0, 0, 2, 2}, {3 * second, 0, 0, 0, 3}},
		"others' hits are newer": {
			{0, far, 0, 2, 2}, {6 * second, 0, 0, 0, 3}, {7 * second, far, 7 * second, -2, 2}, {7 * second, 0, 0, 0, 2}, {10 * second, 0, 0, 0, 0},
		},
		"they are a window old":             {{0, far, 0, 5, 5}, {10 * second, 0, 0, 0, 5}, {11 * second, far, 11 * second, -5, 0}, {11 * second, 0, 0, 0, 0}},
		"they took a window to arrive":      {{0, further, 0, 5, 5}, {10 * second, 0, 0, 0, 5}, {11 * second, further - 10*second, second, -5, 0}, {11 * second, 0, 0, 0, 0}},
		"the clock was set back since":      {{0, far, 0, 4, 4}, {-5 * second, 0, 0, 0, 1}, {-5 * second, far, second, -4, 4}, {-5 * second, 0, 0, 0, 4}},
		"the clock can't see what it gives": {{0, 0, 0, 3, 3}, {-unseen - far, 0, 0, -1, 0}, {0, 0, 0, 0, 2}},
		"the clock sees none":               {{0, 0, 0, 3, 3}, {-unseen - far, 0, 0, 0, 5}},
		"the clock sees some":               {{-8 * second, 0, 0, 1, 1}, {0, 0, 0, 4, 4}, {-unseen, 0, 0, 0, 4}},
	}
	for _, back := range []time.Duration{5 * second, 15 * second, minute, 5 * minute} {
		timelines["set back by "+back.String()] = []step{{0, 0, 0, 9, 9}, {-back, 0, 0, 0, 0}, {10*second - 1, 0, 0, 0, 0}, {10 * second, 0, 0, 0, 5}}
		if back > 10*second { // hits ahead do not displace those of today
			timelines["hits since it was set back by "+back.String()] = []step{{0, 0, 0, 9, 9}, {-back, 0, 0, 3, 3}, {-back, 0, 0, 0, 0}, {-back, back, 0, -9, 9}, {-back, 0, 0, 0, 2}}
			timelines["some room when it was set back by "+back.String()] = []step{{0, 0, 0, 2, 2}, {-back, 0, 0, 0, 3}, {-back + 10*second, 0, 0, 0, 3}, {10*second - 1, 0, 0, 0, 3}, {10 * second, 0, 0, 0, 2}}
		}
	}
	for _, width := range []time.Duration{1, 2500 * time.Millisecond} {
		for name, steps := range timelines {
			l, r := newLedger(t), wire.Room{LimitCounter: bucketItem(1, 10*second, width, 5).LimitCounter, Limit: 5, Cost: 1}
			for i, s := range steps {
				l.set(s.at)
				if s.hits == 0 {
					asked := take(1, 99, r)
					must.Equal(t, l.Decide(&asked, 1, l).Units, uint64(s.want), "%s, precision %v, step %d: units", name, width, i)
					continue
				}
				it := l.RoomItem(&r, 0)
				it.Newest, it.Hits[0] = store.NumberAt(r.LimitCounter, at(s.at+s.ahead)), s.hits
				it.Ages[0] = it.Newest - store.NumberAt(r.LimitCounter, at(s.at+s.ahead-s.age))
				l.push(it)
				if out := l.outcome(); out.Applied+out.Returned != s.want || out.Applied != max(0, s.hits) || out.Applied+out.Returned+out.Dropped != max(s.hits, -s.hits) {
					t.Errorf("%s, precision %v, step %d: outcome %+v of %d hits, want %d", name, width, i, out, s.hits, s.want)
				}
			}
		}
	}
}

// The clocks of senders and of the store jump, and the arithmetic does as the simplest counter that follows the rules.
func TestBucketsOfClocksThatWander(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(12, 13))
	const width = 60 * second
	rooms := []wire.Room{logRoom(1, 7, 1), logRoom(2, 40, 1), room(buckets, 3, 80, 1), room(buckets, 4, 80, 1)}
	rooms[3].Precision = uint64(minute / 64)
	plain := make([]plainBuckets, len(rooms))
	for i := range rooms {
		plain[i] = plainBuckets{of: rooms[i].LimitCounter, limit: rooms[i].Limit, hits: map[uint64]int64{}}
	}
	l, passed, jumps := newLedger(t), 0, 0
	for step := range 600 {
		jump := time.Duration(random.Int64N(int64(2 * second)))
		if random.IntN(12) == 0 {
			jumps++
			jump = time.Duration(random.Int64N(int64(5*width))) - 3*width
		}
		l.pass(jump)
		for i := range rooms {
			r := &rooms[i]
			// A hit of now each time, as what has left is only dropped when hits are counted.
			pushed := map[uint64]int64{store.NumberAt(r.LimitCounter, l.NowNanos): 1}
			for range random.IntN(4) {
				number := store.NumberAt(r.LimitCounter, uint64(int64(l.NowNanos)+random.Int64N(int64(3*width))-int64(width)))
				if numbers := sorted(plain[i].hits); len(numbers) > 0 && random.IntN(2) == 0 {
					number = numbers[random.IntN(len(numbers))].Number
				}
				pushed[number] += random.Int64N(12) - 5
			}
			it := bucketItem(r.ID[0], minute, time.Duration(r.Precision), r.Limit, sorted(pushed)...)
			plain[i].push(l.Calendar, &it)
			l.push(it)
			want := uint64(3)
			if left := int64(r.Limit) - plain[i].sum(l.Calendar); left < 3 {
				want = uint64(max(0, left))
			}
			g := l.take(take(1, 3, *r), want)
			if g.Units > 0 {
				passed++
				taken := l.RoomItem(r, g.Units)
				plain[i].push(l.Calendar, &taken)
			}
			asked := l.RoomItem(r, 0)
			if got, want := bucketsOf(g.Totals[0]), plain[i].total(l.Calendar, &asked); !slices.Equal(got, want) {
				t.Fatalf("step %d, counter %d: buckets %v, want %v", step, i, got, want)
			}
		}
	}
	must.AtLeast(t, passed, 100, "takes that passed")
	must.AtLeast(t, jumps, 20, "jumps")
}

// plainBuckets is a counter's buckets by their numbers.
type plainBuckets struct {
	of    wire.LimitCounter
	limit uint64
	hits  map[uint64]int64
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
			others := sorted(p.hits)
			slices.Reverse(others)
			for _, other := range append([]store.Window{hits(number, 0)}, others...) {
				if other.Number == number || other.Number >= span.Oldest && other.Number+width < number && it.Ages[i] < width {
					taken := min(-n, p.hits[other.Number])
					p.hits[other.Number] -= taken
					n += taken
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
	for _, w := range sorted(p.hits) {
		sum := &today
		if w.Number > now {
			sum = &ahead
		}
		if w.Hits == 0 || p.of.Precision == 1 && *sum > p.limit {
			delete(p.hits, w.Number)
			continue
		}
		*sum += uint64(w.Hits)
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
	for _, w := range sorted(sums) {
		if p.of.Precision != 1 || sum <= p.limit {
			found = append(found, w)
		}
		sum += uint64(w.Hits)
	}
	return found
}
