package storetest

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// tokenItem returns an item of a token bucket with a window of a minute, named after id: tokens
// taken since a time when the bucket was full.
func tokenItem(id byte, limit uint64, start time.Time, taken int64) wire.Item {
	it := item(tokens, id, minute, start, taken)
	it.Limit = limit
	return it
}

// pushTokens pushes an item, and wants this start and these tokens taken since.
func (b *bench) pushTokens(it wire.Item, start time.Time, taken uint64) store.Outcome {
	b.t.Helper()
	out := b.push(items(it), totals(taken))
	b.wantStart(out.Answer.Totals[0], start)
	return out
}

func (b *bench) readTokens(it wire.Item, start time.Time, taken uint64) {
	b.t.Helper()
	b.wantStart(b.read(it, taken), start)
}

func (b *bench) wantStart(got wire.Total, start time.Time) {
	b.t.Helper()
	if got.Newest != uint64(start.UnixNano()) {
		b.t.Fatalf("start %v, want %v", time.Unix(0, int64(got.Newest)).UTC(), start)
	}
}

func testTokens(t *testing.T, b *bench) {
	// At 10 a minute, a token returns every 6 seconds.
	b.pushTokens(tokenItem(1, 10, epoch, 3), epoch, 3)
	b.clock.advance(12 * time.Second)
	b.pushTokens(tokenItem(1, 10, epoch, 2), epoch, 5)
	if got := b.counters("ns"); len(got) != 1 || got[0].Limit != 10 ||
		!slices.Equal(got[0].Windows, []store.Window{hits(uint64(epoch.UnixNano()), 5)}) {
		t.Errorf("counters %+v, want one of 5 tokens", got)
	}
	b.clock.advance(18*time.Second - time.Microsecond)
	b.readTokens(tokenItem(1, 10, b.clock.now(), 0), epoch, 5)
	// With a higher limit the bucket is full at the same time.
	b.readTokens(tokenItem(1, 20, b.clock.now(), 0), epoch, 10)
	b.clock.advance(time.Microsecond)
	b.readTokens(tokenItem(1, 10, b.clock.now(), 0), b.clock.now(), 0)
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none as it is full", got)
	}
	// The next token starts anew, to the nanosecond.
	next := b.clock.now().Add(-time.Nanosecond)
	b.pushTokens(tokenItem(1, 10, b.clock.now(), 1), b.clock.now(), 1)
	b.pushTokens(tokenItem(2, 7, next, 1), next, 1)
	// Tokens taken in the near future count as taken now. Tokens taken too far ahead are dropped.
	b.pushTokens(tokenItem(3, 10, b.clock.now().Add(10*time.Minute), 1), b.clock.now(), 1)
	far := b.clock.now().Add(10*time.Minute + time.Nanosecond)
	if out := b.pushTokens(tokenItem(4, 10, far, 1), far, 0); out.Dropped != 1 {
		t.Errorf("outcome %+v, want 1 dropped", out)
	}
	// Twice in a batch.
	now := b.clock.now()
	b.push(items(tokenItem(5, 10, now, 1), tokenItem(5, 10, now.Add(-time.Second), 2)), totals(3), totals(3))
}

