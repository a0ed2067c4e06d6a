package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/credit"
	"weir/internal/engine/entry"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
)

// decider decides checks, and takes their hits.
type decider struct {
	tallies  *entry.Tallies
	entries  *entry.Entries
	pushes   *pushes
	acquires *acquires
	observer *observe.Observer
	refusals *entry.Refusals
	credit   *credit.Credit
	blocks   bool // some rule blocks
	yields   bool // a request may pass without room for some check
	synced   bool // some rule needs the backend

	// charged belongs to a charge, or to hits that lost every race.
	charged rule.Check
	retries []rule.Ref // hits that lost every race to be written
}

// decide counts a request's hits in all limits of all matching rules, or in none. Afterwards the
// checks' counters are as they stand after the decision. The verdict is unsure if no rule refuses
// but some rule has to ask the backend; then nothing was counted.
//
// First all entries are read, since most refusals need no write. Then they are written one by one,
// each by a compare-and-set against the state that was decided on. If another worker was faster,
// the entry is decided again. If it has no room any more, the entries written before get their hits
// back.
func (e *decider) decide(checks []rule.Check, now int64) counter.Verdict {
	verdict := e.loadAll(checks, now, e.entries.Recalls)
	for i := 0; i < len(checks) && verdict == counter.Allowed; i++ {
		d := &checks[i]
		if e.yields && d.Over {
			continue
		}
		if d.Verdict = e.debit(d, now, howOf(i, checks)); d.Verdict == counter.Allowed {
			continue
		}
		passed := e.yields && rule.PassOver(checks, i)
		if passed && d.Rule.Spares == 0 {
			continue
		}
		if d.Verdict == counter.Rejected {
			e.rememberRefusal(d, now)
		}
		for j := range checks[:i] {
			e.giveBack(&checks[j], now)
		}
		e.uncount(checks)
		if passed {
			return e.decide(checks, now) // its spares were not read to be decided
		}
		verdict = d.Verdict
	}
	if verdict != counter.Allowed {
		e.uncount(checks)
	}
	switch {
	case verdict == counter.Rejected:
		e.reject(checks, now)
	case e.blocks && verdict == counter.Allowed:
		e.block(checks, now) // of rules that mark
	}
	return verdict
}

// uncount takes back hits that are in slots only.
func (e *decider) uncount(checks []rule.Check) {
	for i := range checks {
		if d := &checks[i]; d.InSlot() {
			d.Uncount()
		}
	}
}

// reject completes the rejection of a request.
func (e *decider) reject(checks []rule.Check, now int64) {
	e.countRejected(checks, now)
	if e.blocks {
		e.block(checks, now)
	}
}

// decideOne is decide for a request of one check, on a node without a backend. Nearly every request goes this
// way, which knows no doubt and no second try. Where these are needed, it takes nothing and returns unsure.
func (e *decider) decideOne(checks []rule.Check, now int64) counter.Verdict {
	d := &checks[0]
	if d.Cost == 0 || e.refusals.Find(d, now) != nil {
		return counter.Unsure
	}
	d.Listed, d.Unheard, d.Verdict = false, 0, counter.Allowed
	table := e.entries.Table
	found := e.entries.Recalls && table.Recall(&d.Slot, d.Address) || table.Borrow(&d.Slot, d.Address)
	if !found || !d.CountInPlace(now, false) {
		if d.Slot.Corrupt() || !d.Counter.Load(&d.Rule.Rule, d.Slot.Payload()) {
			return counter.Unsure
		}
		if d.Counter.Advance(now); d.Counter.Moved() {
			return counter.Unsure
		}
		if !d.Counter.Allows(d.Cost) {
			if d.Slot.Recalled() || e.yields {
				return counter.Unsure
			}
			d.Verdict = counter.Rejected
			e.rememberRefusal(d, now)
			e.reject(checks, now)
			return counter.Rejected
		}
		d.Counter.Count(d.Cost)
	}
	if !e.entries.Write(d, now) {
		return counter.Unsure
	}
	d.Write()
	return counter.Allowed
}

// block blocks the keys of rules that refused or marked the request, if these rules block.
//
//go:noinline
func (e *decider) block(checks []rule.Check, now int64) {
	for i := range checks {
		d := &checks[i]
		if d.Verdict != counter.Rejected || !d.Rule.Blocks || d.Cost == 0 {
			continue
		}
		began := false
		if e.entries.Update(d, entry.Adopts|entry.Hastens, now, func() (writes, lists bool) {
			writes, began = d.Counter.Block(d.Rule.Extends)
			return writes, false
		}) && began {
			e.tallies.Blocked++
		}
	}
}

