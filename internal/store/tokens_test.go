package store_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// tokens pushes an item, and wants this start, after epoch, and these tokens taken since.
func (l *ledger) tokens(it wire.Item, since time.Duration, taken uint64) {
	l.t.Helper()
	must.EqualOrEnd(l.t, time.Duration(l.hits(it, taken).Newest-epoch), since, "start after epoch")
}

// bucketState is a token bucket as a node has it that has heard a total.
func (l *ledger) bucketState(it wire.Item, total wire.Total) (window.Limit, window.State) {
	return window.Limit{Shape: it.Shape(), Max: it.Limit, Burst: wire.MaxHits},
		window.State{Newest: int64(l.NowNanos), Start: int64(total.Newest), Hits: [2]window.Hits{{Total: total.Hits[0]}}}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	// At 10 a minute, a token returns every 6 seconds.
	l.tokens(tokenItem(1, 10, 0, 3), 0, 3)
	l.set(12 * second)
	l.tokens(tokenItem(1, 10, 0, 2), 0, 5)
	if got := l.contents(tokenItem(1, 10, 0, 0).LimitCounter); got.Limit != 10 || !slices.Equal(got.Windows, []store.Window{hits(epoch, 5)}) {
		t.Errorf("%+v, want 5 tokens since epoch", got)
	}
	l.set(30*second - 1)
	l.tokens(tokenItem(1, 10, 30*second-1, 0), 0, 5)
	l.tokens(tokenItem(1, 20, 30*second-1, 0), 0, 10) // with a higher limit it is full at the same time
	l.set(30 * second)
	l.tokens(tokenItem(1, 10, 30*second, 0), 30*second, 0)
	must.Same(t, l.counting(tokenItem(1, 10, 0, 0).LimitCounter), nil, "count, of a full bucket")
	must.Equal(t, l.Taken(tokenItem(1, 10, 0, 0).LimitCounter, 10, &store.Contents{}), 0, "of a full bucket so many are taken")
	// The next token starts anew, to the nanosecond.
	l.tokens(tokenItem(1, 10, 30*second, 1), 30*second, 1)
	l.tokens(tokenItem(2, 7, 30*second-1, 1), 30*second-1, 1)
	// Tokens of the near future count as taken now.
	l.tokens(tokenItem(3, 10, 40*second, 1), 30*second, 1)
	// Full, but a grace ago it was not: tokens taken before that may still come, and join it.
	for id, after := range []time.Duration{6*second + store.Grace - 1, 6*second + store.Grace} {
		l.set(0)
		l.tokens(tokenItem(byte(4+id), 10, 0, 1), 0, 1)
		l.set(after)
		if id == 0 {
			l.tokens(tokenItem(4, 10, 6*second-1, 1), 0, 2)
		} else {
			l.tokens(tokenItem(5, 10, 6*second-1, 1), 6*second-1, 1)
		}
	}
	// It was full long ago, and is not full yet.
	l.set(time.Hour)
	l.tokens(tokenItem(6, 10, 0, 601), time.Hour, 1)
	l.tokens(tokenItem(7, 10, 0, 599), 0, 0)
	l.counted("returned meanwhile", 0, 0, 599)
}

