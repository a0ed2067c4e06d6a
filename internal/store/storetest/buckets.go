package storetest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// bucketItem returns an item of a counter with buckets, named after id. The buckets are newest
// first.
func bucketItem(id byte, widthMillis, precision, limit uint64, pushed ...store.Window) wire.Item {
	c := wire.LimitCounter{ID: wire.ID{0: id}, Kind: buckets, WidthMillis: widthMillis, Precision: precision}
	it := wire.Item{LimitCounter: c, Limit: limit}
	for i, w := range pushed {
		if i == 0 {
			it.Newest = w.Number
		}
		it.Ages = append(it.Ages, it.Newest-w.Number)
		it.Hits = append(it.Hits, w.Hits)
	}
	return it
}

// log returns an item of a sliding log of a minute.
func log(id byte, limit uint64, pushed ...store.Window) wire.Item {
	return bucketItem(id, minute, 1, limit, pushed...)
}

func hits(number uint64, n int64) store.Window { return store.Window{Number: number, Hits: n} }

// pushBuckets pushes an item, and wants these buckets, newest first.
func (b *bench) pushBuckets(it wire.Item, want ...store.Window) store.Outcome {
	b.t.Helper()
	b.seq++
	return b.sendBuckets(&wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq, Items: items(it)}, want...)
}

// readBuckets reads the buckets of an item, and wants these.
func (b *bench) readBuckets(it wire.Item, want ...store.Window) wire.Total {
	b.t.Helper()
	it.Hits, it.Ages = nil, nil
	p := &wire.Push{Namespace: "ns", Sender: 99, Sequence: 1, Floor: 1, Items: items(it)}
	return b.sendBuckets(p, want...).Answer.Totals[0]
}

func (b *bench) sendBuckets(p *wire.Push, want ...store.Window) store.Outcome {
	b.t.Helper()
	out, err := b.store.Push(b.t.Context(), p, 1)
	if err != nil {
		b.t.Fatalf("push %d: %v", p.Sequence, err)
	}
	if got := bucketsOf(out.Answer.Totals[0]); !slices.Equal(got, want) {
		b.t.Fatalf("push %d: buckets %v, want %v", p.Sequence, got, want)
	}
	if size := len(wire.AppendAnswer(nil, &wire.Answer{Totals: out.Answer.Totals})); size > 11+p.Items[0].AnswerSize() {
		b.t.Errorf("push %d: an answer of %d bytes, want at most %d", p.Sequence, size, 11+p.Items[0].AnswerSize())
	}
	return out
}

func bucketsOf(t wire.Total) (found []store.Window) {
	for i, age := range t.Ages {
		found = append(found, hits(t.Newest-age, int64(t.Hits[i])))
	}
	return found
}

// quarter is the number of the 15-second bucket at which the tests begin.
var quarter = uint64(epoch.Unix()) / 15

func quarters(id byte, pushed ...store.Window) wire.Item {
	return bucketItem(id, minute, 15e9, 10, pushed...)
}

func testBuckets(t *testing.T, b *bench) {
	b.clock.advance(20 * time.Second)
	out := b.pushBuckets(quarters(1, hits(quarter+1, 3), hits(quarter-2, 4), hits(quarter-3, 5)),
		hits(quarter+1, 3), hits(quarter-2, 4))
	if out.Applied != 7 || out.Dropped != 5 {
		t.Errorf("outcome %+v, want 7 applied, and 5 dropped of a bucket that the window has left", out)
	}
	// The answer has all buckets that count, even those without hits, and the newest of the item.
	b.pushBuckets(quarters(1, hits(quarter, 1)), hits(quarter+1, 3), hits(quarter, 1), hits(quarter-2, 4))
	if got := b.readBuckets(quarters(1, hits(quarter+2, 0)), hits(quarter+1, 3), hits(quarter, 1)); got.Newest != quarter+2 {
		t.Errorf("newest %d, want the one asked for, %d", got.Newest, quarter+2)
	}
	if got := b.readBuckets(quarters(1, hits(quarter, 0)), hits(quarter+1, 3), hits(quarter, 1), hits(quarter-2, 4)); got.Newest != quarter+1 {
		t.Errorf("newest %d, want that of the newest bucket, %d", got.Newest, quarter+1)
	}
	counters := b.counters("ns")
	if len(counters) != 1 || counters[0].LimitCounter != quarters(1).LimitCounter {
		t.Fatalf("counters %+v, want one", counters)
	}
	slices.SortFunc(counters[0].Windows, func(a, b store.Window) int { return cmp.Compare(b.Number, a.Number) })
	if want := []store.Window{hits(quarter+1, 3), hits(quarter, 1), hits(quarter-2, 4)}; !slices.Equal(counters[0].Windows, want) {
		t.Errorf("counter %+v, want buckets %v", counters[0], want)
	}
	// The counter is twice in a batch, with others before it.
	b.push(items(quarters(2, hits(quarter+1, 1)), item(fixed, 3, minute, epoch, 5), quarters(2, hits(quarter+1, 1), hits(quarter, 1))),
		totals(2, 1), totals(5), totals(2, 1))
}

