package store

import (
	"weir/internal/wire"
)

// subBuckets is the algorithm of buckets of a precision. They count, and end, as windows of the
// clock do.
type subBuckets struct{ clockWindows }

// KeptBuckets is which of a counter's buckets, newest first, are kept for a sender with this limit.
// Of sub-buckets [Calendar.Span] is all there is to say. A log is bounded: its newest buckets are
// kept, as many as it takes for their hits to exceed the limit, as older ones can't change what a
// log of that limit decides; and wire.MaxBuckets at most. Hits that are forgotten by that were
// applied, not dropped.
func KeptBuckets(of wire.LimitCounter, limit uint64, buckets []Window) []Window {
	if !of.Shape().IsLog() {
		return buckets
	}
	var sum uint64
	for i, b := range buckets {
		if sum > limit || i == wire.MaxBuckets {
			return buckets[:i]
		}
		// No limit is above MaxHits; the sum needs no more to exceed it.
		sum = min(sum+uint64(max(b.Hits, 0)), wire.MaxHits+1)
	}
	return buckets
}

// BucketTotal answers an item of sliding buckets, from all buckets of its counter, newest first:
// with those that have hits, can be read, and are not too old for a window that ends with the
// item's newest. The answer's Newest is that of the item, or of a bucket that is newer.
//
// The answer has at most the buckets that wire.Item.AnswerSize has room for: in a log the newest,
// as [KeptBuckets] says. Of sub-buckets there are more only if clocks disagree; then those farthest
// ahead are left out, which are the ones that the asker does not count yet.
func (c Calendar) BucketTotal(item *wire.Item, buckets []Window) wire.Total {
	span := c.Span(item.LimitCounter)
	_, counting := numbering(item.LimitCounter)
	live := make([]Window, 0, len(buckets))
	for _, b := range buckets {
		if b.Hits > 0 && b.Number >= span.Kept && b.Number <= span.Newest && b.Number+counting > item.Newest {
			live = append(live, b)
		}
	}
	if item.Shape().IsLog() {
		live = KeptBuckets(item.LimitCounter, item.Limit, live)
	} else {
		live = live[max(0, len(live)-wire.MaxWindows):]
	}
	t := wire.Total{Newest: item.Newest}
	if len(live) > 0 {
		t.Newest = max(t.Newest, live[0].Number)
	}
	for _, b := range live {
		t.Ages = append(t.Ages, t.Newest-b.Number)
		t.Hits = append(t.Hits, uint64(b.Hits))
	}
	return t
}

func (subBuckets) add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	span := c.Span(item.LimitCounter)
	var pushed []Window
	for i, hits := range item.Hits {
		number := item.Newest - item.Ages[i]
		if hits == 0 {
			continue
		}
		w := Window{Number: number, Hits: hits}
		ok := span.counts(w)
		out.Count(hits, ok)
		if ok {
			pushed = append(pushed, w)
		}
	}
	if len(pushed) == 0 {
		return 0, false
	}
	r.Windows = KeptBuckets(item.LimitCounter, item.Limit, mergeBuckets(span.readable(r.Windows), pushed))
	return ExpiresNanos(item.LimitCounter, pushed[0].Number), true
}

// mergeBuckets adds the hits of two lists of buckets, newest first, and leaves out buckets without
// any.
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

func (subBuckets) total(c Calendar, r *Contents, item *wire.Item) wire.Total {
	return c.BucketTotal(item, r.Windows)
}
