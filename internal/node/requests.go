package node

import (
	"slices"

	"weir/internal/counter"
)

const (
	// maxRounds is how often a request asks for leases. Others may use up what it was waiting for.
	maxRounds = 3
)

// settlesWithin is how often a request looks for room that responses leave by what they have cost.
const settlesWithin = int64(20e6)

// requests are decided at once, or wait for the backend.
type requests struct {
	tallies  *Tallies
	link     *link
	ticks    *ticks
	rules    *ruleset
	keys     *keys
	waits    *waits
	callouts *callouts
	asks     *asks
	watch    *watch
	accounts *accounts
	decider  *decider
	lines    *lines // nil if no rule delays requests
	failure  FailureMode
}

// DecideSaved is Decide of a demand that was saved, which it returns. Call it when [Request.Decided] has
// no use for its demands any more.
func (q *requests) decideSaved(s *Saved, now int64, w *Wait) (*Demand, counter.Verdict) {
	q.keys.restore(&q.keys.demands[0], s)
	return &q.keys.demands[0], q.decideLocated(q.keys.demands[:1], now, w)
}

func (q *requests) decideLocated(demands []Demand, now int64, w *Wait) counter.Verdict {
	verdict := q.decideNow(demands, now, w)
	if q.rules.warns && verdict != counter.Unsure {
		q.watch.warn(demands, now)
	}
	if q.rules.reveals {
		q.accounts.take(demands, verdict, now)
	}
	if q.watch.sightings != nil {
		w.weight = q.watch.see(demands, now, verdict)
	}
	return verdict
}

// decideNow decides a request, or has it wait.
func (q *requests) decideNow(demands []Demand, now int64, w *Wait) counter.Verdict {
	if q.lines != nil && (w.Patience >= 0 || q.lines.waiting > 0) {
		if d := q.lines.occupied(demands); d != nil {
			return q.lineUp(w, demands, d, now)
		}
	}
	verdict := q.decideAtOnce(demands, now, w)
	if q.lines != nil && verdict == counter.Rejected && w.Patience >= 0 {
		if d := q.delaying(demands, now); d != nil {
			return q.lineUp(w, demands, d, now)
		}
	}
	return verdict
}

// decideAtOnce decides a request, or has it wait for the backend.
func (q *requests) decideAtOnce(demands []Demand, now int64, w *Wait) counter.Verdict {
	if !q.keys.local && !q.link.connectedAt(now) && needsBackend(demands) {
		return q.decideAlone(demands, now)
	}
	verdict := q.decider.decide(demands, now)
	if verdict == counter.Unsure && !q.wait(w, demands, lacking(demands)) {
		verdict = q.decideAlone(demands, now)
	}
	return verdict
}

func needsBackend(demands []Demand) bool {
	for i := range demands {
		if demands[i].synced() {
			return true
		}
	}
	return false
}

// lacking are the demands that a request is to ask the backend for as a whole: those that it is unsure
// of, if there is nothing to lease for any of them. Before, it asks for leases, and lacking is nil: hits
// that were granted to it would have to go back.
func lacking(demands []Demand) (of func(*Demand) bool) {
	for i := range demands {
		if d := &demands[i]; d.leases() {
			return nil
		}
	}
	return (*Demand).unsure
}

// Ask has the backend asked for the totals of demands that were looked at and cost nothing, of
// different rules. It reports whether the request waits for them: it is told as soon as they
// are known here, or can't be had.
func (q *requests) ask(demands []Demand, w *Wait) bool {
	return needsBackend(demands) && q.wait(w, demands, (*Demand).synced)
}

