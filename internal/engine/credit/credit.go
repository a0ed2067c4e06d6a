// Package credit has the part of each limit that a worker may use for hits that pass before the backend has counted
// them, because their keys are far from their limits: they are advanced. And it knows which keys are near them.
package credit

import (
	"slices"

	"weir/internal/engine/entry"
	"weir/internal/engine/jitter"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/window"
)

const (
	// wishLife is how long a worker that could use a part goes on asking for it, in nanoseconds.
	wishLife = int64(5e9)
	// askAgain is the time until a backend without lists of near keys is asked again, in
	// nanoseconds.
	askAgain = int64(60e9)
	// hearEvery is how often, in nanoseconds, a worker with a part asks for near keys if it has nothing to
	// push, unless its interval is longer: until it has heard of a key, the backend keeps its part back.
	hearEvery = int64(1e9)
	// mostVariants is how many limits of rules the list has from which on variants of rules ask for no more:
	// there may be thousands of them, and they would take the places of rules.
	mostVariants = wire.MaxNearLimits / 8
)

// Credit has the worker's part of the advanced hits, and the keys that are near their limits.
type Credit struct {
	rules *rule.Set
	link  *link.Link
	keys  *entry.Entries

	// knows means that the backend keeps lists of near keys. If it does not, it is not asked again
	// before unknownTo.
	knows     bool
	unknownTo int64
	// wishedAt is when a request last could have used a part.
	wishedAt int64
	// ended means that the worker is no longer wanted.
	ended bool

	epoch, version, divisor uint64
	until                   int64  // when the part ends, by the backend's clock: no hits of a later window are advanced
	sender                  uint64 // the sender that has the part
	// without is the last push that said the worker has no part. Answers to earlier pushes give
	// none.
	without uint64
	askedAt int64 // when the part was asked for; 0 once answered
	// owes means that the backend has not heard yet that the worker has no part any more.
	owes   bool
	tellAt int64
	seenAt int64 // the latest time of the host's clock
	// heardAt is when the worker last heard of near keys, or asked, by the host's clock.
	heardAt int64

	near   nearKeys
	limits []uint64
	ledger *ledger.Ledger
}

// New returns the credit of a worker, which has none yet.
func New(rules *rule.Set, link *link.Link, keys *entry.Entries, ledger *ledger.Ledger) Credit {
	return Credit{rules: rules, link: link, keys: keys, ledger: ledger}
}

// nearKeys is a set of keys in the form of [wire.NearKey], in a table with open addressing.
type nearKeys struct {
	slots []uint32
	count int
}

// find returns the slot of a key, or a free slot. At least half of the slots are free.
func (s *nearKeys) find(key uint32) *uint32 {
	for i := key; ; i++ {
		if at := &s.slots[i&uint32(len(s.slots)-1)]; *at == key || *at == 0 {
			return at
		}
	}
}

func (s *nearKeys) has(key uint32) bool { return s.count != 0 && *s.find(key) == key }

func (s *nearKeys) add(key uint32) {
	if 2*(s.count+1) > len(s.slots) {
		old := s.slots
		s.slots = make([]uint32, max(16, 2*len(old)))
		for _, key := range old {
			*s.find(key) = key
		}
	}
	if at := s.find(key); *at == 0 {
		*at = key
		s.count++
	}
}

func (s *nearKeys) clear() {
	clear(s.slots)
	s.count = 0
}

// wishes records that a request has to wait that a part would have let pass.
//
//go:noinline
func (a *Credit) wishes(r *rule.Rule, now int64) {
	if r.Advances && !a.ended {
		a.wishedAt = a.link.ToHost(now)
	}
}

// wants reports whether the worker can use a part.
func (a *Credit) wants(now int64) bool {
	ago := now - a.wishedAt
	return !a.ended && a.wishedAt != 0 && ago >= 0 && ago < wishLife
}

// Allows returns how many hits of a key a rule may advance now, for a request that could use them.
func (a *Credit) Allows(r *rule.Rule, now int64) (hits uint64) {
	if hits = a.Allowance(r); hits == 0 {
		a.wishes(r, now)
		return 0
	}
	if a.wishedAt = a.link.ToHost(now); now >= a.until || a.wishedAt < a.seenAt {
		return 0
	}
	return hits
}

// Full reports whether the list has a check's key as full in its present window. The list does not tell
// if there is room again, so it counts only until the node has heard of the key in this window.
func (a *Credit) Full(d *rule.Check, now int64) bool {
	id := a.keys.Identity(d)
	for i, limit := range d.Rule.Near {
		l := &d.Rule.Limits[i]
		if l.Kind != window.FixedWindow || d.Counter.HeardSince(now-now%l.Width, now) {
			continue
		}
		if a.near.has(wire.NearKey(id, wire.NearFull(limit, l.Number(&d.Counter.States[i])))) {
			return true
		}
	}
	return false
}

// Lists reports whether the list has a check's key as near by any of its limits. The check was read.
func (a *Credit) Lists(d *rule.Check) bool {
	if a.near.count == 0 {
		return false
	}
	id := a.keys.Identity(d)
	for i, limit := range d.Rule.Near {
		number := uint64(0)
		if l := &d.Rule.Limits[i]; l.Kind == window.FixedWindow {
			number = l.Number(&d.Counter.States[i])
		}
		if a.near.has(wire.NearKey(id, wire.NearWindow(limit, number))) {
			return true
		}
	}
	return false
}

