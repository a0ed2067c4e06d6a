package share

import (
	"context"
	"slices"
	"sync"
)

// Room limits how many may be inside at a time. An owner gets at most the number of places that
// stays free for others: alone it gets half, and a second owner after it gets a quarter. It is safe
// for concurrent use.
type Room[K comparable] struct {
	Most int

	mu    sync.Mutex
	used  int
	of    map[K]int
	queue []*waiter[K] // oldest first
}

// waiter waits for a place of an owner. It has one once inside is closed.
type waiter[K comparable] struct {
	owner  K
	inside chan struct{}
}

// Enter takes a place for an owner, and reports whether there was one.
func (r *Room[K]) Enter(owner K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enter(owner)
}

// Wait is Enter that waits for a place until ctx ends. Who waits for longest comes first.
func (r *Room[K]) Wait(ctx context.Context, owner K) bool {
	r.mu.Lock()
	if r.enter(owner) {
		r.mu.Unlock()
		return true
	}
	w := &waiter[K]{owner, make(chan struct{})}
	r.queue = append(r.queue, w)
	r.mu.Unlock()
	select {
	case <-w.inside:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.queue, w)
	if at < 0 {
		return true // the place came at the same moment
	}
	r.queue = slices.Delete(r.queue, at, at+1)
	return false
}

func (r *Room[K]) enter(owner K) bool {
	if r.of[owner] >= r.Most-r.used {
		return false
	}
	if r.of == nil {
		r.of = map[K]int{}
	}
	r.of[owner]++
	r.used++
	return true
}

// Leave returns a place of an owner.
func (r *Room[K]) Leave(owner K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used--
	if r.of[owner]--; r.of[owner] == 0 {
		delete(r.of, owner)
	}
	r.queue = slices.DeleteFunc(r.queue, func(w *waiter[K]) bool {
		enters := r.enter(w.owner)
		if enters {
			close(w.inside)
		}
		return enters
	})
}
