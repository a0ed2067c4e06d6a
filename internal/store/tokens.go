package store

import (
	"math"
	"math/bits"

	"weir/internal/wire"
)

// A token bucket is kept as in package window: its start, when it was full, and how many tokens
// were taken since. Stores only ask when those will be back. Several nodes may have taken from a
// bucket. Their tokens add up from the earliest start, unless the bucket was full again before the
// next start, as in a bucket that a single node saw.

// tokenBucket is the algorithm of kinds that refill.
type tokenBucket struct{}

// neverFull is later than any clock, and leaves room for what is added to it.
const neverFull = math.MaxInt64

// fullAt is the time from which all tokens are back. With a limit of 0 tokens don't come back:
// then, and if more were given back than taken, it is a window after the start.
func fullAt(of wire.LimitCounter, limit uint64, w Window) uint64 {
	if w.Hits <= 0 || limit == 0 {
		return w.Number + widthNanos(of)
	}
	hi, lo := bits.Mul64(uint64(w.Hits), widthNanos(of))
	if hi >= limit {
		return neverFull
	}
	after, rest := bits.Div64(hi, lo, limit)
	if rest != 0 {
		after++
	}
	if after > neverFull-w.Number {
		return neverFull
	}
	return w.Number + after
}

// later is the same bucket with a start that is later by whole windows, as near to a time as can
// be. The tokens that came back in them are not counted as taken any more.
func later(of wire.LimitCounter, limit uint64, w Window, millis uint64) Window {
	if w.Hits <= 0 || limit == 0 {
		return w
	}
	windows := min(less(millis, w.Number/1e6)/of.WidthMillis, uint64(w.Hits)/limit)
	return Window{Number: w.Number + windows*widthNanos(of), Hits: w.Hits - int64(windows*limit)}
}

// rewritten is the time in milliseconds before which a bucket's start is written later, to keep
// numbers small. It is so long ago that hardly a push comes with an older start. If one does, it
// may find a start that was written later.
func (c Calendar) rewritten(of wire.LimitCounter) uint64 {
	return less(c.NowNanos/1e6, 2*of.WidthMillis+uint64(Ahead.Milliseconds()))
}

// missing reports whether a bucket misses tokens, or did a while ago.
func (c Calendar) missing(of wire.LimitCounter, limit uint64, w Window, ago uint64) bool {
	return !c.tooFar(of, w.Number) && fullAt(of, limit, w)+ago > c.NowNanos
}

// kept reports whether a bucket is not full, or was not full a grace ago: tokens that were taken
// before it was full may be on their way.
func (c Calendar) kept(of wire.LimitCounter, limit uint64, w Window) bool {
	return c.missing(of, limit, w, graceNanos(of))
}

// CountTokens is what becomes of a token bucket when an item's tokens are taken from it. There is
// at most one window, before and after; a full bucket has none. It reports false if the tokens are
// dropped. They are if their start lies too far ahead to believe it (see [Calendar.FirstHit]), or
// if they are back, by now or by the bucket's start.
//
// If a start seems to lie after now, it is now. It may be the item's, or after the clock was set
// back the bucket's.
func (c Calendar) CountTokens(item *wire.Item, bucket []Window) ([]Window, bool) {
	of, limit := item.LimitCounter, item.Limit
	if c.Settled(item) <= c.NowNanos {
		return bucket, false
	}
	pushed := Window{Number: min(item.Newest, c.NowNanos), Hits: item.Hits[0]}
	taken := pushed
	var had Window
	if len(bucket) > 0 {
		had = Window{Number: min(bucket[0].Number, c.NowNanos), Hits: bucket[0].Hits}
	}
	switch {
	case len(bucket) == 0 || !c.kept(of, limit, bucket[0]):
		if !c.kept(of, limit, pushed) {
			return bucket, false
		}
	case pushed.Number < had.Number:
		if fullAt(of, limit, pushed) <= had.Number {
			return bucket, false
		}
		taken.Hits = Sum(had.Hits, pushed.Hits)
		// What is given back doesn't move a start. A start that is so long ago may have been
		// written later, by more than the pushed one lies before it.
		if pushed.Hits < 0 || had.Number/1e6 <= c.rewritten(of) {
			taken.Number = had.Number
		}
	case fullAt(of, limit, had) > pushed.Number:
		taken.Hits = Sum(had.Hits, pushed.Hits)
		if had.Hits > 0 {
			taken.Number = had.Number
		}
	}
	if taken.Hits == 0 || !c.kept(of, limit, taken) {
		return bucket[:0], true
	}
	return append(bucket[:0], later(of, limit, taken, c.rewritten(of))), true
}

// TokenTotal answers an item of a token bucket. If the bucket is full, the answer has the item's
// start and nothing taken. Otherwise its start is less than a window ago, unless the limit is 0.
func (c Calendar) TokenTotal(item *wire.Item, bucket []Window) wire.Total {
	if len(bucket) > 0 && bucket[0].Hits > 0 && c.missing(item.LimitCounter, item.Limit, bucket[0], 0) {
		w := later(item.LimitCounter, item.Limit, bucket[0], c.NowNanos/1e6)
		return wire.Total{Newest: w.Number, Hits: []uint64{uint64(w.Hits)}}
	}
	return wire.Total{Newest: item.Newest, Hits: []uint64{0}}
}

// TokensExpireNanos is the time from which on nobody can read of a token bucket.
func TokensExpireNanos(of wire.LimitCounter, limit uint64, bucket Window) uint64 {
	return fullAt(of, limit, bucket) + graceNanos(of)
}

// A sender's bucket may lack a window's tokens besides those that it pushes. A push may be late, or
// a clock behind. If the tokens would be back even so, the push is a copy.
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
	bucket, ok := c.CountTokens(item, r.Windows)
	out.Count(hits, ok)
	if !ok {
		return 0, false
	}
	expires = c.NowNanos
	if len(bucket) > 0 {
		expires = TokensExpireNanos(item.LimitCounter, item.Limit, bucket[0])
	}
	r.Limit, r.Windows = item.Limit, bucket
	return expires, true
}

func (tokenBucket) total(c Calendar, r *Contents, item *wire.Item) wire.Total {
	return c.TokenTotal(item, r.Windows)
}

// used leaves out the tokens that are back. An exact division is for decisions.
func (tokenBucket) used(c Calendar, r *Contents, of wire.LimitCounter) uint64 {
	if len(r.Windows) == 0 {
		return 0
	}
	w := r.Windows[0]
	back := float64(less(c.NowNanos, w.Number)) / float64(widthNanos(of)) * float64(r.Limit)
	return uint64(max(0, float64(w.Hits)-back))
}

func (tokenBucket) counts(c Calendar, of *LimitCounter, w Window) bool {
	return c.missing(of.LimitCounter, of.Limit, w, 0)
}

// A start is written later by milliseconds, see later, so it may lie ahead by less than one.
func (tokenBucket) present(c Calendar, room *wire.Room, total *wire.Total) wire.Total {
	if ahead := less(total.Newest, c.NowNanos); ahead > 0 && ahead < 1e6 {
		return wire.Total{Newest: total.Newest - widthNanos(room.LimitCounter), Hits: []uint64{total.Hits[0] + room.Limit}}
	}
	return *total
}
