package server

import (
	"net/http"
	"slices"
	"strconv"
)

// History keeps events of a stream for late clients: the newest, and some of those before. Events are
// numbered from 1. It is not safe for concurrent use.
type History[T any] struct {
	// Keep is how many of the newest events it keeps. Of the events before them it keeps Old, those
	// whose numbers are multiples of Every.
	Keep, Old, Every int

	old, events []T // oldest first
	last        int64
}

// Next returns the number of the next event.
func (h *History[T]) Next() int64 { return h.last + 1 }

// Add adds the next event.
func (h *History[T]) Add(event T) {
	h.last++
	h.events = append(h.events, event)
	if len(h.events) <= h.Keep {
		return
	}
	if h.Old > 0 && (h.last-int64(h.Keep))%int64(h.Every) == 0 {
		h.old = append(h.old, h.events[0])
		h.old = slices.Delete(h.old, 0, max(0, len(h.old)-h.Old))
	}
	h.events = slices.Delete(h.events, 0, 1)
}

// Len is how many events it keeps.
func (h *History[T]) Len() int { return len(h.old) + len(h.events) }

// After returns the kept events after a number. A number in the future comes from a server that has
// ended; then it returns all.
func (h *History[T]) After(number int64) []T {
	if number > h.last || number < 0 {
		number = 0
	}
	events := slices.Clone(h.events[max(0, len(h.events)-int(h.last-number)):])
	if h.Old == 0 {
		return events
	}
	every := int64(h.Every)
	before := (h.last-int64(h.Keep))/every - number/every // multiples of every that are no longer in events
	return slices.Concat(h.old[max(0, len(h.old)-max(0, int(before))):], events)
}

// LastEvent returns the number of the last event that a client says it has; 0 for none.
func LastEvent(r *http.Request) int64 {
	number, err := strconv.ParseInt(r.Header.Get("last-event-id"), 10, 64)
	if err != nil {
		return 0
	}
	return number
}
