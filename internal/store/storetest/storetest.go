// Package storetest is the conformance suite of [store.Store]: tests of everything that each store
// must do.
package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
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

// Open opens an empty store with the clock now, or with its own clock if now is nil. The store is
// closed when the test ends.
type Open func(t testing.TB, now func() time.Time) store.Store

const (
	fixed    = uint8(window.FixedWindow)
	firstHit = uint8(window.FirstHitWindow)
	sliding  = uint8(window.SlidingWindow)
	buckets  = uint8(window.SlidingBuckets)
	tokens   = uint8(window.TokenBucket)

	minute = 60_000
	day    = 24 * 60 * minute
)

// epoch is when the tests begin: the beginning of a window of every width that they use.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Run runs the suite.
func Run(t *testing.T, open Open) { RunBut(t, open, nil) }

// RunBut runs the suite without some tests, each given with the reason.
func RunBut(t *testing.T, open Open, but map[string]string) {
	ran := 0
	defer func() {
		if ran == 0 {
			t.Error("no test was run")
		}
	}()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b *bench)
	}{
		{"sums", testSums},
		{"fixed windows", testFixed},
		{"sliding windows", testSliding},
		{"first-hit windows", testFirstHit},
		{"first-hit windows merge", testFirstHitMerge},
		{"buckets", testBuckets},
		{"buckets of many senders", testBucketSums},
		{"buckets end", testBucketsEnd},
		{"buckets ahead", testBucketsAhead},
		{"buckets of a fast sender", testBucketsFastSender},
		{"buckets ahead by a window", testBucketsBelieved},
		{"buckets of a clock that was set back", testBucketsSetBack},
		{"buckets ahead, given back", testBucketsAheadReturned},
		{"buckets ahead, given back late", testBucketsAheadReturnedLate},
		{"buckets ahead, nothing given back", testBucketsNothingReturned},
		{"buckets ahead, not seen", testBucketsAheadUnseen},
		{"buckets ahead, exactly once", testBucketsAheadOnce},
		{"buckets of clocks that wander", testBucketsWander},
		{"buckets given back", testBucketsReturned},
		{"buckets saturate", testBucketsSaturate},
		{"sliding logs", testLog},
		{"sliding logs are bounded", testLogBound},
		{"large logs", testLargeLog},
		{"token buckets", testTokens},
		{"token buckets merge", testTokensMerge},
		{"token buckets of another limit", testTokensOfAnotherLimit},
		{"token buckets of two limits", testTokensOfTwoLimits},
		{"token buckets of two limits at once", testTokensOfTwoLimitsAtOnce},
		{"token buckets of random limits", testTokensOfRandomLimits},
		{"token buckets of many senders", testTokenSums},
		{"token buckets like a single node's", testTokensOfOneNode},
		{"token buckets end", testTokensEnd},
		{"token buckets over years", testTokensOverYears},
		{"token buckets, silent senders", testTokensOfASilentSender},
		{"token buckets, late copies", testTokensZombie},
		{"token buckets, given back late", testTokensReturnedLate},
		{"token buckets, given back early", testTokensReturnedEarly},
		{"token buckets of a clock that was set back", testTokensSetBack},
		{"clocks that are off", testSkew},
		{"windows of a clock that was set back", testClockSetBack},
		{"late hits", testLate},
		{"hits given back", testReturned},
		{"hits given back that nobody has", testReturnedUnbacked},
		{"hits given back beyond what is counted", testReturnedBeyond},
		{"exactly once", testOnce},
		{"any order", testOrder},
		{"senders are told apart", testSenders},
		{"late copies", testZombie},
		{"isolation", testIsolation},
		{"neighbours", testNeighbours},
		{"reads change nothing", testReads},
		{"saturation", testSaturation},
		{"large batches", testLarge},
		{"a counter twice in a batch", testTwice},
		{"invalid pushes", testInvalid},
		{"extremes", testExtremes},
		{"cancelled", testCancelled},
		{"pings", testPings},
		{"visits end", testVisitsEnd},
		{"hammer", testHammer},
		{"takes", testTakes},
		{"takes like a single node's", testTakesOfOneNode},
		{"takes of several rooms", testTakesRooms},
		{"takes of nothing", testTakesOfNothing},
		{"rejected hits", testTakesRejected},
		{"leases", testLeases},
		{"takes given back", testTakesReturned},
		{"takes exactly once", testTakesOnce},
		{"takes exactly once, however late", testTakesLate},
		{"takes again in the next window", testTakesTurned},
		{"takes in any order", testTakesInAnyOrder},
		{"takes hammer", testTakesHammer},
		{"leases hammer", testLeasesHammer},
		{"takes and items", testTakesAndItems},
		{"takes, clocks that are off", testTakesSkew},
		{"invalid takes", testTakesInvalid},
		{"large takes", testTakesLarge},
		{"extreme takes", testTakesExtremes},
		{"nodes", testNodes},
		{"nodes that come once", testNodesOnce},
		{"nodes are bounded", testNodesBounded},
		{"widths", testWidths},
		{"counters of a key", testCountersOf},
		{"counters emptied", testCountersEmptied},
		{"counters relieved", testCountersRelieved},
		{"overrides", testOverrides},
		{"overrides that have changed", testOverridesChanged},
		{"overrides hammer", testOverridesHammer},
		{"told of overrides", testTold},
		{"reports", testReports},
		{"accounts", testAccounts},
		{"accounts over years", testAccountsOverYears},
		{"accounts are bounded", testAccountsBounded},
		{"large accounts stay", testAccountsStay},
		{"budgets", testBudgets},
		{"accounts hammer", testAccountsHammer},
	} {
		t.Run(test.name, func(t *testing.T) {
			if reason := but[test.name]; reason != "" {
				t.Skip(reason)
			}
			ran++
			clock := &clock{}
			clock.set(epoch)
			test.run(t, &bench{t: t, clock: clock, store: open(t, clock.now)})
		})
	}
}