func testTokensMerge(t *testing.T, b *bench) {
	at := func(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * 1e9)) }
	b.clock.set(at(60))
	for id, test := range []struct {
		name     string
		pushes   []wire.Item
		start    time.Time
		taken    uint64
		dropped  int64
		returned int64
	}{
		{"a later start joins a bucket that is not full", []wire.Item{tokenItem(0, 10, at(1), 12), tokenItem(0, 10, at(50), 3)}, at(1), 15, 0, 0},
		{"so does an earlier one", []wire.Item{tokenItem(0, 10, at(50), 3), tokenItem(0, 10, at(1), 12)}, at(1), 15, 0, 0},
		{"whole windows are taken off", []wire.Item{tokenItem(0, 10, at(-70), 32)}, at(50), 12, 0, 0},
		{"a bucket that was full by then is another", []wire.Item{tokenItem(0, 10, at(20), 6), tokenItem(0, 10, at(56), 3)}, at(56), 3, 0, 0},
		{"an instant before it is not", []wire.Item{tokenItem(0, 10, at(20), 6), tokenItem(0, 10, at(55.999999), 3)}, at(20), 9, 0, 0},
		{"and a bucket that was full before another is forgotten", []wire.Item{tokenItem(0, 10, at(56), 3), tokenItem(0, 10, at(20), 6)}, at(56), 3, 6, 0},
		{"full by now", []wire.Item{tokenItem(0, 10, at(0), 9)}, at(0), 0, 9, 0},
		{"full, but not when the next was taken", []wire.Item{tokenItem(0, 10, at(26), 5), tokenItem(0, 10, at(55), 1)}, at(26), 6, 0, 0},
		{"several", []wire.Item{tokenItem(0, 10, at(40), 3), tokenItem(0, 10, at(45), 4), tokenItem(0, 10, at(39), 5)}, at(39), 12, 0, 0},
		{"given back", []wire.Item{tokenItem(0, 10, at(50), 5), tokenItem(0, 10, at(60), -2)}, at(50), 3, 0, 2},
		{"given back a while ago", []wire.Item{tokenItem(0, 10, at(50), 5), tokenItem(0, 10, at(50), -2)}, at(50), 4, 1, 1},
		{"given back by a clock that is fast", []wire.Item{tokenItem(0, 10, at(50), 5), tokenItem(0, 10, at(99), -2)}, at(50), 3, 0, 2},
		{"given back before it was taken", []wire.Item{tokenItem(0, 10, at(60), -2), tokenItem(0, 10, at(50), 5)}, at(50), 5, 2, 0},
		{"given back before most of it was taken", []wire.Item{tokenItem(0, 10, at(50), 2), tokenItem(0, 10, at(60), -4), tokenItem(0, 10, at(50), 5)}, at(50), 5, 2, 2},
		{"what is given back moves no start", []wire.Item{tokenItem(0, 10, at(55), 5), tokenItem(0, 10, at(54.5), -2)}, at(55), 3, 0, 2},
		{"nor does it make one", []wire.Item{tokenItem(0, 10, at(60), -2), tokenItem(0, 10, at(55), 5)}, at(55), 5, 2, 0},
		{"more than are missing given back", []wire.Item{tokenItem(0, 10, at(50), 5), tokenItem(0, 10, at(60), -7)}, at(60), 0, 2, 5},
		{"all given back", []wire.Item{tokenItem(0, 10, at(50), 5), tokenItem(0, 10, at(60), -5)}, at(60), 0, 0, 5},
		{"given back long ago", []wire.Item{tokenItem(0, 10, at(-6), -5)}, at(-6), 0, 5, 0},
		{"a limit of 0 gives nothing back", []wire.Item{tokenItem(0, 0, at(5), 5), tokenItem(0, 0, at(59), 5)}, at(5), 10, 0, 0},
		{"but forgets", []wire.Item{tokenItem(0, 0, at(-5), 5)}, at(-5), 0, 5, 0},
	} {
		var last wire.Total
		var dropped, returned int64
		for i, it := range test.pushes {
			it.ID[0] = byte(id)
			b.seq++
			p := &wire.Push{Namespace: "ns", Sender: uint64(i), Sequence: b.seq, Floor: b.seq, Items: items(it)}
			out, err := b.store.Push(t.Context(), p, 1)
			if err != nil {
				t.Fatal(err)
			}
			last = out.Answer.Totals[0]
			dropped, returned = dropped+out.Dropped, returned+out.Returned
		}
		if last.Newest != uint64(test.start.UnixNano()) || last.Hits[0] != test.taken || dropped != test.dropped || returned != test.returned {
			t.Errorf("%s: %d since %v, %d dropped, %d returned; want %d since %v, %d dropped, %d returned", test.name, last.Hits[0],
				time.Unix(0, int64(last.Newest)).UTC(), dropped, returned, test.taken, test.start, test.dropped, test.returned)
		}
	}
}

