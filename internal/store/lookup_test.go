package store_test

import (
	"slices"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// lookUp returns a counter as a store finds it, with its windows in no order.
func (l *ledger) lookUp(c wire.LimitCounter) *store.LimitCounter {
	windows := l.counting(c)
	slices.Reverse(windows)
	return &store.LimitCounter{LimitCounter: c, Limit: l.contents(c).Limit, Windows: windows}
}

// giveBack gives back hits of a counter, as an operator's command does.
func (l *ledger) giveBack(c wire.LimitCounter, hits uint64) {
	l.t.Helper()
	l.outcome()
	for _, it := range l.GiveBack(l.lookUp(c), hits) {
		must.Report(l.t, store.Check(&wire.Push{Namespace: "ns", Sequence: 1, Floor: 1, Items: []wire.Item{it}}))
		l.Add(&it)
	}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	for _, r := range rooms(100, 1) {
		l := newLedger(t)
		l.take(take(1, 7, r), 7)
		c := l.lookUp(r.LimitCounter)
		for _, test := range []struct{ limit, used, left uint64 }{{100, 7, 93}, {7, 7, 0}, {5, 7, 0}, {window.MaxLimit, 7, window.MaxLimit - 7}} {
			used, standing := l.Standing(c, test.limit, test.limit)
			if window.Kind(r.Kind).Refills() && test.limit != 100 {
				continue // tokens are converted to a limit
			}
			must.Equal(t, used, test.used, "%+v of a limit of %d: used", r.LimitCounter, test.limit)
			must.Equal(t, standing.Remaining, test.left, "%+v of a limit of %d: left", r.LimitCounter, test.limit)
		}
	}
}

// Hits that are given back can pass again at once, up to the whole limit: the newest first, in whatever window they were.
// An emptied counter has room for the whole limit, once.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	full := func(r wire.Room, l *ledger) {
		for range 3 { // a sliding window has more room as its rest gets smaller
			one := take(1, 1000, r)
			l.Decide(&one, 1, l)
		}
	}
	for _, r := range rooms(100, 1) {
		c, l := r.LimitCounter, newLedger(t)
		must.Same(t, l.GiveBack(l.lookUp(c), wire.MaxHits), nil, "to give back of nothing")
		l.take(take(30, 30, r), 30)
		l.set(40 * second)
		full(r, l)
		for range 2 {
			l.giveBack(c, wire.MaxHits)
			if used, _ := l.Standing(l.lookUp(c), 100, 100); used != 0 || len(l.GiveBack(l.lookUp(c), 5)) > 0 {
				t.Errorf("%+v: %d used, %+v to give back", c, used, l.GiveBack(l.lookUp(c), 5))
			}
		}
		l.take(take(1, 1000, r), 100)

		l = newLedger(t)
		l.take(take(100, 100, r), 100)
		l.set(50 * second)
		full(r, l)
		l.set(70 * second) // into the next window of the clock
		full(r, l)
		l.giveBack(c, 30)
		l.take(take(1, 1000, r), 30)
		l.giveBack(c, 5000)
		l.take(take(1, 5000, r), 100)
	}
	// A share of the previous window counts, so as many more of it are given back as make room for this many. Newer hits
	// are given back first, and no more than there are.
	for _, test := range []struct {
		now, before  int64
		hits         uint64
		want         []int64
		wantPrevious []int64
	}{
		{0, 100, 10, []int64{-45}, nil}, {0, 100, 1, []int64{-4}, nil}, {0, 100, 13, []int64{-59}, nil}, {0, 100, 50, []int64{-100}, nil}, {0, 65, 1, []int64{-1}, nil},
		{7, 100, 10, []int64{-7}, []int64{-13}}, {10, 100, 10, []int64{-10}, nil}, {10, 0, 99, []int64{-10}, nil}, {7, 100, wire.MaxHits, []int64{-7}, []int64{-100}},
	} {
		l := newLedger(t)
		l.set(47 * second) // 13 in 60 of the previous window count
		l.push(item(sliding, 1, minute, 47*second, test.now, test.before))
		var got []int64
		for _, it := range l.GiveBack(l.lookUp(counter(sliding, 1, minute)), test.hits) {
			got = append(got, it.Hits...)
		}
		must.Same(t, got, append(test.want, test.wantPrevious...), "%d of %d and %d", test.hits, test.now, test.before)
		c := counter(sliding, 1, minute)
		before, _ := l.Standing(l.lookUp(c), 1000, 1000)
		l.giveBack(c, test.hits)
		after, _ := l.Standing(l.lookUp(c), 1000, 1000)
		must.Equal(t, before-after, min(test.hits, before), "room that %d hits of %d and %d make", test.hits, test.now, test.before)
	}
	// Buckets go into as few items as hold them. A block ends only with all of its hits.
	of := store.LimitCounter{LimitCounter: log(1, 1).LimitCounter}
	for i := range uint64(wire.MaxBuckets + 1) {
		of.Windows = append(of.Windows, hits(epoch-i, 2))
	}
	items := newLedger(t).GiveBack(&of, wire.MaxHits)
	if len(items) != 2 || len(items[0].Hits) != wire.MaxBuckets || items[0].Limit != wire.MaxHits || !slices.Equal(items[1].Hits, []int64{-2}) || items[1].Newest != epoch-wire.MaxBuckets {
		t.Errorf("%d items", len(items))
	}
	block := store.LimitCounter{LimitCounter: counter(uint8(window.Block), 1, minute), Windows: []store.Window{hits(epoch, 1)}}
	block.Precision = 1
	must.Same(t, newLedger(t).GiveBack(&block, 5), nil, "some of a block")
	must.Equal(t, len(newLedger(t).GiveBack(&block, wire.MaxHits)), 1, "items that give back all of a block")
}
