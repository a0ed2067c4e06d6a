package memory

import "weir/internal/heap"

// table is a map whose rows expire. Expired rows stay until they are swept or make room.
type table[K comparable, V any] struct {
	rows    map[K]*row[K, V]
	queue   heap.Of[*row[K, V]]
	evicted uint64
	// removed is called for each row that goes.
	removed func(*row[K, V])
}

type row[K comparable, V any] struct {
	key     K
	value   V
	expires uint64
	index   int
}

func newTable[K comparable, V any]() table[K, V] { return table[K, V]{rows: make(map[K]*row[K, V])} }

// prolong moves a row's expiry to expires, if that is later.
func (t *table[K, V]) prolong(e *row[K, V], expires uint64) {
	if e.expires < expires {
		e.expires = expires
		heap.Fix(&t.queue, e.index)
	}
}

// insert adds a row for a key that has none.
func (t *table[K, V]) insert(key K, expires uint64) *row[K, V] {
	e := &row[K, V]{key: key, expires: expires}
	t.rows[key] = e
	heap.Push(&t.queue, e)
	return e
}

// makeRoom removes a row that has expired, or else the victim. It reports false if there is none.
func (t *table[K, V]) makeRoom(now uint64, victim func() *row[K, V]) bool {
	e := t.queue[0]
	if e.expires > now {
		if e = victim(); e == nil {
			return false
		}
		t.evicted++
	}
	t.remove(e)
	return true
}

// sweep removes up to n expired rows.
func (t *table[K, V]) sweep(now uint64, n int) {
	for ; n > 0 && len(t.queue) > 0 && t.queue[0].expires <= now; n-- {
		t.remove(t.queue[0])
	}
}

func (t *table[K, V]) remove(e *row[K, V]) {
	delete(t.rows, e.key)
	heap.Remove(&t.queue, e.index)
	t.removed(e)
}

// Before has the row first that expires first.
func (r *row[K, V]) Before(other *row[K, V]) bool { return r.expires < other.expires }

// Placed implements [heap.Item].
func (r *row[K, V]) Placed(index int) { r.index = index }