// clock is a fake clock.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) set(t time.Time)         { c.nanos.Store(t.UnixNano()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// bench has a store under test.
type bench struct {
	t     *testing.T
	clock *clock
	store store.Store
	seq   uint64
}

// push pushes items as the next batch of a sender, and wants these totals, a list for each item.
func (b *bench) push(items []wire.Item, want ...[]uint64) store.Outcome {
	b.t.Helper()
	b.seq++
	return b.send(&wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq, Items: items}, want...)
}

func (b *bench) send(p *wire.Push, want ...[]uint64) store.Outcome {
	b.t.Helper()
	out, err := b.store.Push(b.t.Context(), p, 1)
	if err != nil {
		b.t.Fatalf("push %d: %v", p.Sequence, err)
	}
	if got := uint64(b.clock.now().UnixNano()); out.Answer.NowNanos != got {
		b.t.Errorf("push %d: answered at %d, want the store's clock, %d", p.Sequence, out.Answer.NowNanos, got)
	}
	if got := hitsOf(out); !reflect.DeepEqual(got, want) {
		b.t.Fatalf("push %d: totals %v, want %v", p.Sequence, got, want)
	}
	return out
}

// read reads an item, and wants these totals.
func (b *bench) read(item wire.Item, want ...uint64) wire.Total {
	b.t.Helper()
	item.Hits = make([]int64, len(want))
	p := &wire.Push{Namespace: "ns", Sender: 99, Sequence: 1, Floor: 1, Items: []wire.Item{item}}
	return b.send(p, want).Answer.Totals[0]
}

// sum returns the hits of all counters of a namespace.
func (b *bench) sum(namespace string) (sum int64) {
	b.t.Helper()
	for _, c := range b.counters(namespace) {
		for _, w := range c.Windows {
			sum += w.Hits
		}
	}
	return sum
}