// testBucketSums lets senders push in any order the hits that a single node would have counted.
func testBucketSums(t *testing.T, b *bench) {
	b.clock.advance(50 * time.Second)
	for id, precision := range []uint64{1, minute * 1e6 / 64, 15e9, minute * 1e6} {
		random := rand.New(rand.NewPCG(7, precision))
		now := uint64(b.clock.now().UnixNano())
		sums := make(map[uint64]int64)
		var pushes []*wire.Push
		for sender := range uint64(5) {
			for seq := uint64(1); seq <= 10; seq++ {
				pushed := make(map[uint64]int64)
				for range 1 + random.IntN(9) {
					pushed[(now-random.Uint64N(59)*1e9)/precision] += 1 + random.Int64N(3)
				}
				for number, n := range pushed {
					if number+minute*1e6/precision > now/precision {
						sums[number] += n
					}
				}
				it := bucketItem(byte(id), minute, precision, wire.MaxHits, newestFirst(pushed)...)
				pushes = append(pushes, &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: 1, Items: items(it)})
			}
		}
		random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
		for _, p := range append(pushes, pushes...) {
			if _, err := b.store.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: p.Sender + 100*uint64(id+1),
				Sequence: p.Sequence, Floor: p.Floor, Items: p.Items}, 1); err != nil {
				t.Fatal(err)
			}
		}
		b.readBuckets(bucketItem(byte(id), minute, precision, wire.MaxHits, hits(now/precision, 0)), newestFirst(sums)...)
	}
}

func newestFirst(sums map[uint64]int64) (sorted []store.Window) {
	for number, n := range sums {
		sorted = append(sorted, hits(number, n))
	}
	slices.SortFunc(sorted, func(a, b store.Window) int { return cmp.Compare(b.Number, a.Number) })
	return sorted
}

func testBucketsEnd(t *testing.T, b *bench) {
	b.pushBuckets(quarters(1, hits(quarter, 3), hits(quarter-1, 2)), hits(quarter, 3), hits(quarter-1, 2))
	b.clock.advance(45*time.Second - time.Millisecond)
	b.pushBuckets(quarters(1, hits(quarter-1, 2)), hits(quarter, 3), hits(quarter-1, 4))
	b.clock.advance(time.Millisecond)
	out := b.pushBuckets(quarters(1, hits(quarter-1, 2)), hits(quarter, 3), hits(quarter-1, 4))
	if out.Dropped != 2 || b.sum("ns") != 3 {
		t.Errorf("outcome %+v, sum %d; want 2 dropped, and 3 that count", out, b.sum("ns"))
	}
	// Nodes whose clock is behind can read it a little longer.
	b.clock.advance(store.Grace - time.Millisecond)
	b.readBuckets(quarters(1, hits(quarter, 0)), hits(quarter, 3), hits(quarter-1, 4))
	b.clock.advance(time.Millisecond)
	b.readBuckets(quarters(1, hits(quarter, 0)), hits(quarter, 3))
	b.clock.advance(10 * time.Second)
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	b.clock.advance(store.Grace)
	b.readBuckets(quarters(1, hits(quarter, 0)))
	// Expired buckets don't come back with later buckets.
	b.pushBuckets(quarters(1, hits(quarter+4, 1)), hits(quarter+4, 1))
}

