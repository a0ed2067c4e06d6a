// Package share divides what is bounded among those who use it. The owner that has most makes room:
// so nobody takes anything from an owner that has less than an even part.
package share

import (
	"container/heap"
	"iter"
	"maps"
)

// Shares are those of all owners that have something. The zero value has none.
type Shares[K comparable, T any] struct {
	byOwner map[K]*Share[K, T]
	sizes   sizes[K, T]
	grown   uint64 // how often a share has
}

// Share is an owner's share.
type Share[K comparable, T any] struct {
	Owner K
	Of    T // the user's
	size  int
	grown uint64 // the count of all growths when this share grew last
	index int    // in the heap
}

// Size is how much it is.
func (s *Share[K, T]) Size() int { return s.size }

// Of returns an owner's share, nil if it has nothing.
func (s *Shares[K, T]) Of(owner K) *Share[K, T] { return s.byOwner[owner] }

// All are all shares, in no order. They may shrink meanwhile, and go.
func (s *Shares[K, T]) All() iter.Seq2[K, *Share[K, T]] { return maps.All(s.byOwner) }

// Grow has an owner's share grow, or shrink if by is negative. A share without a size is gone.
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

// sizes is a heap of shares, the largest first, and among equals the share that grew longest ago.
type sizes[K comparable, T any] []*Share[K, T]

func (h sizes[K, T]) Len() int { return len(h) }
func (h sizes[K, T]) Less(i, j int) bool {
	return h[i].size > h[j].size || h[i].size == h[j].size && h[i].grown < h[j].grown
}
func (h sizes[K, T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *sizes[K, T]) Push(x any) {
	added := x.(*Share[K, T])
	added.index = len(*h)
	*h = append(*h, added)
}

// Pop is heap.Interface's.
func (h *sizes[K, T]) Pop() any {
	last := len(*h) - 1
	removed := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return removed
}
