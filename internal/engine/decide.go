package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/charge"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
	"weir/internal/engine/take"
	"weir/internal/failure"
	"weir/internal/wire"
)

// decideLocated decides a request, or makes it wait: behind others that wait for room, for the backend, or for room.
func (q *requests) decideLocated(w *Wait, checks []rule.Check, now int64) counter.Verdict {
	verdict, decided := counter.Unsure, false
	if q.queues(w) {
		verdict, decided = q.follow(w, checks, now)
	}
	if !decided {
		if verdict = q.decideAtOnce(w, checks, now); verdict == counter.Rejected && q.lines != nil && w.Patience >= 0 {
			verdict = q.waitForRoom(w, checks, now)
		}
	}
	w.sighting = observe.Sighting{}
	q.observer.Decided(checks, now, verdict, &w.sighting)
	return verdict
}

// decideAtOnce decides a request, or makes it wait for the backend.
func (q *requests) decideAtOnce(w *Wait, checks []rule.Check, now int64) counter.Verdict {
	if q.rules.Synced && q.link.Reach() == link.Away && some(checks, (*rule.Check).Synced) {
		return q.decideAlone(checks, now)
	}
	verdict := q.decide(checks, now)
	if verdict == counter.Unsure {
		if of, whole := lacking(checks); !q.wait(w, checks, of, whole) {
			verdict = q.decideAlone(checks, now)
		}
	}
	if !q.send(w) {
		verdict = q.decideAlone(checks, now)
	}
	return verdict
}

// decide decides a request by what is known here. Checks whose partitions are away are decided by the configuration: they are nothing to
// the others, which may have to ask the backend.
func (q *requests) decide(checks []rule.Check, now int64) counter.Verdict {
	verdict := q.decider.decide(checks, now)
	if verdict != counter.Unsure || q.outbox.away == 0 {
		return verdict
	}
	lost := func(d *rule.Check) bool { return d.Unsure() && q.outbox.away.Has(q.entries.Save(d).ID) }
	if !some(checks, lost) {
		return verdict
	}
	if q.failure == failure.Deny && !overAlone(checks, lost) {
		return q.rejectAlone(checks, lost, now)
	}
	for i := range checks {
		switch d := &checks[i]; {
		case !lost(d):
		case q.failure == failure.Local:
			d.ByWhatIsKnown()
		case q.failure == failure.Allow:
			d.PassUncounted()
		}
	}
	return q.withoutBackend(checks, now)
}

// decider decides checks, and takes their hits.
type decider struct {
	_ [0]func() // keeps Go from generating an equality function

	acquires *acquires
	taker    *take.Taker
	charges  *charge.Charges
	blocks   bool // some rule blocks
	yields   bool // a request may pass without room for some check
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
	return e.decideAll(checks, now, true)
}

// decideAll is decide, by remembered pages if recall is set.
func (e *decider) decideAll(checks []rule.Check, now int64, recall bool) counter.Verdict {
	verdict := e.loadAll(checks, now, recall)
	for i := 0; i < len(checks) && verdict == counter.Allowed; i++ {
		d := &checks[i]
		if e.yields && d.Over {
			continue
		}
		if d.Verdict = e.take(d, now, howOf(checks, i)); d.Verdict == counter.Allowed {
			continue
		}
		passed := e.yields && rule.PassOver(checks, i)
		if passed && d.Rule.Spares == 0 {
			continue
		}
		switch recalled := e.giveBack(checks, now); {
		case passed:
			return e.decide(checks, now) // its spares were not read to be decided
		case recalled:
			return e.decideAll(checks, now, false) // others have written, and a refusal is told how all keys stand
		}
		verdict = d.Verdict
	}
	if verdict != counter.Allowed {
		e.giveBack(checks, now)
	}
	switch {
	case verdict == counter.Rejected:
		e.reject(checks, now)
	case e.blocks && verdict == counter.Allowed:
		e.block(checks, now) // of rules that mark
	}
	return verdict
}

