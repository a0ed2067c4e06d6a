package store_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/store"
)

// A window begins with the earliest of the hits that overlap, to the nanosecond, and ends for all of them.
func TestFirstHitWindows(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	type step struct {
		at, start time.Duration
		hits      int64
		total     uint64
		newest    time.Duration
		dropped   int64
	}
	for i, s := range []step{
		{45 * second, 45 * second, 4, 4, 45 * second, 0},
		{105*second - 1, 105*second - 1, 0, 4, 45 * second, 0},
		{105 * second, 105*second - 1000, 0, 0, 105*second - 1000, 0}, // the start that is asked for, as no window lives
		{105 * second, 105 * second, 1, 1, 105 * second, 0},
		{105 * second, 45 * second, 9, 1, 105 * second, 9}, // hits of the window that has ended do not reach the next
		{110 * second, 85*second - 1, 2, 3, 85*second - 1, 0},
		{110 * second, 110 * second, 4, 7, 85*second - 1, 0},
		{110 * second, 80 * second, -3, 4, 85*second - 1, 0}, // hits that go back move no start
		{110 * second, 120 * second, 1, 5, 85*second - 1, 0},
		{145*second - 2, 90 * second, 1, 6, 85*second - 1, 0},
		{145*second - 1, 145*second - 1, 0, 0, 145*second - 1, 0},
		{145*second - 1, 145 * second, 2, 2, 145*second - 1, 0}, // ahead, which counts from now on
	} {
		l.set(s.at)
		total := l.push(item(firstHit, 1, minute, s.start, s.hits))
		if total.Hits[0] != s.total || total.Newest != at(s.newest) || l.out.Dropped != s.dropped {
			t.Errorf("step %d: %d hits since %v, %+v; want %+v", i, total.Hits[0], time.Duration(total.Newest-epoch), l.out, s)
		}
		if want := []store.Window{hits(at(s.newest), int64(s.total))}; s.total > 0 && !slices.Equal(l.counting(counter(firstHit, 1, minute)), want) {
			t.Errorf("step %d: %v count, want %v", i, l.counting(counter(firstHit, 1, minute)), want)
		}
	}
}
