package share

import "sync"

// Room is for so many at a time. An owner gets no more of it than is left for others: alone it has
// half, and after it a second owner has a quarter. It may be used by any number of goroutines.
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

// Leave gives an owner's place back.
func (r *Room[K]) Leave(owner K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used--
	if r.of[owner]--; r.of[owner] == 0 {
		delete(r.of, owner)
	}
}