// testTokensOfAnotherLimit changes the limit of a bucket of 1000 a minute that lacks 500 tokens. It
// is full half a minute later with any limit.
func testTokensOfAnotherLimit(t *testing.T, b *bench) {
	at := func(nanos int64) time.Time { return epoch.Add(time.Duration(nanos)) }
	const second = int64(time.Second)
	b.clock.set(at(10 * second))
	for id, test := range []struct {
		name          string
		start, missed int64 // when the bucket was full, and how many tokens it lacks at 1000 a minute
		limit         uint64
		taken, added  int64 // how many tokens it lacks at the limit, and how many are then taken
		wantStart     int64
		want          uint64
	}{
		{"as it was", 10 * second, 500, 1000, 500, 0, 10 * second, 500},
		{"lower", 10 * second, 500, 10, 5, 0, 10 * second, 5},
		{"lower, and taken from", 10 * second, 500, 10, 5, 3, 4 * second, 9},
		{"lower, between two tokens", 10 * second, 501, 10, 6, 0, 4*second + 60e6, 6},
		{"lower, and taken from between two tokens", 10 * second, 501, 10, 6, 1, -2*second + 60e6, 8},
		{"lower, since a while ago", 4 * second, 400, 10, 4, 0, 4 * second, 5},
		{"to one", 10 * second, 500, 1, 1, 0, -20 * second, 1},
		{"higher", 10 * second, 500, 2000, 1000, 0, 10 * second, 1000},
		{"higher, and given back", 10 * second, 500, 2000, 1000, -400, 10*second - 30e6, 601},
		{"of no divisor", 10 * second, 500, 7, 4, 0, 10*second - 4_285_714_286, 4},
		{"several in a nanosecond", 10 * second, 500, window.MaxLimit, 500_000_000_000_000 - 16_666, 0, 10*second - 1, 500_000_000_000_000},
		{"to nothing", 4 * second, 400, 0, 400, 0, 10 * second, 400},
		{"to nothing, and taken from", 4 * second, 400, 0, 400, 9, 10 * second, 409},
	} {
		returned := (10*second - test.start) * 1000 / (60 * second)
		b.pushTokens(tokenItem(byte(id), 1000, at(test.start), test.missed+returned), at(test.start), uint64(test.missed+returned))
		it := tokenItem(byte(id), test.limit, b.clock.now(), test.added)
		out := b.decide(b.next(items(it)), 1)
		total := out.Answer.Totals[0]
		if start := time.Unix(0, int64(total.Newest)); !start.Equal(at(test.wantStart)) || total.Hits[0] != test.want || out.Dropped != 0 {
			t.Errorf("%s: %d since %v, outcome %+v; want %d since %v", test.name, total.Hits[0], start.Sub(epoch), out, test.want, time.Duration(test.wantStart))
		}
		// A take sees the same bucket, and a read has written nothing.
		r := room(tokens, byte(id), test.limit, 1)
		r.Burst = wire.MaxHits
		if test.limit > 0 {
			left := uint64(wire.MaxHits - test.taken - test.added)
			b.take(take(left+1, left+1, r), 0)
			if test.limit != window.MaxLimit { // a bucket that is written may lack some more until the next nanosecond
				b.take(take(1, 1, r), 1)
				b.take(take(left, left, r), 0)
				b.take(take(left-1, left-1, r), left-1)
			}
		}
	}
	for _, c := range b.counters("ns") {
		if id := c.ID[0]; id <= 1 && c.Limit != []uint64{1000, 10}[id] {
			t.Errorf("counter %+v, want the limit of the last that took tokens", c)
		}
	}
}

// testTokensOfTwoLimits lets nodes with two limits push, take and read in turns. The bucket is full
// at the same nanosecond as if all had the same limit.
func testTokensOfTwoLimits(t *testing.T, b *bench) {
	for id, limits := range [][2]uint64{{1000, 10}, {7, 11}, {1, 999_983}, {window.MaxLimit, 3}} {
		start := b.clock.now()
		for turn := range 200 {
			it := tokenItem(byte(id), limits[turn%2], start, 0)
			if turn == 0 {
				it.Hits[0] = int64(limits[0] * 2)
			}
			// Taking tokens and giving them back changes nothing, but writes the bucket.
			back := it
			back.Hits, back.Newest = []int64{-1}, uint64(b.clock.now().UnixNano())
			it.Hits[0]++
			out := b.decide(b.next(items(it, back)), 1)
			if out.Dropped != 0 {
				t.Fatalf("limits %v, turn %d: outcome %+v, want none dropped", limits, turn, out)
			}
			l := window.Limit{Shape: it.Shape(), Max: it.Limit, Burst: wire.MaxHits}
			now, total := b.clock.now(), out.Answer.Totals[1]
			s := window.State{Newest: now.UnixNano(), Start: int64(total.Newest), Hits: [2]window.Hits{{Total: total.Hits[0]}}}
			if full, _ := l.ResetAt(&s); full != start.Add(2*time.Minute).UnixNano() {
				t.Fatalf("limits %v, turn %d: full %v after it was taken from, want 2 minutes", limits, turn, time.Unix(0, full).Sub(start))
			}
			b.clock.advance(599_999 * time.Microsecond)
		}
		b.clock.set(start.Add(2*time.Minute - time.Microsecond))
		for _, limit := range limits {
			r := room(tokens, byte(id), limit, 1)
			r.Burst = 1
			b.take(take(1, 1, r), 0)
		}
		b.clock.advance(time.Microsecond)
		for _, limit := range limits {
			r := room(tokens, byte(id), limit, 0)
			r.Burst = wire.MaxHits
			b.used(r, 0)
		}
	}
}

