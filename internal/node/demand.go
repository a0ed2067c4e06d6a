package node

import (
	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
)

// Demand is a request's demand on one rule: so many hits for a key. Its memory serves one request
// after the other.
type Demand struct {
	// Saved outlasts the request's decision. Its rule and its cost are the request's.
	Saved
	// Key has the rule's name and what the request is counted for: see [counter.AppendPart]. A demand
	// that was saved has none.
	Key []byte
	// Counter is the key's counter after the decision, and Verdict the rule's part in that.
	Counter counter.Counter
	Verdict counter.Verdict
	// Warned are the limits that have reached the rule's WarnAt after the decision: limit i is bit i.
	// It is set of rules that have one.
	Warned uint8

	by   arbiter
	hits progress
	// grantedAt is when the backend has counted the hits for this request, 0 if it has not.
	grantedAt int64
	unheard   uint64 // hits of the key that are advanced, where the backend can't be asked
	slot      sharedata.Slot
	numbers   []uint64 // of the windows that were debited
}

// Saved has all that it takes to decide or count a demand later. It is of the same size however
// long the key is, which may be as long as a client likes.
type Saved struct {
	// Rule and Cost are the demand's. The cost may be changed.
	Rule *Rule
	Cost uint64
	// Over says that the rule marks, and has had no room for the request. That passes if the others have
	// room.
	Over bool
	// Model names the entry of a price list that the hits are for. The backend is told of it with the key's
	// usage. It may be empty.
	Model string

	address sharedata.Address
	id      [16]byte // see keys.identity; 0 if it is not known
}

// arbiter says who decides a demand.
type arbiter uint8

const (
	// byRule has the rule say so: what is known here decides, or what is leased, or the backend.
	byRule arbiter = iota
	// byWhatIsKnown decides without the backend, which can't be asked.
	byWhatIsKnown
	// byBackend demands have room, and take nothing here: the backend has counted their hits, or can't
	// be asked and is not needed.
	byBackend
	// byDistance demands have room, as the key is far from its limits: the backend will hear of them.
	byDistance
)

// progress says what has become of a demand's hits.
type progress uint8

const (
	untaken progress = iota
	// inSlot hits are in the slot, and have to be written.
	inSlot
	debited
	// held hits lost every race to be written, and are kept to be added later.
	held
	// ahead hits are advanced.
	ahead
)

// passesOver reports whether the request goes on without the rule, which marks, and has no room.
func (d *Demand) passesOver() bool {
	d.Over = d.Over || d.Rule.Marks && d.Verdict == counter.Rejected
	return d.Over
}

// unsure reports whether only the backend knows what becomes of a demand.
func (d *Demand) unsure() bool { return d.Verdict == counter.Unsure }

// leases reports whether a demand's key needs a lease to decide it.
func (d *Demand) leases() bool { return d.unsure() && !d.Rule.exact() }

// synced reports whether a demand's rule needs the backend.
func (d *Demand) synced() bool { return d.Rule.Synced() }

// Withheld reports whether a demand was refused though its limits have room as far as is known
// here. Then the backend had no more for this node, or it decides everything and can't be reached.
func (d *Demand) Withheld() bool { return d.Verdict == counter.Rejected && d.Counter.Allows(d.Cost) }

// Standing is how limit i of a decided demand stands, for the time of the decision.
func (d *Demand) Standing(i int, now int64) window.Standing {
	s := d.Rule.Limits[i].Standing(&d.Counter.States[i], now)
	if d.Withheld() {
		s.Remaining, s.Next = 0, max(s.Next, d.Counter.DryUntil(now)-now, 1)
	}
	return s
}

// RetryAt is the time at which refused demands fit, if nothing else comes: at the latest, as others
// may give back before what they have leased. It is false if no waiting helps.
func RetryAt(demands []Demand, now int64) (at int64, ok bool) {
	at = now
	for i := range demands {
		if demands[i].Over {
			continue
		}
		fits, ok := demands[i].fitsAt(now)
		if !ok {
			return 0, false
		}
		at = max(at, fits)
	}
	return at, true
}

// fitsAt is RetryAt of one demand.
func (d *Demand) fitsAt(now int64) (at int64, ok bool) {
	at = now
	full := false
	for i := range d.Counter.States {
		l, s := &d.Rule.Limits[i], &d.Counter.States[i]
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
		at = dry // withheld
	case d.Counter.Doubtful(now) && !d.Counter.Blocked():
		at = min(at, dry)
	}
	return at, true
}

// fitsAfter is the time before which a demand of a counter that was read does not fit if so many hits come
// before it, each at the least. It is false if no waiting helps.
func (d *Demand) fitsAfter(ahead uint64, now int64) (at int64, ok bool) {
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

// uncount takes hits back that are in the slot only. The slot still has them, so it has to be read
// again before it is written.
func (d *Demand) uncount() {
	d.hits = untaken
	d.numbers = d.Counter.Numbers(d.numbers[:0])
	d.Counter.GiveBack(d.numbers, d.Cost)
}

// noteExcess notes by how much a counter of a rule that charges later is above a limit. The rule may
// be one of a configuration that came before.
//
//go:noinline
func (d *Demand) noteExcess(now int64) {
	if d.Rule.excess == nil {
		return
	}
	if hits, until := d.Counter.Excess(); hits > 0 {
		d.Rule.excess.note(above{hits, until}, now)
	}
}
