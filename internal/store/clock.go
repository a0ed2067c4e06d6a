package store

import (
	"slices"

	"weir/internal/wire"
	"weir/window"
)

// clockWindows is the algorithm of windows of the clock.
type clockWindows struct{}

// Span is the range of window or bucket numbers that matter now. Hits are counted in [Oldest,
// Newest], and totals can be read in [Kept, Newest]. Stores drop all others.
type Span struct{ Kept, Oldest, Newest uint64 }

// Span returns the range for counters with windows of the clock, or with buckets of a precision.
//
// A fixed window counts until its end, and a sliding window until the end of the next. A bucket
// counts until one window after its start. A proxy whose clock is ahead sends hits for windows that
// begin later. They are accepted up to 10 minutes and 64 widths ahead, but always up to two widths.
// Hits farther ahead are of no use to anybody, and must not fill a store. Accepted hits of buckets
// ahead count at once, as hits of the present.
func (c Calendar) Span(of wire.LimitCounter) Span {
	length, counting := numbering(of)
	current := c.NowNanos / length
	ahead := max(2, min(WindowsAhead, uint64(Ahead.Milliseconds())/of.WidthMillis))
	return Span{
		Kept:   window.SaturatingSub(window.SaturatingSub(c.NowNanos, graceNanos(of))/length, counting-1),
		Oldest: window.SaturatingSub(current, counting-1),
		Newest: current + ahead*(widthNanos(of)/length),
	}
}

func (clockWindows) add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	span := c.Span(item.LimitCounter)
	for age, hits := range item.Hits {
		number := item.Newest - uint64(age)
		if hits == 0 {
			continue
		}
		named := func(w Window) bool { return w.Number == number }
		at := slices.IndexFunc(r.Windows, named)
		if !span.counts(Window{Number: number}) || hits < 0 && (at < 0 || r.Windows[at].Hits == 0) {
			out.Count(hits, false)
			continue
		}
		expires = max(expires, ExpiresNanos(item.LimitCounter, number))
		if !changed {
			// Dropped windows do not come back if the clock is set back.
			r.Windows, changed = span.readable(r.Windows), true
			at = slices.IndexFunc(r.Windows, named)
		}
		if at < 0 {
			r.Windows = append(r.Windows, Window{Number: number})
			at = len(r.Windows) - 1
		}
		r.Windows[at].Hits = out.Add(r.Windows[at].Hits, hits)
	}
	return expires, changed
}

// readable removes the windows that can't be read any more, in place.
func (s Span) readable(windows []Window) []Window {
	return slices.DeleteFunc(windows, func(w Window) bool { return w.Number < s.Kept || w.Number > s.Newest })
}

func (clockWindows) total(c Calendar, r *Contents, item *wire.Item) wire.Total {
	t := wire.Total{Newest: item.Newest, Hits: make([]uint64, len(item.Hits))}
	span := c.Span(item.LimitCounter)
	for _, w := range r.Windows {
		age := item.Newest - w.Number
		if w.Number <= item.Newest && age < uint64(len(t.Hits)) && w.Number >= span.Kept && w.Number <= span.Newest {
			t.Hits[age] = uint64(w.Hits)
		}
	}
	return t
}

func (clockWindows) counts(c Calendar, of *LimitCounter, w Window) bool {
	return c.Span(of.LimitCounter).counts(w)
}

func (clockWindows) used(c Calendar, r *Contents, of wire.LimitCounter) (hits uint64) {
	span := c.Span(of)
	for _, w := range r.Windows {
		if span.counts(w) {
			hits = min(hits+uint64(w.Hits), wire.MaxHits)
		}
	}
	return hits
}

// counts reports whether a window takes hits.
func (s Span) counts(w Window) bool { return w.Number >= s.Oldest && w.Number <= s.Newest }

func (clockWindows) settled(c Calendar, item *wire.Item) uint64 {
	return ExpiresNanos(item.LimitCounter, min(item.Newest, c.Span(item.LimitCounter).Newest))
}

func (clockWindows) present(_ Calendar, _ *wire.Room, total *wire.Total) wire.Total { return *total }