func (b *bench) counters(namespace string) (counters []store.LimitCounter) {
	b.t.Helper()
	err := b.store.Counters(b.t.Context(), namespace, nil, func(c store.LimitCounter) error {
		counters = append(counters, c)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return counters
}

func hitsOf(out store.Outcome) (hits [][]uint64) {
	for _, total := range out.Answer.Totals {
		hits = append(hits, total.Hits)
	}
	return hits
}

// unbucketed are all kinds without buckets of a precision.
var unbucketed = func() (kinds []uint8) {
	for k := window.Kind(1); k <= window.LastKind; k++ {
		if !k.Bucketed() {
			kinds = append(kinds, uint8(k))
		}
	}
	return kinds
}()

// item returns an item of a counter named after id, at the window of t. A token bucket's limit is
// 0, so no token returns.
func item(kind uint8, id byte, widthMillis uint64, t time.Time, hits ...int64) wire.Item {
	newest := uint64(t.UnixNano())
	if !window.Kind(kind).Started() {
		newest /= widthMillis * 1e6
	}
	c := wire.LimitCounter{ID: wire.ID{0: id}, Kind: kind, WidthMillis: widthMillis}
	return wire.Item{LimitCounter: c, Newest: newest, Hits: hits}
}

func items(i ...wire.Item) []wire.Item { return i }
func totals(h ...uint64) []uint64      { return h }

func testSums(t *testing.T, b *bench) {
	b.push(items(item(fixed, 1, minute, epoch, 3), item(sliding, 2, minute, epoch, 4)), totals(3), totals(4))
	out := b.push(items(item(sliding, 2, minute, epoch, 5), item(fixed, 1, minute, epoch, 1)), totals(9), totals(4))
	if out.Applied != 6 || out.Dropped != 0 || out.Duplicate || out.Repaired != 0 {
		t.Errorf("outcome %+v, want 6 applied", out)
	}
	if got := b.sum("ns"); got != 13 {
		t.Errorf("sum of counters %d, want 13", got)
	}
	for _, c := range b.counters("ns") {
		want := store.Window{Number: uint64(epoch.UnixMilli()) / minute, Hits: map[uint8]int64{fixed: 4, sliding: 9}[c.Kind]}
		if c.WidthMillis != minute || c.ID != (wire.ID{map[uint8]byte{fixed: 1, sliding: 2}[c.Kind]}) || !slices.Equal(c.Windows, []store.Window{want}) {
			t.Errorf("counter %+v, want window %+v", c, want)
		}
	}
}

func testFixed(t *testing.T, b *bench) {
	first := item(fixed, 1, minute, epoch, 5)
	b.push(items(first), totals(5))
	b.clock.advance(time.Minute - time.Millisecond)
	b.push(items(first), totals(10))
	b.clock.advance(time.Millisecond)
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none once the window has ended", got)
	}
	// The next window begins at zero. Nodes whose clock is behind can still read the last.
	b.push(items(item(fixed, 1, minute, b.clock.now(), 1)), totals(1))
	b.read(item(fixed, 1, minute, b.clock.now()), 1, 10)
	b.clock.advance(store.Grace - time.Millisecond)
	b.read(first, 10)
	b.clock.advance(time.Millisecond)
	b.read(first, 0)
	b.read(item(fixed, 1, minute, b.clock.now()), 1, 0)
}

func testSliding(t *testing.T, b *bench) {
	b.push(items(item(sliding, 1, minute, epoch, 40)), totals(40))
	b.clock.advance(time.Minute)
	now := b.clock.now()
	b.push(items(item(sliding, 1, minute, now, 10, 2)), totals(10, 42))
	b.clock.advance(time.Minute - time.Millisecond)
	b.push(items(item(sliding, 1, minute, now, 0, 1)), totals(10, 43))
	if got := b.sum("ns"); got != 53 {
		t.Errorf("sum %d, want both windows that count, 53", got)
	}
	b.clock.advance(time.Millisecond)
	now = b.clock.now()
	out := b.push(items(item(sliding, 1, minute, now, 1, 1, 7)), totals(1, 11, 43))
	if out.Dropped != 7 || out.Applied != 2 {
		t.Errorf("outcome %+v, want 7 dropped of the window before the previous one", out)
	}
	b.clock.advance(store.Grace)
	b.read(item(sliding, 1, minute, now), 1, 11, 0)
	b.clock.advance(3 * time.Minute)
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	b.read(item(sliding, 1, minute, now), 0, 0, 0)
}

func testFirstHit(t *testing.T, b *bench) {
	start := b.clock.now().Add(45 * time.Second)
	b.clock.set(start)
	b.push(items(item(firstHit, 1, minute, start, 4)), totals(4))
	b.clock.advance(time.Minute - time.Millisecond)
	if got := b.read(item(firstHit, 1, minute, b.clock.now()), 4); got.Newest != uint64(start.UnixNano()) {
		t.Errorf("start %d, want that of the window that lives, %d", got.Newest, start.UnixNano())
	}
	b.clock.advance(time.Millisecond)
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none once the window has ended", got)
	}
	asked := b.clock.now().Add(-time.Microsecond)
	if got := b.read(item(firstHit, 1, minute, asked), 0); got.Newest != uint64(asked.UnixNano()) {
		t.Errorf("start %d, want the one asked for, %d, as no window lives", got.Newest, asked.UnixNano())
	}
	// Hits of the ended window don't matter any more, and don't reach the next.
	next := b.clock.now()
	b.push(items(item(firstHit, 1, minute, next, 1)), totals(1))
	out := b.push(items(item(firstHit, 1, minute, start, 9)), totals(1))
	if out.Dropped != 9 || out.Answer.Totals[0].Newest != uint64(next.UnixNano()) {
		t.Errorf("outcome %+v, want 9 dropped and the window that lives", out)
	}
}

func testFirstHitMerge(t *testing.T, b *bench) {
	b.clock.advance(30 * time.Second)
	late, early := b.clock.now(), b.clock.now().Add(-20*time.Second-time.Nanosecond)
	b.push(items(item(firstHit, 1, minute, late, 1)), totals(1))
	// This window began earlier, by a nanosecond that a float64 could not represent.
	out := b.push(items(item(firstHit, 1, minute, early, 2)), totals(3))
	if got := out.Answer.Totals[0].Newest; got != uint64(early.UnixNano()) {
		t.Errorf("start %d, want the earlier, %d", got, early.UnixNano())
	}
	out = b.push(items(item(firstHit, 1, minute, late, 4)), totals(7))
	if got := out.Answer.Totals[0].Newest; got != uint64(early.UnixNano()) {
		t.Errorf("start %d, want it to stay, %d", got, early.UnixNano())
	}
	want := []store.Window{{Number: uint64(early.UnixNano()), Hits: 7}}
	if got := b.counters("ns"); len(got) != 1 || !slices.Equal(got[0].Windows, want) {
		t.Errorf("counters %+v, want one with %+v", got, want)
	}
	b.clock.set(early.Add(time.Minute).Truncate(time.Microsecond).Add(time.Microsecond))
	b.read(item(firstHit, 1, minute, b.clock.now()), 0)
}

