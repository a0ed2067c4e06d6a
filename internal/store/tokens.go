package store

import (
	"math"

	"weir/internal/wire"
	"weir/window"
)

// A token bucket is kept as in package window: its start, when it was last full, and the tokens
// taken since. Stores only need to know when these will be back. If several nodes have taken from a
// bucket, their tokens add up from the earliest start, unless the bucket was full again before the
// next start, as for a single node.
//
// A node may have another limit than the bucket was counted for. The bucket is then converted to a
// bucket with that limit that becomes full at the same time.

// tokenBucket is the algorithm of kinds that refill.
type tokenBucket struct{}

// neverFull is later than any clock, with room for additions.
const neverFull = math.MaxInt64

// fullAt is the time when all tokens are back. If the limit is 0, or more tokens were given back
// than taken, it is a window after the start.
func fullAt(of wire.LimitCounter, limit uint64, w Window) uint64 {
	after := widthNanos(of)
	if w.Hits > 0 && limit > 0 {
		after = min(window.MulDivUp(uint64(w.Hits), widthNanos(of), limit), neverFull)
	}
	if after > neverFull-w.Number {
		return neverFull
	}
	return w.Number + after
}

// converted converts a bucket of one limit to a bucket of another that becomes full at the same
// nanosecond. However often nodes with both limits take turns, the bucket neither loses tokens nor
// gets them back sooner. Its start is the same, or earlier by less than the time in which a token
// returns.
//
// For a bucket that will be written, early makes it start a token earlier. Nodes push their tokens
// with the start that they have read. Since then the time at which the bucket is full may have
// moved by less than a token, and the start with it. The start must still not be later than theirs,
// or their tokens would seem to belong to an older bucket.
//
// With a limit of 0 nothing returns and tokens have no time, so the same number stays missing.
func (c Calendar) converted(of wire.LimitCounter, from, to uint64, w Window, early uint64) Window {
	switch {
	case from == to || w.Hits <= 0:
		return w
	case from == 0 && fullAt(of, 0, w) <= c.NowNanos:
		return Window{Number: w.Number}
	case from == 0:
		return Window{Number: max(w.Number, c.NowNanos), Hits: w.Hits}
	}
	full := fullAt(of, from, w)
	if to == 0 {
		returned := back(of, from, window.SaturatingSub(c.NowNanos, w.Number))
		if returned >= uint64(w.Hits) {
			return Window{Number: w.Number}
		}
		return Window{Number: max(w.Number, c.NowNanos), Hits: w.Hits - int64(returned)}
	}
	taken := min(min(window.MulDivUp(full-w.Number, to, widthNanos(of)), wire.MaxHits)+early, wire.MaxHits)
	start := window.SaturatingSub(full, min(window.MulDivUp(taken, widthNanos(of), to), neverFull))
	// A bucket that would lack more than can be counted becomes full sooner.
	return Window{Number: min(start, max(w.Number, c.NowNanos)), Hits: int64(taken)}
}

// back returns how many tokens return in a time, rounded down.
func back(of wire.LimitCounter, limit, nanos uint64) uint64 {
	if tokens, _, ok := window.MulDiv(nanos, limit, widthNanos(of)); ok {
		return tokens
	}
	return math.MaxUint64
}

// later returns the same bucket with a start later by whole windows, as near to a time as possible.
// Tokens that returned in them no longer count as taken.
func later(of wire.LimitCounter, limit uint64, w Window, millis uint64) Window {
	if w.Hits <= 0 || limit == 0 {
		return w
	}
	windows := min(window.SaturatingSub(millis, w.Number/1e6)/of.WidthMillis, uint64(w.Hits)/limit)
	return Window{Number: w.Number + windows*widthNanos(of), Hits: w.Hits - int64(windows*limit)}
}

