// Package heap is container/heap for a type: with its functions, and what they want of a heap.
package heap

import std "container/heap"

// Item is an item of a heap. Before reports whether it comes before another, and Placed tells it its
// index.
type Item[T any] interface {
	Before(other T) bool
	Placed(index int)
}

// Of is a heap. Its first item is before all others.
type Of[T Item[T]] []T

// Push adds an item.
func Push[T Item[T]](h *Of[T], item T) { std.Push((*interfaced[T])(h), item) }

// Pop removes the first item, and returns it. There must be one.
func Pop[T Item[T]](h *Of[T]) T { return std.Pop((*interfaced[T])(h)).(T) }

// Fix puts an item in its place after it has changed.
func Fix[T Item[T]](h *Of[T], index int) { std.Fix((*interfaced[T])(h), index) }

// Remove removes an item.
func Remove[T Item[T]](h *Of[T], index int) { std.Remove((*interfaced[T])(h), index) }

// interfaced implements container/heap's Interface.
type interfaced[T Item[T]] []T

func (h interfaced[T]) Len() int           { return len(h) }
func (h interfaced[T]) Less(i, j int) bool { return h[i].Before(h[j]) }

func (h interfaced[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Placed(i)
	h[j].Placed(j)
}

func (h *interfaced[T]) Push(item any) {
	added := item.(T)
	added.Placed(len(*h))
	*h = append(*h, added)
}

func (h *interfaced[T]) Pop() any {
	last := len(*h) - 1
	removed := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	return removed
}