func testSkew(t *testing.T, b *bench) {
	now := b.clock.now()
	for _, test := range []struct {
		name  string
		kind  uint8
		width uint64
		ahead time.Duration
		taken bool
	}{
		{"10 minutes", fixed, minute, 10 * time.Minute, true},
		{"11 minutes", fixed, minute, 11 * time.Minute, false},
		{"two wide windows", sliding, day, 48 * time.Hour, true},
		{"three wide windows", sliding, day, 72 * time.Hour, false},
		{"64 narrow windows", sliding, 1, 64 * time.Millisecond, true},
		{"65 narrow windows", sliding, 1, 65 * time.Millisecond, false},
		{"a century", fixed, minute, 100 * 366 * 24 * time.Hour, false},
		{"first hit, 10 minutes", firstHit, minute, 10 * time.Minute, true},
		{"first hit, more", firstHit, minute, 10*time.Minute + time.Microsecond, false},
		{"first hit, a century", firstHit, minute, 100 * 366 * 24 * time.Hour, false},
	} {
		it := item(test.kind, byte(b.seq), test.width, now.Add(test.ahead), 5)
		if !test.taken {
			if out := b.push(items(it), totals(0)); out.Dropped != 5 {
				t.Errorf("%s: outcome %+v, want 5 dropped", test.name, out)
			}
			continue
		}
		out := b.push(items(it), totals(5))
		if out.Applied != 5 {
			t.Errorf("%s: outcome %+v, want 5 applied", test.name, out)
		}
		if got := out.Answer.Totals[0].Newest; test.kind == firstHit && got != uint64(now.UnixNano()) {
			t.Errorf("%s: start %d, want the store's now, %d, as a hit can't come later", test.name, got, now.UnixNano())
		}
	}
	// A clock that is set back loses nothing that still counts.
	b.push(items(item(fixed, 100, minute, now, 1), item(firstHit, 101, minute, now, 1)), totals(1), totals(1))
	b.clock.advance(-time.Second)
	b.push(items(item(fixed, 100, minute, now, 1), item(firstHit, 101, minute, now, 1)), totals(2), totals(2))
}

func testLate(t *testing.T, b *bench) {
	b.clock.advance(10 * time.Minute)
	out := b.push(items(
		item(fixed, 1, minute, b.clock.now(), 1, 2, 4),
		item(sliding, 2, minute, b.clock.now(), 8, 16, 32),
		item(firstHit, 3, minute, b.clock.now().Add(-time.Minute), 64),
	), totals(1, 0, 0), totals(8, 16, 0), totals(0))
	if out.Applied != 25 || out.Dropped != 102 {
		t.Errorf("outcome %+v, want 25 applied and 102 dropped", out)
	}
	if got := b.sum("ns"); got != 25 {
		t.Errorf("sum %d, want 25", got)
	}
}

func testReturned(t *testing.T, b *bench) {
	for _, kind := range unbucketed {
		taken, back := item(kind, 1, minute, epoch, 5), item(kind, 1, minute, epoch, -7)
		b.push(items(taken), totals(5))
		out := b.push(items(back), totals(0))
		if out.Applied != 0 || out.Returned != 5 || out.Dropped != 2 {
			t.Errorf("kind %d: outcome %+v, want 5 returned, 2 dropped", kind, out)
		}
		// A push that has overtaken the hits that it gives back makes no room.
		b.read(item(kind, 1, minute, epoch), 0)
		b.push(items(taken), totals(5))
		b.push(items(item(kind, 1, minute, epoch, -2)), totals(3))
		// Nor when it comes first of all.
		late := item(kind, 2, minute, epoch, -1)
		b.push(items(late), totals(0))
		b.push(items(item(kind, 2, minute, epoch, 2)), totals(2))
		// However much it is.
		lowest := item(kind, 3, minute, epoch, -wire.MaxHits)
		b.push(items(lowest), totals(0))
		b.push(items(lowest), totals(0))
		b.push(items(item(kind, 3, minute, epoch, wire.MaxHits)), totals(wire.MaxHits))
		b.push(items(lowest), totals(0))
		b.push(items(item(kind, 3, minute, epoch, 1)), totals(1))
	}
	if out := b.push(items(item(fixed, 1, minute, epoch.Add(-time.Minute), -3)), totals(0)); out.Dropped != 3 {
		t.Errorf("outcome %+v, want 3 dropped", out)
	}
}

func testOnce(t *testing.T, b *bench) {
	p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: 1, Floor: 1, Items: items(
		item(fixed, 1, minute, epoch, 3), item(firstHit, 2, minute, epoch, 4), item(sliding, 3, minute, epoch, 5, 6))}
	if out := b.send(p, totals(3), totals(4), totals(5, 6)); out.Duplicate || out.Applied != 18 {
		t.Errorf("outcome %+v, want 18 applied", out)
	}
	b.push(items(item(fixed, 1, minute, epoch, 10)), totals(13))
	for range 3 {
		// It is answered with the present totals.
		if out := b.send(p, totals(13), totals(4), totals(5, 6)); !out.Duplicate || out.Applied != 0 || out.Dropped != 0 {
			t.Errorf("outcome %+v, want a duplicate", out)
		}
	}
}

func testOrder(t *testing.T, b *bench) {
	random := rand.New(rand.NewPCG(1, 2))
	var want uint64
	// A window of 32 batches is in flight, each sent up to 3 times in any order, with the floor
	// that was known when it was made.
	for first := uint64(1); first < 200; first += 32 {
		var pushes []*wire.Push
		for seq := first; seq < first+32; seq++ {
			want += seq
			p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: seq, Floor: first, Items: items(item(fixed, 1, day, epoch, int64(seq)))}
			pushes = append(pushes, slices.Repeat([]*wire.Push{p}, 1+random.IntN(3))...)
		}
		random.Shuffle(len(pushes), func(i, j int) { pushes[i], pushes[j] = pushes[j], pushes[i] })
		for _, p := range pushes {
			if _, err := b.store.Push(t.Context(), p, 1); err != nil {
				t.Fatal(err)
			}
		}
		b.read(item(fixed, 1, day, epoch), want)
	}
}

