package rule

import (
	"weir/internal/counter"
	"weir/window"
)

// Class is a class of a rule's requests, and its shares of each limit, in thousandths.
type Class struct {
	// Name has no byte of [boundMark].
	Name string
	// Guaranteed is the class's own share. Those of all classes are at most 1000 in sum. Most bounds
	// what the class has in all; 1000 is no bound.
	Guaranteed, Most uint16
}

// Each limit of a rule with classes is divided into counters: one for what is guaranteed to each
// class, and the pool for the rest. A request takes all of its hits from its class's own counter, or
// else from the pool. A class with a bound has a counter besides, of what it has taken from the pool.
// Since no counter is above its part of the limit, their sum is not above the limit; and since nobody
// else takes from a class's own counter, a class below its guaranteed part has room. All that is so of
// a counter, on one node and on many, is so of each part.
//
// The parts are numbered from 1. Those of the first class follow the pool's, then those of the next.
const (
	pool     = 1 + iota // for requests of no class
	lent                // the pool for those whose class's own counter has no room
	own                 // what is guaranteed to a class
	bound               // what a class has taken from the pool
	perClass = bound - lent
)

// boundMark ends the value that the key of such a counter has.
const boundMark = "+"

// part says what of its rule's limits a variant has.
type part struct {
	number int // 0 if it has all
	// Value is a further value of the keys of the part's counters.
	Value string
	// Spares is how many checks follow that take the place of a check that has no room. Spare says that
	// a check is one of them: see [PassOver].
	Spares int
	Spare  bool
	// Reach is what a request's class may have in all. It is for people.
	Reach []window.Limit
	seated
}

// Yields reports whether a request may pass without room for the rule.
func (r *Rule) Yields() bool { return r.Marks || r.Spares > 0 }

// Bounds reports whether the rule is the part that bounds what a class has of the pool.
func (r *Rule) Bounds() bool { return r.Spare && r.number != lent }

// Parts is how many parts the rule has.
func (r *Rule) Parts() int {
	if len(r.Classes) == 0 {
		return 0
	}
	return lent + perClass*len(r.Classes)
}

// MaxPlaces is the most checks that a request needs for a rule.
const MaxPlaces = 4

// Places is how many checks a request of a class needs, which is -1 for none.
func (r *Rule) Places(class int) int {
	places := 1
	if r.Fair {
		places++
	}
	if class >= 0 {
		places++
		if r.Classes[class].Most < 1000 {
			places++
		}
	}
	return places
}

// Place returns the part that one of these checks is about.
func (r *Rule) Place(class, place int) *Rule {
	switch {
	case r.Fair && place > 0 && place == r.Places(class)-1:
		return r.Place(class, 0).Seat(1)
	case class < 0:
		return r.Part(pool)
	case place == 1:
		return r.Part(lent)
	case place == 0:
		return r.Part(own + perClass*class)
	}
	return r.Part(bound + perClass*class)
}

// Part returns a part of a rule that has all of its limits. It is made once.
func (r *Rule) Part(number int) *Rule {
	if r.parts == nil {
		r.parts = make([]*Rule, r.Parts())
	}
	made := &r.parts[number-1]
	if *made == nil {
		*made = r.makePart(number)
	}
	return *made
}

// Same returns the part of a rule that another rule is of its own, or all of it.
func (r *Rule) Same(other *Rule) *Rule {
	if other.number == 0 {
		return r
	}
	return r.Part(other.number)
}

func (r *Rule) makePart(number int) *Rule {
	class, of := (number-own)/perClass, (number-own)%perClass+own
	if number < own {
		of = number
	}
	limits := append([]window.Limit(nil), r.Limits...)
	reach := append([]window.Limit(nil), r.Limits...)
	for i := range limits {
		l := &r.Limits[i]
		has := r.pool(l)
		switch of {
		case own:
			has = r.guaranteed(l, &r.Classes[class])
			has.plus(r.borrowed(l, class)).put(&reach[i])
		case bound:
			has = r.borrowed(l, class)
		}
		has.put(&limits[i])
	}
	v := r.Variant(limits)
	v.part = part{number: number, Spare: of == lent || of == bound}
	if r.Fair && !v.Spare {
		v.Seats = 1
	}
	switch of {
	case own:
		v.Value, v.Spares, v.Reach = r.Classes[class].Name, r.Places(class)-1-v.Seats, reach
	case bound:
		v.Value = r.Classes[class].Name + boundMark
	}
	return v
}

// share is a part of a limit. A token bucket needs both a rate and a burst, so a part without one of them
// is none.
type share struct{ hits, burst uint64 }

// guaranteed is a class's own part of a limit, pool is what no class has, and borrowed what a class may
// have of that. A class without a whole hit of one limit could not use its part of another, so that is none.
func (r *Rule) guaranteed(l *window.Limit, class *Class) share {
	for i := range r.Limits {
		if shareOf(&r.Limits[i], class.Guaranteed).hits == 0 {
			return share{}
		}
	}
	return shareOf(l, class.Guaranteed)
}