// testTokensOfTwoLimitsAtOnce lets nodes with an old and a new limit push their tokens in any
// order, each with the start that it has read last. A token costs exactly the time in which it
// returns.
func testTokensOfTwoLimitsAtOnce(t *testing.T, b *bench) {
	random := rand.New(rand.NewPCG(14, 15))
	for id, limits := range [][]uint64{{1000, 10, 1000, 10}, {10, 10, 9, 9}, {60, 40, 30, 2}} {
		full := b.clock.now()
		starts := make([]time.Time, len(limits))
		push := func(node int, taken int64) {
			t.Helper()
			it := tokenItem(byte(id), limits[node], starts[node], taken)
			out := b.decide(b.next(items(it)), 1)
			full = full.Add(time.Duration(taken * int64(time.Minute) / int64(it.Limit)))
			total := out.Answer.Totals[0]
			l := window.Limit{Shape: it.Shape(), Max: it.Limit, Burst: wire.MaxHits}
			s := window.State{Newest: b.clock.now().UnixNano(), Start: int64(total.Newest), Hits: [2]window.Hits{{Total: total.Hits[0]}}}
			// A ninth of a minute is not a whole number of nanoseconds.
			at, _ := l.ResetAt(&s)
			if early := full.UnixNano() - at; early > 0 || early < -1000 || out.Dropped != 0 {
				t.Fatalf("limits %v: full %v too early, outcome %+v", limits, time.Duration(early), out)
			}
			starts[node] = time.Unix(0, int64(total.Newest))
		}
		starts[0] = b.clock.now()
		push(0, int64(limits[0]))
		for node := range limits {
			starts[node] = b.clock.now()
			push(node, 0)
		}
		for range 400 {
			b.clock.advance(time.Duration(random.IntN(500_000)) * time.Microsecond)
			push(random.IntN(len(limits)), random.Int64N(3))
		}
	}
}

// testTokensOfRandomLimits pushes, takes and reads with random limits, and compares the store with
// the memory store, whose arithmetic is exact.
func testTokensOfRandomLimits(t *testing.T, b *bench) {
	model := memory.New(memory.Options{Now: b.clock.now})
	random := rand.New(rand.NewPCG(12, 13))
	limits := []uint64{0, 1, 2, 7, 10, 60, 999, 1000, 1001, 1 << 20, 1<<31 - 1, 1e9 + 7, 1 << 40, 1<<45 + 1, 1e14 + 31, window.MaxLimit}
	// A store may forget narrower windows by its own clock.
	widths := []uint64{minute, 7 * minute, day, wire.MaxWidthMillis}
	for step := range nightly.Or(3000, 1000) {
		b.clock.advance(time.Duration(random.Int64N(1<<random.Int64N(26))) * time.Microsecond)
		now := b.clock.now().UnixNano()
		c := tokenItem(byte(random.IntN(3)), 0, epoch, 0).LimitCounter
		c.WidthMillis = widths[random.IntN(len(widths))]
		limit := limits[random.IntN(len(limits))]
		if random.IntN(3) > 0 {
			limit = limits[(int(c.ID[0])*5+step%2)%len(limits)]
		}
		p := b.next(nil)
		if random.IntN(2) == 0 {
			it := wire.Item{LimitCounter: c, Limit: limit, Newest: uint64(now), Hits: []int64{random.Int64N(1 + int64(min(2*limit, wire.MaxHits)))}}
			switch random.IntN(8) {
			case 0:
				it.Hits[0] = -it.Hits[0] / 2
			case 1:
				it.Hits[0] = random.Int64N(wire.MaxHits)
			case 2:
				it.Hits[0] = 0
			}
			if random.IntN(3) == 0 {
				it.Newest -= random.Uint64N(c.WidthMillis * 1e6)
			}
			p.Items = items(it)
		} else {
			r := wire.Room{LimitCounter: c, Limit: limit, Burst: 1 + random.Uint64N(1+2*limit), Cost: 1, CountRejected: random.IntN(4) == 0}
			least := 1 + random.Uint64N(1+limit/2)
			p.Takes = []wire.Take{{Least: least, Most: least + random.Uint64N(1+limit), Lease: random.IntN(3) == 0, Rooms: []wire.Room{r}}}
		}
		want, err := model.Push(t.Context(), p, 2)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.decide(p, 2); !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d, push %+v: outcome %+v, want %+v", step, p, got, want)
		}
	}
}

