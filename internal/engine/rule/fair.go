package rule

import (
	"math/bits"

	"weir/internal/counter"
	"weir/window"
)

// A fair rule divides what a class has evenly among the keys that ask for it. A request has a further
// check then, after the spares: on the seat of its key, a counter whose limit is the even part, which the
// rule keeps on this node alone. The census counts the keys that ask: each of them once in a window, on
// each node. The parts of the class are what they are without: no seat gives a hit that they don't have.

// MaxSeats is the most keys of a class that have a seat of their own at a time. A key that asks while
// as many others do, and has not asked in the window before, shares one seat with all such keys.
const MaxSeats = 1024

const (
	seatMark = "=" // ends the value of a seat's key
	// exactSeats is up to how many keys parts are exactly even. There is a seat for each number of keys
	// up to that. For more there are 16 up to twice as many keys, and so on, so a part is up to a 16th less.
	exactSeats = 32
	seatSizes  = 129
)

// seated is what a part of a fair rule has, and what a seat has.
type seated struct {
	// Seats is 1 if the check on the seat of a request's key follows the part's check and its spares.
	Seats int
	// even is what a seat may have of what is guaranteed to its class.
	even  uint64
	sizes *[seatSizes]*Rule // the part's seats by their size, after its census
}

// Checks is how many checks belong to a check on the rule: itself, its spares and its seat.
func (r *Rule) Checks() int { return 1 + r.Spares + r.Seats }

// divide returns by what number to divide a part among as many keys, and the number's place among all.
func divide(keys uint64) (by uint64, place int) {
	if keys <= exactSeats {
		return keys, int(keys)
	}
	shift := bits.Len64(keys-1) - 5
	by = (keys + 1<<shift - 1) >> shift
	return by << shift, exactSeats + (shift-1)*16 + int(by) - 16
}

// Seat returns the rule of a seat while that many keys ask for the part. It is made once. Its second limit
// counts whether the key has asked.
func (r *Rule) Seat(keys uint64) *Rule { return r.beside(max(keys, 1)) }

// Census returns the rule of the counter of the keys that ask for a part. Its limits are the keys that
// have asked in a window, and those of them that had not asked in the window before.
func (r *Rule) Census() *Rule { return r.beside(0) }

// beside is Seat, or Census for no keys.
//
//go:noinline
func (r *Rule) beside(keys uint64) *Rule {
	by, place := divide(keys)
	if r.sizes == nil {
		r.sizes = new([seatSizes]*Rule)
	}
	made := &r.sizes[place]
	if *made == nil {
		*made = r.makeBeside(by)
	}
	return *made
}

// makeBeside makes a rule for other counters than the part's, whose last limit refuses nothing. It remembers
// this window and the one before.
//
//go:noinline
func (r *Rule) makeBeside(by uint64) *Rule {
	v := *r
	v.of, v.parts = r.Base(), nil
	v.part = part{number: r.number, Spare: true}
	limits := append(append(make([]window.Limit, 0, 2), r.Limits...), r.Limits...)
	asks := &limits[1]
	asks.Shape, asks.Calendar, asks.Max = window.Shape{Kind: window.SlidingWindow, Width: asks.Width}, nil, window.MaxHits
	v.Rule = counter.Rule{Limits: limits}
	v.Advances, v.Near, v.Excess, v.Widest, v.Reveal = false, nil, nil, nil, 0
	if by > 0 {
		reach := limits[0].Max
		if r.Reach != nil {
			reach = r.Reach[0].Max
		}
		v.even, limits[0].Max = evenOf(limits[0].Max, by), evenOf(reach, by)
		v.SyncRate, v.Value = -1, r.Value+seatMark
	} else {
		limits[0] = *asks
		v.Interval, v.Watched, v.SyncRate = r.Interval, true, max(v.SyncRate, min(r.Interval, 1))
	}
	window.SetOrdinals(limits)
	v.Compile()
	return &v
}

// evenOf is an even part of some hits: at least one, so that more keys than hits come to use these.
func evenOf(hits, by uint64) uint64 { return max(hits/by, min(hits, 1)) }

// Asking is how many keys have asked in this window or the one before, by a check on their census. From
// MaxSeats on it is one more than that: the common seat is one.
func (d *Check) Asking() uint64 {
	keys := d.Counter.States[0].Hits[1].Sum() + d.Counter.States[1].Hits[0].Sum()
	if keys >= MaxSeats {
		return MaxSeats + 1
	}
	return keys
}

// Enter counts a key that asks for the first time in a window.
func (d *Check) Enter(isNew bool) {
	if d.ask(0); isNew {
		d.ask(1)
	}
}

//go:noinline
func (d *Check) ask(limit int) { d.Rule.Limits[limit].Count(&d.Counter.States[limit], 1) }

// Asked reports whether the key of a seat has asked in this window, and in the one before.
//
//go:noinline
func (d *Check) Asked() (now, before bool) {
	hits := &d.Counter.States[1].Hits
	return hits[0].Sum() > 0, hits[1].Sum() > 0
}

// Ask counts that the key of a seat has asked.
func (d *Check) Ask() { d.ask(1) }

// Sit has a request take its hits from the pool if its key has had its even part of what is guaranteed to
// its class: see [PassOver]. Its seat is the last of the checks, and was read.
//
//go:noinline
func Sit(checks []Check) {
	d, s := &checks[0], &checks[len(checks)-1]
	if d.Cost == 0 || d.Rule.Spares == 0 || s.ownLeft() >= d.Cost {
		return
	}
	d.Over = true
	for j := range d.Rule.Spares {
		checks[1+j].Over = false
	}
}

// ownLeft is what the key of a seat may still have of what is guaranteed to its class.
//
//go:noinline
func (d *Check) ownLeft() uint64 {
	return window.SaturatingSub(d.Rule.even, d.Rule.Limits[0].Used(&d.Counter.States[0]))
}

// Uneven reports whether check i, which refuses a request, does so because its key has had its even part,
// though there is room.
//
//go:noinline
func Uneven(checks []Check, i int) bool {
	d := &checks[i]
	if d.Rule.Seats == 0 || d.Counter.Allows(d.Cost) {
		return d.Rule.Seats > 0
	}
	for j := range d.Rule.Spares {
		if s := &checks[i+1+j]; !s.Counter.Allows(s.Cost) {
			return false
		}
	}
	return d.Rule.Spares > 0
}

// passedByKey reports whether a check was passed over for its key's sake, and not for want of room.
func (d *Check) passedByKey() bool {
	return d.Rule.Seats > 0 && d.Rule.Spares > 0 && d.Over && d.Counter.Allows(d.Cost)
}