func (r *Rule) pool(l *window.Limit) share {
	left := share{l.Max, l.Burst}
	for i := range r.Classes {
		left = left.minus(r.guaranteed(l, &r.Classes[i]))
	}
	return left.whole(l)
}

func (r *Rule) borrowed(l *window.Limit, class int) share {
	of := &r.Classes[class]
	pool, most := r.pool(l), shareOf(l, of.Most).minus(r.guaranteed(l, of))
	return share{min(pool.hits, most.hits), min(pool.burst, most.burst)}.whole(l)
}

// shareOf is a share of a limit in thousandths.
func shareOf(l *window.Limit, thousandths uint16) share {
	return share{l.Max * uint64(thousandths) / 1000, l.Burst * uint64(thousandths) / 1000}.whole(l)
}

func (s share) whole(l *window.Limit) share {
	if l.Kind.Bursts() && (s.hits == 0 || s.burst == 0) {
		return share{}
	}
	return s
}

func (s share) plus(other share) share  { return share{s.hits + other.hits, s.burst + other.burst} }
func (s share) minus(other share) share { return share{s.hits - other.hits, s.burst - other.burst} }

// put makes a limit its part.
func (s share) put(l *window.Limit) {
	if l.Max, l.Burst = s.hits, s.burst; l.Kind.Bursts() {
		l.Burst = max(s.burst, 1) // the window wants one where there is no rate, too
	}
}

// PassOver reports whether a request continues without check i, and sees to what takes its place: that
// rule marks, or its spares do.
func PassOver(checks []Check, i int) bool {
	d := &checks[i]
	if !d.Over && d.Verdict == counter.Rejected && d.Rule.Yields() {
		d.Over = true
		for j := range d.Rule.Spares {
			checks[i+1+j].Over = false
		}
	}
	return d.Over
}

// Afresh has checks that have spares begin with their own counters again.
func Afresh(checks []Check) {
	for i := range checks {
		if d := &checks[i]; d.Rule.Spares > 0 || d.Rule.Spare {
			d.Over = d.Rule.Spare
		}
	}
}

// LimitsOf are those that a request's class may have, or its key, which people see of check i and its group.
//
//go:noinline
func LimitsOf(checks []Check, i int) []window.Limit {
	d := &checks[i]
	switch {
	case d.Rule.Seats > 0:
		return checks[i+d.Rule.Spares+1].Rule.Limits[:1]
	case d.Rule.Reach != nil:
		return d.Rule.Reach
	}
	return d.Rule.Own()
}

// Taken returns the check that has the hits of check i of a request that has passed, and up to two that
// bound what is taken of the pool, and by a key.
func Taken(checks []Check, i int) (taken *Check, bounds []Check) {
	d := &checks[i]
	group := checks[i : i+d.Rule.Checks()]
	if d.Over && d.Rule.Spares > 0 {
		return &group[1], group[2:]
	}
	return d, group[1+d.Rule.Spares:]
}

// Refuses reports whether check i has no room, nor have its spares, or its key has had its even part.
func Refuses(checks []Check, i int) bool {
	for j := i; j < i+checks[i].Rule.Checks(); j++ {
		if d := &checks[j]; d.Verdict == counter.Rejected && !d.Over {
			return true
		}
	}
	return false
}

// StandingOf is [Check.Standing] of check i and its group together: how the limit stands for the
// request's class, and its key.
//
//go:noinline
func StandingOf(checks []Check, i, limit int, now int64) window.Standing {
	d := &checks[i]
	all := d.Standing(limit, now)
	spares, seats := checks[i+1:i+1+d.Rule.Spares], checks[i+1+d.Rule.Spares:i+d.Rule.Checks()]
	if len(spares) > 0 {
		if len(seats) > 0 {
			all.Remaining = min(all.Remaining, seats[0].ownLeft())
		}
		all = withSpares(all, spares, limit, now)
	}
	if len(seats) > 0 {
		if seat := seats[0].Standing(limit, now); seat.Remaining <= all.Remaining {
			return seat
		}
	}
	return all
}

// withSpares is how a limit stands with what spares have.
func withSpares(all window.Standing, spares []Check, limit int, now int64) window.Standing {
	pool := spares[0].Standing(limit, now)
	for j := range spares[1:] {
		s := spares[1+j].Standing(limit, now)
		switch {
		case s.Remaining < pool.Remaining: // the other has room for one more than that
			pool.Remaining, pool.Next = s.Remaining, s.Next
		case s.Remaining == pool.Remaining:
			pool.Next = max(pool.Next, s.Next)
		}
		pool.Reset = max(pool.Reset, s.Reset)
	}
	if all.Next == 0 || pool.Next != 0 && pool.Next < all.Next {
		all.Next = pool.Next // the first of both that has something to come back
	}
	all.Remaining, all.Reset = all.Remaining+pool.Remaining, max(all.Reset, pool.Reset)
	return all
}