// rewritten is the time in milliseconds before which a bucket's start is moved later, to keep
// numbers small. It is so long ago that hardly any push has an older start. Such a push may find a
// start that was moved.
func (c Calendar) rewritten(of wire.LimitCounter) uint64 {
	return window.SaturatingSub(c.NowNanos/1e6, 2*of.WidthMillis+uint64(Ahead.Milliseconds()))
}

// missing reports whether a bucket lacks tokens, or did so a while ago.
func (c Calendar) missing(of wire.LimitCounter, limit uint64, w Window, ago uint64) bool {
	return !c.tooFar(of, w.Number) && fullAt(of, limit, w)+ago > c.NowNanos
}

// kept reports whether a bucket is not full, or was not a grace ago: tokens taken before it was
// full may still be on their way.
func (c Calendar) kept(of wire.LimitCounter, limit uint64, w Window) bool {
	return c.missing(of, limit, w, graceNanos(of))
}

// bucket returns the token bucket in a counter's contents, converted to a limit. It returns false
// if there is none, or it can't be right.
func (c Calendar) bucket(of wire.LimitCounter, limit uint64, r *Contents, early uint64) (w Window, ok bool) {
	if len(r.Windows) == 0 || c.tooFar(of, r.Windows[0].Number) {
		return Window{}, false
	}
	return c.converted(of, r.Limit, limit, r.Windows[0], early), true
}

// CountTokens takes an item's tokens from the token bucket in a counter's contents, or gives them
// back, and returns how many. Before and after, there is at most one window; a full bucket has
// none. Tokens taken are dropped if their start is too far ahead (see [Calendar.FirstHit]), or if
// they are back by now or by the bucket's start. Tokens given back are dropped if they have
// returned since, or are not missing.
//
// A start after now counts as now. It may be the item's or, after the clock was set back, the
// bucket's.
func (c Calendar) CountTokens(item *wire.Item, r *Contents) (counted int64) {
	of, limit, hits := item.LimitCounter, item.Limit, item.Hits[0]
	if c.Settled(item) <= c.NowNanos {
		return 0
	}
	pushed := Window{Number: min(item.Newest, c.NowNanos), Hits: hits}
	had, ok := c.bucket(of, limit, r, 1)
	if !ok || !c.kept(of, limit, had) {
		had = Window{}
	}
	had.Number = min(had.Number, c.NowNanos)
	var is Window
	if hits < 0 {
		worn := int64(min(c.backSince(of, limit, had, pushed.Number), uint64(-hits)))
		if pushed.Hits = max(-had.Hits, hits+worn); pushed.Hits == 0 {
			return 0
		}
		is = Window{Number: had.Number, Hits: had.Hits + pushed.Hits}
	} else if is, ok = c.taken(of, limit, had, pushed); !ok {
		return 0
	}
	r.Limit, r.Windows = limit, r.Windows[:0]
	if is.Hits != 0 && c.kept(of, limit, is) {
		r.Windows = append(r.Windows, later(of, limit, is, c.rewritten(of)))
	}
	return pushed.Hits
}

// taken returns a bucket after tokens were taken from it by a push. It returns false if they are
// back already.
func (c Calendar) taken(of wire.LimitCounter, limit uint64, had, pushed Window) (is Window, ok bool) {
	switch {
	case had.Hits == 0:
		return pushed, c.kept(of, limit, pushed)
	case pushed.Number < had.Number:
		if fullAt(of, limit, pushed) <= had.Number {
			return had, false
		}
		is = Window{Number: pushed.Number, Hits: wire.Sum(had.Hits, pushed.Hits)}
		// An old start may have been moved later, past the pushed start.
		if had.Number/1e6 <= c.rewritten(of) {
			is.Number = had.Number
		}
		return is, true
	case fullAt(of, limit, had) > pushed.Number:
		return Window{Number: had.Number, Hits: wire.Sum(had.Hits, pushed.Hits)}, true
	}
	return pushed, true
}

