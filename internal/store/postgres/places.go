package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// places are permits to use the pool's connections. A namespace holds at most half of them, and a
// free place goes to the waiting namespace with the fewest. So calls of a namespace that wait in
// the database, for a lock or a disk, do not block calls of others.
type places struct {
	mu   sync.Mutex
	size int
	// narrow replaces size until a time, if it is not 0: the server has too few connections.
	narrow int
	until  time.Time

	used int
	held map[string]int
	// waiting has the waiters of each namespace that has any, in the order of their calls. So the many of a namespace at
	// its share cost the others no time.
	waiting map[string][]*waiter
	calls   uint64
}

type waiter struct {
	namespace string
	call      uint64
	turn      chan struct{} // closed when the waiter has its place
}

func newPlaces(size int) *places {
	return &places{size: size, held: map[string]int{}, waiting: map[string][]*waiter{}}
}

// take waits for a place until ctx ends.
func (p *places) take(ctx context.Context, namespace string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	p.calls++
	w := &waiter{namespace, p.calls, make(chan struct{})}
	p.waiting[namespace] = append(p.waiting[namespace], w)
	p.serve()
	p.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forget(w) {
		p.leave(namespace) // it got its place just now
	}
	return ctx.Err()
}

func (p *places) give(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(namespace)
}

// crowded limits the places to a number of connections because the server refuses more. After
// crowdedFor the pool tries again.
func (p *places) crowded(connections int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.narrow, p.until = max(1, connections), time.Now().Add(crowdedFor)
}

// crowdedFor is how long a pool does not grow after the server refused a connection.
const crowdedFor = 5 * time.Second

// The methods below need the lock.

func (p *places) leave(namespace string) {
	p.used--
	if p.held[namespace]--; p.held[namespace] == 0 {
		delete(p.held, namespace)
	}
	p.serve()
}

// forget reports whether a waiter still waits, and lets it wait no more.
func (p *places) forget(w *waiter) bool {
	queue := p.waiting[w.namespace]
	at := slices.Index(queue, w) // who gives up is mostly among the first
	if at < 0 {
		return false
	}
	if p.waiting[w.namespace] = slices.Delete(queue, at, at+1); len(queue) == 1 {
		delete(p.waiting, w.namespace)
	}
	return true
}

func (p *places) serve() {
	size := p.size
	if p.narrow > 0 && p.narrow < size {
		if size = p.narrow; time.Now().After(p.until) {
			p.narrow, size = 0, p.size
		}
	}
	share := (size + 1) / 2
	for p.used < size {
		var next *waiter
		for namespace, queue := range p.waiting {
			first, held := queue[0], p.held[namespace]
			if held < share && (next == nil || cmp.Or(cmp.Compare(held, p.held[next.namespace]), cmp.Compare(first.call, next.call)) < 0) {
				next = first
			}
		}
		if next == nil {
			return
		}
		p.forget(next)
		p.used++
		p.held[next.namespace]++
		close(next.turn)
	}
}
