// Package storetest is the conformance suite of [store.Store]. It asks what a store can break: that hits are kept, as a
// whole, once, by the store's clock, and bounded. What is counted and granted is arithmetic, which package store tests;
// here a store has to do as that says.
package storetest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
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

// Epoch is when the tests begin: the beginning of a window of every width that they use.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// AtEpoch is a clock that stands still.
func AtEpoch() time.Time { return Epoch }

type test struct {
	name string
	run  func(t *testing.T, b *bench)
}

// Run runs the suite.
func Run(t *testing.T, open Open) { RunBut(t, open, nil) }

// RunBut runs the suite without some tests, each given with the reason.
func RunBut(t *testing.T, open Open, but map[string]string) {
	all := []test{
		{"leases", testLeases}, {"windows end", testEnds}, {"windows of a clock that was set back", testSetBack},
		{"large batches", testLarge}, {"large takes", testTakesLarge}, {"large logs", testLargeLog},
		{"a counter twice in a batch", testTwice}, {"takes of several rooms", testRooms}, {"isolation", testIsolation},
		{"neighbours", testNeighbours}, {"reads change nothing", testReads}, {"invalid pushes", testInvalid}, {"cancelled", testCancelled},
		{"pings", testPings}, {"widths", testWidths}, {"counters of a key", testCountersOf},
		{"exactly once", testOnce}, {"late copies", testZombie}, {"late copies of each algorithm", testLate},
		{"takes exactly once", testTakesOnce}, {"takes exactly once, however late", testTakesLate},
		{"hammer", testHammer}, {"leases hammer", testLeasesHammer},
		{"nodes", testNodes}, {"nodes that come once", testNodesOnce}, {"nodes are bounded", testNodesBounded},
		{"overrides", testOverrides}, {"overrides that have changed", testOverridesChanged}, {"overrides hammer", testOverridesHammer},
		{"applied lists", testAppliedLists}, {"reports", testReports},
		{"accounts", testAccounts}, {"accounts over years", testAccountsOverYears}, {"accounts are bounded", testAccountsBounded},
		{"large accounts stay", testAccountsStay}, {"budgets", testBudgets}, {"accounts hammer", testAccountsHammer},
	}
	for _, r := range Rooms(1, 1) {
		all = append(all, test{"hits of a " + r.Shape().Name(), func(t *testing.T, b *bench) { testHits(t, b, r) }})
	}
	for topic := range store.Topics {
		if topic.Terms().Log {
			all = append(all, test{topic.String(), func(t *testing.T, b *bench) { testLog(t, b, topic) }})
		}
	}
	ran := 0
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) {
			if reason := but[test.name]; reason != "" {
				t.Skip(reason)
			}
			ran++
			test.run(t, newBench(t, open))
		})
	}
	must.Equal(t, ran > 0, true, "a test was run")
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
	model model
}

func newBench(t *testing.T, open Open) *bench {
	clock := &clock{}
	clock.set(Epoch)
	return &bench{t: t, clock: clock, store: open(t, clock.now), model: model{counters: map[wire.LimitCounter]*store.Contents{}}}
}

func (b *bench) calendar() store.Calendar {
	return store.Calendar{NowNanos: uint64(b.clock.now().UnixNano())}
}

// model keeps counters by the arithmetic alone. It forgets nothing, and does not tell pushes apart.
type model struct {
	store.Calendar
	counters map[wire.LimitCounter]*store.Contents
	out      store.Outcome
}

func (m *model) of(c wire.LimitCounter) *store.Contents {
	if m.counters[c] == nil {
		m.counters[c] = &store.Contents{}
	}
	return m.counters[c]
}

// Total implements [store.Ledger].
func (m *model) Total(item *wire.Item) wire.Total {
	return m.Calendar.Total(m.of(item.LimitCounter), item)
}

// Add implements [store.Ledger].
func (m *model) Add(item *wire.Item) { m.Calendar.Add(m.of(item.LimitCounter), item, &m.out) }

// next returns the next push of a sender.
func (b *bench) next(items []wire.Item, takes ...wire.Take) *wire.Push {
	b.seq++
	return &wire.Push{Namespace: "ns", Sender: 1, Sequence: b.seq, Floor: b.seq, Items: items, Takes: takes}
}

