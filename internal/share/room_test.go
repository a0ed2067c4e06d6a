package share

import (
	"testing"

	"weir/internal/must"
)

// An owner that comes without end leaves room for others, and places that it gives back are there
// again.
func TestRoomIsLeftForOthers(t *testing.T) {
	r := Room[string]{Most: 32}
	for owner, want := range []int{16, 8, 4, 2, 1, 1, 0} {
		got := 0
		for r.Enter(string(rune('a' + owner))) {
			got++
		}
		must.Equal(t, got, want, "owner %d has places", owner)
	}
	for range 16 {
		r.Leave("a")
	}
	if !r.Enter("g") || r.used != 17 || len(r.of) != 6 {
		t.Errorf("%d are used by %d owners", r.used, len(r.of))
	}
}