func testBucketsAhead(t *testing.T, b *bench) {
	for i, test := range []struct {
		name             string
		width, precision uint64
		ahead            time.Duration
		taken            bool
	}{
		{"10 minutes", minute, 15e9, 10 * time.Minute, true},
		{"10 minutes and a bucket", minute, 15e9, 10*time.Minute + 15*time.Second, false},
		{"two wide windows", day, day * 1e6 / 8, 48 * time.Hour, true},
		{"two wide windows and a bucket", day, day * 1e6 / 8, 51 * time.Hour, false},
		// The windows are wide enough to be read before Redis expires them by its own time.
		{"64 narrow windows", 5000, 5e9 / 64, 320 * time.Second, true},
		{"64 narrow windows and a bucket", 5000, 5e9 / 64, 320*time.Second + 5*time.Second/64, false},
		{"a log, 10 minutes", minute, 1, 10 * time.Minute, true},
		{"a log, more", minute, 1, 10*time.Minute + 1, false},
		{"a century", minute, 1, 100 * 366 * 24 * time.Hour, false},
	} {
		number := uint64(epoch.Add(test.ahead).UnixNano()) / test.precision
		it := bucketItem(byte(i), test.width, test.precision, 10, hits(number, 5))
		if !test.taken {
			if out := b.pushBuckets(it); out.Dropped != 5 {
				t.Errorf("%s: outcome %+v, want 5 dropped", test.name, out)
			}
			continue
		}
		if out := b.decide(b.next(items(it)), 1); out.Applied != 5 {
			t.Errorf("%s: outcome %+v, want 5 applied", test.name, out)
		}
		// They count as hits of now.
		now := uint64(epoch.UnixNano()) / test.precision
		it.Newest = now
		b.readBuckets(it, hits(now, 5))
	}
	// A clock far ahead must not fill an answer in place of the present.
	var ahead, present []store.Window
	base := uint64(epoch.Unix()) * 64
	for i := range uint64(64) {
		ahead = append(ahead, hits(base+1000-i, 1))
		present = append(present, hits(base-i, 2))
	}
	b.pushBuckets(bucketItem(99, 1000, 1e9/64, 10, ahead...))
	b.readBuckets(bucketItem(99, 1000, 1e9/64, 10, hits(base, 0)), hits(base, 64))
	answered := slices.Clone(present)
	answered[0].Hits += 64
	b.pushBuckets(bucketItem(99, 1000, 1e9/64, 10, present...), answered...)
	// A clock that is set back loses nothing that still counts.
	now := hits(uint64(epoch.UnixNano()), 1)
	b.pushBuckets(log(98, 10, now), now)
	b.clock.advance(-time.Second)
	before := now.Number - 1e9
	if got := b.readBuckets(log(98, 10, hits(before, 0)), hits(before, 1)); got.Newest != before {
		t.Errorf("newest %d, want the one asked for, %d", got.Newest, before)
	}
}

func testBucketsReturned(t *testing.T, b *bench) {
	for id, precision := range []uint64{1, 15e9} {
		number := uint64(epoch.UnixNano()) / precision
		of := func(n ...int64) wire.Item {
			var pushed []store.Window
			for i, n := range n {
				pushed = append(pushed, hits(number-uint64(i), n))
			}
			return bucketItem(byte(id), minute, precision, 100, pushed...)
		}
		b.pushBuckets(of(5, 1), hits(number, 5), hits(number-1, 1))
		if out := b.pushBuckets(of(-7), hits(number-1, 1)); out.Returned != 5 || out.Applied != 0 || out.Dropped != 2 {
			t.Errorf("precision %d: outcome %+v, want 5 returned, 2 dropped", precision, out)
		}
		// A push that gives back hits before these have arrived makes no room.
		b.pushBuckets(of(5), hits(number, 5), hits(number-1, 1))
		// Nothing is left of a bucket without hits.
		b.pushBuckets(of(-5, -1))
	}
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	if out := b.pushBuckets(quarters(1, hits(quarter-4, -3))); out.Dropped != 3 {
		t.Errorf("outcome %+v, want 3 dropped", out)
	}
}

func testBucketsSaturate(_ *testing.T, b *bench) {
	b.pushBuckets(quarters(1, hits(quarter, wire.MaxHits), hits(quarter-1, wire.MaxHits-1)),
		hits(quarter, wire.MaxHits), hits(quarter-1, wire.MaxHits-1))
	b.pushBuckets(quarters(1, hits(quarter, 1), hits(quarter-1, 2)), hits(quarter, wire.MaxHits), hits(quarter-1, wire.MaxHits))
	now := uint64(epoch.UnixNano())
	b.pushBuckets(log(1, wire.MaxHits, hits(now, wire.MaxHits), hits(now-1, 5), hits(now-2, 1)),
		hits(now, wire.MaxHits), hits(now-1, 5))
}