// push pushes items and takes as the next push of a sender.
func (b *bench) push(items []wire.Item, takes ...wire.Take) {
	b.t.Helper()
	b.like(b.next(items, takes...))
}

// like sends a push that never came before, in a namespace with two nodes, and wants the outcome that the arithmetic has.
func (b *bench) like(p *wire.Push) {
	b.t.Helper()
	m := &b.model
	m.Calendar = b.calendar()
	m.out = store.Outcome{Answer: wire.Answer{NowNanos: m.NowNanos, Nodes: 2, Totals: make([]wire.Total, len(p.Items))}}
	for i := range p.Items {
		m.Add(&p.Items[i])
	}
	for i := range p.Takes {
		m.out.Answer.Grants = append(m.out.Answer.Grants, m.Decide(&p.Takes[i], 2, m))
	}
	for i := range p.Items {
		m.out.Answer.Totals[i] = m.Total(&p.Items[i])
	}
	if got, want := fmt.Sprintf("%+v", b.send(p, 2)), fmt.Sprintf("%+v", m.out); got != want {
		b.t.Fatalf("push %.2000s at %v: outcome\n%.2000s, want\n%.2000s", fmt.Sprintf("%+v", p), b.clock.now().UTC(), got, want)
	}
}

// again sends a push that came before, and wants the grants of that time, and nothing else to happen.
func (b *bench) again(p *wire.Push, at uint64, units ...uint64) {
	b.t.Helper()
	out := b.send(p, 1)
	if !out.Duplicate || out.Applied != 0 || out.Returned != 0 || out.Dropped != 0 {
		b.t.Errorf("push %+v: outcome %+v, want a duplicate", p, out)
	}
	b.model.Calendar = b.calendar()
	for i, g := range out.Answer.Grants {
		want := b.model.Again(&p.Takes[i], units[i], at, &b.model)
		if got, want := fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", want); got != want {
			b.t.Errorf("push %+v at %v: take %d has %s, want %s", p, b.clock.now().UTC(), i, got, want)
		}
	}
}

// send pushes, and wants a valid answer. It is safe for concurrent use.
func (b *bench) send(p *wire.Push, nodes uint64) store.Outcome {
	b.t.Helper()
	out, err := b.store.Push(b.t.Context(), p, nodes)
	if err == nil && (len(out.Answer.Totals) != len(p.Items) || len(out.Answer.Grants) != len(p.Takes)) {
		b.t.Errorf("push %d: %d totals and %d grants, want %d and %d", p.Sequence, len(out.Answer.Totals), len(out.Answer.Grants), len(p.Items), len(p.Takes))
	} else if err == nil {
		return out
	}
	b.t.Errorf("push %d: %v", p.Sequence, err)
	out = store.Outcome{Answer: wire.Answer{Totals: make([]wire.Total, len(p.Items)), Grants: make([]wire.Grant, len(p.Takes))}}
	for i := range p.Items {
		out.Answer.Totals[i].Hits = []uint64{0}
	}
	for i := range p.Takes {
		out.Answer.Grants[i].Totals = make([]wire.Total, len(p.Takes[i].Rooms))
	}
	return out
}

// used reads a room's counter, and wants a number of hits.
func (b *bench) used(r wire.Room, want uint64) {
	b.t.Helper()
	out := b.send(&wire.Push{Namespace: "ns", Sender: 99, Sequence: 1, Floor: 1, Items: []wire.Item{b.item(r, 0)}}, 1)
	must.EqualOrEnd(b.t, SumOf(out.Answer.Totals[0]), want, "hits of %+v", r.LimitCounter)
}

// SumOf returns the hits of a total.
func SumOf(t wire.Total) (sum uint64) {
	for _, h := range t.Hits {
		sum += h
	}
	return sum
}

// counters returns a namespace's counters with their windows newest first, or those of some widths.
func (b *bench) counters(namespace string, widths ...uint64) (counters map[wire.LimitCounter]store.LimitCounter) {
	b.t.Helper()
	counters = map[wire.LimitCounter]store.LimitCounter{}
	must.OK(b.t, b.store.Counters(b.t.Context(), namespace, &store.Wanted{Widths: widths}, func(c store.LimitCounter) error {
		if _, twice := counters[c.LimitCounter]; twice {
			b.t.Errorf("%+v is visited twice", c)
		}
		counters[c.LimitCounter] = store.LimitCounter{LimitCounter: c.LimitCounter, Limit: c.Limit, Windows: newestFirst(c.Windows)}
		return nil
	}))
	return counters
}

