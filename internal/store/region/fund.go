package region

import (
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Holds reports whether a region holds hits of a counter ahead. Hits of other kinds leave their limit one
// by one, or start its window: a hit that is used later than it was granted would count at another time.
func Holds(of *wire.LimitCounter) bool {
	kind := window.Kind(of.Kind)
	return kind.Clocked() || kind.Refills()
}

// key names a counter of the region's nodes.
type key struct {
	namespace string
	of        wire.LimitCounter
}

// fund has the region's knowledge of a counter at the parent. The store's lock guards it.
type fund struct {
	key key
	// mine is the parent's counter of what it has granted to this region.
	mine wire.LimitCounter
	// limit and burst are those of the last node that told them.
	limit, burst uint64

	// whole has the parent's count of the key, and granted its count of the hits that this region got: as of
	// the last answer, less what the region has given back since. Both are of nothing until it is known.
	known          bool
	whole, granted store.Contents

	// busy says that a push to the parent is under way with the counter: there is one at a time. dirty
	// says that there is something to tell or to hear, and due that this can't wait for the next tick.
	busy, dirty, due bool
	// unanswered says that the parent has not answered the push in time, or not this part of it.
	unanswered bool
	// need is how many hits takes lack that wait for the next push. reserved is how many hits all takes
	// want that the own store has yet to decide. answered is closed when the push that has the need is answered.
	need, reserved uint64
	answered       chan struct{}

	// part is a token bucket of the region's even part of the limit, from when the region first gave out tokens
	// by that, until the parent answers. It has those that own had then. apart are tokens that takes may be
	// getting by it.
	part  *store.Contents
	apart uint64

	// wanted is how many hits to hold ahead, and held how many were there when the region last looked. At
	// least standing are wanted of a key that nodes ask for: 0 of a small limit, of which nobody leases.
	wanted, held, standing uint64
	// given is how many hits nodes got since the last tick, and idle how many ticks ago a node was here.
	given uint64
	idle  int
}

// hear notes a room's limit.
func (f *fund) hear(room *wire.Room) {
	f.limit, f.burst, f.idle, f.standing = room.Limit, room.Burst, 0, standing
	if limit := (window.Limit{Shape: room.Shape(), Max: room.Limit, Burst: room.Burst}); limit.Parts(0) == 0 {
		f.standing = 0
	}
}

// hits are those of a window of the clock.
func hits(r *store.Contents, number uint64) int64 {
	for _, w := range r.Windows {
		if w.Number == number {
			return w.Hits
		}
	}
	return 0
}

// sum is the hits of all windows.
func sum(r *store.Contents) (hits int64) {
	for _, w := range r.Windows {
		hits = store.Sum(hits, w.Hits)
	}
	return hits
}

// take adds to the hits of a window of the clock, if there are any.
func take(r *store.Contents, number uint64, n int64) {
	for i := range r.Windows {
		if r.Windows[i].Number == number {
			r.Windows[i].Hits += n
		}
	}
}

// backed is how many hits the parent has granted in a window of the clock, as far as it still counts them:
// somebody may have emptied the key's counter.
func (f *fund) backed(number uint64) int64 {
	return min(hits(&f.granted, number), hits(&f.whole, number))
}

// free is how many hits the region can give out now, if its nodes use own.
func (f *fund) free(c store.Calendar, own *store.Contents) uint64 {
	of := f.key.of
	if window.Kind(of.Kind).Refills() {
		return uint64(max(0, c.Taken(of, f.limit, &f.granted)-c.Taken(of, f.limit, own)))
	}
	now := store.NumberAt(of, c.NowNanos)
	return uint64(max(0, f.backed(now)-hits(own, now)))
}

// merged are the contents of the counter with the hits of all: those of own, and those that others have at
// the parent.
func (f *fund) merged(c store.Calendar, item *wire.Item, own *store.Contents) *store.Contents {
	of := f.key.of
	if window.Kind(of.Kind).Refills() {
		others := c.Taken(of, item.Limit, &f.whole) - c.Taken(of, item.Limit, &f.granted)
		if others == 0 {
			return own
		}
		merged := &store.Contents{Limit: item.Limit}
		taken := c.Taken(of, item.Limit, own)
		if taken+others > 0 {
			bucket := store.Window{Number: c.NowNanos, Hits: taken + others}
			if taken > 0 && own.Limit == item.Limit { // its tokens come back when they do here
				bucket = store.Window{Number: own.Windows[0].Number, Hits: own.Windows[0].Hits + others}
			}
			merged.Windows = []store.Window{bucket}
		}
		return merged
	}
	merged := &store.Contents{Limit: own.Limit, Windows: slices.Clone(own.Windows)}
	add := func(number uint64) {
		at := slices.IndexFunc(merged.Windows, func(w store.Window) bool { return w.Number == number })
		if at < 0 {
			at = len(merged.Windows)
			merged.Windows = append(merged.Windows, store.Window{Number: number})
		}
		others := hits(&f.whole, number) - hits(&f.granted, number)
		merged.Windows[at].Hits = max(0, store.Sum(hits(own, number), others))
	}
	for _, w := range f.whole.Windows {
		add(w.Number)
	}
	for _, w := range f.granted.Windows {
		add(w.Number)
	}
	return merged
}

// contents are those that an item is answered with.
func contents(item *wire.Item, t *wire.Total) (r store.Contents) {
	r.Limit = item.Limit
	for age, n := range t.Hits {
		if n > 0 {
			r.Windows = append(r.Windows, store.Window{Number: t.Newest - uint64(age), Hits: int64(min(n, wire.MaxHits))})
		}
	}
	return r
}

// returned is how many of so many hits that are free go back to the parent. Takes that wait have theirs,
// and what is wanted ahead stays, up to twice of it: a pace that varies gives nothing back.
func (f *fund) returned(free uint64, leaves bool) uint64 {
	keep := f.reserved
	if !leaves {
		if keep += f.wanted; free <= keep+f.wanted {
			return 0
		}
	}
	return free - min(free, keep)
}

// difference returns the items that bring the parent's two counters to what the region's nodes use, less
// what they hold ahead. It takes from the fund what goes back. Items of a fund that is not known have no
// hits: their answer says what the parent has.
func (f *fund) difference(c store.Calendar, own *store.Contents, leaves bool) (whole, mine wire.Item) {
	of := f.key.of
	now := store.NumberAt(of, c.NowNanos)
	if window.Kind(of.Kind).Refills() {
		whole = wire.Item{LimitCounter: of, Limit: f.limit, Newest: now, Hits: []int64{0}}
		if f.known {
			d := c.Taken(of, f.limit, own) - c.Taken(of, f.limit, &f.granted)
			if d < 0 {
				d = -int64(f.returned(uint64(-d), leaves))
				item := whole
				item.Hits = []int64{d}
				c.CountTokens(&item, &f.granted)
				c.CountTokens(&item, &f.whole)
			}
			whole.Hits[0] = d
		}
		mine = whole
		mine.LimitCounter = f.mine
		return whole, mine
	}
	span := c.Span(of)
	newest := now
	for _, w := range own.Windows {
		if w.Number <= span.Newest {
			newest = max(newest, w.Number)
		}
	}
	newest = min(newest, span.Oldest+maxWindows-1)
	n := int(newest-span.Oldest) + 1
	whole = wire.Item{LimitCounter: of, Newest: newest, Hits: make([]int64, n)}
	mine = wire.Item{LimitCounter: f.mine, Newest: newest, Hits: make([]int64, n)}
	for age := 0; f.known && age < n; age++ {
		number := newest - uint64(age)
		granted, backed := hits(&f.granted, number), f.backed(number)
		d := hits(own, number) - backed
		switch {
		case d < 0 && number == now:
			d = -int64(f.returned(uint64(-d), leaves))
		case d < 0 && number > now:
			d = 0 // it becomes free when its window begins
		}
		whole.Hits[age] = d
		mine.Hits[age] = d - (granted - backed)
		take(&f.granted, number, min(0, d)-(granted-backed))
		take(&f.whole, number, min(0, d))
	}
	return whole, mine
}

// unparted is how many tokens of the region's even part of a room are left, if its nodes lack those of own.
func (f *fund) unparted(c store.Calendar, part, room *wire.Room, own *store.Contents) uint64 {
	if part.Limit == 0 {
		return 0
	}
	if f.part == nil {
		f.part = &store.Contents{Limit: part.Limit}
		f.count(c, part.Limit, c.Taken(f.key.of, room.Limit, own))
	}
	taken := uint64(c.Taken(f.key.of, part.Limit, f.part)) + f.apart
	return part.Burst - min(part.Burst, taken)
}

// count adds tokens to those that the region's part lacks, if that is in use. They may be fewer than none.
func (f *fund) count(c store.Calendar, limit uint64, tokens int64) {
	if f.part != nil && tokens != 0 {
		c.CountTokens(&wire.Item{LimitCounter: f.key.of, Limit: limit, Newest: c.NowNanos, Hits: []int64{tokens}}, f.part)
	}
}