// wait has a request wait until the backend has been asked for the demands of whole, which decides it; or
// if whole is nil, for leases. It reports false if that can't be: then what is known here has to do.
func (q *requests) wait(r *Wait, demands []Demand, whole func(*Demand) bool) bool {
	now := q.link.hostNow()
	if len(q.callouts.batches) >= maxUnanswered {
		return false
	}
	if q.callouts.away != 0 {
		of := whole
		if of == nil {
			of = (*Demand).leases
		}
		if q.asks.lostAny(demands, of) {
			return false
		}
	}
	first := r.queue == nil
	if first {
		if q.waits.queue.length >= maxWaiting {
			q.tallies.Crowded++
			return false
		}
		if !q.link.connected(now) || q.link.shared.failures >= breakAfter && len(q.callouts.batches) > 0 || !q.link.enter(now) {
			return false // a push that has failed tells whether the backend is back
		}
		q.waits.queue.add(r, now+q.link.timeout)
		// A push that the host does not take fails at once, before the caller knows that the
		// request waits.
		r.entering = true
		q.tallies.Waited++
	}
	w := r.current()
	if whole != nil {
		q.asks.add(q.asks.ofRequest(w, demands, whole))
	} else {
		r.rounds++
		for i := range demands {
			if d := &demands[i]; d.leases() {
				q.asks.lease(d, w)
			}
		}
	}
	if first {
		q.keep(r, demands) // an ask may know a key's identity
	}
	q.asks.sendAll()
	waits := r.queue != nil || !r.entering
	r.entering = false
	return waits
}

// keep saves what it takes to decide a request later.
func (q *requests) keep(w *Wait, demands []Demand) {
	w.kept = slices.Grow(w.kept[:0], len(demands))[:len(demands)]
	for i := range demands {
		w.kept[i] = q.keys.save(&demands[i])
	}
}

// delaying is the demand that a rejected request is to wait for; nil if it is to be refused: a rule that
// delays nothing has no room, or nothing decides as the backend is away.
func (q *requests) delaying(demands []Demand, now int64) (first *Demand) {
	if q.failure == FailDeny && needsBackend(demands) && !q.link.connectedAt(now) {
		return nil
	}
	for i := range demands {
		d := &demands[i]
		if d.Verdict != counter.Rejected {
			continue
		}
		if !d.Rule.delays() {
			return nil
		}
		if first == nil {
			first = d
		}
	}
	return first
}

// lineUp has a request wait for the room of a demand, behind those that wait already. It is refused if they
// are too many, or it is known that room comes too late.
func (q *requests) lineUp(w *Wait, demands []Demand, of *Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		if q.keys.read(d, now); d != of {
			d.Verdict = counter.Allowed
		}
	}
	of.Verdict = counter.Rejected
	delay := of.Rule.Delay
	ahead := q.lines.waitingFor(of.address)
	if ahead >= delay.Queue || w.Patience < 0 {
		return counter.Rejected
	}
	if w.Patience > 0 {
		delay.Most = min(delay.Most, w.Patience)
	}
	for i := range demands {
		d, before := &demands[i], 0
		if d == of {
			before = ahead
		}
		if at, ok := d.fitsAfter(uint64(before), now); !ok || at-now > delay.Most {
			of.Verdict, d.Verdict = counter.Allowed, counter.Rejected
			return counter.Rejected
		}
	}
	hostNow := q.link.hostNow()
	if !q.lines.add(w, of.address, hostNow, hostNow+delay.Most, delay.Queue) {
		return counter.Rejected
	}
	q.tallies.Delayed++
	q.keep(w, demands)
	if l := lineOf(w); l.first == w {
		q.setDue(l, demands, now)
	}
	return counter.Unsure
}

// setDue has the first of a line be decided again when it has room, as far as that is known: its demands were
// read. Charges that are settled leave room before.
func (q *requests) setDue(l *keyLine, demands []Demand, now int64) {
	at, ok := RetryAt(demands, now)
	if !ok {
		at = now + MaxDelay
	}
	for i := range demands {
		if demands[i].Rule.CostsLater && !demands[i].Rule.Synced() {
			at = min(at, now+settlesWithin)
		}
	}
	hostNow := q.link.hostNow()
	r := l.first.room
	r.rewind(hostNow) // if its line had no alarm as the clock went back
	at = min(max(hostNow+at-now, hostNow+leastDelay), r.leaves)
	l.dueAt = at
	l.wake()
	// The host begins the time between ticks anew, which must not put off what is due before.
	q.ticks.within(l.all.due.earliest().at - hostNow)
}

