package window

import (
	"math"
	"testing"

	"weir/internal/must"
)

// A client that never stops asking gets less of a small sliding window than its limit, as the hits
// of the window before count until the window ends. Other algorithms give it all.
func TestSteady(t *testing.T) {
	t.Parallel()
	of := func(kind Kind, limit uint64, precision int64) *Limit {
		l := &Limit{Shape: Shape{Kind: kind, Width: minute, Precision: precision}, Max: limit}
		if kind.Bursts() {
			l.Burst = limit
		}
		return l
	}
	for limit, want := range map[uint64]float64{0: 0, 1: 0.50, 2: 0.50, 3: 0.67, 5: 0.80, 10: 0.90, 19: 0.95, 20: 0.95, 50: 0.98, 100: 0.99, 1000: 1.00} {
		must.Between(t, Steady(of(SlidingWindow, limit, 0)), want-0.006, want+0.006, "sliding window of %d", limit)
		for _, l := range []*Limit{
			of(FixedWindow, limit, 0), of(FirstHitWindow, limit, 0), of(SlidingBuckets, limit, LogPrecision), of(SlidingBuckets, limit, minute/4),
			of(TokenBucket, limit, 0),
		} {
			if got := Steady(l); limit > 0 && math.Abs(got-1) > 0.01 {
				t.Errorf("%+v: got %v, want 1", l, got)
			}
		}
	}
}