func TestTokensMerge(t *testing.T) {
	t.Parallel()
	of := func(seconds float64, taken int64) wire.Item {
		return tokenItem(1, 10, time.Duration(seconds*1e9), taken)
	}
	for _, test := range []struct {
		name              string
		pushes            []wire.Item
		start             time.Duration
		taken             uint64
		dropped, returned int64
	}{
		{"a later start joins a bucket that is not full", []wire.Item{of(1, 12), of(50, 3)}, second, 15, 0, 0},
		{"so does an earlier one", []wire.Item{of(50, 3), of(1, 12)}, second, 15, 0, 0},
		{"whole windows are taken off", []wire.Item{of(-70, 32)}, 50 * second, 12, 0, 0},
		{"a bucket that was full by then is another", []wire.Item{of(20, 6), of(56, 3)}, 56 * second, 3, 0, 0},
		{"an instant before it is not", []wire.Item{of(20, 6), of(55.999999, 3)}, 20 * second, 9, 0, 0},
		{"and a bucket that was full before another is forgotten", []wire.Item{of(56, 3), of(20, 6)}, 56 * second, 3, 6, 0},
		{"full by now", []wire.Item{of(0, 9)}, 0, 0, 9, 0},
		{"full, but not when the next was taken", []wire.Item{of(26, 5), of(55, 1)}, 26 * second, 6, 0, 0},
		{"several", []wire.Item{of(40, 3), of(45, 4), of(39, 5)}, 39 * second, 12, 0, 0},
		{"given back", []wire.Item{of(50, 5), of(60, -2)}, 50 * second, 3, 0, 2},
		{"given back a while ago", []wire.Item{of(50, 5), of(50, -2)}, 50 * second, 4, 1, 1},
		{"given back by a clock that is fast", []wire.Item{of(50, 5), of(99, -2)}, 50 * second, 3, 0, 2},
		{"given back before it was taken", []wire.Item{of(60, -2), of(50, 5)}, 50 * second, 5, 2, 0},
		{"given back before most of it was taken", []wire.Item{of(50, 2), of(60, -4), of(50, 5)}, 50 * second, 5, 2, 2},
		{"what is given back moves no start", []wire.Item{of(55, 5), of(54.5, -2)}, 55 * second, 3, 0, 2},
		{"nor does it make one", []wire.Item{of(60, -2), of(55, 5)}, 55 * second, 5, 2, 0},
		{"more than are missing given back", []wire.Item{of(50, 5), of(60, -7)}, 60 * second, 0, 2, 5},
		{"all given back", []wire.Item{of(50, 5), of(60, -5)}, 60 * second, 0, 0, 5},
		{"given back long ago", []wire.Item{of(-6, -5)}, -6 * second, 0, 5, 0},
		{"a limit of 0 gives nothing back", []wire.Item{tokenItem(1, 0, 5*second, 5), tokenItem(1, 0, 59*second, 5)}, 5 * second, 10, 0, 0},
		{"but forgets", []wire.Item{tokenItem(1, 0, -5*second, 5)}, -5 * second, 0, 5, 0},
	} {
		l := newLedger(t)
		l.set(minute)
		var dropped, returned int64
		var last wire.Total
		for _, it := range test.pushes {
			last = l.push(it)
			dropped, returned = dropped+l.out.Dropped, returned+l.out.Returned
		}
		if last.Newest != at(test.start) || last.Hits[0] != test.taken || dropped != test.dropped || returned != test.returned {
			t.Errorf("%s: %d since %v, %d dropped, %d returned; want %d since %v, %d dropped, %d returned", test.name, last.Hits[0],
				time.Duration(last.Newest-epoch), dropped, returned, test.taken, test.start, test.dropped, test.returned)
		}
	}
}

// A bucket of 1000 a minute that lacks 500 tokens is full half a minute later, with any limit.
func TestTokensOfAnotherLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		start        time.Duration // when the bucket was full
		missed       int64         // how many tokens it lacks at 1000 a minute
		limit        uint64
		taken, added int64 // how many tokens it lacks at the limit, and how many are then taken
		wantStart    time.Duration
		want         uint64
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
		{"higher, of one token", 10 * second, 1, 2000, 2, 0, 10 * second, 2},
		{"of no divisor", 10 * second, 500, 7, 4, 0, 10*second - 4_285_714_286, 4},
		{"several in a nanosecond", 10 * second, 500, window.MaxLimit, 500_000_000_000_000 - 16_666, 0, 10*second - 1, 500_000_000_000_000},
		{"to nothing", 4 * second, 400, 0, 400, 0, 10 * second, 400},
		{"to nothing, and taken from", 4 * second, 400, 0, 400, 9, 10 * second, 409},
	} {
		l := newLedger(t)
		l.set(10 * second)
		returned := int64(10*second-test.start) * 1000 / int64(minute)
		l.tokens(tokenItem(1, 1000, test.start, test.missed+returned), test.start, uint64(test.missed+returned))
		total := l.push(tokenItem(1, test.limit, 10*second, test.added))
		if total.Newest != at(test.wantStart) || total.Hits[0] != test.want || l.out.Dropped != 0 {
			t.Errorf("%s: %d since %v, outcome %+v; want %d since %v", test.name, total.Hits[0], time.Duration(total.Newest-epoch), l.out, test.want, test.wantStart)
		}
		r := l.contents(tokenItem(1, 0, 0, 0).LimitCounter)
		if want := test.limit; test.added == 0 && r.Limit != 1000 || test.added != 0 && r.Limit != want {
			t.Errorf("%s: kept with a limit of %d, want that of the last who took or gave back tokens", test.name, r.Limit)
		}
		if got := l.Taken(tokenItem(1, 0, 0, 0).LimitCounter, test.limit, r); test.limit != window.MaxLimit && got != test.taken+test.added {
			t.Errorf("%s: %d are missing, want %d", test.name, got, test.taken+test.added)
		}
		// A take sees the same bucket.
		in := room(tokens, 1, test.limit, 1)
		in.Burst = wire.MaxHits
		if left := uint64(wire.MaxHits - test.taken - test.added); test.limit > 0 {
			l.take(take(left+1, left+1, in), 0)
			if test.limit != window.MaxLimit { // a bucket that is written may lack some more until the next nanosecond
				l.take(take(1, 1, in), 1)
				l.take(take(left, left, in), 0)
				l.take(take(left-1, left-1, in), left-1)
			}
		}
	}
}

