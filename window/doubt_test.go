package window_test

import (
	"testing"

	"weir/window"
)

// Without doubts a state has neither hits that the backend may have counted, nor those that it may
// have given back.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		hits window.Hits
		want uint64
	}{
		{window.Hits{Total: 10, Pending: 3}, 13},
		{window.Hits{Total: 10, Pending: 3, InFlight: 5}, 13},
		{window.Hits{Total: 10, Pending: 3, InFlight: -5}, 8},
		{window.Hits{Total: 10, Pending: 3, InFlight: -5, Lease: 2}, 6},
	} {
		s := window.State{Hits: [2]window.Hits{c.hits, c.hits}}
		if s.Doubt(); s.Hits[0].Sum() != c.want || s.Hits[1].Sum() != c.want {
			t.Errorf("%+v: %d and %d hits, want %d", c.hits, s.Hits[0].Sum(), s.Hits[1].Sum(), c.want)
		}
	}
}