func testSenders(t *testing.T, b *bench) {
	it := items(item(fixed, 1, minute, epoch, 1))
	b.send(&wire.Push{Namespace: "ns", Sender: 1, Sequence: 5, Floor: 5, Items: it}, totals(1))
	b.send(&wire.Push{Namespace: "ns", Sender: math.MaxUint64, Sequence: 5, Floor: 5, Items: it}, totals(2))
	b.send(&wire.Push{Namespace: "ns", Sender: math.MaxUint64 - 1, Sequence: 5, Floor: 5, Items: it}, totals(3))
	b.send(&wire.Push{Namespace: "other", Sender: 1, Sequence: 5, Floor: 5, Items: it}, totals(1))
	b.send(&wire.Push{Namespace: "ns", Sender: 1, Sequence: 5, Floor: 5, Items: it}, totals(3))
}

func testZombie(t *testing.T, b *bench) {
	push := func(seq, floor uint64, want uint64) bool {
		t.Helper()
		p := &wire.Push{Namespace: "ns", Sender: 7, Sequence: seq, Floor: floor, Items: items(item(sliding, 1, day, epoch, 1))}
		return b.send(p, totals(want)).Duplicate
	}
	for _, step := range []struct {
		seq, floor, total uint64
		duplicate         bool
	}{
		{1, 1, 1, false},
		{3, 1, 2, false},
		{4, 3, 3, false},
		{2, 1, 3, true},  // new, but below the floor: the sender has its answer
		{1, 1, 3, true},  // seen, and forgotten below the floor
		{3, 1, 3, true},  // seen, and still remembered
		{5, 0, 4, false}, // a floor of nothing does not lower it
		{2, 2, 4, true},
		{5000, 5000, 5, false}, // far above the floor
		{4999, 4999, 5, true},
		{9095, 5000, 6, false}, // the highest sequence above the floor that is accepted
		{9095, 5000, 6, true},
		{5001, 5000, 7, false},
		{9096, 5001, 8, false}, // has the place of 5000 in the memory store
		{5000, 5000, 8, true},
		{5001, 5001, 8, true},
		{wire.MaxHits, wire.MaxHits, 9, false},
		{9097, 9097, 9, true},
	} {
		if got := push(step.seq, step.floor, step.total); got != step.duplicate {
			t.Fatalf("sequence %d, floor %d: duplicate %v, want %v", step.seq, step.floor, got, step.duplicate)
		}
	}
	// The sender is remembered as long as any of its windows counts.
	b.clock.advance(48*time.Hour - time.Millisecond)
	if !push(wire.MaxHits, wire.MaxHits, 9) {
		t.Error("the sender is forgotten before its window")
	}
	// It is remembered for at least ten minutes.
	p := &wire.Push{Namespace: "ns", Sender: 8, Sequence: 1, Floor: 1, Items: items(item(fixed, 2, 1, b.clock.now(), 1))}
	b.send(p, totals(1))
	b.clock.advance(store.SenderLife - time.Millisecond)
	if !b.send(p, totals(0)).Duplicate {
		t.Error("the sender is forgotten too soon")
	}
}

