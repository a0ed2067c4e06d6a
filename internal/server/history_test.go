package server_test

import (
	"slices"
	"testing"

	"weir/internal/server"
)

// After returns what is kept and newer than a number, whatever the number.
func TestHistory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ keep, old, every int }{{3, 0, 0}, {4, 3, 2}, {5, 2, 5}, {1, 4, 3}} {
		h := server.History[int]{Keep: c.keep, Old: c.old, Every: c.every}
		for last := 1; last <= 40; last++ {
			h.Add(last)
			var kept []int
			for n := 1; n <= last-c.keep; n++ {
				if c.old > 0 && n%c.every == 0 {
					kept = append(kept, n)
				}
			}
			kept = kept[max(0, len(kept)-c.old):]
			for n := max(1, last-c.keep+1); n <= last; n++ {
				kept = append(kept, n)
			}
			for after := range last + 1 {
				at, _ := slices.BinarySearch(kept, after+1)
				if got := h.After(int64(after)); !slices.Equal(got, kept[at:]) {
					t.Fatalf("%+v: after %d of %d come %v, want %v", c, after, last, got, kept[at:])
				}
			}
		}
	}
}
