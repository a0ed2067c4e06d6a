package region

import (
	"slices"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Holds reports whether a region can hold hits of a counter ahead. Hits of other kinds leave their
// limit one by one, or start its window. If such a hit is used later than it was granted, it counts
// at the wrong time.
func Holds(of *wire.LimitCounter) bool {
	kind := window.Kind(of.Kind)
	return kind.Clocked() || kind.Refills()
}

// key names a counter of a namespace.
type key struct {
	namespace string
	of        wire.LimitCounter
}

// fund is the region's knowledge of a counter at the parent. The store's lock guards it.
type fund struct {
	key key
	// mine is the counter at the parent of the hits granted to this region.
	mine wire.LimitCounter
	// limit and burst are from the last node that sent them.
	limit, burst uint64

	// whole is the parent's count of the key, and granted its count of this region's hits. Both are
	// as of the last answer, less hits that the region has given back since. They are empty until
	// known is true.
	known          bool
	whole, granted store.Contents

	// busy means that a push to the parent with the counter is unanswered: there is at most one.
	// dirty means that there are changes to push or hits to read. due means that this can't wait
	// for the next tick.
	busy, dirty, due bool
	// unanswered means that the parent has not answered the last push in time, or not this part of
	// it.
	unanswered bool
	// refusals is how often in a row the parent has refused a push of the counter, which therefore is
	// in no push before the tick restsUntil.
	refusals, restsUntil uint64
	// need is how many hits the takes lack that wait for the next push. reserved is how many hits
	// all takes want that the own store has yet to decide. answered is closed when the push with
	// the need is answered.
	need, reserved uint64
	answered       chan struct{}

	// part is a token bucket of the region's even share of the limit. It exists from the first time
	// that the region gives out tokens by this share until the parent answers. At first it lacks
	// the tokens that the own bucket lacked. apart is how many tokens undecided takes may get from
	// it.
	part  *store.Contents
	apart uint64

	// back has hits that nodes have given back and that the parent counts for others than this region's
	// nodes. A push of their own tells of them.
	back store.Contents

	// wanted is how many hits the region should hold ahead, and held how many it had at heldAt, in
	// nanoseconds. wanted is at least standing for a key that nodes ask for. standing is 0 for small
	// limits, which nodes can't lease.
	wanted, held, standing, heldAt uint64
	// asked means that a node has asked since the region last replaced hits that lapsed.
	asked bool
	// given is how many hits nodes got since the last tick, and idle how many ticks no node has
	// asked.
	given uint64
	idle  int
}

func (f *fund) hear(room *wire.Room) {
	f.limit, f.burst, f.idle, f.asked, f.standing = room.Limit, room.Burst, 0, true, standing
	if limit := (window.Limit{Shape: room.Shape(), Max: room.Limit, Burst: room.Burst}); limit.Parts(0) == 0 {
		f.standing = 0
	} else if limit.Kind.Refills() && room.Limit > 0 {
		f.standing += min(uint64(lapsing/limit.Return()), room.Burst/lapsingShare)
	}
}

// stillHeld returns how many of the hits last held the region surely still holds: another window of
// the clock may have begun, and tokens come back.
func (f *fund) stillHeld(c store.Calendar) uint64 {
	of := f.key.of
	if window.Kind(of.Kind).Refills() {
		held := store.Contents{Limit: f.limit, Windows: []store.Window{{Number: f.heldAt, Hits: int64(f.held)}}}
		return uint64(c.Taken(of, f.limit, &held))
	}
	if store.NumberAt(of, c.NowNanos) != store.NumberAt(of, f.heldAt) {
		return 0
	}
	return f.held
}

func sum(r *store.Contents) (hits int64) {
	for _, w := range r.Windows {
		hits = wire.Sum(hits, w.Hits)
	}
	return hits
}

// take adds n to the hits of a window of the clock; it does nothing if there is no such window.
func take(r *store.Contents, number uint64, n int64) {
	for i := range r.Windows {
		if r.Windows[i].Number == number {
			r.Windows[i].Hits += n
		}
	}
}

// backed returns how many of the granted hits in a window of the clock the parent still counts: the
// key's counter may have been emptied.
func (f *fund) backed(number uint64) int64 {
	return min(f.granted.HitsOf(number), f.whole.HitsOf(number))
}

// free returns how many hits the region can give out now if its nodes have used own.
func (f *fund) free(c store.Calendar, own *store.Contents) uint64 {
	of := f.key.of
	if window.Kind(of.Kind).Refills() {
		return uint64(max(0, c.Taken(of, f.limit, &f.granted)-c.Taken(of, f.limit, own)))
	}
	now := store.NumberAt(of, c.NowNanos)
	return uint64(max(0, f.backed(now)-own.HitsOf(now)))
}

// gained returns how many more hits the parent has granted than the region knew. Hits of windows that
// have ended, and tokens that are back, make up for none.
func (f *fund) gained(c store.Calendar, granted *store.Contents) (more uint64) {
	of := f.key.of
	if window.Kind(of.Kind).Refills() {
		return uint64(max(0, c.Taken(of, f.limit, granted)-c.Taken(of, f.limit, &f.granted)))
	}
	for _, w := range granted.Windows {
		more += uint64(max(0, w.Hits-f.granted.HitsOf(w.Number)))
	}
	return more
}

// merged returns the counter's contents with the hits of all regions: those of own, and those that
// others have at the parent.
func (f *fund) merged(c store.Calendar, item *wire.Item, own *store.Contents) *store.Contents {
	of := f.key.of
	if window.Kind(of.Kind).Refills() {
		others := c.Taken(of, item.Limit, &f.whole) - c.Taken(of, item.Limit, &f.granted) - c.Taken(of, item.Limit, &f.back)
		if others == 0 {
			return own
		}
		merged := &store.Contents{Limit: item.Limit}
		taken := c.Taken(of, item.Limit, own)
		if taken+others > 0 {
			bucket := store.Window{Number: c.NowNanos, Hits: taken + others}
			if taken > 0 && own.Limit == item.Limit { // keep the moments at which its tokens return
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
		others := f.whole.HitsOf(number) - f.granted.HitsOf(number) - f.back.HitsOf(number)
		merged.Windows[at].Hits = max(0, wire.Sum(own.HitsOf(number), others))
	}
	for _, w := range f.whole.Windows {
		add(w.Number)
	}
	for _, w := range f.granted.Windows {
		add(w.Number)
	}
	return merged
}

// contents returns the contents that a total answers an item with.
func contents(item *wire.Item, t *wire.Total) (r store.Contents) {
	r.Limit = item.Limit
	for age, n := range t.Hits {
		if n > 0 {
			r.Windows = append(r.Windows, store.Window{Number: t.Newest - uint64(age), Hits: int64(min(n, wire.MaxHits))})
		}
	}
	return r
}

// returned returns how many of the free hits go back to the parent. The hits of waiting takes stay,
// and so do up to twice the wanted hits, so a varying rate gives nothing back.
func (f *fund) returned(free uint64, leaves bool) uint64 {
	keep := f.reserved
	if !leaves {
		if keep += f.wanted; free <= keep+f.wanted {
			return 0
		}
	}
	return free - min(free, keep)
}

// giveBack takes in an item that gives hits back. Those that own lacks go back to the parent.
func (f *fund) giveBack(c store.Calendar, item *wire.Item, own *store.Contents) {
	beyond := wire.Item{LimitCounter: item.LimitCounter, Limit: item.Limit, Newest: item.Newest, Hits: make([]int64, len(item.Hits))}
	for age, hits := range item.Hits {
		back, has := -hits, own.HitsOf(item.Newest-uint64(age))
		if window.Kind(item.Kind).Refills() { // some tokens may have returned by themselves
			tokens := store.Contents{Limit: item.Limit, Windows: []store.Window{{Number: item.Newest, Hits: back}}}
			back, has = c.Taken(item.LimitCounter, item.Limit, &tokens), max(sum(own), c.Taken(item.LimitCounter, item.Limit, own))
			beyond.Newest = c.NowNanos
		}
		beyond.Hits[age] = max(0, back-has)
	}
	c.Add(&f.back, &beyond, &store.Outcome{})
}

// difference returns the items that bring the parent's two counters to the hits that the region's
// nodes have used plus those that stay held ahead. It subtracts the hits that go back from the
// fund. If the fund is not known, the items have no hits and only read the parent's counts. If hits are to go back that
// were counted for others, the items have only these: together with later hits they would take from those.
func (f *fund) difference(c store.Calendar, own *store.Contents, leaves bool) (whole, mine wire.Item) {
	of, back := f.key.of, f.back
	f.back = store.Contents{}
	now := store.NumberAt(of, c.NowNanos)
	if window.Kind(of.Kind).Refills() {
		whole = wire.Item{LimitCounter: of, Limit: f.limit, Newest: now, Hits: []int64{0}}
		if len(back.Windows) > 0 {
			mine = whole
			mine.LimitCounter = f.mine
			whole.Hits = []int64{-c.Taken(of, f.limit, &back)}
			c.CountTokens(&whole, &f.whole)
			return whole, mine
		}
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
	for _, w := range slices.Concat(own.Windows, back.Windows) {
		if w.Number <= span.Newest {
			newest = max(newest, w.Number)
		}
	}
	newest = min(newest, span.Oldest+maxWindows-1)
	n := int(newest-span.Oldest) + 1
	whole = wire.Item{LimitCounter: of, Newest: newest, Hits: make([]int64, n)}
	mine = wire.Item{LimitCounter: f.mine, Newest: newest, Hits: make([]int64, n)}
	for age := 0; len(back.Windows) > 0 && age < n; age++ {
		whole.Hits[age] = -back.HitsOf(newest - uint64(age))
		take(&f.whole, newest-uint64(age), whole.Hits[age])
	}
	for age := 0; f.known && len(back.Windows) == 0 && age < n; age++ {
		number := newest - uint64(age)
		granted, backed := f.granted.HitsOf(number), f.backed(number)
		d := own.HitsOf(number) - backed
		switch {
		case d < 0 && number == now:
			d = -int64(f.returned(uint64(-d), leaves))
		case d < 0 && number > now:
			d = 0 // these hits become free when their window begins
		}
		whole.Hits[age] = d
		mine.Hits[age] = d - (granted - backed)
		take(&f.granted, number, min(0, d)-(granted-backed))
		take(&f.whole, number, min(0, d))
	}
	return whole, mine
}

// regain undoes what difference has subtracted from the fund, as nothing went back.
func (f *fund) regain(c store.Calendar, whole, mine *wire.Item) {
	back := *whole
	back.Hits = make([]int64, len(whole.Hits))
	for age, d := range whole.Hits {
		if mine.Hits[age] == 0 {
			back.Hits[age] = max(0, -d)
		}
	}
	c.Add(&f.back, &back, &store.Outcome{})
	if window.Kind(f.key.of.Kind).Refills() {
		item := *whole
		for r, d := range map[*store.Contents]int64{&f.whole: whole.Hits[0], &f.granted: mine.Hits[0]} {
			if item.Hits = []int64{-d}; d < 0 {
				c.CountTokens(&item, r)
			}
		}
		return
	}
	for age, d := range whole.Hits {
		number := whole.Newest - uint64(age)
		take(&f.granted, number, d-mine.Hits[age]-min(0, d))
		take(&f.whole, number, -min(0, d))
	}
}

// unparted returns how many tokens are left of the region's even share of a room. own is the bucket
// of its nodes, from which a new share starts.
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

// count takes tokens from the region's share, if it is in use. A negative number gives them back.
func (f *fund) count(c store.Calendar, limit uint64, tokens int64) {
	if f.part != nil && tokens != 0 {
		c.CountTokens(&wire.Item{LimitCounter: f.key.of, Limit: limit, Newest: c.NowNanos, Hits: []int64{tokens}}, f.part)
	}
}