// loadAll reads the counters of all keys, and returns the verdict. A recalled page only serves to
// be written, so it is read after all if there will be no write.
func (e *decider) loadAll(checks []rule.Check, now int64, recall bool) counter.Verdict {
	verdict, recalled := counter.Allowed, false
	for i := range checks {
		d := &checks[i]
		if e.yields && d.Over {
			e.taker.Read(d, now)
			if d.Verdict = counter.Rejected; d.Rule.Spare {
				d.Verdict = counter.Allowed
			}
			continue
		}
		how := howOf(checks, i)
		if d.Verdict = e.taker.Decide(d, now, how, recall); d.Asks {
			// Others may have given back leases of the full key since. Later requests find the answer.
			if d.Asks = !d.Patient && d.Rule.StaysFull() && e.acquires.askBehind(d); !d.Asks {
				d.Verdict = counter.Unsure
			}
		}
		if e.yields && rule.PassOver(checks, i) {
			continue
		}
		if d.Verdict != counter.Allowed && verdict != counter.Rejected {
			verdict = d.Verdict
		}
		recalled = recalled || d.InSlot() && d.Slot.Recalled()
	}
	if recalled && verdict != counter.Allowed {
		return e.loadAll(checks, now, false)
	}
	return verdict
}

// howOf returns how a request takes the hits of one of its checks.
func howOf(checks []rule.Check, i int) entry.Taking {
	if i+1 < len(checks) {
		return entry.Revocable
	}
	return entry.Counted
}

// take takes the hits of a check that was read, unless they need room and have it no longer.
func (e *decider) take(d *rule.Check, now int64, how entry.Taking) counter.Verdict {
	verdict := e.taker.Take(d, now, how)
	if d.Low {
		e.acquires.prefetch(d)
	}
	return verdict
}

// giveBack gives back what a request has taken. It reports whether a slot with hits was recalled.
func (e *decider) giveBack(checks []rule.Check, now int64) (recalled bool) {
	for i := range checks {
		recalled = e.taker.GiveBack(&checks[i], now) || recalled
	}
	return recalled
}

// reject completes the rejection of a request.
func (e *decider) reject(checks []rule.Check, now int64) {
	e.countRejected(checks, now)
	if e.blocks {
		e.block(checks, now)
	}
}

// countRejected counts the hits of a rejected request for the rules that count them.
func (e *decider) countRejected(checks []rule.Check, now int64) {
	for i := range checks {
		// A cost above the limit never passes. Counting it would only keep other requests of the
		// key from passing.
		if d := &checks[i]; d.Verdict == counter.Rejected && d.Rule.CountRejected && d.Counter.Possible(d.Cost) {
			e.take(d, now, entry.Refused)
		}
	}
}

// block blocks the keys of rules that refused or marked the request, if these rules block.
//
//go:noinline
func (e *decider) block(checks []rule.Check, now int64) {
	for i := range checks {
		if d := &checks[i]; d.Verdict == counter.Rejected && d.Rule.Blocks && d.Cost != 0 {
			e.charges.Block(d, now)
		}
	}
}

// lacking selects the checks that a request has to ask the backend for, as a whole if none of them needs a lease.
// Otherwise it first asks for leases: hits granted to the request itself would have to go back.
func lacking(checks []rule.Check) (of func(*rule.Check) bool, whole bool) {
	if some(checks, (*rule.Check).NeedsLease) {
		return (*rule.Check).NeedsLease, false
	}
	return (*rule.Check).Unsure, true
}

// some reports whether any check of a request is so.
func some(checks []rule.Check, is func(*rule.Check) bool) bool {
	for i := range checks {
		if is(&checks[i]) {
			return true
		}
	}
	return false
}

// shares reports whether some checks are of several partitions of which the backend does not answer such questions.
func (q *requests) shares(checks []rule.Check, is func(*rule.Check) bool) bool {
	all := wire.PartitionSet(0)
	for i := range checks {
		if d := &checks[i]; is(d) {
			all |= wire.PartitionOf(q.entries.Save(d).ID)
		}
	}
	return all&(all-1) != 0 && all&q.outbox.shared != 0
}