// loadAll reads the counters of all keys, and returns the verdict. A recalled page only serves to
// be written, so it is read after all if there will be no write.
func (e *decider) loadAll(checks []rule.Check, now int64, recall bool) counter.Verdict {
	verdict, recalled := counter.Allowed, false
	for i := range checks {
		d := &checks[i]
		if e.yields && d.Over {
			e.entries.Read(d, now)
			if d.Verdict = counter.Rejected; d.Rule.Spare {
				d.Verdict = counter.Allowed
			}
			continue
		}
		d.Verdict = e.load(d, now, howOf(i, checks), recall)
		if e.yields && rule.PassOver(checks, i) {
			continue
		}
		verdict = worse(verdict, d.Verdict)
		recalled = recalled || d.InSlot() && d.Slot.Recalled()
	}
	if recalled && verdict != counter.Allowed {
		return e.loadAll(checks, now, false)
	}
	return verdict
}

// countRejected counts the hits of a rejected request for the rules that count them.
func (e *decider) countRejected(checks []rule.Check, now int64) {
	for i := range checks {
		// A cost above the limit never passes. Counting it would only keep other requests of the
		// key from passing.
		if d := &checks[i]; d.Verdict == counter.Rejected && d.Rule.CountRejected && d.Counter.Possible(d.Cost) {
			e.debit(d, now, rejected)
		}
	}
}

// refuse rejects an unsure request that the backend gave no hits. If it lacks hits only from rules
// that mark, it is decided without them.
func (e *decider) refuse(checks []rule.Check, now int64) counter.Verdict {
	refused, unsure := false, 0
	for i := range checks {
		if d := &checks[i]; d.Verdict == counter.Unsure {
			d.Verdict = counter.Rejected
			refused = !rule.PassOver(checks, i) || refused
			unsure++
		}
	}
	if !refused {
		return e.decide(checks, now)
	}
	e.countRejected(checks, now)
	if e.blocks && unsure == 1 {
		e.block(checks, now) // of several it is not known which has had no room
	}
	return counter.Rejected
}

// worse returns the verdict on a request that two rules decide.
func worse(a, b counter.Verdict) counter.Verdict {
	switch {
	case a == counter.Rejected || b == counter.Rejected:
		return counter.Rejected
	case a == counter.Unsure || b == counter.Unsure:
		return counter.Unsure
	}
	return counter.Allowed
}

// load reads the counter of a check's key, and returns the verdict. A refusal that the node
// remembers needs no shared data, as long as not even one hit has room.
func (e *decider) load(d *rule.Check, now int64, how debiting, recall bool) counter.Verdict {
	d.Again()
	d.Listed, d.Asks = false, false
	if d.Cost != 0 {
		if payload := e.refusals.Find(d, now); payload != nil && d.Counter.Load(&d.Rule.Rule, payload) {
			if d.Counter.Advance(now); d.Decide(1, now) == counter.Rejected {
				return counter.Rejected
			}
		}
	}
	taken, found := e.entries.CountOrRead(d, now, recall, how == revocable)
	if taken {
		return counter.Allowed
	}
	if d.Unheard = 0; (d.Alone() || d.Cost == 0) && e.synced {
		d.Unheard = e.credit.Hits.Uncounted(d.Address)
	}
	if found && d.Counter.Moved() && e.entries.Write(d, now) { // or else the next request writes it
		return e.load(d, now, how, false)
	}
	verdict := d.Decide(d.Cost, now)
	switch verdict {
	case counter.Unsure:
		return e.resolve(d, now)
	case counter.Rejected:
		e.rememberRefusal(d, now)
	}
	return verdict
}

// resolve decides an unsure check that was read without the backend, if it can: a key that is far
// from its limits has room, and a key that is full has none. In case others have given back leases
// since, a refusal asks for them, and later requests find the answer.
//
//go:noinline
func (e *decider) resolve(d *rule.Check, now int64) counter.Verdict {
	if d.Cost == 0 {
		return counter.Unsure
	}
	if e.credit.Takes(d, now) {
		d.ByDistance()
		return counter.Allowed
	}
	full := d.Counter.Stale(now) || d.Listed && d.Counter.Leased() == 0 && e.credit.Full(d, now)
	if d.Asks = full && !d.Patient && d.Rule.StaysFull() && e.acquires.askBehind(d); d.Asks {
		return counter.Rejected
	}
	return counter.Unsure
}

// rememberRefusal remembers a refusal if the entry will stay unchanged while it has no room: then
// requests add nothing to it, and give nothing back.
func (e *decider) rememberRefusal(d *rule.Check, now int64) {
	if d.Rule.CountRejected || d.Rule.CostsLater || d.Rule.Blocks || d.Counter.Revocable() || d.Decide(1, now) != counter.Rejected {
		return
	}
	e.refusals.Add(d, now)
}

// debiting says how to treat hits without room.
type debiting uint8

