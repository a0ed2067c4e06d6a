package store

import (
	"cmp"
	"slices"

	"weir/internal/wire"
)

// subBuckets is the algorithm of buckets of a precision. They count, and end, as windows of the
// clock do.
type subBuckets struct{ clockWindows }

// spareBuckets is for hits of a log that are negative, as they were given back before they came. They
// count for nothing, and must not keep out those that do.
const spareBuckets = 64

// MostBuckets is how many buckets of a log are kept, and looked at, at most for a sender with this
// limit; of those ahead, and of the others.
func MostBuckets(limit uint64) int { return int(min(limit+1+spareBuckets, wire.MaxBuckets)) }

// KeptBuckets is which of a counter's buckets, newest first, are kept for a sender with this limit.
// Sub-buckets are all kept: [Calendar.Span] bounds them. A log keeps its newest buckets, until
// their hits exceed the limit: older buckets can't change what a log of that limit decides. It
// keeps [MostBuckets] at most. The hits that it forgets were applied, not dropped.
func KeptBuckets(of wire.LimitCounter, limit uint64, buckets []Window) []Window {
	if !of.Shape().IsLog() {
		return buckets
	}
	buckets = buckets[:min(len(buckets), MostBuckets(limit))]
	var sum uint64
	for i, b := range buckets {
		if sum > limit {
			return buckets[:i]
		}
		// No limit is above MaxHits; the sum needs no more to exceed it.
		sum = min(sum+uint64(b.Hits), wire.MaxHits+1)
	}
	return buckets
}

// keptOfLog is which buckets of a log are kept: of those ahead and of the others what [KeptBuckets]
// says, so that those ahead push no others out.
func (c Calendar) keptOfLog(item *wire.Item, buckets []Window) []Window {
	current := NumberAt(item.LimitCounter, c.NowNanos)
	today, _ := slices.BinarySearchFunc(buckets, current, newerFirst)
	ahead := KeptBuckets(item.LimitCounter, item.Limit, buckets[:today])
	others := KeptBuckets(item.LimitCounter, item.Limit, buckets[today:])
	if len(ahead) == today {
		return buckets[:today+len(others)]
	}
	return slices.Concat(ahead, others)
}

// newerFirst is the order in which buckets are kept.
func newerFirst(b Window, number uint64) int { return cmp.Compare(number, b.Number) }

// BucketTotal answers an item of sliding buckets from all buckets of its counter, newest first. The
// answer has the buckets that have hits, can be read, and are not too old for a window that ends
// with the item's newest. No hit can come after now: those of buckets ahead are answered as hits of
// the bucket that now is in. The answer's Newest is the item's, or the number of a bucket that is
// newer.
//
// The answer has no more buckets than wire.Item.AnswerSize has room for. A log's are the newest, as
// [KeptBuckets] says. There are more sub-buckets only if the asker's clock is behind. Then the
// newest are left out, which the asker does not count yet.
func (c Calendar) BucketTotal(item *wire.Item, buckets []Window) wire.Total {
	span := c.Span(item.LimitCounter)
	_, counting := numbering(item.LimitCounter)
	current := NumberAt(item.LimitCounter, c.NowNanos)
	buckets = span.among(buckets)
	if item.Shape().IsLog() {
		buckets = c.keptOfLog(item, buckets)
	}
	live := make([]Window, 0, len(buckets))
	for _, b := range buckets {
		b.Number = min(b.Number, current)
		if b.Hits == 0 || b.Number+counting <= item.Newest {
			continue
		}
		if last := len(live) - 1; last >= 0 && live[last].Number == b.Number {
			live[last].Hits = Sum(live[last].Hits, b.Hits)
		} else {
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

// Pushed hits of a bucket ahead are counted in one of two ways. Up to a window ahead they are
// counted where they are, so that those who give some back find them. Farther ahead the sender's
// clock is wrong. Its hits are counted now, and leave when those of now do: by the time that their
// number would come, they are gone.
//
// Hits that are given back are taken from their bucket. If that has too few, the hits were counted
// in the bucket of a now, more than a window before their own. Nobody knows which bucket that was.
// So they are taken from the oldest hits that may be theirs: those that stay are not gone too soon.
// If they are a window old by their sender's clock, they have left. Hits that are not there are
// dropped.
func (subBuckets) add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	span := c.Span(item.LimitCounter)
	_, counting := numbering(item.LimitCounter)
	current := NumberAt(item.LimitCounter, c.NowNanos)
	var buckets, pushed []Window
	var now int64 // hits of senders far ahead
	for i, hits := range item.Hits {
		w := Window{Number: item.Newest - item.Ages[i], Hits: hits}
		if hits == 0 {
			continue
		}
		if !span.counts(w) {
			out.Count(hits, false)
			continue
		}
		if buckets == nil {
			buckets = span.among(r.Windows)
		}
		if hits < 0 {
			if now != 0 {
				buckets, now = mergeBuckets(buckets, []Window{{Number: current, Hits: now}}), 0
			}
			end := less(w.Number, counting)
			if item.Ages[i] >= counting {
				end = 0
			}
			left := takeBack(buckets, w, span.Oldest, end)
			out.Count(hits-left, true)
			out.Count(left, false)
			changed = changed || left != hits
			continue
		}
		out.Count(hits, true)
		changed = true
		if w.Number > current+counting {
			now = Sum(now, w.Hits)
			w.Number = current
		} else {
			pushed = append(pushed, w)
		}
		expires = max(expires, ExpiresNanos(item.LimitCounter, w.Number))
	}
	if !changed {
		return 0, false
	}
	r.Windows = mergeBuckets(mergeBuckets(buckets, []Window{{Number: current, Hits: now}}), pushed)
	if item.Shape().IsLog() {
		r.Windows = c.keptOfLog(item, r.Windows)
	}
	return max(expires, c.NowNanos), true
}

// among is the part of buckets, newest first, that can be read. It shares their memory.
func (s Span) among(buckets []Window) []Window {
	for len(buckets) > 0 && buckets[0].Number > s.Newest {
		buckets = buckets[1:]
	}
	for len(buckets) > 0 && buckets[len(buckets)-1].Number < s.Kept {
		buckets = buckets[:len(buckets)-1]
	}
	return buckets
}

// takeBack takes the hits of w, which are given back, from their bucket, and then from others in
// [oldest, end), the oldest first. It returns what is left of them.
func takeBack(buckets []Window, w Window, oldest, end uint64) (left int64) {
	left = w.Hits
	from := func(b *Window) {
		taken := min(-left, b.Hits)
		b.Hits -= taken
		left += taken
	}
	at, found := slices.BinarySearchFunc(buckets, w.Number, newerFirst)
	if found {
		from(&buckets[at])
	}
	for i := len(buckets) - 1; i >= 0 && left != 0 && buckets[i].Number < end; i-- {
		if buckets[i].Number >= oldest {
			from(&buckets[i])
		}
	}
	return left
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
