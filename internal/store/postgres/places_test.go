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
		if held := p.held["evil"]; held != 2 {
			t.Errorf("a namespace has %d of 4 connections, want half", held)
		}
		for range 2 {
			must.OK(t, p.take(t.Context(), "victim"))
		}
	})
}