// testTokenSums lets senders with different starts push in any order to a bucket that is never
// full.
func testTokenSums(t *testing.T, b *bench) {
	b.clock.advance(time.Minute)
	random := rand.New(rand.NewPCG(5, 6))
	for id := range byte(10) {
		start, sum := b.clock.now(), uint64(0)
		var pushes []*wire.Push
		for sender := range uint64(5) {
			since := b.clock.now().Add(-time.Duration(random.Int64N(30e9)))
			if since.Before(start) {
				start = since
			}
			for seq := uint64(1); seq <= 4; seq++ {
				taken := 10 + random.Uint64N(10)
				sum += taken
				pushes = append(pushes, &wire.Push{Namespace: "ns", Sender: sender + 10*uint64(id), Sequence: seq, Floor: 1,
					Items: items(tokenItem(id, 10, since, int64(taken)))})
			}
		}
		random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
		for _, p := range append(pushes, pushes...) {
			if _, err := b.store.Push(t.Context(), p, 1); err != nil {
				t.Fatal(err)
			}
		}
		b.readTokens(tokenItem(id, 10, b.clock.now(), 0), start, sum)
	}
}

// testTokensOfOneNode lets three independent nodes push their tokens at once, and compares the
// bucket with a single node that takes them all.
func testTokensOfOneNode(t *testing.T, b *bench) {
	for id, limit := range []uint64{1, 7, 10, 1000} {
		l := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: int64(time.Minute)}, Max: limit, Burst: wire.MaxHits}
		random := rand.New(rand.NewPCG(limit, 0))
		var one window.State
		var nodes [3]window.State
		for range 500 {
			b.clock.advance(time.Duration(random.Int64N(6*int64(time.Minute)/int64(limit))/1000) * time.Microsecond)
			now := b.clock.now()
			node, cost := &nodes[random.IntN(len(nodes))], 1+random.Uint64N(2)
			for _, s := range []*window.State{&one, node} {
				l.Advance(s, now.UnixNano())
				l.Count(s, cost)
				// Nothing is pending, because the store gets the tokens at once.
				s.Claim()
				s.EndFlight()
			}
			b.seq++
			p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq,
				Items: items(tokenItem(byte(id), limit, time.Unix(0, node.Start), int64(cost)))}
			out, err := b.store.Push(t.Context(), p, 1)
			if err != nil {
				t.Fatal(err)
			}
			total := out.Answer.Totals[0]
			got := window.State{Newest: now.UnixNano(), Start: int64(total.Newest), Hits: [2]window.Hits{{Total: total.Hits[0]}}}
			if l.Remaining(&got) != l.Remaining(&one) || out.Dropped != 0 {
				t.Fatalf("limit %d, push %d: %d tokens left, outcome %+v; want %d left", limit, b.seq, l.Remaining(&got), out, l.Remaining(&one))
			}
		}
	}
}