// Of a bucket of no limit the same number stays missing with another, as tokens that do not return have no time, until the
// window's end.
func TestTokensOfNoLimit(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.set(10 * second)
	l.tokens(tokenItem(1, 0, 4*second, 5), 4*second, 5)
	for _, now := range []time.Duration{10 * second, 20 * second, 64*second - 1} {
		l.set(now)
		l.tokens(tokenItem(1, 10, now, 0), now, 5)
	}
	l.set(64 * second)
	l.tokens(tokenItem(1, 10, 64*second, 0), 64*second, 0)
	l.set(20 * second)
	l.tokens(tokenItem(1, 10, 20*second, 2), 20*second, 7)
	l.tokens(tokenItem(1, 0, 20*second, 0), 20*second, 7)
}

// Nodes with two limits push, take and read in turns. The bucket is full at the same nanosecond as if all had the same.
func TestTokensOfTwoLimits(t *testing.T) {
	t.Parallel()
	for _, limits := range [][2]uint64{{1000, 10}, {7, 11}, {1, 999_983}, {window.MaxLimit, 3}} {
		l := newLedger(t)
		for turn := range 200 {
			it := tokenItem(1, limits[turn%2], 0, 1)
			if turn == 0 {
				it.Hits[0] += int64(limits[0] * 2)
			}
			// Taking tokens and giving them back changes nothing, but writes the bucket.
			back := it
			back.Hits, back.Newest = []int64{-1}, l.NowNanos
			l.push(it)
			dropped := l.out.Dropped
			limit, state := l.bucketState(it, l.push(back))
			if full, _ := limit.ResetAt(&state); uint64(full) != at(2*minute) || dropped+l.out.Dropped != 0 {
				t.Fatalf("limits %v, turn %d: full after %v, %+v; want 2 minutes", limits, turn, time.Duration(uint64(full)-epoch), l.out)
			}
			l.pass(599_999_999)
		}
		for after, want := range map[time.Duration]uint64{2*minute - 1: 0, 2 * minute: 1} {
			l.set(after)
			for _, limit := range limits {
				r := room(tokens, 1, limit, 1)
				r.Burst = 1
				one := take(1, 1, r)
				item := l.RoomItem(&r, 0)
				must.Equal(t, l.Units(&one, []wire.Total{l.Total(&item)}, 1), want, "limits %v, after %v: units by %d", limits, after, limit)
			}
		}
	}
}

// Nodes with an old and a new limit push their tokens in any order, each with the start that it has read last. A token
// costs exactly the time in which it returns.
func TestTokensOfTwoLimitsAtOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(14, 15))
	for _, limits := range [][]uint64{{1000, 10, 1000, 10}, {10, 10, 9, 9}, {60, 40, 30, 2}} {
		l, full, starts := newLedger(t), epoch, make([]time.Duration, len(limits))
		push := func(node int, taken int64) {
			t.Helper()
			it := tokenItem(1, limits[node], starts[node], taken)
			total := l.push(it)
			full += uint64(taken * int64(minute) / int64(it.Limit))
			limit, state := l.bucketState(it, total)
			// A ninth of a minute is not a whole number of nanoseconds.
			is, _ := limit.ResetAt(&state)
			if early := int64(full) - is; early > 0 || early < -1000 || l.out.Dropped != 0 {
				t.Fatalf("limits %v: full %v too early, outcome %+v", limits, time.Duration(early), l.out)
			}
			starts[node] = time.Duration(total.Newest - epoch)
		}
		push(0, int64(limits[0]))
		for node := range limits {
			push(node, 0)
		}
		for range 400 {
			l.pass(time.Duration(random.Int64N(500_000_000)))
			push(random.IntN(len(limits)), random.Int64N(3))
		}
	}
}

