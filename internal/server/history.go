package server

import (
	"net/http"
	"slices"
	"strconv"
)

// History keeps the newest events of a stream for late clients. Events are numbered from 1. It is
// not safe for concurrent use.
type History[T any] struct {
	// Keep is the number of events to keep.
	Keep int

	events []T // oldest first
	last   int64
}

// Next returns the number of the next event.
func (h *History[T]) Next() int64 { return h.last + 1 }

// Add adds the next event.
func (h *History[T]) Add(event T) {
	h.last++
	h.events = append(h.events, event)
	if over := len(h.events) - h.Keep; over > 0 {
		h.events = slices.Delete(h.events, 0, over)
	}
}

// After returns the kept events after a number. A number in the future comes from a server that has
// ended; then it returns all.
func (h *History[T]) After(number int64) []T {
	if number > h.last || number < 0 {
		number = 0
	}
	return slices.Clone(h.events[max(0, len(h.events)-int(h.last-number)):])
}

// LastEvent returns the number of the last event that a client says it has; 0 for none.
func LastEvent(r *http.Request) int64 {
	number, err := strconv.ParseInt(r.Header.Get("last-event-id"), 10, 64)
	if err != nil {
		return 0
	}
	return number
}
