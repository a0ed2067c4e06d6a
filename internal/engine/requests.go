package engine

import (
	"slices"

	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
	"weir/internal/engine/wait"
	"weir/internal/failure"
)

const (
	// maxRounds is how often a request asks for leases. While others use up all that it asked for and was granted, it
	// asks for as long as it may wait.
	maxRounds = 3
	// maxJoins is how often a request that the backend has refused waits for hits that are on their
	// way for requests to come.
	maxJoins = 2
)

// requests decides requests, at once or after a wait.
type requests struct {
	tallies  *entry.Tallies
	link     *link.Link
	ticks    *ticks
	rules    *rule.Set
	entries  *entry.Entries
	waits    *waits
	outbox   *outbox
	acquires *acquires
	observer *observe.Observer
	decider  *decider
	lines    *wait.Queue // nil if no rule delays requests
	failure  failure.Mode
	// checks belong to a request that has waited, and resumed to one that decides a referred check.
	checks  []rule.Check
	resumed [rule.MaxPlaces]rule.Check
	gathers bool // questions are sent once more requests have been decided
}

// ask is [Engine.Ask].
func (q *requests) ask(checks []rule.Check, w *Wait) bool {
	if !some(checks, (*rule.Check).Synced) {
		return false
	}
	look(checks, true)
	waits := q.wait(w, checks, (*rule.Check).Synced, true)
	look(checks, false)
	return q.send(w) && waits
}

// look says of checks that a request only looks at their keys.
func look(checks []rule.Check, looks bool) {
	for i := range checks {
		checks[i].Looks = looks
	}
}

// seen ends the wait of a request that only looks at its keys. It is told no checks, and Allowed if the
// backend has told their totals.
func (q *requests) seen(w *Wait, told counter.Verdict) {
	w.stopAsking()
	w.Request.Decided(nil, q.link.Now(), told)
}

// send sends what has to be asked after a decision. A push that the host refuses fails at once, so send
// reports whether the request still waits if it did.
func (q *requests) send(w *Wait) (waits bool) {
	if len(q.acquires.unsent) == 0 && !q.outbox.tests || q.gathers {
		return true
	}
	q.outbox.sendTest()
	if q.link.Reach() == link.Near { // otherwise the next tick drops what is left
		q.acquires.sendAll(q.outbox.host.Now() + askNanos)
	}
	q.schedule(q.ticks.hurried)
	if w == nil || w.queue == nil || w.until != over {
		return true
	}
	w.stopAsking()
	return false
}

// schedule has ticks hurry while there is more to do, questions wait that no answer is about to send, or requests to be decided.
// Lines of requests that wait for room tell the ticks when the first is due.
func (q *requests) schedule(more bool) {
	q.ticks.hurry(more || len(q.acquires.unsent) > 0 && (q.outbox.asking == 0 || !q.acquires.quick) || q.waits.queue.lastOver != nil)
}

// keep keeps the checks of a request that waits.
func (q *requests) keep(w *Wait, checks []rule.Check) {
	w.kept = slices.Grow(w.kept[:0], len(checks))
	for i := range checks {
		w.kept = append(w.kept, q.entries.Save(&checks[i]))
	}
}

// takeUp returns the checks of a kept request.
func (q *requests) takeUp(w *Wait) []rule.Check {
	for len(q.checks) < len(w.kept) {
		q.checks = append(q.checks, rule.Check{}) // several keys of a rule
	}
	for i := range w.kept {
		d := q.checks[i].Restore(&w.kept[i])
		d.Patient = w.patient(d)
	}
	return q.checks[:len(w.kept)]
}