func newestFirst(windows []store.Window) []store.Window {
	windows = slices.DeleteFunc(slices.Clone(windows), func(w store.Window) bool { return w.Hits == 0 })
	slices.SortFunc(windows, store.NewestFirst)
	return windows
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

// list wants the store to list what the arithmetic has.
func (b *bench) list() {
	b.t.Helper()
	got, want := b.counters("ns"), 0
	for of, r := range b.model.counters {
		c := store.LimitCounter{LimitCounter: of, Limit: r.Limit, Windows: slices.Clone(r.Windows)}
		c.Windows = newestFirst(b.calendar().Counting(c))
		if len(c.Windows) == 0 {
			continue
		}
		if want++; got[of].Limit != c.Limit || !slices.Equal(got[of].Windows, c.Windows) {
			b.t.Fatalf("counter %+v, want %+v", got[of], c)
		}
	}
	must.EqualOrEnd(b.t, len(got), want, "counters %+v", got)
}

// Room returns a room of a counter named after id, with a window of a minute, in which a unit costs
// cost hits. A token bucket holds its limit.
func Room(kind, id uint8, limit, cost uint64) wire.Room {
	r := wire.Room{LimitCounter: wire.LimitCounter{ID: wire.ID{id}, Kind: kind}, Limit: limit, Cost: cost}
	if window.Kind(kind).Bursts() {
		r.Burst = limit
	}
	return wide(r, minute)
}

// wide returns a room with a window of another width.
func wide(r wire.Room, millis uint64) wire.Room {
	if r.WidthMillis = millis; window.Kind(r.Kind).Bucketed() && r.Precision != 1 {
		r.Precision = millis * 1e6 / 4
	}
	return r
}

// LogRoom returns the room of a sliding log.
func LogRoom(id byte, limit, cost uint64) wire.Room {
	r := Room(buckets, id, limit, cost)
	r.Precision = 1
	return r
}

// Rooms returns a room of each algorithm, with different counters.
func Rooms(limit, cost uint64) (all []wire.Room) {
	for kind := uint8(1); kind <= uint8(window.LastKind); kind++ {
		if !window.Kind(kind).Blocks() { // nothing is taken from a block
			all = append(all, Room(kind, kind, limit, cost))
		}
	}
	return append(all, LogRoom(uint8(window.LastKind)+1, limit, cost))
}

// many returns rooms of n counters, of all algorithms without buckets.
func many(n int) (all []wire.Room) {
	for i := range n {
		r := Room([]uint8{fixed, firstHit, sliding, tokens}[i%4], 0, 2, 1)
		binary.BigEndian.PutUint32(r.ID[4:], uint32(i))
		all = append(all, r)
	}
	return all
}

// Take returns a take from rooms.
func Take(least, most uint64, rooms ...wire.Room) wire.Take {
	return wire.Take{Least: least, Most: most, Rooms: rooms}
}

// item returns an item with hits of now.
func (b *bench) item(r wire.Room, n int64) wire.Item {
	it := b.calendar().RoomItem(&r, 0)
	it.Hits[0] = n
	return it
}

// Bench measures batches of 100 items, pushed in parallel by a sender per goroutine to 10,000
// counters.
func Bench(b *testing.B, open Open) {
	s := open(b, nil)
	var senders atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		sender := senders.Add(1)
		random := rand.New(rand.NewPCG(sender, 0))
		for seq := uint64(1); pb.Next(); seq++ {
			p := &wire.Push{Namespace: "ns", Sender: sender, Sequence: seq, Floor: seq, Items: make([]wire.Item, 100)}
			for i := range p.Items {
				r := Room(sliding, 0, 0, 1)
				binary.BigEndian.PutUint32(r.ID[4:], random.Uint32N(10_000))
				p.Items[i] = store.Calendar{NowNanos: uint64(time.Now().UnixNano())}.RoomItem(&r, 1)
			}
			if _, err := s.Push(b.Context(), p, 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