func testTokensEnd(t *testing.T, b *bench) {
	b.pushTokens(tokenItem(1, 10, epoch, 1), epoch, 1)
	b.pushTokens(tokenItem(2, 10, epoch, 1), epoch, 1)
	b.clock.advance(6*time.Second + store.Grace - time.Millisecond)
	// The bucket is full, but tokens taken before that may still come.
	before := epoch.Add(6*time.Second - time.Nanosecond)
	b.pushTokens(tokenItem(1, 10, before, 1), epoch, 2)
	b.clock.advance(time.Millisecond)
	b.pushTokens(tokenItem(2, 10, before, 1), before, 1)
	b.clock.advance(time.Hour)
	b.readTokens(tokenItem(1, 10, b.clock.now(), 0), b.clock.now(), 0)
	// The bucket was full long ago, and is not full yet.
	long := b.clock.now().Add(-time.Hour)
	b.pushTokens(tokenItem(3, 10, long, 601), long.Add(time.Hour), 1)
	if out := b.pushTokens(tokenItem(4, 10, long, 599), long, 0); out.Dropped != 599 {
		t.Errorf("outcome %+v, want 599 dropped", out)
	}
}

// testTokensOverYears takes all tokens that return, for longer than any sum of them could be kept.
func testTokensOverYears(t *testing.T, b *bench) {
	const limit = 1 << 47
	b.pushTokens(tokenItem(1, limit, epoch, limit), epoch, limit)
	since := epoch
	for i := range int64(1000) {
		b.clock.advance(30 * time.Second)
		out := b.push(items(tokenItem(1, limit, since, limit/2)), totals(limit+limit/2*(uint64(i+1)%2)))
		if out.Dropped != 0 {
			t.Fatalf("outcome %+v, want none dropped", out)
		}
		since = b.clock.now().Truncate(time.Minute)
		b.wantStart(out.Answer.Totals[0], since)
	}
	if got := b.counters("ns"); len(got) != 1 || got[0].Windows[0].Hits > 20*limit {
		t.Errorf("counters %+v, want one with what was taken lately", got)
	}
}

// testTokensOfASilentSender lets a sender push so late that the bucket's start was moved meanwhile.
func testTokensOfASilentSender(t *testing.T, b *bench) {
	b.pushTokens(tokenItem(1, 10, epoch, 20), epoch, 20)
	for range 40 {
		b.clock.advance(time.Minute)
		b.seq++
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq, Items: items(tokenItem(1, 10, b.clock.now(), 10))}
		if out, err := b.store.Push(t.Context(), p, 1); err != nil || out.Dropped != 0 {
			t.Fatalf("outcome %+v, error %v", out, err)
		}
	}
	b.readTokens(tokenItem(1, 10, b.clock.now(), 0), b.clock.now(), 20)
	b.pushTokens(tokenItem(1, 10, epoch.Add(7*time.Minute+time.Second), 325), b.clock.now(), 345)
}

func testTokensZombie(t *testing.T, b *bench) {
	p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: 1, Floor: 1, Items: items(tokenItem(1, 10, epoch, 20))}
	b.send(p, totals(20))
	// The bucket is used on, and is never full.
	for range 60 {
		b.clock.advance(30 * time.Second)
		b.seq++
		keep := &wire.Push{Namespace: "ns", Sender: 8, Sequence: b.seq, Floor: b.seq, Items: items(tokenItem(1, 10, b.clock.now(), 5))}
		if out, err := b.store.Push(t.Context(), keep, 1); err != nil || out.Dropped != 0 {
			t.Fatalf("outcome %+v, error %v", out, err)
		}
		if out, err := b.store.Push(t.Context(), p, 1); err != nil || !out.Duplicate && out.Dropped != 20 {
			t.Fatalf("%v: outcome %+v, error %v; want a duplicate, or 20 dropped", b.clock.now().Sub(epoch), out, err)
		}
	}
}