// decideBy decides a waiting request by the backend's answer. If the ask was granted, rest is the
// verdict on the other hits. If the verdict is unsure, the request asks again.
func (q *requests) decideBy(w turn, checks []rule.Check, t *ask, rest counter.Verdict) {
	if t.granted || rest == counter.Unsure {
		for i := range checks {
			if d := &checks[i]; d.Passed() {
				q.decider.taker.Read(d, q.link.Now()) // with the totals of the answer
				if rest != counter.Allowed {
					d.ByRule() // the grant has gone back
				}
			}
		}
		q.goOn(w, checks, rest, t.granted, false)
		return
	}
	t.pass(checks)
	full := false
	for i := range checks {
		d := &checks[i]
		if q.decider.taker.Read(d, q.link.Now()); d.Passed() && !d.Counter.Allows(d.Cost) {
			d.Verdict, full = counter.Rejected, true
		}
	}
	known := full
	if !full {
		// It is not known which of them was full, unless there is one only.
		asked, marks := 0, false
		for i := range checks {
			if d := &checks[i]; d.Passed() {
				d.Verdict = counter.Rejected
				marks = marks || d.Rule.Yields()
				asked++
			}
		}
		known = asked == 1
		if marks && !known && q.doubt(w.wait, checks, t) == counter.Unsure {
			q.goOn(w, checks, counter.Unsure, false, false)
			return
		}
	}
	if q.rules.Yields && q.leaveOut(checks, full) {
		q.goOn(w, checks, q.decide(checks, q.link.Now()), false, false)
		return
	}
	if q.rules.Blocks && known {
		q.decider.block(checks, q.link.Now())
	}
	q.finishWaiting(w, checks, counter.Rejected)
}

// doubt makes a request ask again if the answer does not decide it, and asking may help: hits in
// flight decide, of which the backend will have heard, or it is not known which rule had no room.
// The number of rounds is bounded.
func (q *requests) doubt(w *Wait, checks []rule.Check, t *ask) counter.Verdict {
	if w.rounds >= maxRounds || q.outbox.host.Now() >= w.until {
		return counter.Rejected
	}
	w.rounds++
	t.pass(checks)
	for i := range checks {
		if d := &checks[i]; d.Passed() {
			d.Verdict = counter.Unsure
			d.ByRule()
		}
	}
	return counter.Unsure
}

// leaveOut continues a request that the backend has refused without the rules that mark and had no
// room. known says whether it is known which rules had none. It returns false if there is no such
// rule, or another rule refuses the request.
func (q *requests) leaveOut(checks []rule.Check, known bool) (left bool) {
	for i := range checks {
		d := &checks[i]
		if d.Verdict != counter.Rejected || d.Over {
			continue
		}
		if d.Rule.Yields() {
			left = true
		} else if known {
			return false
		}
	}
	if !left {
		return false
	}
	for i := range checks {
		rule.PassOver(checks, i)
		checks[i].ByRule()
	}
	return true
}

// goOn ends the wait of a decided request. An unsure request asks again, if that may help. taken says that it was granted
// all that it asked for, which others have taken.
func (q *requests) goOn(w turn, checks []rule.Check, verdict counter.Verdict, granted, taken bool) {
	if verdict == counter.Rejected && !granted && w.wait.rounds < maxRounds && w.wait.joins < maxJoins && q.comes(checks) {
		verdict, w.wait.refused = counter.Unsure, true
	}
	if verdict == counter.Unsure {
		w.wait.asked = 0
		of, whole := lacking(checks)
		full := func(d *rule.Check) bool { return d.NeedsLease() && !d.Counter.Allows(d.Cost) }
		comes := func(d *rule.Check) bool { return d.NeedsLease() && q.waits.leases.underWay(d) != nil }
		taken = taken && !some(checks, full)
		again := whole || taken || w.wait.rounds < maxRounds &&
			(granted || !some(checks, full) || w.wait.joins < maxJoins && some(checks, comes)) // a window may have ended meanwhile
		w.wait.refused = w.wait.refused || taken && w.wait.rounds >= maxRounds // once its time is over
		again = again && q.outbox.host.Now() < w.wait.until
		switch {
		case again && q.wait(w.wait, checks, of, whole):
			return
		case whole, again && (taken || granted && !w.wait.refused):
			verdict = q.decideLate(checks) // the answer lacked its part, or the backend can't be asked and has refused nothing
		default:
			if verdict = q.refuse(checks, q.link.Now()); verdict != counter.Unsure {
				break
			}
			if q.outbox.host.Now() < w.wait.until {
				w.wait.rounds, w.wait.joins = 0, 0
				q.goOn(w, checks, verdict, true, false) // by the checks that take the place of those without room
				return
			}
			verdict = q.decideLate(checks)
		}
	}
	q.finishWaiting(w, checks, verdict)
}