// Says returns the part of a push about advanced hits. A push without hits may find out whether the
// backend keeps lists of near keys.
func (a *Credit) Says(sender, sequence uint64, empty bool) (s wire.Advance) {
	now := a.link.HostNow()
	wants := a.wants(now)
	if !a.knows && (!empty || !wants || now < a.unknownTo && a.unknownTo-now <= askAgain) {
		return s
	}
	if a.divisor != 0 && a.sender != sender {
		a.Drop()
	}
	if a.sender = sender; a.divisor == 0 {
		// A part that is on its way would be lost.
		if ago := now - a.askedAt; !wants && !a.owes || a.askedAt != 0 && ago >= 0 && ago < jitter.LongestPause/4 {
			return s
		}
		if !a.ended || a.askedAt == 0 { // a worker that leaves wants no part, so an earlier answer will do
			a.without = sequence
		}
		a.askedAt = now
	}
	return wire.Advance{Present: true, Epoch: a.epoch, Version: a.version, Divisor: a.divisor, Wants: wants}
}

// Hear takes in the answer to a push that said something of advanced hits. answeredAt is by the backend's clock.
func (a *Credit) Hear(said *wire.Advance, n *wire.Near, sequence uint64, sentAt, answeredAt int64) {
	if said.Divisor == 0 && said.Settled && a.divisor == 0 && sequence >= a.without {
		a.owes = false // the backend knows that the worker had no part; it may give one with this answer
	}
	if !n.Present {
		a.knows, a.unknownTo = false, a.link.HostNow()+askAgain
		a.Drop()
		a.owes = false
		return
	}
	a.knows, a.heardAt = true, a.link.HostNow()
	if sequence == a.without {
		a.askedAt = 0
	}
	switch {
	case a.divisor == 0 && sequence < a.without:
		a.owes = a.owes || n.Divisor > 0 // the backend may have had the pushes the other way round
		return
	case n.Whole && (a.divisor == 0 || n.Version >= a.version):
		a.near.clear()
		a.limits = a.limits[:0]
		a.learn(n)
	case !n.Whole && n.Epoch == a.epoch:
		a.learn(n)
	}
	if a.version < n.Version || n.Divisor == 0 {
		a.Drop() // the list may lack keys that are near by now
		return
	}
	a.divisor = max(a.divisor, n.Divisor)
	if a.owes = true; a.ended {
		a.Drop() // the answer was on its way
		return
	}
	if a.until = answeredAt + wire.PartLife; a.seenAt == 0 {
		a.seenAt = sentAt
	}
}

// learn adds to the list.
//
//go:noinline
func (a *Credit) learn(n *wire.Near) {
	a.epoch, a.version = n.Epoch, max(a.version, n.Version)
	for i := range n.LimitCount() {
		a.limits = append(a.limits, n.Limit(i))
	}
	for i := range n.KeyCount() {
		a.near.add(n.Key(i))
	}
}

// Drop ends the part, and drops the list.
//
//go:noinline
func (a *Credit) Drop() {
	a.epoch, a.version, a.divisor, a.until = 0, 0, 0, 0
	a.near.clear()
	a.limits = a.limits[:0]
}

// End ends the part for good. owes means that the backend has yet to hear of that.
func (a *Credit) End() (owes bool) {
	if !a.ended {
		a.ended, a.tellAt = true, 0
		a.Drop()
	}
	return a.owesNotice()
}

// owesNotice reports whether the backend has yet to hear that the part has ended, and a push can say so.
func (a *Credit) owesNotice() bool { return a.owes && a.knows && !a.ledger.Lost(a.link.Now()) }

// Allowance returns how many hits of a key a rule may advance: none without a part, or unless the
// list has all of its limits.
func (a *Credit) Allowance(r *rule.Rule) uint64 {
	if a.divisor == 0 || !r.Advances || r.Base() != &a.rules.List[r.Index] {
		return 0
	}
	most := uint64(wire.MaxAdvance)
	for i := range r.Limits {
		if !slices.Contains(a.limits, wire.NearRule(r.Near[i], r.Tag)) {
			return 0
		}
		most = min(most, wire.MostAdvanced(r.Limits[i].Max, a.divisor))
	}
	return most
}

// Tag is a rule's tag in asks. If it is even, the store makes no list of near keys for the rule.
func (a *Credit) Tag(r *rule.Rule) uint16 {
	if r.Base() != r && len(a.limits) >= mostVariants && a.Allowance(r) == 0 {
		return r.Tag &^ 1
	}
	return r.Tag
}

// Tick ends the part when its time is over, the worker has no use for it, or the clock was set back. It reports whether a push
// without hits should inform or ask the backend.
func (a *Credit) Tick() (tells bool) {
	now := a.link.HostNow()
	if a.divisor != 0 && (a.link.Now() >= a.until || now < a.seenAt || !a.wants(now)) {
		a.Drop()
	}
	a.seenAt = now
	switch heard := now - a.heardAt; {
	case a.divisor != 0 && (heard < 0 || heard >= max(hearEvery, a.rules.Interval)):
		a.heardAt = now
		return true
	case a.tellAt > now && a.tellAt-now <= jitter.LongestPause:
		return false
	case a.divisor == 0 && a.owesNotice() && a.ledger.Count() == 0:
	case !a.knows && a.wants(now) && (now >= a.unknownTo || a.unknownTo-now > askAgain):
	default:
		return false
	}
	if a.tellAt = now + jitter.LongestPause; a.ended {
		a.tellAt = now + jitter.LongestPause/32 // a worker that leaves waits for that, and what was said may have been nothing
	}
	return true
}
