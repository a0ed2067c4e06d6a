package postgres

import (
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

	used    int
	held    map[string]int
	waiting []waiter // in the order of their calls
}

type waiter struct {
	namespace string
	turn      chan struct{} // closed when the waiter has its place
}

func newPlaces(size int) *places { return &places{size: size, held: map[string]int{}} }

// take waits for a place until ctx ends.
func (p *places) take(ctx context.Context, namespace string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := waiter{namespace, make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.serve()
	p.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.waiting, w); at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
	} else {
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

func (p *places) serve() {
	size := p.size
	if p.narrow > 0 && p.narrow < size {
		if size = p.narrow; time.Now().After(p.until) {
			p.narrow, size = 0, p.size
		}
	}
	share := (size + 1) / 2
	for p.used < size {
		next := -1
		for i, w := range p.waiting {
			if held := p.held[w.namespace]; held < share && (next < 0 || held < p.held[p.waiting[next].namespace]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.waiting[next]
		p.waiting = slices.Delete(p.waiting, next, next+1)
		p.used++
		p.held[w.namespace]++
		close(w.turn)
	}
}