// comes reports whether all checks that are refused are so for hits that are on their way here: their keys may be full by these.
// The checks are unsure then.
func (q *requests) comes(checks []rule.Check) (comes bool) {
	full := func(d *rule.Check) bool { return d.Verdict == counter.Rejected && !d.Over }
	for i := range checks {
		d := &checks[i]
		if !full(d) {
			continue
		}
		if comes = d.Rule.StaysFull() && !d.Rule.CountRejected && d.Counter.Possible(d.Cost) && q.waits.leases.underWay(d) != nil; !comes {
			return false
		}
	}
	for i := range checks {
		if d := &checks[i]; comes && full(d) {
			d.Verdict = counter.Unsure
		}
	}
	return comes
}

// refuse rejects an unsure request that the backend gave no hits. If it lacks hits only from rules
// that mark, it is decided without them.
func (q *requests) refuse(checks []rule.Check, now int64) counter.Verdict {
	refused, unsure := false, 0
	for i := range checks {
		if d := &checks[i]; d.Verdict == counter.Unsure {
			d.Verdict = counter.Rejected
			refused = !rule.PassOver(checks, i) || refused
			unsure++
		}
	}
	if !refused {
		return q.decider.decide(checks, now)
	}
	q.decider.countRejected(checks, now)
	if q.rules.Blocks && unsure == 1 {
		q.decider.block(checks, now) // of several it is not known which has had no room
	}
	return counter.Rejected
}

// finishWaiting ends a request's wait, unless its turn is over.
func (q *requests) finishWaiting(w turn, checks []rule.Check, verdict counter.Verdict) {
	w.wait.stopAsking()
	now := q.link.Now()
	if q.lines != nil && q.waitsOn(w.wait, checks, now, verdict) {
		return
	}
	q.tell(w.wait, checks, now, verdict)
}

// tell ends a request's wait, and reports the verdict to it.
func (q *requests) tell(w *Wait, checks []rule.Check, now int64, verdict counter.Verdict) {
	q.observer.Decided(checks, now, verdict, &w.sighting)
	w.Request.Decided(checks, now, verdict)
}

// giveUpOn decides a waiting request without the backend. If that has refused it before, the refusal stands.
func (q *requests) giveUpOn(w turn) {
	if w.wait.kept[0].Looks {
		q.seen(w.wait, counter.Rejected)
		return
	}
	checks := q.takeUp(w.wait)
	if w.wait.refused {
		verdict := q.decider.decide(checks, q.link.Now())
		if verdict == counter.Unsure {
			verdict = q.refuse(checks, q.link.Now())
		}
		if verdict != counter.Unsure {
			q.finishWaiting(w, checks, verdict)
			return
		}
	}
	q.finishWaiting(w, checks, q.decideLate(checks))
}

// decideLate decides a request without the backend after a wait in vain.
func (q *requests) decideLate(checks []rule.Check) counter.Verdict {
	q.tallies.Late++
	return q.decideAlone(checks, q.link.Now())
}

// giveUp decides requests without the backend, while there is time: those whose callouts have failed, and
// with waited those that have waited long enough. It returns false if there are more. Do not call it in a
// request's callback.
func (q *requests) giveUp(waited bool, deadline int64) (done bool) {
	now := q.outbox.host.Now()
	for handled := 0; ; handled++ {
		w := q.waits.queue.first
		if w == nil || w.until != over && (!waited || now < w.until && w.until-now <= q.link.Timeout) {
			return true
		}
		if late(q.outbox.host, handled, deadline) {
			return false
		}
		q.giveUpOn(w.current())
	}
}