func testLog(t *testing.T, b *bench) {
	now := uint64(epoch.UnixNano())
	const width = uint64(minute * 1e6)
	// The window is exact to the nanosecond: a hit as old as the window does not count.
	out := b.pushBuckets(log(1, 9, hits(now, 2), hits(now-width+1, 3), hits(now-width, 4)),
		hits(now, 2), hits(now-width+1, 3))
	if out.Applied != 5 || out.Dropped != 4 {
		t.Errorf("outcome %+v, want 5 applied, 4 dropped", out)
	}
	// The answer is for a window that ends with the item's newest.
	b.pushBuckets(log(1, 9, hits(now+1, 1)), hits(now, 3))
	b.pushBuckets(log(1, 9, hits(now, 1)), hits(now, 4), hits(now-width+1, 3))
	b.clock.advance(time.Minute)
	if got := b.sum("ns"); got != 1 {
		t.Errorf("sum %d, want the hit that came a nanosecond later", got)
	}
	b.clock.advance(store.Grace)
	b.readBuckets(log(1, 9, hits(now, 0)), hits(now+1, 1))
	// They count exactly once.
	p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: 1, Floor: 1, Items: items(log(2, 9, hits(now+uint64(time.Minute), 3)))}
	b.sendBuckets(p, hits(now+uint64(time.Minute), 3))
	if !b.sendBuckets(p, hits(now+uint64(time.Minute), 3)).Duplicate {
		t.Error("want a duplicate")
	}
	// When the sender is forgotten, the hits no longer count.
	b.clock.advance(store.SenderLife + 2*time.Minute)
	if out := b.sendBuckets(p); !out.Duplicate && out.Dropped != 3 {
		t.Errorf("outcome %+v, want a duplicate, or 3 dropped", out)
	}
}

func testLogBound(t *testing.T, b *bench) {
	now := uint64(epoch.UnixNano())
	b.pushBuckets(log(1, 5, hits(now-1, 2), hits(now-3, 2), hits(now-5, 2)), hits(now-1, 2), hits(now-3, 2), hits(now-5, 2))
	// The oldest hits that would exceed the limit are forgotten, and are dropped if they come
	// again.
	b.pushBuckets(log(1, 5, hits(now-2, 2)), hits(now-1, 2), hits(now-2, 2), hits(now-3, 2))
	b.pushBuckets(log(1, 5, hits(now-9, 7)), hits(now-1, 2), hits(now-2, 2), hits(now-3, 2))
	if got := b.sum("ns"); got != 6 {
		t.Errorf("sum %d, want 6", got)
	}
	// A read for a lower limit needs fewer, and changes nothing.
	b.readBuckets(log(1, 1, hits(now, 0)), hits(now-1, 2))
	b.readBuckets(log(1, 5, hits(now, 0)), hits(now-1, 2), hits(now-2, 2), hits(now-3, 2))
	b.pushBuckets(log(1, 0, hits(now, 1)), hits(now, 1))
	// Hits that are not counted are not given back.
	b.pushBuckets(log(2, 1, hits(now, -5), hits(now-1, 2), hits(now-2, 1)), hits(now-1, 2))
	// A very large limit must not make an answer exceed its bound.
	for round := range uint64(2) {
		it := log(3, wire.MaxHits)
		var want []store.Window
		it.Newest = now - 1 + round
		for i := range uint64(wire.MaxBuckets) {
			it.Ages, it.Hits = append(it.Ages, 2*i), append(it.Hits, 1)
			want = append(want, hits(it.Newest-2*i, 1))
		}
		if round == 1 {
			want = nil
			for i := range uint64(wire.MaxBuckets) {
				want = append(want, hits(now-i, 1))
			}
		}
		b.pushBuckets(it, want...)
	}
	if got, want := b.sum("ns"), int64(1+2+wire.MaxBuckets); got != want {
		t.Errorf("sum %d, want %d", got, want)
	}
}

func testLargeLog(t *testing.T, b *bench) {
	now := uint64(epoch.UnixNano())
	sums := make(map[uint64]int64)
	for round := range uint64(3) {
		pushed := make(map[uint64]int64)
		for i := range uint64(700) {
			// Some buckets are in every round, and others in a single round.
			number := now - i*(1+i%2*round)*80_000_003
			if number > now-minute*1e6 {
				pushed[number]++
				sums[number]++
			}
		}
		b.pushBuckets(log(1, 4000, newestFirst(pushed)...), newestFirst(sums)...)
	}
	counters := b.counters("ns")
	if len(counters) != 1 || len(counters[0].Windows) != len(sums) {
		t.Fatalf("%d counters, want one of %d buckets", len(counters), len(sums))
	}
	// After a minute only the newest are left.
	b.clock.advance(time.Minute + store.Grace)
	now = uint64(b.clock.now().UnixNano())
	b.pushBuckets(log(1, 4000, hits(now, 1)), hits(now, 1))
	if got := b.counters("ns"); len(got) != 1 || len(got[0].Windows) != 1 {
		t.Errorf("counters %+v, want one of one bucket", got)
	}
}
