package postgres

import (
	"context"
	"fmt"
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

// A free place goes to the namespace with the fewest, and of equals to who has called first. To find it, one waiter of each namespace
// is looked at, however many of one namespace wait. Who gives up is looked at no more.
func TestPlacesAreServedByNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(4)
		var served []string
		ctx, giveUp := context.WithCancel(t.Context())
		wait := func(ctx context.Context, namespace, name string) {
			go func() {
				if p.take(ctx, namespace) == nil {
					served = append(served, name)
				}
			}()
			synctest.Wait()
		}
		for range 2 {
			wait(t.Context(), "evil", "evil")
		}
		for i := range 100 {
			of := ctx
			if i == 50 {
				of = t.Context()
			}
			wait(of, "evil", fmt.Sprint("evil ", i))
		}
		must.Equal(t, len(p.waiting), 1, "waiters that are looked at for each place")
		for _, name := range []string{"b 1", "a 1", "b 2", "a 2", "c 1"} {
			wait(t.Context(), name[:1], name)
		}
		must.Equal(t, len(p.waiting), 4, "waiters that are looked at, of a, b, c and evil")
		giveUp()
		synctest.Wait()
		for _, namespace := range []string{"evil", "c", "evil", "a"} {
			p.give(namespace)
			synctest.Wait()
		}
		must.Same(t, served, []string{"evil", "evil", "b 1", "a 1", "c 1", "evil 50", "b 2", "a 2"}, "served in this order")
		must.Equal(t, len(p.waiting), 0, "namespaces that wait")
	})
}
