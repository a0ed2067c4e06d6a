package node

import (
	"slices"

	"weir/internal/counter"
	"weir/internal/engine/wait"
)

const (
	// maxRounds is how often a request asks for leases. Others may use up the hits that it waited
	// for.
	maxRounds = 3
)

// settlesWithin is how often a waiting request checks for room that costs of responses may leave,
// in nanoseconds.
const settlesWithin = int64(20e6)

// requests decides requests, at once or after a wait.
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
	lines    *wait.Queue // nil if no rule delays requests
	failure  FailureMode
	// demands belong to a request that has waited, and resumed to one that decides a saved demand.
	demands []Demand
	resumed [1]Demand
}

// decideSaved is [Node.DecideSaved].
func (q *requests) decideSaved(s *Saved, now int64, w *Wait) (*Demand, counter.Verdict) {
	demands := q.resumed[:]
	q.keys.restore(&demands[0], s)
	return &demands[0], q.decideLocated(demands, now, w)
}

func (q *requests) decideLocated(demands []Demand, now int64, w *Wait) counter.Verdict {
	verdict := q.decideNow(demands, now, w)
	if q.rules.warns && verdict != counter.Unsure {
		q.watch.warn(demands, now)
	}
	if q.rules.reveals {
		q.accounts.take(demands, verdict, now)
	}
	if q.watch.records() {
		w.weight = q.watch.see(demands, now, verdict)
	}
	return verdict
}

