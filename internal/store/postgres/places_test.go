package postgres

import (
	"testing"
	"testing/synctest"

	"weir/internal/must"
)

// A pool that can't grow leaves half of its connections to other namespaces too.
func TestPlacesOfANarrowPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(8)
		p.crowded(4)
		for range 3 {
			go func() { _ = p.take(t.Context(), "evil") }()
		}
		synctest.Wait()
		must.Equal(t, p.held["evil"], 2, "connections of 4 that a namespace has")
		for range 2 {
			must.OK(t, p.take(t.Context(), "victim"))
		}
	})
}