const (
	// counted hits belong to a request that passes only if they have room.
	counted debiting = iota
	// revocable hits are counted hits of a request that a later check may still refuse.
	revocable
	// forced hits belong to a request that has passed.
	forced
	// rejected hits belong to a request that doesn't pass, and are counted nevertheless.
	rejected
)

// howOf returns how a request takes the hits of one of its checks.
func howOf(i int, checks []rule.Check) debiting {
	if i+1 < len(checks) {
		return revocable
	}
	return counted
}

// debit takes the hits of a check that was read, unless they need room and have it no longer.
func (e *decider) debit(d *rule.Check, now int64, how debiting) counter.Verdict {
	if d.Far() {
		e.tallies.Advanced += d.Cost
		if e.credit.Take(d, now) {
			e.acquires.prefetch(d, now)
		}
		return counter.Allowed
	}
	if d.Cost == 0 || e.tryDebit(d, now, how) {
		return counter.Allowed
	}
	return e.debitAgain(d, now, how)
}

// tryDebit tries once to write a check's counter with its hits.
func (e *decider) tryDebit(d *rule.Check, now int64, how debiting) (taken bool) {
	synced, adopted := d.Rule.Synced(), false
	if synced {
		if d.Passed() {
			return true
		}
		// Rejected hits never use a lease, so they must be pushed.
		adopted = e.entries.Own(d, now, how == rejected || !d.Counter.Silent(d.Cost))
	}
	switch {
	case d.InSlot():
	case how == rejected:
		d.Counter.CountRejected(d.Cost)
	case how == revocable:
		d.Counter.CountRevocable(d.Cost)
	default:
		d.Counter.Count(d.Cost)
	}
	low := synced && d.Counter.Low(d.Cost)
	if !e.entries.Write(d, now) {
		return false
	}
	if d.Write(); how == revocable {
		d.Numbers = d.Counter.Numbers(d.Numbers[:0])
	}
	if adopted {
		e.entries.Enlist(d)
	}
	if low {
		e.acquires.prefetch(d, now)
	}
	return true
}

// debitAgain continues after another worker was faster.
//
//go:noinline
func (e *decider) debitAgain(d *rule.Check, now int64, how debiting) counter.Verdict {
	for attempt := 1; ; attempt++ {
		e.entries.Read(d, now)
		if how == counted || how == revocable {
			if verdict := d.Decide(d.Cost, now); verdict != counter.Allowed {
				return verdict
			}
		}
		if attempt == e.entries.Table.Attempts() {
			// The decision stands. The hits are added as soon as a write succeeds.
			e.keepForRetry(d)
			d.Counter.Count(d.Cost)
			return counter.Allowed
		}
		if e.tryDebit(d, now, how) {
			return counter.Allowed
		}
	}
}

// giveBack returns a check's hits to the windows that they were taken from.
func (e *decider) giveBack(d *rule.Check, now int64) {
	if d.Kept() {
		// The last of the retries belongs to this request.
		d.TakeNone()
		e.retries = e.retries[:len(e.retries)-1]
	}
	if d.Ahead() {
		d.TakeNone()
		e.credit.Hits.GiveBack(d)
		e.tallies.Advanced -= d.Cost
		e.entries.Read(d, now)
		return
	}
	if !d.Written() {
		return
	}
	d.TakeNone()
	if !e.entries.Update(d, entry.Adopts, now, func() (writes, lists bool) {
		d.Counter.GiveBack(d.Numbers, d.Cost)
		return d.Slot.Found(), false
	}) {
		e.tallies.GivenUp++
	}
}

// forceRef is force for a referred check.
func (e *decider) forceRef(s *rule.Ref, now int64) *rule.Check {
	d := e.entries.Restore(&e.charged, s)
	e.entries.Read(d, now)
	e.force(d, now)
	return d
}

// force takes the hits of a check that was read, whether or not they have room.
func (e *decider) force(d *rule.Check, now int64) {
	e.debit(d, now, forced)
	d.NoteExcess(now)
	e.observer.WarnOf(d, now)
	e.entries.Hasten(d)
}

// maxRetries bounds the hits that a node keeps to write them later.
const maxRetries = 1024

func (e *decider) keepForRetry(d *rule.Check) {
	e.tallies.GivenUp++
	if len(e.retries) == maxRetries {
		e.tallies.Lost += d.Cost
		return
	}
	d.Keep()
	e.retries = append(e.retries, e.entries.Save(d))
}

// retry tries again to write hits that lost every race. They count from now on.
func (e *decider) retry(now int64) {
	if len(e.retries) == 0 {
		return
	}
	retries := e.retries
	e.retries = nil
	for i := range retries {
		e.forceRef(&retries[i], now)
	}
}
