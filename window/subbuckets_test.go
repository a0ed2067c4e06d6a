package window

import (
	"testing"

	"weir/internal/must"
)

// A clock that starts at the epoch, and an answer that names buckets before it, leave a state that
// can be read again.
func TestBucketsBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{subBuckets(10, minute, second), log(10, minute)} {
		var s, again State
		l.Advance(&s, 0)
		l.Settle(&s, true, true, &Totals{Newest: 0, Hits: []uint64{3, 5}, Ages: []uint64{0, 1}})
		encoded := AppendState(nil, &l, &s, true)
		must.Equal(t, DecodeState(encoded, &again), len(encoded), "%+v was written as %x: bytes that are read", s, encoded)
		must.Equal(t, sumBuckets(&again), 3, "%+v: the first bucket has hits", l)
		l.Settle(&s, true, true, &Totals{})
		must.Equal(t, sumBuckets(&s), 0, "%+v: left of what others have given back: %+v", l, s)
	}
}

// Buckets that an answer has, and those that it does not have, become what the backend knows; those
// that the window does not cover any more, or is far from, are left out.
func TestBucketsSettle(t *testing.T) {
	t.Parallel()
	l := subBuckets(100, minute, 10*second) // six of them
	now := monday + 55*second
	present := uint64(now / l.Precision)
	for _, test := range []struct {
		name  string
		total Totals
		older bool // than an answer that was taken in
		want  map[int64]Hits
		moved int64 // by so much the state's time goes on
	}{
		{"the same", Totals{present, []uint64{5, 3}, []uint64{0, 2}}, false, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 0},
		{"more", Totals{present, []uint64{7, 9}, []uint64{0, 2}}, false, map[int64]Hits{0: {Total: 7, Pending: 1}, -2: {Total: 9}}, 0},
		{"less", Totals{present, []uint64{4}, []uint64{0}}, false, map[int64]Hits{0: {Total: 4, Pending: 1}, -2: {}}, 0},
		// A newer answer has told what became of the hits in flight.
		{"less, of an older answer", Totals{present, []uint64{4}, []uint64{0}}, true, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 1}}, 0},
		{"more, of an older answer", Totals{present, []uint64{4, 3}, []uint64{0, 2}}, true, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 0},
		{"moved since, of an older answer", Totals{present, []uint64{6}, []uint64{1}}, true, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 1}}, 0},
		{"nothing", Totals{}, false, map[int64]Hits{0: {Pending: 1}, -2: {}}, 0},
		{"others' buckets", Totals{present, []uint64{5, 6, 3, 2}, []uint64{0, 1, 2, 5}}, false, map[int64]Hits{0: {Total: 5, Pending: 1}, -1: {Total: 6}, -2: {Total: 3}, -5: {Total: 2}}, 0},
		{"one that has left", Totals{present, []uint64{5, 3, 2}, []uint64{0, 2, 6}}, false, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 0},
		{"empty ones", Totals{present, []uint64{5, 0, 3}, []uint64{0, 1, 2}}, false, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 0},
		{"a later one", Totals{present + 1, []uint64{8, 5, 3}, []uint64{0, 1, 3}}, false, map[int64]Hits{1: {Total: 8}, 0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 5 * second},
		{"one a window later", Totals{present + 6, []uint64{8, 5, 3}, []uint64{0, 6, 8}}, false, map[int64]Hits{6: {Total: 8}, 0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 55 * second},
		{"one later than that", Totals{present + 7, []uint64{8, 5, 3}, []uint64{0, 7, 9}}, false, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {Total: 3}}, 0},
		{"hits without ages", Totals{present, []uint64{5, 3}, []uint64{0}}, false, map[int64]Hits{0: {Total: 5, Pending: 1}, -2: {}}, 0},
		{"more than there may be", Totals{present, []uint64{1 << 60, 3}, []uint64{0, 2}}, false, map[int64]Hits{0: {Total: MaxHits, Pending: 1}, -2: {Total: 3}}, 0},
		{"beyond all numbers", Totals{1 << 63, []uint64{5}, []uint64{1<<63 - present}}, false, map[int64]Hits{0: {Pending: 1}, -2: {}}, 0},
	} {
		s := State{Newest: now, Buckets: []Bucket{
			{Number: int64(present) - 2, Hits: Hits{Total: 1, InFlight: 2}}, {Number: int64(present), Hits: Hits{Total: 5, Pending: 1}},
		}}
		l.Settle(&s, true, !test.older, &test.total)
		got := map[int64]Hits{}
		for i, b := range s.Buckets {
			got[b.Number-int64(present)] = b.Hits
			if i > 0 && b.Number <= s.Buckets[i-1].Number {
				t.Errorf("%s: buckets are not sorted: %+v", test.name, s.Buckets)
			}
		}
		must.Same(t, got, test.want, "%s", test.name)
		must.Equal(t, s.Newest-now, test.moved, "%s: ns that the state's time goes on", test.name)
	}
}

// A hit of a lease that is on its way to the bucket of its own time counts once, whatever the backend
// is known to have of the way.
func TestBucketsInFlight(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{log(5, minute), subBuckets(5, minute, 10*second)} {
		at := monday + 9*second
		var s State
		l.Advance(&s, at)
		must.EqualOrEnd(t, l.Lease(&s, grantOf(2, at), granted(&l, at, at, 2)), true, "%+v: the grant has no place", l)
		remain := func(when string, want uint64) {
			t.Helper()
			must.Equal(t, l.Remaining(&s), want, "%+v, %s: remain", l, when)
		}
		l.Advance(&s, at+2*second)
		l.CountLeased(&s, 2)
		remain("counted", 3)
		s.Claim()
		remain("in flight", 3)
		if leave, ok := l.FitsAt(&s, 5); !ok || leave != (int64(l.Number(&s))+l.covered())*l.Precision {
			t.Errorf("%+v, in flight: 5 fit %d ns after the grant, want them to leave with their own time", l, leave-at)
		}
		before, after := Totals{l.NumberAt(&State{}, at), []uint64{2}, []uint64{0}}, Totals{Newest: l.Number(&s), Hits: []uint64{2}, Ages: []uint64{0}}
		for range 2 {
			l.Learn(&s, true, &before)
			remain("before it was applied", 3)
			l.Learn(&s, true, &after)
			remain("after it was applied", 3)
		}
		l.Settle(&s, true, false, &after)
		remain("answered late", 3)
		must.Equal(t, s.InFlight(), false, "%+v: what was answered is in flight", l)
	}
}

// A window with buckets ends when the last hit that was not given back leaves it. What was given back stays
// until the backend has heard of it.
func TestResetAfterGivingBack(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{log(10, minute), subBuckets(10, minute, second)} {
		var s State
		l.Advance(&s, monday)
		l.Count(&s, 1)
		want, _ := l.ResetAt(&s)
		l.Advance(&s, monday+5*second)
		l.Count(&s, 2)
		s.Claim()
		l.Settle(&s, true, true, &Totals{Newest: l.Number(&s), Hits: []uint64{2, 1}, Ages: []uint64{0, l.Number(&s) - bucketNumber(&l, monday)}})
		forgets := l.ForgetAt(&s)
		l.GiveBack(&s, l.Number(&s), 2)
		if at, ok := l.ResetAt(&s); !ok || at != want || l.ForgetAt(&s) != forgets || forgets <= want {
			t.Errorf("%+v: resets in %d, is forgotten in %d; want %d, %d", l, at-monday, l.ForgetAt(&s)-monday, want-monday, forgets-monday)
		}
	}
}
