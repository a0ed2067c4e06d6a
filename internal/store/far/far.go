// Package far is what stores share whose senders may let hits of a key pass before the store has counted them
// ("advance" them), while the key is far from its limit. RATIONALE.md proves that no more than the limit passes. A store
// lists the keys that are near, and bounds the hits that each sender may have advanced. While a sender may not know that
// a key is near, the store grants others fewer hits of the key.
package far

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Bounds of a namespace.
const (
	// MaxLimits is the most limits of a namespace whose hits are advanced. Rules with equal limits share one:
	// wire.MaxNearLimits bounds the limits of all rules. A hit may be compared with each of these.
	MaxLimits = 32
	// MostFull is the length of the list from which on it has no more spare keys. If it had no room for near keys,
	// their limit would have to leave it.
	MostFull = wire.MaxNearKeys / 2
	// LeastDivisor is the least divisor of a sender's part.
	LeastDivisor = 16
	// MostDivisor bounds the divisors, and senders.
	MostDivisor = 1 << 16
	// Whole is the sum of all possible parts.
	Whole = 1 << 32
)

// Times in nanoseconds.
const (
	// A sender is silent after it had no answer for SilentAfter: its part has then ended. Its windows are ahead or behind
	// by at most ClockSlack.
	SilentAfter = uint64(wire.PartLife + 2e9)
	ClockSlack  = uint64(5e9)
	// SweepEvery is how often senders are checked. ReviewEvery is how often keys that are far again leave the list.
	SweepEvery  = uint64(1e9)
	ReviewEvery = uint64(10e9)

	// graceOfParts is how long a silent sender is known after its hits have left all windows.
	graceOfParts = uint64(120e9)
	// hearing bounds the time in which senders hear that a key is near.
	hearing = uint64(5e9)
	// restFor is how long a limit is off the list after it had too many near keys. To list it again, the store looks
	// through all of its counters.
	restFor = uint64(10 * time.Minute)
	// A limit that nobody asks for is forgotten after staleAfter. askedEvery is how late that is noted.
	staleAfter = uint64(time.Hour)
	askedEvery = uint64(10 * time.Minute)
)

// Advances reports whether hits of a limit can be advanced. Hits of other kinds may come back singly, start their own
// windows, or push out each other.
func Advances(c *wire.LimitCounter, limit uint64) bool {
	switch window.Kind(c.Kind) {
	case window.FixedWindow, window.SlidingWindow:
		return wire.MostAdvanced(limit, LeastDivisor) > 0
	}
	return false
}

// List has the limits of a namespace for which there is a list of near keys. Changes are made as of a new version of the
// list; they report whether there is news.
type List struct {
	// Epoch names the list. It is 0 after a change for which senders need all of the list: the store names a new one then,
	// by which a store that loses this tells senders that their lists are not its own.
	Epoch  uint64
	Limits []Limit
}

// Limit is a limit of rules whose senders advance hits.
type Limit struct {
	Shape wire.LimitCounter // without an identity
	Max   uint64
	// Rules are the rules with this limit. Senders advance no hits of other rules, and other rules' takes leave no room
	// for advanced hits.
	Rules []Rule
	// Listed means that the list has the limit. Unlisted is the version that took it off last, 0 if none has.
	Listed   bool
	Unlisted uint64
	// RestsTo is 0 while keys are noted that come near the limit. Watch names that time: in it the store looks for keys
	// that were near before, and lists the limit when it has seen all.
	RestsTo, Watch uint64
	Asked          uint64
}

// Rule is a rule whose senders advance hits.
type Rule struct {
	Tag uint16 // odd
	// Since is the version that has listed the rule, 0 if it is not listed.
	Since uint64
}

// Parse reads the JSON of a list. It is empty if that is of something else.
func Parse(text []byte) (f List, ok bool) {
	foreign := func(l Limit) bool { return !store.ValidCounter(l.Shape) }
	if json.Unmarshal(text, &f) != nil || slices.ContainsFunc(f.Limits, foreign) {
		return List{}, false
	}
	return f, true
}