// Senders with different starts push in any order to a bucket that is never full.
func TestTokenSums(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 10 {
		l, start, sum := newLedger(t), minute, uint64(0)
		l.set(minute)
		var pushes []wire.Item
		for range 5 {
			since := minute - time.Duration(random.Int64N(30e9))
			start = min(start, since)
			for range 4 {
				taken := 10 + random.Uint64N(10)
				sum += taken
				pushes = append(pushes, tokenItem(1, 10, since, int64(taken)))
			}
		}
		random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
		for _, it := range pushes {
			l.push(it)
		}
		l.tokens(tokenItem(1, 10, minute, 0), start, sum)
	}
}

// Three independent nodes push their tokens at once. The bucket is that of a single node that takes them all.
func TestTokensOfOneNode(t *testing.T) {
	t.Parallel()
	for _, max := range []uint64{1, 7, 10, 1000} {
		random, l := rand.New(rand.NewPCG(max, 0)), newLedger(t)
		limit := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: int64(minute)}, Max: max, Burst: wire.MaxHits}
		var one window.State
		var nodes [3]window.State
		for step := range 500 {
			l.pass(time.Duration(random.Int64N(6 * int64(minute) / int64(max))))
			node, cost := &nodes[random.IntN(len(nodes))], 1+random.Uint64N(2)
			for _, s := range []*window.State{&one, node} {
				limit.Advance(s, int64(l.NowNanos))
				limit.Count(s, cost)
				// Nothing is pending, because the store gets the tokens at once.
				s.Claim()
				s.EndFlight()
			}
			it := tokenItem(1, max, time.Duration(uint64(node.Start)-epoch), int64(cost))
			_, got := l.bucketState(it, l.push(it))
			must.EqualOrEnd(t, limit.Remaining(&got), limit.Remaining(&one), "limit %d, step %d: tokens left", max, step)
			must.EqualOrEnd(t, l.out.Dropped, 0, "limit %d, step %d: dropped", max, step)
		}
	}
}

// All tokens that return are taken, for longer than any sum of them could be kept.
func TestTokensOverYears(t *testing.T) {
	t.Parallel()
	const limit = 1 << 47
	l, since := newLedger(t), time.Duration(0)
	l.tokens(tokenItem(1, limit, 0, limit), 0, limit)
	for i := range int64(1000) {
		l.pass(30 * second)
		it := tokenItem(1, limit, since, limit/2)
		since = time.Duration(l.NowNanos - epoch).Truncate(minute)
		l.tokens(it, since, limit+limit/2*(uint64(i+1)%2))
		l.counted(i, limit/2, 0, 0)
	}
	must.AtMost(t, l.contents(tokenItem(1, 0, 0, 0).LimitCounter).Windows[0].Hits, 20*limit, "hits, of which some were taken lately")
}

// A sender pushes so late that the bucket's start was moved meanwhile. And while the bucket is used on and never full, a
// copy of a push is dropped as soon as its record may be forgotten.
func TestLateTokens(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.tokens(tokenItem(1, 10, 0, 20), 0, 20)
	for i := range time.Duration(40) {
		l.pass(minute)
		l.push(tokenItem(1, 10, (i+1)*minute, 10))
		l.counted(i, 10, 0, 0)
	}
	l.tokens(tokenItem(1, 10, 40*minute, 0), 40*minute, 20)
	l.tokens(tokenItem(1, 10, 7*minute+second, 325), 40*minute, 345)

	l = newLedger(t)
	copied := tokenItem(1, 10, 0, 20)
	settled, tried := l.Settled(&copied), 0
	l.push(copied)
	for i := range time.Duration(60) {
		l.pass(30 * second)
		l.push(tokenItem(1, 10, (i+1)*30*second, 5))
		l.counted(i, 5, 0, 0)
		if l.NowNanos >= settled {
			l.push(copied)
			l.counted(i, 0, 0, 20)
			tried++
		}
	}
	must.AtLeast(t, tried, 10, "copies that came late")
}
