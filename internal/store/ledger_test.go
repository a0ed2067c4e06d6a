package store_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

const (
	fixed    = uint8(window.FixedWindow)
	firstHit = uint8(window.FirstHitWindow)
	sliding  = uint8(window.SlidingWindow)
	buckets  = uint8(window.SlidingBuckets)
	tokens   = uint8(window.TokenBucket)

	second = time.Second
	minute = time.Minute
	day    = 24 * time.Hour
)

// epoch is when the tests begin: the beginning of a window of every width that they use.
var epoch = uint64(storetest.Epoch.UnixNano())

var (
	room, logRoom, rooms = storetest.Room, storetest.LogRoom, storetest.Rooms
	take, sumOf          = storetest.Take, storetest.SumOf
)

// at is a time after epoch, in nanoseconds of Unix time.
func at(after time.Duration) uint64 { return epoch + uint64(after) }

// ledger keeps counters at the time that a test sets. It is all of a store that is arithmetic: it does not tell pushes
// apart, and forgets nothing by itself.
type ledger struct {
	store.Calendar
	t        *testing.T
	counters map[wire.LimitCounter]*store.Contents
	expires  map[wire.LimitCounter]uint64
	out      store.Outcome
}

var _ store.Ledger = (*ledger)(nil)

// newLedger returns an empty ledger at epoch.
func newLedger(t *testing.T) *ledger {
	return &ledger{Calendar: store.Calendar{NowNanos: epoch}, t: t, counters: map[wire.LimitCounter]*store.Contents{}, expires: map[wire.LimitCounter]uint64{}}
}

// set sets the time after epoch, and pass lets time pass.
func (l *ledger) set(after time.Duration) { l.NowNanos = at(after) }
func (l *ledger) pass(d time.Duration)    { l.NowNanos += uint64(d) }

func (l *ledger) contents(c wire.LimitCounter) *store.Contents {
	if r := l.counters[c]; r != nil {
		return r
	}
	return &store.Contents{}
}

// Total implements [store.Ledger].
func (l *ledger) Total(item *wire.Item) wire.Total {
	return l.Calendar.Total(l.contents(item.LimitCounter), item)
}

// Add implements [store.Ledger].
func (l *ledger) Add(item *wire.Item) {
	l.t.Helper()
	c := item.LimitCounter
	r := store.Contents{Limit: l.contents(c).Limit, Windows: slices.Clone(l.contents(c).Windows)}
	before := store.Contents{Limit: r.Limit, Windows: slices.Clone(r.Windows)}
	expires, changed := l.Calendar.Add(&r, item, &l.out)
	if !changed {
		if !reflect.DeepEqual(r, before) {
			l.t.Fatalf("nothing has changed, but %+v was %+v", r, before)
		}
		return
	}
	if !window.Kind(c.Kind).Refills() {
		expires = max(expires, l.expires[c])
	}
	l.counters[c], l.expires[c] = &r, expires
	for i, w := range r.Windows {
		if w.Hits < 0 || w.Hits > wire.MaxHits || i > 0 && window.Kind(c.Kind).Bucketed() && w.Number >= r.Windows[i-1].Number {
			l.t.Fatalf("%+v of %+v", r, c)
		}
	}
}

// outcome is what the last call has done, without an answer.
func (l *ledger) outcome() (out store.Outcome) {
	out, l.out = l.out, store.Outcome{}
	return out
}

// push adds an item, and returns its total.
func (l *ledger) push(item wire.Item) wire.Total {
	l.t.Helper()
	l.out = store.Outcome{}
	l.Add(&item)
	return l.Total(&item)
}

// counted wants the last push to have applied, returned and dropped these hits.
func (l *ledger) counted(what any, applied, returned, dropped int64) {
	l.t.Helper()
	if got, want := l.outcome(), (store.Outcome{Applied: applied, Returned: returned, Dropped: dropped}); !reflect.DeepEqual(got, want) {
		l.t.Errorf("%v: outcome %+v, want %+v", what, got, want)
	}
}

// hits pushes an item, and wants these hits in its total.
func (l *ledger) hits(item wire.Item, want ...uint64) wire.Total {
	l.t.Helper()
	total := l.push(item)
	if !slices.Equal(total.Hits, want) {
		l.t.Fatalf("%+v at %v: total %+v, want %v", item, time.Duration(l.NowNanos-epoch), total, want)
	}
	return total
}

