package store

import (
	"slices"

	"weir/internal/wire"
	"weir/window"
)

// Record is what a store keeps of a counter. Stores that compute in Go change it with [Clock.Add] and read it with
// [Clock.Total]; others do alike.
type Record struct {
	// Limit is how many tokens come back to a token bucket in a window, as the sender has it that took the last ones.
	Limit uint64
	// Windows are the windows of the clock, one that started with its first hit, buckets of a precision, newest first,
	// or a token bucket that is not full.
	Windows []Window
}

// Add adds an item's hits to the record of its counter, and tells in out what became of them. changed is false if none
// was added; else the record can be read until expires, or longer if another window of it says so: a store keeps the
// latest of its expiries, but for token buckets, where the last one counts.
func (c Clock) Add(r *Record, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	switch window.Kind(item.Kind) {
	case window.FirstHitWindow:
		return c.addFirstHit(r, item, out)
	case window.SlidingBuckets:
		return c.addBuckets(r, item, out)
	case window.TokenBucket:
		return c.addTokens(r, item, out)
	}
	return c.addClock(r, item, out)
}

func (c Clock) addFirstHit(r *Record, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	hits := item.Hits[0]
	if hits == 0 {
		return 0, false
	}
	start, ok := c.FirstHit(item.Counter, item.Newest)
	out.Count(hits, ok)
	if !ok {
		return 0, false
	}
	expires = ExpiresNanos(item.Counter, start)
	if live, ok := c.firstHit(r.Windows, item.Counter); ok {
		start, hits = min(start, live.Number), Sum(hits, live.Hits)
	}
	r.Windows = append(r.Windows[:0], Window{Number: start, Hits: hits})
	return expires, true
}

// firstHit is the window among a counter's that lives.
func (c Clock) firstHit(windows []Window, of wire.Counter) (Window, bool) {
	if len(windows) == 0 {
		return Window{}, false
	}
	_, ok := c.FirstHit(of, windows[0].Number)
	return windows[0], ok
}

func (c Clock) addClock(r *Record, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	span := c.Span(item.Counter)
	for age, hits := range item.Hits {
		number := item.Newest - uint64(age)
		if hits == 0 {
			continue
		}
		ok := number >= span.Oldest && number <= span.Newest
		out.Count(hits, ok)
		if !ok {
			continue
		}
		expires, changed = max(expires, ExpiresNanos(item.Counter, number)), true
		at := slices.IndexFunc(r.Windows, func(w Window) bool { return w.Number == number })
		if at < 0 {
			r.Windows = append(span.readable(r.Windows), Window{Number: number})
			at = len(r.Windows) - 1
		}
		r.Windows[at].Hits = Sum(r.Windows[at].Hits, hits)
	}
	return expires, changed
}

// readable removes the windows that can't be read any more, in place.
func (s Span) readable(windows []Window) []Window {
	return slices.DeleteFunc(windows, func(w Window) bool { return w.Number < s.Kept || w.Number > s.Newest })
}

func (c Clock) addBuckets(r *Record, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	span := c.Span(item.Counter)
	var pushed []Window
	for i, hits := range item.Hits {
		number := item.Newest - item.Ages[i]
		if hits == 0 {
			continue
		}
		ok := number >= span.Oldest && number <= span.Newest
		out.Count(hits, ok)
		if ok {
			pushed = append(pushed, Window{Number: number, Hits: hits})
		}
	}
	if len(pushed) == 0 {
		return 0, false
	}
	r.Windows = KeptBuckets(item.Counter, item.Limit, mergeBuckets(span.readable(r.Windows), pushed))
	return ExpiresNanos(item.Counter, pushed[0].Number), true
}

// mergeBuckets adds the hits of two lists of buckets, newest first, and leaves out buckets without any.
func mergeBuckets(a, b []Window) []Window {
	merged := make([]Window, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var next Window
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Number > b[0].Number:
			next, a = a[0], a[1:]
		case len(a) == 0 || b[0].Number > a[0].Number:
			next, b = b[0], b[1:]
		default:
			next = Window{Number: a[0].Number, Hits: Sum(a[0].Hits, b[0].Hits)}
			a, b = a[1:], b[1:]
		}
		if next.Hits != 0 {
			merged = append(merged, next)
		}
	}
	return merged
}

func (c Clock) addTokens(r *Record, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	hits := item.Hits[0]
	if hits == 0 {
		return 0, false
	}
	bucket, ok := c.TakeTokens(item, r.Windows)
	out.Count(hits, ok)
	if !ok {
		return 0, false
	}
	expires = c.NowNanos
	if len(bucket) > 0 {
		expires = TokensExpireNanos(item.Counter, item.Limit, bucket[0])
	}
	r.Limit, r.Windows = item.Limit, bucket
	return expires, true
}

// Total is what an item is answered with from the record of its counter.
func (c Clock) Total(r *Record, item *wire.Item) wire.Total {
	switch window.Kind(item.Kind) {
	case window.SlidingBuckets:
		return c.BucketTotal(item, r.Windows)
	case window.TokenBucket:
		return c.TokenTotal(item, r.Windows)
	}
	t := wire.Total{Newest: item.Newest, Hits: make([]uint64, len(item.Hits))}
	if window.Kind(item.Kind) == window.FirstHitWindow {
		if live, ok := c.firstHit(r.Windows, item.Counter); ok {
			t.Newest, t.Hits[0] = live.Number, uint64(max(0, live.Hits))
		}
		return t
	}
	span := c.Span(item.Counter)
	for _, w := range r.Windows {
		age := item.Newest - w.Number
		if w.Number <= item.Newest && age < uint64(len(t.Hits)) && w.Number >= span.Kept && w.Number <= span.Newest {
			t.Hits[age] = uint64(max(0, w.Hits))
		}
	}
	return t
}