// testTokensReturnedLate gives tokens back a while after they were taken. Tokens that have returned
// since are not given back again, so no more pass than the bucket holds.
func testTokensReturnedLate(t *testing.T, b *bench) {
	// At 20 a minute, a token returns every 3 seconds.
	for id, test := range []struct {
		name     string
		others   uint64        // tokens that others take just before the return
		late     time.Duration // when the tokens are given back
		returned int64
		left     uint64
	}{
		{"at once", 0, 0, 20, 20},
		{"before one is back", 0, 3*time.Second - time.Microsecond, 20, 20},
		{"when one is back", 0, 3 * time.Second, 19, 20},
		{"when one is back that others have taken", 1, 3 * time.Second, 19, 19},
		{"when half are back", 0, 30 * time.Second, 10, 20},
		{"when half are back that others have taken", 10, 30 * time.Second, 10, 10},
		{"when one is missing", 19, 60*time.Second - time.Microsecond, 1, 1},
		{"when all are back", 0, time.Minute, 0, 20},
		{"when all are back that others have taken", 20, time.Minute, 0, 0},
		{"when the bucket is forgotten", 0, time.Minute + store.Grace, 0, 20},
		{"long after", 20, 5 * time.Minute, 0, 0},
	} {
		b.clock.set(epoch)
		r := room(tokens, byte(id), 20, 1)
		r.Burst = 20
		b.take(take(20, 20, r), 20)
		b.clock.advance(test.late)
		if test.others > 0 {
			b.take(take(test.others, test.others, r), test.others)
		}
		out := b.decide(b.next(items(tokenItem(byte(id), 20, epoch, -20))), 1)
		if out.Returned != test.returned || out.Dropped != 20-test.returned {
			t.Errorf("%s: %d returned, %d dropped, want %d and %d", test.name, out.Returned, out.Dropped, test.returned, 20-test.returned)
		}
		for _, want := range []uint64{test.left, 0} {
			if got := b.decide(b.next(nil, take(1, 99, r)), 1).Answer.Grants[0].Units; got != want {
				t.Errorf("%s: %d pass, want %d", test.name, got, want)
			}
		}
	}
}

// testTokensReturnedEarly gives tokens back before the store knows that they were taken. None is
// missing then, and the return gives no sender more than a full bucket.
func testTokensReturnedEarly(t *testing.T, b *bench) {
	for id, test := range []struct {
		name  string
		after time.Duration // when the taken tokens arrive
		taken int64
		left  uint64
	}{
		{"at once", 0, 5, 15},
		{"at once, some of them", 0, 8, 12},
		{"at once, fewer", 0, 3, 17},
		{"when one would be back", 3 * time.Second, 5, 15},
	} {
		b.clock.set(epoch)
		r := room(tokens, byte(id), 20, 1)
		r.Burst = 20
		b.decide(b.next(items(tokenItem(byte(id), 20, epoch, -2))), 1)
		b.decide(b.next(items(tokenItem(byte(id), 20, epoch, -3))), 1)
		b.clock.advance(test.after)
		b.decide(b.next(items(tokenItem(byte(id), 20, b.clock.now(), test.taken))), 1)
		if got := b.decide(b.next(nil, take(1, test.left, r)), 1).Answer.Grants[0].Units; got != test.left {
			t.Errorf("%s: %d pass, want %d", test.name, got, test.left)
		}
		b.take(take(1, 1, r), 0)
	}
}

// testTokensSetBack sets the store's clock back after tokens were taken, by less than a millisecond
// and by more. The same number of tokens stays missing.
func testTokensSetBack(t *testing.T, b *bench) {
	for i, back := range []time.Duration{3 * time.Microsecond, 999 * time.Microsecond, time.Millisecond, time.Second} {
		b.clock.set(epoch.Add(time.Minute))
		r := room(tokens, byte(i), 10, 1)
		b.take(take(5, 5, r), 5)
		b.clock.advance(-back)
		b.readTokens(tokenItem(byte(i), 10, b.clock.now(), 0), b.clock.now(), 5)
		if got := b.decide(b.next(nil, take(1, 99, r)), 1).Answer.Grants[0].Units; got != 5 {
			t.Errorf("%v back: %d pass, want 5", back, got)
		}
	}
	// The clock is so far back that the start can't be right, with any limit: a bucket of another
	// limit starts earlier.
	b.clock.set(epoch.Add(time.Minute))
	r := room(tokens, 99, 10, 1)
	b.take(take(5, 5, r), 5)
	b.clock.advance(-store.Ahead - 2*time.Second)
	for _, limit := range []uint64{10, 1} {
		b.readTokens(tokenItem(99, limit, b.clock.now(), 0), b.clock.now(), 0)
	}
	r.Limit, r.Burst = 1, 1
	b.take(take(1, 99, r), 1)
}
