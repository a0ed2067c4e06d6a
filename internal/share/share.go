// Package share divides a bounded resource among its users. The owner of the largest share makes
// room, so an owner below an even part never loses anything.
package share

import (
	"iter"
	"maps"

	"weir/internal/heap"
)

// Shares are the shares of all owners that have any. The zero value is empty.
type Shares[K comparable, T any] struct {
	byOwner map[K]*Share[K, T]
	sizes   heap.Of[*Share[K, T]] // the largest first, and among equals the share that grew longest ago
	grown   uint64                // how often any share grew
}

// Share is the share of one owner.
type Share[K comparable, T any] struct {
	Owner K
	Of    T // the caller's data
	size  int
	grown uint64 // Shares.grown when this share last grew
	index int    // in the heap
}

// Size returns the size of the share.
func (s *Share[K, T]) Size() int { return s.size }

// Of returns the share of an owner; nil if it has none.
func (s *Shares[K, T]) Of(owner K) *Share[K, T] { return s.byOwner[owner] }

// All iterates over all shares, in no order. Shares may shrink and vanish meanwhile.
func (s *Shares[K, T]) All() iter.Seq2[K, *Share[K, T]] { return maps.All(s.byOwner) }

// Grow changes the size of an owner's share by by, which may be negative. A share of size 0 is
// removed.
func (s *Shares[K, T]) Grow(owner K, by int) *Share[K, T] {
	of := s.byOwner[owner]
	if of == nil {
		if s.byOwner == nil {
			s.byOwner = map[K]*Share[K, T]{}
		}
		of = &Share[K, T]{Owner: owner}
		s.byOwner[owner] = of
		heap.Push(&s.sizes, of)
	}
	if by > 0 {
		s.grown++
		of.grown = s.grown
	}
	if of.size += by; of.size > 0 {
		heap.Fix(&s.sizes, of.index)
		return of
	}
	heap.Remove(&s.sizes, of.index)
	delete(s.byOwner, owner)
	return of
}

// MakesRoom returns the share that makes room for more of an owner: the largest, but the owner's
// own if none is larger. If several others are the largest, it is the share that grew longest ago.
// There must be one.
func (s *Shares[K, T]) MakesRoom(owner K) *Share[K, T] {
	largest := s.sizes[0]
	if own := s.byOwner[owner]; own != nil && own.size >= largest.size {
		return own
	}
	return largest
}

// Before implements [heap.Item].
func (s *Share[K, T]) Before(other *Share[K, T]) bool {
	return s.size > other.size || s.size == other.size && s.grown < other.grown
}

// Placed implements [heap.Item].
func (s *Share[K, T]) Placed(index int) { s.index = index }
