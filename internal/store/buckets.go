package store

import (
	"weir/internal/wire"
)

// subBuckets is the algorithm of buckets of a precision. They count, and end, as windows of the
// clock do.
type subBuckets struct{ clockWindows }

// KeptBuckets is which of a counter's buckets, newest first, are kept for a sender with this limit.
// Sub-buckets are all kept: [Calendar.Span] bounds them. A log keeps its newest buckets, until
// their hits exceed the limit: older ones can't change what a log of that limit decides. It keeps
// wire.MaxBuckets at most. The hits that it forgets were applied, not dropped.
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

// BucketTotal answers an item of sliding buckets from all buckets of its counter, newest first. The
// answer has the buckets that have hits, can be read, and are not too old for a window that ends
// with the item's newest. Its Newest is the item's, or the number of a bucket that is newer.
//
// The answer has no more buckets than wire.Item.AnswerSize has room for. Of a log they are the
// newest, as [KeptBuckets] says. There are more sub-buckets only if clocks disagree. Then those
// farthest ahead are left out, which the asker does not count yet.
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