func testIsolation(t *testing.T, b *bench) {
	base := item(fixed, 1, minute, epoch, 1)
	variants := map[string]func(p *wire.Push){
		"namespace":      func(p *wire.Push) { p.Namespace = "n" },
		"long namespace": func(p *wire.Push) { p.Namespace = "ns.ns_ns-NS09" },
		"id":             func(p *wire.Push) { p.Items[0].ID[15] = 1 },
		"binary id":      func(p *wire.Push) { copy(p.Items[0].ID[:], "\x00\xff:{}*?[]\r\n\\\"'%") },
		"ordinal":        func(p *wire.Push) { p.Items[0].Ordinal = 255 },
		"sliding":        func(p *wire.Push) { p.Items[0].Kind = sliding },
		"first hit":      func(p *wire.Push) { p.Items[0].Kind, p.Items[0].Newest = firstHit, uint64(epoch.UnixNano()) },
		"tokens":         func(p *wire.Push) { p.Items[0].Kind, p.Items[0].Newest = tokens, uint64(epoch.UnixNano()) },
		"precision":      func(p *wire.Push) { p.Items[0] = bucketItem(1, minute, 30e9, 9, hits(p.Items[0].Newest*2, 7)) },
		"finer":          func(p *wire.Push) { p.Items[0] = bucketItem(1, minute, 15e9, 9, hits(p.Items[0].Newest*4, 7)) },
		"log":            func(p *wire.Push) { p.Items[0] = log(1, 9, hits(uint64(epoch.UnixNano()), 7)) },
		"width": func(p *wire.Push) {
			p.Items[0] = item(fixed, 1, 2*minute, epoch, 7)
		},
	}
	b.push(items(base), totals(1))
	for name, change := range variants {
		p := &wire.Push{Namespace: "ns", Sender: 2, Sequence: b.seq, Floor: b.seq, Items: items(base)}
		b.seq++
		p.Items[0].Hits = []int64{7}
		change(p)
		out, err := b.store.Push(t.Context(), p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Answer.Totals[0].Hits; !slices.Equal(got, totals(7)) {
			t.Errorf("%s: totals %v, want its own, 7", name, got)
		}
	}
	b.read(base, 1)
	for namespace, want := range map[string]int64{"n": 7, "ns.ns_ns-NS09": 7, "ns": 1 + 10*7, "s": 0} {
		if got := b.sum(namespace); got != want {
			t.Errorf("sum of %s: %d, want %d", namespace, got, want)
		}
	}
}

func testReads(t *testing.T, b *bench) {
	for _, kind := range unbucketed {
		if got := b.read(item(kind, 1, minute, epoch), 0); got.Newest != item(kind, 1, minute, epoch).Newest {
			t.Errorf("kind %d: newest %d, want the one asked for", kind, got.Newest)
		}
	}
	b.readBuckets(log(1, 10, hits(uint64(epoch.UnixNano()), 0)))
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	// A read is not recorded, so its sequence can still be used, and it does not raise the floor.
	b.send(&wire.Push{Namespace: "ns", Sender: 5, Sequence: 9, Floor: 9, Items: items(item(fixed, 1, minute, epoch, 0))}, totals(0))
	b.send(&wire.Push{Namespace: "ns", Sender: 5, Sequence: 3, Floor: 3, Items: items(item(fixed, 1, minute, epoch, 1))}, totals(1))
	// A read among hits starts no window either, and moves none.
	b.push(items(item(fixed, 1, minute, epoch, 1), item(firstHit, 2, minute, epoch, 0)), totals(2), totals(0))
	b.clock.advance(time.Second)
	b.push(items(item(firstHit, 2, minute, b.clock.now(), 1)), totals(1))
	out := b.push(items(item(fixed, 1, minute, epoch, 1), item(firstHit, 2, minute, epoch, 0)), totals(3), totals(1))
	if got := out.Answer.Totals[1].Newest; got != uint64(b.clock.now().UnixNano()) {
		t.Errorf("start %d, want it unmoved, %d", got, b.clock.now().UnixNano())
	}
	// An empty push asks for the time.
	b.push(nil)
}

func testSaturation(t *testing.T, b *bench) {
	for _, kind := range unbucketed {
		b.push(items(item(kind, 1, minute, epoch, wire.MaxHits-1)), totals(wire.MaxHits-1))
		b.push(items(item(kind, 1, minute, epoch, 1)), totals(wire.MaxHits))
		b.push(items(item(kind, 1, minute, epoch, 1)), totals(wire.MaxHits))
		b.push(items(item(kind, 1, minute, epoch, wire.MaxHits)), totals(wire.MaxHits))
		b.read(item(kind, 1, minute, epoch), wire.MaxHits)
	}
	out := b.push(items(item(fixed, 2, minute, epoch, wire.MaxHits, wire.MaxHits), item(fixed, 3, minute, epoch, wire.MaxHits, wire.MaxHits)),
		totals(wire.MaxHits, 0), totals(wire.MaxHits, 0))
	if out.Applied != wire.MaxHits || out.Dropped != wire.MaxHits {
		t.Errorf("outcome %+v, want applied and dropped to stop at 2^53-1", out)
	}
}

func testLarge(t *testing.T, b *bench) {
	batch := make([]wire.Item, wire.MaxItems)
	want := make([][]uint64, wire.MaxItems)
	for round := uint64(1); round <= 3; round++ {
		for i := range batch {
			batch[i] = item(unbucketed[i%len(unbucketed)], 0, minute, epoch, int64(i+1))
			binary.BigEndian.PutUint32(batch[i].ID[4:], uint32(i))
			want[i] = totals(round * uint64(i+1))
		}
		b.push(batch, want...)
	}
	if got, want := b.sum("ns"), int64(3*wire.MaxItems*(wire.MaxItems+1)/2); got != want {
		t.Errorf("sum %d, want %d", got, want)
	}
	if got := len(b.counters("ns")); got != wire.MaxItems {
		t.Errorf("%d counters, want %d", got, wire.MaxItems)
	}
	// The item has all windows that it can have, and two of them count.
	many := make([]int64, wire.MaxWindows)
	for i := range many {
		many[i] = 1
	}
	answer := make([]uint64, wire.MaxWindows)
	answer[0], answer[1] = 1, 1
	b.push(items(item(sliding, 9, minute, epoch, many...)), answer)
}

func testTwice(t *testing.T, b *bench) {
	b.clock.advance(time.Second)
	late, early := b.clock.now(), epoch
	out := b.push(items(
		item(fixed, 1, minute, late, 1), item(firstHit, 2, minute, late, 1),
		item(fixed, 1, minute, late, 2), item(firstHit, 2, minute, early, 2),
		item(sliding, 3, minute, late, 1, 1), item(sliding, 3, minute, late, 1),
	), totals(3), totals(3), totals(3), totals(3), totals(2, 1), totals(2))
	for _, i := range []int{1, 3} {
		if got := out.Answer.Totals[i].Newest; got != uint64(early.UnixNano()) {
			t.Errorf("item %d: start %d, want the earlier, %d", i, got, early.UnixNano())
		}
	}
	if got := len(b.counters("ns")); got != 3 {
		t.Errorf("%d counters, want 3", got)
	}
	// If a store divides the push, each answer still has all totals.
	now := uint64(late.UnixNano())
	first, second := log(4, 99_991, hits(now, 3)), log(4, 99_991, hits(now, 4))
	b.push(items(first, log(5, 99_991, hits(now, 1)), second), totals(7), totals(1), totals(7))
}

// testClockSetBack sets the store's clock back when a window can't be read any more, and the next
// window was hit since. Nothing of the old window comes back.
func testClockSetBack(_ *testing.T, b *bench) {
	for _, kind := range []uint8{fixed, sliding} {
		b.clock.set(epoch)
		b.push(items(item(kind, 1, minute, epoch, 3)), totals(3))
		next := epoch.Add(time.Minute)
		b.clock.set(next)
		b.push(items(item(kind, 1, minute, next, 1)), totals(1))
		b.clock.set(epoch.Add(time.Duration(window.Kind(kind).Windows())*time.Minute + store.Grace))
		b.push(items(item(kind, 1, minute, next, 1)), totals(2))
		b.clock.set(epoch)
		b.read(item(kind, 1, minute, epoch), 0)
	}
}

func testInvalid(t *testing.T, b *bench) {
	for name, change := range map[string]func(p *wire.Push){
		"no namespace":         func(p *wire.Push) { p.Namespace = "" },
		"namespace":            func(p *wire.Push) { p.Namespace = "a*" },
		"sequence 0":           func(p *wire.Push) { p.Sequence, p.Floor = 0, 0 },
		"sequence 2^53":        func(p *wire.Push) { p.Sequence, p.Floor = 1<<53, 1<<53 },
		"floor above":          func(p *wire.Push) { p.Floor = p.Sequence + 1 },
		"floor far below":      func(p *wire.Push) { p.Sequence, p.Floor = store.MaxAhead+1, 1 },
		"floor below, extreme": func(p *wire.Push) { p.Sequence, p.Floor = wire.MaxHits, 0 },
		"too many items":       func(p *wire.Push) { p.Items = slices.Repeat(p.Items, wire.MaxItems) },
		"width 0":              func(p *wire.Push) { p.Items[1].WidthMillis = 0 },
		"width":                func(p *wire.Push) { p.Items[1].WidthMillis = wire.MaxWidthMillis + 1 },
		"extreme width":        func(p *wire.Push) { p.Items[1].WidthMillis = math.MaxUint64 },
		"kind 0":               func(p *wire.Push) { p.Items[1].Kind = 0 },
		"kind":                 func(p *wire.Push) { p.Items[1].Kind = 255 },
		"no windows":           func(p *wire.Push) { p.Items[1].Hits = nil },
		"too many windows":     func(p *wire.Push) { p.Items[1].Hits = make([]int64, wire.MaxBuckets+1) },
		"windows before 1970":  func(p *wire.Push) { p.Items[1].Newest, p.Items[1].Hits = 0, []int64{1, 1} },
		"first hits":           func(p *wire.Push) { p.Items[1].Kind, p.Items[1].Hits = firstHit, []int64{1, 1} },
		"too many hits":        func(p *wire.Push) { p.Items[1].Hits = []int64{1 << 53} },
		"precision":            func(p *wire.Push) { p.Items[1].Precision = 1 },
		"ages":                 func(p *wire.Push) { p.Items[1].Ages = []uint64{0} },
		"no precision":         func(p *wire.Push) { p.Items[1] = bucketItem(1, minute, 0, 1) },
		"odd precision":        func(p *wire.Push) { p.Items[1] = bucketItem(1, minute, 7e9, 1) },
		"coarse precision":     func(p *wire.Push) { p.Items[1] = bucketItem(1, minute, 120e9, 1) },
		"fine precision":       func(p *wire.Push) { p.Items[1] = bucketItem(1, minute, minute*1e6/75, 1) },
		"extreme precision":    func(p *wire.Push) { p.Items[1] = bucketItem(1, minute, math.MaxUint64, 1) },
		"no ages":              func(p *wire.Push) { p.Items[1] = log(1, 1, hits(5, 1)); p.Items[1].Ages = nil },
		"ages not ascending":   func(p *wire.Push) { p.Items[1] = log(1, 1, hits(5, 1), hits(5, 1)) },
		"ages before 1970":     func(p *wire.Push) { p.Items[1] = log(1, 1, hits(5, 1)); p.Items[1].Ages[0] = 6 },
		"limit":                func(p *wire.Push) { p.Items[1] = log(1, wire.MaxHits+1, hits(5, 1)) },
		"two token buckets":    func(p *wire.Push) { p.Items[1].Kind, p.Items[1].Hits = tokens, []int64{1, 1} },
		"large answer":         func(p *wire.Push) { p.Items = slices.Repeat(items(log(1, wire.MaxHits)), 52) },
		"many buckets": func(p *wire.Push) {
			p.Items[1] = log(1, 1)
			for i := range uint64(wire.MaxBuckets + 1) {
				p.Items[1].Ages, p.Items[1].Hits = append(p.Items[1].Ages, i), append(p.Items[1].Hits, 1)
			}
			p.Items[1].Newest = wire.MaxHits
		},
		"extreme hits": func(p *wire.Push) { p.Items[1].Hits = []int64{math.MinInt64} },
	} {
		p := &wire.Push{Namespace: "ns", Sender: 3, Sequence: 5, Floor: 5,
			Items: items(item(fixed, 1, minute, epoch, 1), item(fixed, 2, minute, epoch, 1))}
		change(p)
		if _, err := b.store.Push(t.Context(), p, 1); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: error %v, want invalid", name, err)
		}
	}
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none: an invalid push changes nothing", got)
	}
	// Its sequence was not recorded either.
	b.send(&wire.Push{Namespace: "ns", Sender: 3, Sequence: 1, Floor: 1, Items: items(item(fixed, 1, minute, epoch, 1))}, totals(1))
}

