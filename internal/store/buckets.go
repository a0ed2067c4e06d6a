package store

import (
	"cmp"
	"slices"

	"weir/internal/wire"
	"weir/window"
)

// subBuckets is the algorithm of buckets of a precision. They count and end as windows of the clock
// do.
type subBuckets struct{ clockWindows }

// spareBuckets is room for negative buckets of a log, whose hits were given back before they
// arrived. They count for nothing, and must not displace buckets that count.
const spareBuckets = 64

// MostBuckets is the most buckets of a log that are kept and read for a sender with this limit.
// Buckets ahead have the same bound of their own.
func MostBuckets(limit uint64) int { return int(min(limit+1+spareBuckets, wire.MaxBuckets)) }

// KeptBuckets returns the buckets of a log, newest first, that are kept for a sender with this
// limit. Sub-buckets do not come here: [Calendar.Span] bounds them. A log keeps its newest buckets,
// until their hits exceed the limit, since older buckets can't change a decision, and at most
// [MostBuckets]. Hits that it drops were applied, and don't count as dropped.
func KeptBuckets(limit uint64, buckets []Window) []Window {
	buckets = buckets[:min(len(buckets), MostBuckets(limit))]
	var sum uint64
	for i, b := range buckets {
		if sum > limit {
			return buckets[:i]
		}
		// No limit is above MaxHits, so the sum may stop just above it.
		sum = min(sum+uint64(b.Hits), wire.MaxHits+1)
	}
	return buckets
}

// keptOfLog returns the buckets of a log to keep. [KeptBuckets] applies separately to those ahead,
// so that they displace no others.
func (c Calendar) keptOfLog(item *wire.Item, buckets []Window) []Window {
	current := NumberAt(item.LimitCounter, c.NowNanos)
	today, _ := slices.BinarySearchFunc(buckets, Window{Number: current}, NewestFirst)
	ahead, others := KeptBuckets(item.Limit, buckets[:today]), KeptBuckets(item.Limit, buckets[today:])
	if len(ahead) == today {
		return buckets[:today+len(others)]
	}
	return slices.Concat(ahead, others)
}

// NewestFirst is the order in which buckets are stored.
func NewestFirst(a, b Window) int { return cmp.Compare(b.Number, a.Number) }

// The answer has the buckets with hits that can be read and that a window ending with the item's newest bucket
// covers. No hit can be later than now, so hits of buckets ahead are answered as hits of the
// present bucket. The answer's Newest is the item's, or the number of a newer bucket.
//
// The answer has at most the number of buckets that wire.Item.AnswerSize allows for. For a log
// these are the newest, by [KeptBuckets]. There can be more sub-buckets only if the asker's clock
// is behind. Then the newest, which the asker does not count yet, are left out.
func (subBuckets) total(c Calendar, r *Contents, item *wire.Item) wire.Total {
	span := c.Span(item.LimitCounter)
	_, counting := numbering(item.LimitCounter)
	current := NumberAt(item.LimitCounter, c.NowNanos)
	buckets := span.among(r.Windows)
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
			live[last].Hits = wire.Sum(live[last].Hits, b.Hits)
		} else {
			live = append(live, b)
		}
	}
	if item.Shape().IsLog() {
		live = KeptBuckets(item.Limit, live)
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

// Hits that are pushed for a bucket ahead are counted in one of two ways. Up to one window ahead
// they are counted in their own bucket, so that they can be given back. Farther ahead the sender's
// clock is wrong: they are counted in the present bucket and leave with it, since by the time of
// their number they no longer matter.
//
// Hits that are given back are taken from their own bucket. If it has too few, the hits were
// counted as hits of the present, more than a window before their own time, in an unknown bucket.
// They are taken from the oldest hits that may be theirs, so that no hits leave too early. If they
// are a window old by their sender's clock, they have left. Hits that don't exist are dropped.
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
			end := window.SaturatingSub(w.Number, counting)
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
			now = wire.Sum(now, w.Hits)
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

// among returns the part of buckets, newest first, that can be read. It shares their memory.
func (s Span) among(buckets []Window) []Window {
	for len(buckets) > 0 && buckets[0].Number > s.Newest {
		buckets = buckets[1:]
	}
	for len(buckets) > 0 && buckets[len(buckets)-1].Number < s.Kept {
		buckets = buckets[:len(buckets)-1]
	}
	return buckets
}

// takeBack takes the hits of w from their bucket and then from others in [oldest, end), the oldest
// first. It returns the hits that it could not take.
func takeBack(buckets []Window, w Window, oldest, end uint64) (left int64) {
	left = w.Hits
	from := func(b *Window) {
		taken := min(-left, b.Hits)
		b.Hits -= taken
		left += taken
	}
	at, found := slices.BinarySearchFunc(buckets, w, NewestFirst)
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

// mergeBuckets adds two lists of buckets, newest first, and drops buckets without hits.
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
			next = Window{Number: a[0].Number, Hits: wire.Sum(a[0].Hits, b[0].Hits)}
			a, b = a[1:], b[1:]
		}
		if next.Hits != 0 {
			merged = append(merged, next)
		}
	}
	return merged
}
