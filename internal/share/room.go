package share

import "sync"

// Room limits how many may be inside at a time. An owner gets at most the number of places that
// stays free for others: alone it gets half, and a second owner after it gets a quarter. It is safe
// for concurrent use.
type Room[K comparable] struct {
	Most int

	mu   sync.Mutex
	used int
	of   map[K]int
}

// Enter takes a place for an owner, and reports whether there was one.
func (r *Room[K]) Enter(owner K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
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
}