// Name names the limit in the list.
func (l *Limit) Name() uint64 { return l.Shape.NearLimit(l.Max) }

// IsOf reports whether a counter has the limit's shape.
func (l *Limit) IsOf(c wire.LimitCounter) bool {
	c.ID = wire.ID{}
	return l.Shape == c
}

// Watched reports whether keys are noted that come near the limit.
func (l *Limit) Watched() bool { return l.RestsTo == 0 }

// Renews reports whether all of the limit can be had in each window.
func (l *Limit) Renews() bool { return window.Kind(l.Shape.Kind) == window.FixedWindow }

// rule returns the rule with a tag, which is even in some of its rooms; nil if no rule with it has the limit.
func (l *Limit) rule(tag uint16) *Rule {
	for i := range l.Rules {
		if r := &l.Rules[i]; r.Tag == tag|1 {
			return r
		}
	}
	return nil
}

// stale reports whether nobody has asked for the limit for long.
func (l *Limit) stale(now uint64) bool { return now >= l.Asked && now-l.Asked >= staleAfter }

// wakes reports whether a limit has rested for long enough, also if the clock was set back.
func (l *Limit) wakes(now uint64) bool {
	return !l.Watched() && !l.stale(now) && (now >= l.RestsTo || l.RestsTo-now > restFor)
}

// Limit returns the limit with a name, nil if there is none.
func (f *List) Limit(name uint64) *Limit {
	for i := range f.Limits {
		if f.Limits[i].Name() == name {
			return &f.Limits[i]
		}
	}
	return nil
}

// limitOf returns the limit of a room, nil if there is none, and how many limits of rules there are.
func (f *List) limitOf(room *wire.Room) (limit *Limit, rules int) {
	for i := range f.Limits {
		l := &f.Limits[i]
		if rules += len(l.Rules); l.Max == room.Limit && l.IsOf(room.LimitCounter) {
			limit = l
		}
	}
	return limit, rules
}

// Clone is a list that may be changed.
func (f *List) Clone() List {
	g := *f
	g.Limits = slices.Clone(f.Limits)
	for i := range g.Limits {
		g.Limits[i].Rules = slices.Clone(g.Limits[i].Rules)
	}
	return g
}

// Lacks reports whether it is news that a room is asked for.
func (f *List) Lacks(room *wire.Room, now uint64) bool {
	if room.Tag&1 == 0 || !Advances(&room.LimitCounter, room.Limit) {
		return false
	}
	l, rules := f.limitOf(room)
	if l != nil && l.rule(room.Tag) != nil {
		return now >= l.Asked && now-l.Asked >= askedEvery
	}
	return rules < wire.MaxNearLimits && (l != nil || len(f.Limits) < MaxLimits) // requests of other rules wait
}

// Ask notes that a room is asked for whose rule's hits are advanced.
func (f *List) Ask(room *wire.Room, version, now uint64) bool {
	if !f.Lacks(room, now) {
		return false
	}
	l, _ := f.limitOf(room)
	if l == nil {
		f.Limits = append(f.Limits, Limit{Shape: room.LimitCounter, Max: room.Limit, Watch: rand.Uint64()})
		l = &f.Limits[len(f.Limits)-1]
		l.Shape.ID = wire.ID{}
	}
	l.Asked = now
	if l.rule(room.Tag) != nil {
		return true
	}
	r := Rule{Tag: room.Tag}
	if l.Listed {
		r.Since, f.Epoch = version, 0
	}
	l.Rules = append(l.Rules, r)
	return true
}

// Rest takes a limit off the list for a while.
func (f *List) Rest(l *Limit, version, now uint64) {
	l.RestsTo = now + restFor
	f.unlist(l, version)
}

