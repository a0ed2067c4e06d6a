package fields_test

import (
	"testing"

	"weir/internal/fields"
	"weir/internal/must"
)

// A spread wait is never shorter than the exact one, and longer by the share at most, rounded up.
func TestSpread(t *testing.T) {
	for _, test := range []struct {
		wait  int64
		share uint16
		least uint64
		most  uint64
	}{
		{10 * second, 200, 10, 12}, {second, 200, 1, 2}, {0, 200, 1, 2}, {-second, 200, 1, 2}, {9*second + 1, 100, 10, 11}, {3600 * second, 1, 3600, 3604},
		{366 * 24 * 3600 * second, 999, 366 * 24 * 3600, 731*24*3600 + 55_024},
	} {
		seen := map[uint64]bool{}
		for random := range uint64(10_000) {
			wait := fields.Wait(fields.Spread(now+test.wait, now, test.share, random*0x9e3779b97f4a7c15), now)
			seen[wait] = true
			must.Between(t, wait, test.least, test.most, "%+v: waits for", test)
		}
		if test.most-test.least < 10 && len(seen) != int(test.most-test.least)+1 {
			t.Errorf("%+v: only %v were drawn", test, seen)
		}
	}
}