func testExtremes(t *testing.T, b *bench) {
	for _, newest := range []uint64{0, 1, 1<<53 - 1, 1 << 53, math.MaxInt64, math.MaxUint64} {
		for _, kind := range unbucketed {
			for _, width := range []uint64{1, wire.MaxWidthMillis} {
				it := item(kind, 1, width, epoch, 1)
				it.Newest = newest
				if out := b.push(items(it), totals(0)); out.Dropped != 1 || out.Answer.Totals[0].Newest != newest {
					t.Errorf("kind %d, width %d, newest %d: outcome %+v, want 1 dropped", kind, width, newest, out)
				}
				for _, precision := range []uint64{1, width * 1e6 / 64, width * 1e6} {
					it := bucketItem(1, width, precision, wire.MaxHits, hits(newest, 1))
					if out := b.pushBuckets(it); out.Dropped != 1 || out.Answer.Totals[0].Newest != newest {
						t.Errorf("width %d, precision %d, newest %d: outcome %+v, want 1 dropped", width, precision, newest, out)
					}
				}
			}
		}
	}
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	b.push(items(item(sliding, 1, wire.MaxWidthMillis, epoch, 1, 1), item(firstHit, 1, wire.MaxWidthMillis, epoch, 1),
		item(sliding, 1, 1, epoch, 1, 1), item(firstHit, 1, 1, epoch, 1)), totals(1, 1), totals(1), totals(1, 1), totals(1))
	b.clock.advance(366 * 24 * time.Hour)
	b.read(item(sliding, 1, wire.MaxWidthMillis, b.clock.now()), 0, 1)
}

func testCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: 1, Floor: 1, Items: items(item(fixed, 1, minute, epoch, 1))}
	if _, err := b.store.Push(ctx, p, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("push: error %v, want cancelled", err)
	}
	if err := b.store.Ping(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ping: error %v, want cancelled", err)
	}
	visit := func(store.LimitCounter) error { return nil }
	if err := b.store.Counters(ctx, "ns", nil, visit); !errors.Is(err, context.Canceled) {
		t.Errorf("counters: error %v, want cancelled", err)
	}
	if _, err := b.store.Join(ctx, "ns", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("join: error %v, want cancelled", err)
	}
	if err := b.store.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if got := b.sum("ns"); got != 0 {
		t.Errorf("sum %d, want 0", got)
	}
}

// A ping leaves nothing in other namespaces, and little in its own.
func testPings(t *testing.T, b *bench) {
	b.push(items(item(fixed, 1, minute, epoch, 1)), totals(1))
	for range 100 {
		if err := b.store.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.sum("ns"); got != 1 {
		t.Errorf("sum %d, want 1", got)
	}
	b.clock.set(time.Now().Add(time.Minute))
	if got := b.counters(store.TrialNamespace); len(got) > 0 {
		t.Errorf("counters %+v a minute after, want none", got)
	}
}

func testVisitsEnd(t *testing.T, b *bench) {
	b.push(items(item(fixed, 1, minute, epoch, 1), item(fixed, 2, minute, epoch, 1)), totals(1), totals(1))
	enough, visits := errors.New("enough"), 0
	err := b.store.Counters(t.Context(), "ns", nil, func(store.LimitCounter) error {
		visits++
		return enough
	})
	if !errors.Is(err, enough) || visits != 1 {
		t.Errorf("error %v after %d visits, want the visit's after 1", err, visits)
	}
}

// testHammer lets many senders push to few counters, each batch twice at the same time.
func testHammer(t *testing.T, b *bench) {
	const senders, batches, counters = 8, 40, 5
	var pushes sync.WaitGroup
	for sender := range uint64(senders) {
		for range 2 {
			pushes.Go(func() {
				for seq := uint64(1); seq <= batches; seq++ {
					p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: seq - min(seq, 3)}
					for id := range byte(counters) {
						p.Items = append(p.Items, item(unbucketed[int(id)%len(unbucketed)], id, minute, epoch, int64(seq)))
					}
					p.Items = append(p.Items, log(counters, wire.MaxHits, hits(uint64(epoch.UnixNano())-sender, int64(seq))))
					if _, err := b.store.Push(t.Context(), p, 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		pushes.Go(func() {
			if err := b.store.Counters(t.Context(), "ns", nil, func(store.LimitCounter) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	pushes.Wait()
	if got, want := b.sum("ns"), int64(senders*(counters+1)*batches*(batches+1)/2); got != want {
		t.Errorf("sum %d, want %d: every batch once", got, want)
	}
}

// Bench measures batches of 100 items, pushed in parallel by a sender per goroutine to 10,000
// counters.
func Bench(b *testing.B, open Open) {
	store := open(b, nil)
	var senders atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		sender := senders.Add(1)
		random := rand.New(rand.NewPCG(sender, 0))
		for seq := uint64(1); pb.Next(); seq++ {
			p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: seq, Items: make([]wire.Item, 100)}
			for i := range p.Items {
				p.Items[i] = item(sliding, 0, minute, time.Now(), 1, 0)
				binary.BigEndian.PutUint32(p.Items[i].ID[4:], random.Uint32N(10_000))
			}
			if _, err := store.Push(b.Context(), p, 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
