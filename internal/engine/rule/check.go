package rule

import (
	"weir/internal/counter"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Check is a request's check for hits of a key from one rule. Its memory is reused for later
// requests.
type Check struct {
	// Ref is the part that outlasts the decision.
	Ref
	// Key is the rule's name and the values of the key: see [counter.AppendPart]. A referred check
	// has none.
	Key []byte
	// Counter is the key's counter after the decision, and Verdict the rule's own verdict.
	Counter counter.Counter
	Verdict counter.Verdict
	// Warned has bit i set if limit i has reached a step of the rule's WarnAt. Only rules with
	// WarnAt set it.
	Warned uint8

	Course
	// Listed means that the backend has told that the key is near a limit, and asks that the refusal
	// has asked for hits that may have come back.
	Listed, Asks bool
	// Low means that the key's hits that may pass without the backend are nearly used up.
	Low bool
	// Patient means that the request waits if it has no room. So the backend has to confirm that.
	Patient bool
	// Unheard is how many hits of the key that were advanced each limit of its counter lacks, of a check that was decided or
	// looked at.
	Unheard Unheard
	Slot    sharedata.Slot
	Numbers []uint64 // of the windows that the hits were taken from
}

// Ref is everything needed to decide or count a check later. Its size does not depend on the
// key's length, which clients choose.
type Ref struct {
	_ [0]func() // keeps Go from generating an equality function

	// Rule and Cost are those of the check. The cost may be changed.
	Rule *Rule
	Cost uint64
	// Over means that the check is left out: a rule that marks had no room for the request, or a class's
	// own counter had none, or its spares were not needed yet. The request passes if the others have room.
	Over bool
	// Heard means that the request has asked the backend for the key's totals, as it takes nothing.
	Heard bool
	// Looks means that the request only wants to know how the key stands: nothing is decided, and
	// nobody else hears of it.
	Looks bool
	// Model is the entry of a price list that the hits are for; may be empty. The backend records
	// it with the key's usage.
	Model string

	Address sharedata.Address
	ID      [16]byte // the key's name in the backend; 0 if unknown
}

// Unheard is how many advanced hits each limit of a rule has in its present window and in the one before, together
// [wire.MaxAdvance] at most.
type Unheard [wire.MaxLimits][2]uint8

// Begin leaves the decision to the rule. Nothing is known or taken.
func (d *Check) Begin() {
	d.Course, d.Verdict = Course{}, counter.Allowed
	d.Listed, d.Asks, d.Unheard = false, false, Unheard{}
}

// Again begins to decide once more, by the rule if distance decided, and otherwise as before.
func (d *Check) Again() {
	if d.hits = none; d.by == byDistance {
		d.by = byRule
	}
	d.Listed, d.Asks = false, false
}

// Restore makes the check from its saved part.
//
//go:noinline
func (d *Check) Restore(s *Ref) *Check {
	d.Ref, d.Key, d.Patient = *s, d.Key[:0], false
	d.Begin()
	return d
}

// state returns the state of limit i with the hits that its counter lacks, in other if there are any.
func (d *Check) state(i int, other *window.State) *window.State {
	s := &d.Counter.States[i]
	if d.Unheard[i] == [2]uint8{} {
		return s
	}
	*other = *s
	d.complete(i, other)
	return other
}

// complete counts the hits that the counter's state of limit i lacks.
//
//go:noinline
func (d *Check) complete(i int, s *window.State) {
	l := &d.Rule.Limits[i]
	for ago, hits := range d.Unheard[i] {
		if hits != 0 {
			l.CountIn(s, l.Number(s)-uint64(ago), uint64(hits))
		}
	}
}

// Complete counts the hits that the check's counter lacks. It must not be written after that.
func (d *Check) Complete() {
	for i := range d.Counter.States {
		d.complete(i, &d.Counter.States[i])
	}
	d.Unheard = Unheard{}
}

// allows reports whether cost hits fit every limit.
func (d *Check) allows(cost uint64) bool {
	var other window.State
	for i := range d.Counter.States {
		if !d.Rule.Limits[i].Allows(d.state(i, &other), cost) {
			return false
		}
	}
	return true
}

// Marked reports whether the rule marks the request, for which it has no room.
func (d *Check) Marked() bool { return d.Over && d.Rule.Marks }

// Unsure reports whether only the backend can decide the check.
func (d *Check) Unsure() bool { return d.Verdict == counter.Unsure }

// NeedsLease reports whether the check's key needs a lease for the decision.
func (d *Check) NeedsLease() bool { return d.Unsure() && !d.Rule.Exact() }

// Synced reports whether a check's rule needs the backend.
func (d *Check) Synced() bool { return d.Rule.Synced() }

// Knows reports whether what is known of the key is recent enough to decide a check that takes
// nothing. Nothing that such a check does would make the node hear of the hits of others.
func (d *Check) Knows(now int64) bool {
	return d.Heard || !d.Rule.Exact() && d.Counter.HeardSince(now-d.Rule.Interval, now)
}

// Withheld reports whether a check was refused although its limits have room as far as this node
// knows: the backend had no more hits for it, or decides every request and can't be reached.
func (d *Check) Withheld() bool {
	return d.Verdict == counter.Rejected && d.allows(d.Cost)
}

// hopeful reports whether others may give back leases of the key of a refused check that is full.
func (d *Check) hopeful(now int64) bool {
	return d.Asks && d.Counter.Hopes() || d.Counter.Doubtful(now) && !d.Counter.Blocked()
}

// Standing returns how limit i of a decided check stands at the time of the decision. While the rule blocks the key, nothing
// remains. A limit without room for a refused check has some no later than [RetryAt].
func (d *Check) Standing(i int, now int64) window.Standing {
	out, last := d.standing(i, now), len(d.Rule.Limits)-1
	if !d.Rule.Blocks || i == last {
		return out
	}
	var other window.State
	if block := d.Rule.Limits[last].Standing(d.state(last, &other), now); block.Remaining == 0 {
		if out.Remaining >= max(d.Cost, 1) {
			out.Next = 0 // it has room once the block is over
		}
		out.Remaining, out.Next = 0, max(out.Next, block.Next)
	}
	return out
}

// Fills reports whether limit i has no room for a refused check, as far as is known, whether or not the key is blocked.
func (d *Check) Fills(i int, now int64) bool { return d.standing(i, now).Remaining < max(d.Cost, 1) }

// standing is Standing without blocks.
func (d *Check) standing(i int, now int64) window.Standing {
	var other window.State
	l, s := &d.Rule.Limits[i], d.state(i, &other)
	out := l.Standing(s, now)
	switch {
	case d.Verdict != counter.Rejected:
	case d.Withheld():
		out.Remaining, out.Next = 0, max(d.Counter.DryUntil(now)-now, 1)
	case !l.Allows(s, d.Cost) && d.hopeful(now):
		out.Next = min(out.Next, max(d.Counter.DryUntil(now)-now, 1))
	}
	return out
}

// RetryAt is the time when refused checks will fit at the latest if no other hits come; other
// nodes may give back leases before. ok is false if no waiting helps.
func RetryAt(checks []Check, now int64) (at int64, ok bool) { return retryAt(checks, now, false) }

// retryAt is RetryAt of checks, or of spares whether or not they are in use.
func retryAt(checks []Check, now int64, spares bool) (at int64, ok bool) {
	at = now
	for i := 0; i < len(checks); i++ {
		d := &checks[i]
		if d.Over && d.Rule.Spares == 0 && !spares {
			continue
		}
		fits, ok := d.fitsAt(now)
		if n := d.Rule.Spares; n > 0 {
			if other, may := retryAt(checks[i+1:i+1+n], now, true); may && (!ok || other < fits || d.passedByKey()) {
				fits, ok = other, true
			}
			i += n
		}
		if !ok {
			return 0, false
		}
		at = max(at, fits)
	}
	return at, true
}

// fitsAt is RetryAt for one check.
func (d *Check) fitsAt(now int64) (at int64, ok bool) {
	at = now
	full := false
	var other window.State
	for i := range d.Counter.States {
		l, s := &d.Rule.Limits[i], d.state(i, &other)
		if l.Allows(s, d.Cost) {
			continue
		}
		fits, ok := l.FitsAt(s, d.Cost)
		if !ok {
			return 0, false
		}
		at, full = max(at, fits), true
	}
	switch dry := d.Counter.DryUntil(now); {
	case d.Verdict != counter.Rejected:
	case !full:
		at = dry // the backend withholds hits, or is asked
	case d.hopeful(now):
		at = min(at, dry)
	}
	return at, true
}

// FitsAfter is a time before which a check, whose counter was read, and its spares can't fit if that
// number of hits comes before it. ok is false if no waiting helps.
func FitsAfter(checks []Check, ahead uint64, now int64) (at int64, ok bool) {
	d, spares := &checks[0], checks[1:]
	if d.Over && len(spares) == 0 {
		return now, true
	}
	at, ok = d.fitsAfter(ahead, now)
	if len(spares) == 0 {
		return at, ok
	}
	other, may := now, true
	for i := range spares {
		fits, can := spares[i].fitsAfter(ahead, now)
		other, may = max(other, fits), may && can
	}
	if may && (!ok || other < at) {
		return other, true
	}
	return at, ok
}

// fitsAfter is FitsAfter for one check.
func (d *Check) fitsAfter(ahead uint64, now int64) (at int64, ok bool) {
	at = now
	for i := range d.Counter.States {
		l := &d.Rule.Limits[i]
		quota, need := l.Quota(), max(ahead+d.Cost, 1)
		if l.Max == 0 || d.Cost > quota {
			return 0, false
		}
		rounds := (need - 1) / quota
		fits, ok := l.FitsAt(&d.Counter.States[i], need-rounds*quota)
		if !ok {
			return 0, false
		}
		span, _ := l.Span()
		at = max(at, fits+int64(rounds)*min(span, 2*MaxDelay))
	}
	return at, true
}

// CountInPlace counts the check's hits directly in its slot, if the state there is simple enough. Nearly
// every request finds such a state.
func (d *Check) CountInPlace(now int64, revocable bool) (counted bool) {
	if counted = d.Counter.CountInPlace(&d.Rule.Rule, d.Slot.Payload(), now, d.Cost, revocable, true); counted {
		d.CountInSlot()
	}
	return counted
}

// NoteExcess records by how much a counter of a rule that charges later is above a limit. The rule
// may belong to an earlier configuration.
//
//go:noinline
func (d *Check) NoteExcess(now int64) {
	if d.Rule.Excess == nil {
		return
	}
	if hits, until := d.Counter.Excess(); hits > 0 {
		d.Rule.Excess.note(above{hits, until}, now)
	}
}

// Decide decides a cost by a check's counter.
func (d *Check) Decide(cost uint64, now int64) counter.Verdict {
	possible := cost
	switch {
	case d.Passed():
		return counter.Allowed
	case !d.Rule.Synced() || d.Alone() || d.Cost == 0 && d.Knows(now):
		if d.allows(cost) {
			return counter.Allowed
		}
		return counter.Rejected
	case d.Cost == 0:
		possible = 1 // a limit of 0 needs no answer
	case !d.Rule.Exact():
		return d.Counter.Verdict(cost, now)
	}
	if d.Counter.Possible(possible) {
		return counter.Unsure
	}
	return counter.Rejected
}

// Used is how much of the quota of limit i is used, with the hits that its counter lacks.
func (d *Check) Used(i int) uint64 {
	var other window.State
	l := &d.Rule.Limits[i]
	quota := l.Quota()
	return quota - min(quota, l.Remaining(d.state(i, &other)))
}

// Steps is how many steps of WarnAt the use of limit i has reached. A limit of 0 reaches none: it
// can't be used.
func (d *Check) Steps(i int) (steps int) {
	used, quota := d.Used(i), d.Rule.Limits[i].Quota()
	if used == 0 {
		return 0
	}
	for steps < len(d.Rule.WarnAt) && used*1000 >= quota*uint64(d.Rule.WarnAt[steps]) {
		steps++
	}
	return steps
}