// backSince returns how many tokens have returned to a bucket since a time, at the moments that
// follow from its start, unless it was full then.
func (c Calendar) backSince(of wire.LimitCounter, limit uint64, had Window, since uint64) uint64 {
	if had.Number > since {
		return back(of, limit, c.NowNanos-since)
	}
	return back(of, limit, c.NowNanos-had.Number) - back(of, limit, since-had.Number)
}

// For a full bucket the answer has the item's start and nothing taken. Otherwise its start is less
// than a window ago, unless the limit is 0. A start after now, possible after the clock was set
// back, becomes now.
func (tokenBucket) total(c Calendar, r *Contents, item *wire.Item) wire.Total {
	if w, ok := c.bucket(item.LimitCounter, item.Limit, r, 0); ok && w.Hits > 0 && c.missing(item.LimitCounter, item.Limit, w, 0) {
		w.Number = min(w.Number, c.NowNanos)
		w = later(item.LimitCounter, item.Limit, w, c.NowNanos/1e6)
		return wire.Total{Newest: w.Number, Hits: []uint64{uint64(w.Hits)}}
	}
	return wire.Total{Newest: item.Newest, Hits: []uint64{0}}
}

// Taken returns how many tokens of a bucket with this limit are not back.
func (c Calendar) Taken(of wire.LimitCounter, limit uint64, r *Contents) int64 {
	w, ok := c.bucket(of, limit, r, 0)
	if !ok || w.Hits <= 0 {
		return 0
	}
	return w.Hits - int64(min(back(of, limit, window.SaturatingSub(c.NowNanos, w.Number)), uint64(w.Hits)))
}

// TokensExpireNanos is the time from which a token bucket can't be read.
func TokensExpireNanos(of wire.LimitCounter, limit uint64, bucket Window) uint64 {
	return fullAt(of, limit, bucket) + graceNanos(of)
}

// A sender's bucket may lack a window's tokens besides those that it pushes, and the push may be
// late or a clock behind. If the tokens would be back even so, the push is a copy.
func (tokenBucket) settled(c Calendar, item *wire.Item) uint64 {
	if c.tooFar(item.LimitCounter, item.Newest) {
		return c.NowNanos
	}
	full := fullAt(item.LimitCounter, item.Limit, Window{Number: item.Newest, Hits: item.Hits[0]})
	return full + widthNanos(item.LimitCounter) + uint64(Ahead)
}

func (tokenBucket) add(c Calendar, r *Contents, item *wire.Item, out *Outcome) (expires uint64, changed bool) {
	hits := item.Hits[0]
	if hits == 0 {
		return 0, false
	}
	counted := c.CountTokens(item, r)
	out.Count(counted, true)
	out.Count(hits-counted, false)
	if counted == 0 {
		return 0, false
	}
	expires = c.NowNanos
	if len(r.Windows) > 0 {
		expires = TokensExpireNanos(item.LimitCounter, item.Limit, r.Windows[0])
	}
	return expires, true
}

// used ignores tokens that are back. Only decisions need an exact division.
func (tokenBucket) used(c Calendar, r *Contents, of wire.LimitCounter) uint64 {
	if len(r.Windows) == 0 {
		return 0
	}
	w := r.Windows[0]
	back := float64(window.SaturatingSub(c.NowNanos, w.Number)) / float64(widthNanos(of)) * float64(r.Limit)
	return uint64(max(0, float64(w.Hits)-back))
}

func (tokenBucket) counts(c Calendar, of *LimitCounter, w Window) bool {
	return c.missing(of.LimitCounter, of.Limit, w, 0)
}

// Starts are moved later by whole milliseconds (see later), so a start may lie ahead by less than
// one millisecond.
func (tokenBucket) present(c Calendar, room *wire.Room, total *wire.Total) wire.Total {
	if ahead := window.SaturatingSub(total.Newest, c.NowNanos); ahead > 0 && ahead < 1e6 {
		return wire.Total{Newest: total.Newest - widthNanos(room.LimitCounter), Hits: []uint64{total.Hits[0] + room.Limit}}
	}
	return *total
}
