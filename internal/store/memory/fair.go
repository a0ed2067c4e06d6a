package memory

import (
	"container/list"

	"weir/internal/share"
)

// owned is the key of a sender or node of a namespace.
type owned struct {
	namespace string
	id        uint64
}

// fair is a table that namespaces share. Each row has a size, and most bounds the sum of the sizes.
// In a full table, the oldest row of the largest namespace makes room.
type fair[V any] struct {
	table[owned, kept[V]]
	most, size int
	// spared protects a row from other rows of its namespace: it makes no room for them until
	// spared nanoseconds after it was put. A new row that finds no room then is refused.
	spared  uint64
	refused uint64
	// forgotten, unless nil, is called for each row that is removed.
	forgotten func(owned, V)
	shares    share.Shares[string, list.List]
}

type kept[V any] struct {
	of    V
	size  int
	at    uint64        // when it was last put
	place *list.Element // in its namespace's share, which is ordered by at
}

type fairRow[V any] = row[owned, kept[V]]

func newFair[V any](most int) *fair[V] {
	f := &fair[V]{table: newTable[owned, kept[V]](), most: most}
	f.removed = f.leave
	return f
}

// put returns the row of a key, or a new row of a size if there is none; nil if the new row is
// refused. The row does not expire before expires.
func (f *fair[V]) put(key owned, now, expires uint64, size int) *fairRow[V] {
	e := f.rows[key]
	if e == nil {
		for f.size+size > f.most && len(f.queue) > 0 {
			if !f.makeRoom(now, func() *fairRow[V] { return f.victim(key.namespace, now) }) {
				f.refused++
				return nil
			}
		}
		e = f.insert(key, expires)
		f.size += size
		e.value.size, e.value.place = size, f.shares.Grow(key.namespace, size).Of.PushBack(e)
	} else {
		f.prolong(e, expires)
		f.shares.Of(key.namespace).Of.MoveToBack(e.value.place)
	}
	e.value.at = now
	return e
}

// victim returns the row that makes room for another row of a namespace; nil if that row is spared.
func (f *fair[V]) victim(namespace string, now uint64) *fairRow[V] {
	e := f.shares.MakesRoom(namespace).Of.Front().Value.(*fairRow[V])
	if e.key.namespace == namespace && now-e.value.at < f.spared {
		return nil
	}
	return e
}

// leave is called for each removed row.
func (f *fair[V]) leave(e *fairRow[V]) {
	f.size -= e.value.size
	f.shares.Of(e.key.namespace).Of.Remove(e.value.place)
	f.shares.Grow(e.key.namespace, -e.value.size)
	if f.forgotten != nil {
		f.forgotten(e.key, e.value.of)
	}
}

// count returns the number of a namespace's rows.
func (f *fair[V]) count(namespace string) int {
	if own := f.shares.Of(namespace); own != nil {
		return own.Of.Len()
	}
	return 0
}

// each calls visit for each of a namespace's rows.
func (f *fair[V]) each(namespace string, visit func(*fairRow[V])) {
	if own := f.shares.Of(namespace); own != nil {
		for e := own.Of.Front(); e != nil; e = e.Next() {
			visit(e.Value.(*fairRow[V]))
		}
	}
}

// sweepAll removes all rows that have expired.
func (f *fair[V]) sweepAll(now uint64) { f.sweep(now, len(f.queue)) }
