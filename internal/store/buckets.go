package store

import (
	"weir/internal/wire"
	"weir/window"
)

// IsLog reports whether a counter of sliding buckets is a sliding log.
func IsLog(of wire.Counter) bool { return of.Precision == uint64(window.LogPrecision) }

// KeptBuckets is which of a counter's buckets, newest first, are kept for a sender with this limit. Of sub-buckets
// [Clock.Span] is all there is to say. A log is bounded: its newest buckets are kept, as many as it takes for their
// hits to exceed the limit, as older ones can't change what a log of that limit decides; and wire.MaxBuckets at most.
// Hits that are forgotten by that were applied, not dropped.
func KeptBuckets(of wire.Counter, limit uint64, buckets []Window) []Window {
	if !IsLog(of) {
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

// BucketTotal answers an item of sliding buckets, from all buckets of its counter, newest first: with those that have
// hits, can be read, and are not too old for a window that ends with the item's newest. The answer's Newest is that of
// the item, or of a bucket that is newer.
//
// The answer has at most the buckets that wire.Item.AnswerSize has room for: in a log the newest, as [KeptBuckets]
// says. Of sub-buckets there are more only if clocks disagree; then those farthest ahead are left out, which are the
// ones that the asker does not count yet.
func (c Clock) BucketTotal(item *wire.Item, buckets []Window) wire.Total {
	span := c.Span(item.Counter)
	_, counting := numbering(item.Counter)
	live := make([]Window, 0, len(buckets))
	for _, b := range buckets {
		if b.Hits > 0 && b.Number >= span.Kept && b.Number <= span.Newest && b.Number+counting > item.Newest {
			live = append(live, b)
		}
	}
	if IsLog(item.Counter) {
		live = KeptBuckets(item.Counter, item.Limit, live)
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