// decideNow decides a request, or makes it wait.
func (q *requests) decideNow(demands []Demand, now int64, w *Wait) counter.Verdict {
	if q.lines != nil && (w.Patience >= 0 || q.lines.Len() > 0) {
		if d := q.occupied(demands); d != nil {
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

// decideAtOnce decides a request, or makes it wait for the backend.
func (q *requests) decideAtOnce(demands []Demand, now int64, w *Wait) counter.Verdict {
	if q.rules.synced && !q.link.connectedAt(now) && needsBackend(demands) {
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

// lacking selects the demands that a request has to ask the backend for as a whole: the unsure
// demands, if none of them needs a lease. Otherwise the request first asks for leases, and lacking
// is nil: hits granted to the request itself would have to go back.
func lacking(demands []Demand) (of func(*Demand) bool) {
	for i := range demands {
		if d := &demands[i]; d.leases() {
			return nil
		}
	}
	return (*Demand).unsure
}

// ask is [Node.Ask].
func (q *requests) ask(demands []Demand, w *Wait) bool {
	return needsBackend(demands) && q.wait(w, demands, (*Demand).synced)
}

// wait makes a request wait for the backend's answer about the demands that whole selects, which
// decides it, or for leases if whole is nil. It returns false if waiting is impossible, so that
// known totals must decide.
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
		if !q.link.connected(now) || q.link.open() && len(q.callouts.batches) > 0 || !q.link.enter(now) {
			return false // a failed push will test whether the backend is back
		}
		if q.link.open() {
			q.callouts.postEmpty() // nobody waits for the test
			return false
		}
		q.waits.queue.add(r, now+q.link.timeout)
		// A push that the host refuses fails at once, before the caller knows that the request
		// waits.
		r.entering = true
		q.tallies.Waited++
	}
	w := r.current()
	if whole != nil {
		q.asks.add(q.asks.ofRequest(w, demands, whole))
	} else {
		asked := false
		for i := range demands {
			if d := &demands[i]; d.leases() {
				asked = q.asks.lease(d, w) || asked
			}
		}
		if r.refused = r.refused || !asked; asked {
			r.rounds++
		}
	}
	q.keep(r, demands) // an ask may have found a key's identity, or an answer a rule that marks
	q.asks.sendAll()
	waits := r.queue != nil || !r.entering
	r.entering = false
	return waits
}

// keep saves everything needed to decide a request later.
func (q *requests) keep(w *Wait, demands []Demand) {
	w.kept = slices.Grow(w.kept[:0], len(demands))[:len(demands)]
	for i := range demands {
		w.kept[i] = q.keys.save(&demands[i])
	}
}

// delaying returns the demand whose room a rejected request should wait for. It is nil if the
// request is to be refused: a rule that does not delay has no room, or the backend is away and no
// rule can decide.
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

// occupied returns the first demand of a request that others wait for already; nil if there is
// none.
func (q *requests) occupied(demands []Demand) *Demand {
	for i := range demands {
		if d := &demands[i]; d.Rule.delays() && q.lines.Waiting(d.address) > 0 {
			return d
		}
	}
	return nil
}

// lineUp makes a request wait for the room of a demand, behind those that wait already. It refuses
// the request if too many wait, or if room will certainly come too late.
func (q *requests) lineUp(w *Wait, demands []Demand, of *Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		if q.keys.read(d, now); d != of {
			d.Verdict = counter.Allowed
		}
	}
	of.Verdict = counter.Rejected
	delay := of.Rule.Delay
	ahead := q.lines.Waiting(of.address)
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
	if w.room == nil {
		w.room = &wait.Place{Of: w}
	}
	if !q.lines.Join(w.room, of.address, hostNow, hostNow+delay.Most, delay.Queue) {
		return counter.Rejected
	}
	q.tallies.Delayed++
	q.keep(w, demands)
	if w.room.Leads() {
		q.setDue(w, demands, now)
	}
	return counter.Unsure
}

// setDue sets when to decide the first request of a line again, once it should have room. Its
// demands were read. Settled charges may make room earlier.
func (q *requests) setDue(w *Wait, demands []Demand, now int64) {
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
	w.room.Again(hostNow+at-now, hostNow)
}

// waitsOn reports whether a request that has asked the backend now waits for room, or continues to.
func (q *requests) waitsOn(w *Wait, demands []Demand, now int64, verdict counter.Verdict) bool {
	if verdict == counter.Rejected {
		switch d := q.delaying(demands, now); {
		case d == nil || w.Patience < 0:
		case !w.room.Waits():
			if q.lineUp(w, demands, d, now) == counter.Unsure {
				return true
			}
		case q.link.hostNow() < w.room.Leaves:
			q.setDue(w, demands, now)
			return true
		}
	}
	if w.room.Waits() {
		w.room.Leave()
	}
	return false
}

// takeUp returns the demands of a kept request.
func (q *requests) takeUp(w *Wait) []Demand {
	for len(q.demands) < len(w.kept) {
		q.demands = append(q.demands, Demand{}) // several keys of a rule
	}
	for i := range w.kept {
		d := &q.demands[i]
		q.keys.restore(d, &w.kept[i])
		d.patient = w.patient(d)
	}
	return q.demands[:len(w.kept)]
}

// decideAlone decides a request by the configuration, because the backend can't be reached.
func (q *requests) decideAlone(demands []Demand, now int64) counter.Verdict {
	q.tallies.Alone++
	verdict := q.fallBack(demands, now)
	if verdict == counter.Allowed {
		q.link.passedAlone(now, q.rules.lasts)
	}
	return verdict
}

// fallBack is decideAlone without the counting.
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

// overAlone reports whether a request that may not pass without the backend needs it only for rules
// that mark. Then the request continues without them.
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

// rejectAlone rejects a request because some of its rules need the backend. Other rules may have no
// room either.
func (q *requests) rejectAlone(demands []Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		// The headers need the entry, which may not have been read yet.
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

// takeRest takes the hits of a waiting request that its granted ask did not include: all of them,
// or none.
func (q *requests) takeRest(demands []Demand, t *ask) counter.Verdict {
	t.pass(demands)
	return q.decider.decide(demands, q.link.now())
}

// decideBy decides a waiting request by the backend's answer. If the ask was granted, rest is the
// verdict on the other hits. If the verdict is unsure, the request asks again.
func (q *requests) decideBy(w turn, demands []Demand, t *ask, rest counter.Verdict) {
	if t.granted || rest == counter.Unsure {
		for i := range demands {
			if d := &demands[i]; d.by == byBackend {
				q.keys.read(d, q.link.now()) // with the totals of the answer
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
		// It is not known which of them was full, unless there is one only.
		asked, marks := 0, false
		for i := range demands {
			if d := &demands[i]; d.by == byBackend {
				d.Verdict = counter.Rejected
				marks = marks || d.Rule.Marks
				asked++
			}
		}
		known = asked == 1
		if marks && !known && q.doubt(w.wait, demands, t) == counter.Unsure {
			q.goOn(w, demands, counter.Unsure, false)
			return
		}
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

// doubt makes a request ask again if the answer does not decide it, and asking may help: hits in
// flight decide, of which the backend will have heard, or it is not known which rule had no room.
// The number of rounds is bounded.
func (q *requests) doubt(w *Wait, demands []Demand, t *ask) counter.Verdict {
	if w.rounds >= maxRounds || q.link.hostNow() >= w.until {
		return counter.Rejected
	}
	w.rounds++
	t.pass(demands)
	for i := range demands {
		if d := &demands[i]; d.by == byBackend {
			d.Verdict, d.by = counter.Unsure, byRule
		}
	}
	return counter.Unsure
}

// leaveOut continues a request that the backend has refused without the rules that mark and had no
// room. known says whether it is known which rules had none. It returns false if there is no such
// rule, or another rule refuses the request.
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

// retry decides a waiting request again, with the hits granted by now.
func (q *requests) retry(w turn, granted bool) {
	demands := q.takeUp(w.wait)
	q.goOn(w, demands, q.decider.decide(demands, q.link.now()), granted)
}

// goOn ends the wait of a decided request. An unsure request asks again, if that may help.
func (q *requests) goOn(w turn, demands []Demand, verdict counter.Verdict, granted bool) {
	if verdict == counter.Unsure {
		w.wait.asked = 0
		whole := lacking(demands)
		again := whole != nil || w.wait.rounds < maxRounds && (granted || q.hasRoom(demands) || q.expects(demands))
		switch {
		case again && q.link.hostNow() < w.wait.until && q.wait(w.wait, demands, whole):
			return
		case whole != nil:
			verdict = q.decideLate(demands) // the answer lacked its part
		default:
			if verdict = q.decider.refuse(demands, q.link.now()); verdict == counter.Unsure {
				q.goOn(w, demands, verdict, false) // without the rules that marked it
				return
			}
		}
	}
	q.finishWaiting(w, demands, verdict)
}

// hasRoom reports whether the unsure demands have room as far as is known, because a window ended
// while the backend was asked.
func (q *requests) hasRoom(demands []Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.leases() && !d.Counter.Allows(d.Cost) {
			return false
		}
	}
	return true
}

// expects reports whether hits for requests to come are on their way to some unsure demand.
func (q *requests) expects(demands []Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.leases() && q.waits.leases.underWay(d) != nil {
			return true
		}
	}
	return false
}

// finishWaiting ends a request's wait, unless its turn is over.
func (q *requests) finishWaiting(w turn, demands []Demand, verdict counter.Verdict) {
	w.wait.stopAsking()
	now := q.link.now()
	if q.lines != nil && q.waitsOn(w.wait, demands, now, verdict) {
		return
	}
	q.tell(w.wait, demands, now, verdict)
}

// tell ends a request's wait, and reports the verdict to it.
func (q *requests) tell(w *Wait, demands []Demand, now int64, verdict counter.Verdict) {
	if q.watch.records() && (verdict == counter.Rejected || q.rules.marks) {
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

// giveUpOn decides a waiting request without the backend. If that has refused it before, the refusal stands.
func (q *requests) giveUpOn(w turn) {
	demands := q.takeUp(w.wait)
	if w.wait.refused {
		verdict := q.decider.decide(demands, q.link.now())
		if verdict == counter.Unsure {
			verdict = q.decider.refuse(demands, q.link.now())
		}
		if verdict != counter.Unsure {
			q.finishWaiting(w, demands, verdict)
			return
		}
	}
	q.finishWaiting(w, demands, q.decideLate(demands))
}

// decideLate decides a request without the backend after a wait in vain.
func (q *requests) decideLate(demands []Demand) counter.Verdict {
	q.tallies.Late++
	return q.decideAlone(demands, q.link.now())
}

// giveUpWaiting decides requests that have waited long enough, without the backend. It returns
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

// decideReleased decides requests whose callouts have failed, without the backend, while there is
// time. Do not call it in a request's callback.
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