// waitsOn reports whether a request that has asked the backend waits for room from now on, or goes on to.
func (q *requests) waitsOn(w *Wait, demands []Demand, now int64, verdict counter.Verdict) bool {
	if verdict == counter.Rejected {
		switch d := q.delaying(demands, now); {
		case d == nil || w.Patience < 0:
		case !w.waitsForRoom():
			if q.lineUp(w, demands, d, now) == counter.Unsure {
				return true
			}
		case q.link.hostNow() < w.room.leaves:
			q.setDue(lineOf(w), demands, now)
			return true
		}
	}
	if w.waitsForRoom() {
		w.room.line.remove(w)
	}
	return false
}

// takeUp gives the demands of a request that was kept.
func (q *requests) takeUp(w *Wait) []Demand {
	for i := range w.kept {
		q.keys.restore(&q.keys.demands[i], &w.kept[i])
	}
	return q.keys.demands[:len(w.kept)]
}

// decideAlone decides a request without the backend, which can't be reached, as the configuration
// says.
func (q *requests) decideAlone(demands []Demand, now int64) counter.Verdict {
	q.tallies.Alone++
	verdict := q.fallBack(demands, now)
	if verdict == counter.Allowed {
		q.link.passedAlone(now, q.rules.lasts)
	}
	return verdict
}

// fallBack is decideAlone of what the configuration says.
func (q *requests) fallBack(demands []Demand, now int64) counter.Verdict {
	switch q.failure {
	case FailAllow:
		for i := range demands {
			if d := &demands[i]; d.Rule.Synced() {
				d.by = byBackend
			}
		}
		return q.decider.decide(demands, now)
	case FailDeny:
		if !overAlone(demands) {
			return q.rejectAlone(demands, now)
		}
		return q.decider.decide(demands, now)
	}
	for i := range demands {
		demands[i].by = byWhatIsKnown
	}
	return q.decider.decide(demands, now)
}

// overAlone reports whether a request that must not pass without the backend needs it for rules that
// mark, and for no others. Then it goes on without these.
func overAlone(demands []Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.Rule.Synced() && !d.Rule.Marks {
			return false
		}
	}
	for i := range demands {
		if d := &demands[i]; d.Rule.Synced() {
			d.Over = true
		}
	}
	return true
}

// rejectAlone rejects a request, as rules of it need the backend. Others may have no room besides.
func (q *requests) rejectAlone(demands []Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		// Nobody may have looked for the entry yet, which the headers tell of.
		q.keys.read(d, now)
		if d.Verdict = counter.Allowed; !d.Rule.Synced() && !d.Counter.Allows(d.Cost) {
			d.Verdict = counter.Rejected
		}
	}
	q.decider.countRejected(demands, now)
	for i := range demands {
		if d := &demands[i]; d.Rule.Synced() {
			d.Verdict = counter.Rejected
		}
	}
	return counter.Rejected
}

// takeRest takes the hits of a waiting request that an ask of its own had no part in, once that was
// granted: all of them, or none.
func (q *requests) takeRest(demands []Demand, t *ask) counter.Verdict {
	t.pass(demands)
	return q.decider.decide(demands, q.link.now())
}

// decideBy decides a waiting request as the backend has: if its hits were granted, rest is the
// verdict of what else it needs. If that is unsure, the request asks again.
func (q *requests) decideBy(w turn, demands []Demand, t *ask, rest counter.Verdict) {
	if t.granted || rest == counter.Unsure {
		for i := range demands {
			if d := &demands[i]; d.by == byBackend {
				q.keys.read(d, q.link.now()) // for what the answer has told
			}
		}
		q.goOn(w, demands, rest, t.granted)
		return
	}
	t.pass(demands)
	full := false
	for i := range demands {
		d := &demands[i]
		if q.keys.read(d, q.link.now()); d.by == byBackend && !d.Counter.Allows(d.Cost) {
			d.Verdict, full = counter.Rejected, true
		}
	}
	known := full
	if !full {
		// Which of them was full is not known here, unless there is one.
		asked := 0
		for i := range demands {
			if d := &demands[i]; d.by == byBackend {
				d.Verdict = counter.Rejected
				asked++
			}
		}
		known = asked == 1
	}
	if q.rules.marks && q.leaveOut(demands, full) {
		q.goOn(w, demands, q.decider.decide(demands, q.link.now()), false)
		return
	}
	if q.rules.blocks && known {
		q.decider.block(demands, q.link.now())
	}
	q.finishWaiting(w, demands, counter.Rejected)
}