func (f *List) unlist(l *Limit, version uint64) {
	if !l.Listed {
		return
	}
	l.Listed, l.Unlisted, f.Epoch = false, version, 0
	for i := range l.Rules {
		l.Rules[i].Since = 0
	}
}

// Restart takes all limits off the list of a store that does not know which keys are near any more, and which versions
// senders have heard. All that is known is that they have heard of none after this one.
func (f *List) Restart(version, now uint64) {
	for i := range f.Limits {
		l := &f.Limits[i]
		f.unlist(l, version)
		l.Unlisted, l.Asked = version, now
	}
}

// Wake has limits watched that have rested for long enough.
func (f *List) Wake(now uint64) (news bool) {
	for i := range f.Limits {
		if l := &f.Limits[i]; l.wakes(now) {
			l.RestsTo, l.Watch, news = 0, rand.Uint64(), true
		}
	}
	return news
}

// Wakes reports whether limits have rested for long enough.
func (f *List) Wakes(now uint64) bool {
	return slices.ContainsFunc(f.Limits, func(l Limit) bool { return l.wakes(now) })
}

// Forget takes limits off the list that nobody asks for any more, and forgets them once no sender may go by them: heard
// reports whether all senders have heard of the version that took a limit off.
func (f *List) Forget(version, now uint64, heard func(l *Limit) bool) (news bool) {
	before := len(f.Limits)
	f.Limits = slices.DeleteFunc(f.Limits, func(l Limit) bool { return l.stale(now) && !l.Listed && heard(&l) })
	for i := range f.Limits {
		if l := &f.Limits[i]; l.Listed && l.stale(now) {
			f.Rest(l, version, now)
			news = true
		}
	}
	return news || len(f.Limits) < before
}

// Shorten begins an epoch if many of the keys that were told are gone.
func (f *List) Shorten(gone, left int) (news bool) {
	if gone <= 64+left/2 {
		return false
	}
	f.Epoch = 0
	return true
}

// PartsLast is for how long parts of silent senders are known after their last answers.
func (f *List) PartsLast() uint64 {
	longest := uint64(0)
	for i := range f.Limits {
		longest = max(longest, f.Limits[i].Shape.WidthMillis*1e6)
	}
	return 2*longest + graceOfParts
}

// Tell begins an answer to a sender that has heard of a version: the limits of rules listed since then, or all.
func (f *List) Tell(n *wire.Near, heard uint64) {
	for i := range f.Limits {
		for _, r := range f.Limits[i].Rules {
			if r.Since > 0 && (n.Whole || r.Since > heard) {
				n.AddLimit(wire.NearRule(f.Limits[i].Name(), r.Tag))
			}
		}
	}
}

// Walk is a look at all counters for keys that were near before their limits were watched. It has the watches of these
// limits by their names.
type Walk map[uint64]uint64

// Walk goes on with a walk, or begins another if all limits that the walk is for are listed, or rest. It is nil if
// there is no limit to look for.
func (f *List) Walk(under Walk) (w Walk, begins bool) {
	for i := range f.Limits {
		switch l := &f.Limits[i]; {
		case under.Seeks(l):
			return under, false
		case !l.Listed && l.Watched():
			if w == nil {
				w, begins = Walk{}, true
			}
			w[l.Name()] = l.Watch
		}
	}
	return w, begins
}

// Seeks reports whether a walk looks for keys of a limit.
func (w Walk) Seeks(l *Limit) bool {
	if len(w) == 0 || l.Listed || !l.Watched() {
		return false
	}
	watch, ok := w[l.Name()]
	return ok && watch == l.Watch
}

// End lists the limits of a walk that has seen all counters.
func (f *List) End(w Walk, version uint64) (news bool) {
	for i := range f.Limits {
		l := &f.Limits[i]
		if !w.Seeks(l) {
			continue
		}
		l.Listed, f.Epoch, news = true, 0, true
		for j := range l.Rules {
			l.Rules[j].Since = version
		}
	}
	return news
}
