package memory

import "container/heap"

// table is a map whose rows expire. They stay until they are swept. It never has more than max
// rows: one that has expired makes room, or else the victim.
type table[K comparable, V any] struct {
	max     int
	rows    map[K]*row[K, V]
	queue   queue[K, V]
	evicted uint64
	// added and removed, if they are not nil, are told of each row that comes and goes.
	added, removed func(*row[K, V])
	// victim is a row that makes room. If it is nil, the row that expires first does.
	victim func() *row[K, V]
}

type row[K comparable, V any] struct {
	key     K
	value   V
	expires uint64
	index   int
}

func newTable[K comparable, V any](most int) *table[K, V] {
	return &table[K, V]{max: most, rows: make(map[K]*row[K, V])}
}

// add returns the row of key, a new one if there is none. It lives until expires at least.
func (t *table[K, V]) add(key K, now, expires uint64) *row[K, V] {
	e := t.rows[key]
	if e == nil {
		return t.insert(key, now, expires)
	}
	t.prolong(e, expires)
	return e
}

// prolong has a row live until expires at least.
func (t *table[K, V]) prolong(e *row[K, V], expires uint64) {
	if e.expires < expires {
		e.expires = expires
		heap.Fix(&t.queue, e.index)
	}
}

// insert adds a row for a key that has none.
func (t *table[K, V]) insert(key K, now, expires uint64) *row[K, V] {
	if len(t.queue) >= t.max {
		t.makeRoom(now)
	}
	e := &row[K, V]{key: key, expires: expires}
	t.rows[key] = e
	heap.Push(&t.queue, e)
	if t.added != nil {
		t.added(e)
	}
	return e
}

func (t *table[K, V]) makeRoom(now uint64) {
	e := t.queue[0]
	if e.expires > now {
		t.evicted++
		if t.victim != nil {
			e = t.victim()
		}
	}
	t.remove(e)
}

// sweep removes up to n entries that have expired.
func (t *table[K, V]) sweep(now uint64, n int) {
	for ; n > 0 && len(t.queue) > 0 && t.queue[0].expires <= now; n-- {
		t.removeFirst()
	}
}

func (t *table[K, V]) removeFirst() { t.remove(t.queue[0]) }

func (t *table[K, V]) remove(e *row[K, V]) {
	delete(t.rows, e.key)
	heap.Remove(&t.queue, e.index)
	if t.removed != nil {
		t.removed(e)
	}
}

// queue is a heap by expiry.
type queue[K comparable, V any] []*row[K, V]

func (q queue[K, V]) Len() int           { return len(q) }
func (q queue[K, V]) Less(i, j int) bool { return q[i].expires < q[j].expires }
func (q queue[K, V]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is heap.Interface's.
func (q *queue[K, V]) Push(x any) {
	e := x.(*row[K, V])
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop is heap.Interface's.
func (q *queue[K, V]) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
