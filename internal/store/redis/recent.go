package redis

import "sync"

// recent is a map that keeps recently put values, within a bound. It has two generations: when the
// younger is full, it replaces the older.
type recent[V any] struct {
	mu sync.Mutex
	// most bounds the size of the younger generation. The unit is the caller's.
	most, size     int
	younger, older map[string]sized[V]
}

type sized[V any] struct {
	value V
	size  int
}

func (r *recent[V]) get(key string) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.younger[key]
	if !ok {
		found, ok = r.older[key]
	}
	return found.value, ok
}

func (r *recent[V]) put(key string, value V, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size += size - r.younger[key].size; r.younger == nil || r.size > r.most {
		r.older, r.younger, r.size = r.younger, make(map[string]sized[V]), size
	}
	r.younger[key] = sized[V]{value, size}
}