// used wants a counter to have these hits now.
func (l *ledger) used(r wire.Room, want uint64) {
	l.t.Helper()
	item := l.RoomItem(&r, 0)
	must.Equal(l.t, sumOf(l.Total(&item)), want, "hits of %+v at %v", r.LimitCounter, time.Duration(l.NowNanos-epoch))
}

// counting returns a counter's windows that count, newest first.
func (l *ledger) counting(c wire.LimitCounter) []store.Window {
	r := l.contents(c)
	windows := l.Counting(store.LimitCounter{LimitCounter: c, Limit: r.Limit, Windows: slices.Clone(r.Windows)})
	return newestFirst(windows)
}

// take wants a take to get this number of units of a namespace with one node, and among of one with several.
func (l *ledger) take(t wire.Take, want uint64) wire.Grant {
	l.t.Helper()
	return l.among(1, t, want)
}

func (l *ledger) among(nodes uint64, t wire.Take, want uint64) wire.Grant {
	l.t.Helper()
	l.out = store.Outcome{}
	g := l.Decide(&t, nodes, l)
	if g.Units != want || g.AtNanos != l.NowNanos || len(g.Totals) != len(t.Rooms) {
		l.t.Fatalf("%v after epoch: %+v of a take from %d to %d of %+v, want %d units", time.Duration(l.NowNanos-epoch), g, t.Least, t.Most, t.Rooms, want)
	}
	return g
}

// often takes a hit 50 times within 5 s, and wants a number of them to pass.
func (l *ledger) often(r wire.Room, want uint64) {
	l.t.Helper()
	passed := uint64(0)
	for range 50 {
		l.pass(second / 10)
		one := take(1, 1, r)
		passed += l.Decide(&one, 1, l).Units
	}
	must.Equal(l.t, passed, want, "%+v: passed of 50 takes", r.LimitCounter)
}

// counter returns a counter without buckets, named after id.
func counter(kind uint8, id byte, width time.Duration) wire.LimitCounter {
	return wire.LimitCounter{ID: wire.ID{id}, Kind: kind, WidthMillis: uint64(width / time.Millisecond)}
}

// item returns an item of a counter without buckets, with hits in the window of a time after epoch and in the windows
// before it. No token returns.
func item(kind uint8, id byte, width, after time.Duration, hits ...int64) wire.Item {
	c := counter(kind, id, width)
	return wire.Item{LimitCounter: c, Newest: store.NumberAt(c, at(after)), Hits: hits}
}

// bucketItem returns an item of a counter with buckets. These are newest first.
func bucketItem(id byte, width, precision time.Duration, limit uint64, pushed ...store.Window) wire.Item {
	it := wire.Item{LimitCounter: counter(buckets, id, width), Limit: limit}
	it.Precision = uint64(precision)
	for i, w := range pushed {
		if i == 0 {
			it.Newest = w.Number
		}
		it.Ages, it.Hits = append(it.Ages, it.Newest-w.Number), append(it.Hits, w.Hits)
	}
	return it
}

// log returns an item of a sliding log of a minute.
func log(id byte, limit uint64, pushed ...store.Window) wire.Item {
	return bucketItem(id, minute, 1, limit, pushed...)
}

func hits(number uint64, n int64) store.Window { return store.Window{Number: number, Hits: n} }

func bucketsOf(t wire.Total) (found []store.Window) {
	for i, age := range t.Ages {
		found = append(found, hits(t.Newest-age, int64(t.Hits[i])))
	}
	return found
}

func newestFirst(windows []store.Window) []store.Window {
	slices.SortFunc(windows, store.NewestFirst)
	return windows
}

func sorted(sums map[uint64]int64) (windows []store.Window) {
	for _, number := range slices.Sorted(maps.Keys(sums)) {
		windows = append(windows, hits(number, sums[number]))
	}
	slices.Reverse(windows)
	return windows
}

// tokenItem returns an item of a token bucket with a window of a minute: tokens taken since it was full.
func tokenItem(id byte, limit uint64, since time.Duration, taken int64) wire.Item {
	it := item(tokens, id, minute, since, taken)
	it.Limit = limit
	return it
}

func lease(least, most uint64, rooms ...wire.Room) wire.Take {
	return wire.Take{Least: least, Most: most, Lease: true, Rooms: rooms}
}

// moved returns an item of a room from a sender whose clock is ahead of the store's, or behind it.
func (l *ledger) moved(r wire.Room, ahead time.Duration, n int64) wire.Item {
	it := store.Calendar{NowNanos: l.NowNanos + uint64(ahead)}.RoomItem(&r, 0)
	it.Hits[0] = n
	return it
}