// leaveOut lets a request that the backend has refused go on without the rules that mark and had no
// room. known says that it is known which rules had none. It reports false if no such rule is left, or
// another rule refuses the request.
func (q *requests) leaveOut(demands []Demand, known bool) (left bool) {
	for i := range demands {
		d := &demands[i]
		if d.Verdict != counter.Rejected || d.Over {
			continue
		}
		if d.Rule.Marks {
			left = true
		} else if known {
			return false
		}
	}
	if !left {
		return false
	}
	for i := range demands {
		demands[i].passesOver()
		demands[i].by = byRule
	}
	return true
}

// retry decides a waiting request again, with what has been granted by now.
func (q *requests) retry(w turn, granted bool) {
	demands := q.takeUp(w.wait)
	q.goOn(w, demands, q.decider.decide(demands, q.link.now()), granted)
}

// goOn ends the waiting of a request that was decided. A request that is unsure asks again, if that
// is of use.
func (q *requests) goOn(w turn, demands []Demand, verdict counter.Verdict, granted bool) {
	if verdict == counter.Unsure {
		w.wait.asked = 0
		whole := lacking(demands)
		again := whole != nil || w.wait.rounds < maxRounds && (granted || q.hasRoom(demands))
		switch {
		case again && q.link.hostNow() < w.wait.until && q.wait(w.wait, demands, whole):
			return
		case whole != nil:
			verdict = q.decideLate(demands) // the backend has said nothing of its part
		default:
			if verdict = q.decider.refuse(demands, q.link.now()); verdict == counter.Unsure {
				q.goOn(w, demands, verdict, false) // without the rules that have marked it
				return
			}
		}
	}
	q.finishWaiting(w, demands, verdict)
}

// hasRoom reports whether what is unsure has room, as far as is known: a window has ended while the
// backend was asked.
func (q *requests) hasRoom(demands []Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.leases() && !d.Counter.Allows(d.Cost) {
			return false
		}
	}
	return true
}

// finishWaiting ends a request's waiting.
func (q *requests) finishWaiting(w turn, demands []Demand, verdict counter.Verdict) {
	w.wait.stopAsking()
	now := q.link.now()
	if q.lines != nil && q.waitsOn(w.wait, demands, now, verdict) {
		return
	}
	q.tell(w.wait, demands, now, verdict)
}

// tell ends all waiting of a request.
func (q *requests) tell(w *Wait, demands []Demand, now int64, verdict counter.Verdict) {
	if q.watch.sightings != nil && (verdict == counter.Rejected || q.rules.marks) {
		q.watch.seeRefused(demands, now, w.weight)
	}
	if q.rules.warns {
		q.watch.warn(demands, now)
	}
	if q.rules.reveals {
		q.accounts.take(demands, verdict, now)
	}
	w.Request.Decided(demands, now, verdict)
}

// giveUpOn decides a waiting request without the backend.
func (q *requests) giveUpOn(w turn) {
	demands := q.takeUp(w.wait)
	q.finishWaiting(w, demands, q.decideLate(demands))
}

// decideLate decides a request alone whose wait was in vain.
func (q *requests) decideLate(demands []Demand) counter.Verdict {
	q.tallies.Late++
	return q.decideAlone(demands, q.link.now())
}

// giveUpWaiting decides, without the backend, the requests that have waited long enough. It reports
// false if there are more.
func (q *requests) giveUpWaiting(deadline int64) (done bool) {
	now := q.link.hostNow()
	for handled := 0; ; handled++ {
		w := q.waits.queue.first
		if w == nil || now < w.until && w.until-now <= q.link.timeout {
			return true
		}
		if q.link.late(handled, deadline) {
			return false
		}
		q.giveUpOn(w.current())
	}
}

// decideReleased decides, without the backend, the requests whose callouts have failed, for as long
// as that may take. Call it outside of a request's callbacks.
func (q *requests) decideReleased(deadline int64) {
	for handled := 0; len(q.waits.released) > 0 && !q.link.late(handled, deadline); handled++ {
		w := q.waits.released[0]
		if q.waits.released = q.waits.released[1:]; w.waits() {
			q.giveUpOn(w)
		}
	}
	if len(q.waits.released) == 0 {
		q.waits.released = nil
	}
}
