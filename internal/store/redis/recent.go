package redis

import "sync"

// recent keeps values by their keys, those used last. It forgets others when it has too much.
type recent[V any] struct {
	mu sync.Mutex
	// most is how much the younger of two generations has, in bytes or whatever its user counts.
	most, size     int
	younger, older map[string]V
}

func (r *recent[V]) get(key string) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if value, ok = r.younger[key]; !ok {
		value, ok = r.older[key]
	}
	return value, ok
}

func (r *recent[V]) put(key string, value V, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.younger[key]; !there {
		if r.size += size; r.younger == nil || r.size > r.most {
			r.older, r.younger, r.size = r.younger, make(map[string]V), size
		}
	}
	r.younger[key] = value
}