// wait makes a request wait for the backend's answer about the checks that of selects: with whole, for one that
// decides it, and otherwise for leases. It returns false if waiting is impossible, so that known totals must decide.
func (q *requests) wait(w *Wait, checks []rule.Check, of func(*rule.Check) bool, whole bool) bool {
	lost := func(d *rule.Check) bool { return of(d) && q.outbox.away.Has(q.entries.Save(d).ID) }
	if len(q.outbox.batches) >= maxUnanswered || q.outbox.away != 0 && some(checks, lost) || whole && q.outbox.shared != 0 && q.shares(checks, of) {
		return false
	}
	if w.queue == nil {
		switch reach := q.link.Reach(); {
		case q.waits.queue.length >= maxWaiting:
			q.tallies.Crowded++
			return false
		case reach == link.Away || reach != link.Near && len(q.outbox.batches) > 0 || !q.link.Enter():
			return false // a failed push will test whether the backend is back
		case q.link.Reach() != link.Near:
			q.outbox.tests = true // nobody waits for the test
			return false
		}
		q.waits.queue.add(w, q.outbox.host.Now()+q.link.Timeout)
		q.tallies.Waited++
	}
	if whole {
		q.acquires.together(checks, of, w.current())
	} else {
		asked := false
		for i := range checks {
			if d := &checks[i]; of(d) {
				asked = q.acquires.lease(d, w.current()) || asked
			}
		}
		if asked {
			w.rounds++
		} else {
			w.refused = true
			w.joins++
		}
	}
	q.keep(w, checks) // an ask may have found a key's identity, or an answer a rule that marks
	return true
}

// decideAlone decides a request by the configuration, because the backend can't be reached.
func (q *requests) decideAlone(checks []rule.Check, now int64) counter.Verdict {
	if q.failure == failure.Deny && !overAlone(checks, (*rule.Check).Synced) {
		return q.rejectAlone(checks, (*rule.Check).Synced, now)
	}
	for i := range checks {
		switch d := &checks[i]; q.failure {
		case failure.Local:
			d.ByWhatIsKnown()
		case failure.Allow:
			if d.Rule.Base().Synced() {
				d.PassUncounted()
				d.Over = d.Over || !d.Rule.Synced() // a seat
			}
		}
	}
	return q.withoutBackend(checks, now)
}

// withoutBackend decides a request of which the configuration has decided some checks. It is unsure if others have to ask the backend.
func (q *requests) withoutBackend(checks []rule.Check, now int64) counter.Verdict {
	verdict := q.decider.decide(checks, now)
	if verdict != counter.Unsure {
		q.tallies.Alone++
	}
	if verdict == counter.Allowed {
		q.link.PassedAlone(now, q.rules.Lasts)
	}
	return verdict
}

// overAlone reports whether a request that may not pass without the backend needs it, for those checks that lost selects, only for
// rules that mark. Then the request continues without them.
func overAlone(checks []rule.Check, lost func(*rule.Check) bool) bool {
	if some(checks, func(d *rule.Check) bool { return lost(d) && !d.Rule.Marks }) {
		return false
	}
	for i := range checks {
		if d := &checks[i]; lost(d) {
			d.Over = true
		}
	}
	return true
}

// rejectAlone rejects a request because some of its rules, those that lost selects, need the backend. Other rules may have no
// room either.
func (q *requests) rejectAlone(checks []rule.Check, lost func(*rule.Check) bool, now int64) counter.Verdict {
	q.tallies.Alone++
	for i := range checks {
		d := &checks[i]
		// The headers need the entry, which may not have been read yet.
		q.decider.taker.Read(d, now)
		switch {
		case lost(d):
			d.Verdict = counter.Unsure
		case !d.Rule.Synced() && !d.Counter.Allows(d.Cost):
			d.Verdict = counter.Rejected
		default:
			d.Verdict = counter.Allowed
		}
	}
	q.decider.countRejected(checks, now)
	for i := range checks {
		if d := &checks[i]; d.Unsure() {
			d.Verdict = counter.Rejected
		}
	}
	return counter.Rejected
}
