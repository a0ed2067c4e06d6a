package engine

import (
	"slices"
	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/observe"
	"weir/internal/engine/rule"
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
	tallies  *entry.Tallies
	link     *link.Link
	ticks    *ticks
	rules    *rule.Set
	keys     *entry.Entries
	waits    *waits
	callouts *callouts
	asks     *asks
	watch    *observe.Observer
	accounts *observe.Meter
	decider  *decider
	lines    *wait.Queue // nil if no rule delays requests
	failure  FailureMode
	// demands belong to a request that has waited, and resumed to one that decides a saved demand.
	demands []rule.Demand
	resumed [1]rule.Demand
}

// decideSaved is [Engine.DecideSaved].
func (q *requests) decideSaved(s *rule.Saved, now int64, w *Wait) (*rule.Demand, counter.Verdict) {
	demands := q.resumed[:]
	q.keys.Restore(&demands[0], s)
	return &demands[0], q.decideLocated(demands, now, w)
}

func (q *requests) decideLocated(demands []rule.Demand, now int64, w *Wait) counter.Verdict {
	verdict := q.decideNow(demands, now, w)
	if q.rules.Warns && verdict != counter.Unsure {
		q.watch.Warn(demands, now)
	}
	if q.rules.Reveals {
		q.accounts.Take(demands, verdict, now)
	}
	if q.watch.Records() {
		w.weight = q.watch.See(demands, now, verdict)
	}
	return verdict
}

// decideNow decides a request, or makes it wait.
func (q *requests) decideNow(demands []rule.Demand, now int64, w *Wait) counter.Verdict {
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
func (q *requests) decideAtOnce(demands []rule.Demand, now int64, w *Wait) counter.Verdict {
	if q.rules.Synced && !q.link.ConnectedAt(now) && needsBackend(demands) {
		return q.decideAlone(demands, now)
	}
	verdict := q.decider.decide(demands, now)
	if verdict == counter.Unsure && !q.wait(w, demands, lacking(demands)) {
		verdict = q.decideAlone(demands, now)
	}
	return verdict
}

func needsBackend(demands []rule.Demand) bool {
	for i := range demands {
		if demands[i].Synced() {
			return true
		}
	}
	return false
}

// lacking selects the demands that a request has to ask the backend for as a whole: the unsure
// demands, if none of them needs a lease. Otherwise the request first asks for leases, and lacking
// is nil: hits granted to the request itself would have to go back.
func lacking(demands []rule.Demand) (of func(*rule.Demand) bool) {
	for i := range demands {
		if d := &demands[i]; d.Leases() {
			return nil
		}
	}
	return (*rule.Demand).Unsure
}

// ask is [Engine.Ask].
func (q *requests) ask(demands []rule.Demand, w *Wait) bool {
	return needsBackend(demands) && q.wait(w, demands, (*rule.Demand).Synced)
}

// wait makes a request wait for the backend's answer about the demands that whole selects, which
// decides it, or for leases if whole is nil. It returns false if waiting is impossible, so that
// known totals must decide.
func (q *requests) wait(r *Wait, demands []rule.Demand, whole func(*rule.Demand) bool) bool {
	now := q.link.HostNow()
	if len(q.callouts.batches) >= maxUnanswered {
		return false
	}
	if q.callouts.away != 0 {
		of := whole
		if of == nil {
			of = (*rule.Demand).Leases
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
		if !q.link.Connected(now) || q.link.Open() && len(q.callouts.batches) > 0 || !q.link.Enter(now) {
			return false // a failed push will test whether the backend is back
		}
		if q.link.Open() {
			q.callouts.postEmpty() // nobody waits for the test
			return false
		}
		q.waits.queue.add(r, now+q.link.Timeout)
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
			if d := &demands[i]; d.Leases() {
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
func (q *requests) keep(w *Wait, demands []rule.Demand) {
	w.kept = slices.Grow(w.kept[:0], len(demands))[:len(demands)]
	for i := range demands {
		w.kept[i] = q.keys.Save(&demands[i])
	}
}

// delaying returns the demand whose room a rejected request should wait for. It is nil if the
// request is to be refused: a rule that does not delay has no room, or the backend is away and no
// rule can decide.
func (q *requests) delaying(demands []rule.Demand, now int64) (first *rule.Demand) {
	if q.failure == FailDeny && needsBackend(demands) && !q.link.ConnectedAt(now) {
		return nil
	}
	for i := range demands {
		d := &demands[i]
		if d.Verdict != counter.Rejected {
			continue
		}
		if !d.Rule.Delays() {
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
func (q *requests) occupied(demands []rule.Demand) *rule.Demand {
	for i := range demands {
		if d := &demands[i]; d.Rule.Delays() && q.lines.Waiting(d.Address) > 0 {
			return d
		}
	}
	return nil
}

// lineUp makes a request wait for the room of a demand, behind those that wait already. It refuses
// the request if too many wait, or if room will certainly come too late.
func (q *requests) lineUp(w *Wait, demands []rule.Demand, of *rule.Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		if q.keys.Read(d, now); d != of {
			d.Verdict = counter.Allowed
		}
	}
	of.Verdict = counter.Rejected
	delay := of.Rule.Delay
	ahead := q.lines.Waiting(of.Address)
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
		if at, ok := d.FitsAfter(uint64(before), now); !ok || at-now > delay.Most {
			of.Verdict, d.Verdict = counter.Allowed, counter.Rejected
			return counter.Rejected
		}
	}
	hostNow := q.link.HostNow()
	if w.room == nil {
		w.room = &wait.Place{Of: w}
	}
	if !q.lines.Join(w.room, of.Address, hostNow, hostNow+delay.Most, delay.Queue) {
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
func (q *requests) setDue(w *Wait, demands []rule.Demand, now int64) {
	at, ok := rule.RetryAt(demands, now)
	if !ok {
		at = now + rule.MaxDelay
	}
	for i := range demands {
		if demands[i].Rule.CostsLater && !demands[i].Rule.Synced() {
			at = min(at, now+settlesWithin)
		}
	}
	hostNow := q.link.HostNow()
	w.room.Again(hostNow+at-now, hostNow)
}

// waitsOn reports whether a request that has asked the backend now waits for room, or continues to.
func (q *requests) waitsOn(w *Wait, demands []rule.Demand, now int64, verdict counter.Verdict) bool {
	if verdict == counter.Rejected {
		switch d := q.delaying(demands, now); {
		case d == nil || w.Patience < 0:
		case !w.room.Waits():
			if q.lineUp(w, demands, d, now) == counter.Unsure {
				return true
			}
		case q.link.HostNow() < w.room.Leaves:
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
func (q *requests) takeUp(w *Wait) []rule.Demand {
	for len(q.demands) < len(w.kept) {
		q.demands = append(q.demands, rule.Demand{}) // several keys of a rule
	}
	for i := range w.kept {
		d := &q.demands[i]
		q.keys.Restore(d, &w.kept[i])
		d.Patient = w.patient(d)
	}
	return q.demands[:len(w.kept)]
}

// decideAlone decides a request by the configuration, because the backend can't be reached.
func (q *requests) decideAlone(demands []rule.Demand, now int64) counter.Verdict {
	q.tallies.Alone++
	verdict := q.fallBack(demands, now)
	if verdict == counter.Allowed {
		q.link.PassedAlone(now, q.rules.Lasts)
	}
	return verdict
}

// fallBack is decideAlone without the counting.
func (q *requests) fallBack(demands []rule.Demand, now int64) counter.Verdict {
	switch q.failure {
	case FailAllow:
		for i := range demands {
			if d := &demands[i]; d.Rule.Synced() {
				d.By = rule.ByBackend
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
		demands[i].By = rule.ByWhatIsKnown
	}
	return q.decider.decide(demands, now)
}

// overAlone reports whether a request that may not pass without the backend needs it only for rules
// that mark. Then the request continues without them.
func overAlone(demands []rule.Demand) bool {
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
func (q *requests) rejectAlone(demands []rule.Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		// The headers need the entry, which may not have been read yet.
		q.keys.Read(d, now)
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
func (q *requests) takeRest(demands []rule.Demand, t *ask) counter.Verdict {
	t.pass(demands)
	return q.decider.decide(demands, q.link.Now())
}

// decideBy decides a waiting request by the backend's answer. If the ask was granted, rest is the
// verdict on the other hits. If the verdict is unsure, the request asks again.
func (q *requests) decideBy(w turn, demands []rule.Demand, t *ask, rest counter.Verdict) {
	if t.granted || rest == counter.Unsure {
		for i := range demands {
			if d := &demands[i]; d.By == rule.ByBackend {
				q.keys.Read(d, q.link.Now()) // with the totals of the answer
			}
		}
		q.goOn(w, demands, rest, t.granted)
		return
	}
	t.pass(demands)
	full := false
	for i := range demands {
		d := &demands[i]
		if q.keys.Read(d, q.link.Now()); d.By == rule.ByBackend && !d.Counter.Allows(d.Cost) {
			d.Verdict, full = counter.Rejected, true
		}
	}
	known := full
	if !full {
		// It is not known which of them was full, unless there is one only.
		asked, marks := 0, false
		for i := range demands {
			if d := &demands[i]; d.By == rule.ByBackend {
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
	if q.rules.Marks && q.leaveOut(demands, full) {
		q.goOn(w, demands, q.decider.decide(demands, q.link.Now()), false)
		return
	}
	if q.rules.Blocks && known {
		q.decider.block(demands, q.link.Now())
	}
	q.finishWaiting(w, demands, counter.Rejected)
}

// doubt makes a request ask again if the answer does not decide it, and asking may help: hits in
// flight decide, of which the backend will have heard, or it is not known which rule had no room.
// The number of rounds is bounded.
func (q *requests) doubt(w *Wait, demands []rule.Demand, t *ask) counter.Verdict {
	if w.rounds >= maxRounds || q.link.HostNow() >= w.until {
		return counter.Rejected
	}
	w.rounds++
	t.pass(demands)
	for i := range demands {
		if d := &demands[i]; d.By == rule.ByBackend {
			d.Verdict, d.By = counter.Unsure, rule.ByRule
		}
	}
	return counter.Unsure
}

// leaveOut continues a request that the backend has refused without the rules that mark and had no
// room. known says whether it is known which rules had none. It returns false if there is no such
// rule, or another rule refuses the request.
func (q *requests) leaveOut(demands []rule.Demand, known bool) (left bool) {
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
		demands[i].PassesOver()
		demands[i].By = rule.ByRule
	}
	return true
}

// retry decides a waiting request again, with the hits granted by now.
func (q *requests) retry(w turn, granted bool) {
	demands := q.takeUp(w.wait)
	q.goOn(w, demands, q.decider.decide(demands, q.link.Now()), granted)
}

// goOn ends the wait of a decided request. An unsure request asks again, if that may help.
func (q *requests) goOn(w turn, demands []rule.Demand, verdict counter.Verdict, granted bool) {
	if verdict == counter.Unsure {
		w.wait.asked = 0
		whole := lacking(demands)
		again := whole != nil || w.wait.rounds < maxRounds && (granted || q.hasRoom(demands) || q.expects(demands))
		switch {
		case again && q.link.HostNow() < w.wait.until && q.wait(w.wait, demands, whole):
			return
		case whole != nil:
			verdict = q.decideLate(demands) // the answer lacked its part
		default:
			if verdict = q.decider.refuse(demands, q.link.Now()); verdict == counter.Unsure {
				q.goOn(w, demands, verdict, false) // without the rules that marked it
				return
			}
		}
	}
	q.finishWaiting(w, demands, verdict)
}

// hasRoom reports whether the unsure demands have room as far as is known, because a window ended
// while the backend was asked.
func (q *requests) hasRoom(demands []rule.Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.Leases() && !d.Counter.Allows(d.Cost) {
			return false
		}
	}
	return true
}

// expects reports whether hits for requests to come are on their way to some unsure demand.
func (q *requests) expects(demands []rule.Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.Leases() && q.waits.leases.underWay(d) != nil {
			return true
		}
	}
	return false
}

// finishWaiting ends a request's wait, unless its turn is over.
func (q *requests) finishWaiting(w turn, demands []rule.Demand, verdict counter.Verdict) {
	w.wait.stopAsking()
	now := q.link.Now()
	if q.lines != nil && q.waitsOn(w.wait, demands, now, verdict) {
		return
	}
	q.tell(w.wait, demands, now, verdict)
}

// tell ends a request's wait, and reports the verdict to it.
func (q *requests) tell(w *Wait, demands []rule.Demand, now int64, verdict counter.Verdict) {
	if q.watch.Records() && (verdict == counter.Rejected || q.rules.Marks) {
		q.watch.SeeRefused(demands, now, w.weight)
	}
	if q.rules.Warns {
		q.watch.Warn(demands, now)
	}
	if q.rules.Reveals {
		q.accounts.Take(demands, verdict, now)
	}
	w.Request.Decided(demands, now, verdict)
}

// giveUpOn decides a waiting request without the backend. If that has refused it before, the refusal stands.
func (q *requests) giveUpOn(w turn) {
	demands := q.takeUp(w.wait)
	if w.wait.refused {
		verdict := q.decider.decide(demands, q.link.Now())
		if verdict == counter.Unsure {
			verdict = q.decider.refuse(demands, q.link.Now())
		}
		if verdict != counter.Unsure {
			q.finishWaiting(w, demands, verdict)
			return
		}
	}
	q.finishWaiting(w, demands, q.decideLate(demands))
}

// decideLate decides a request without the backend after a wait in vain.
func (q *requests) decideLate(demands []rule.Demand) counter.Verdict {
	q.tallies.Late++
	return q.decideAlone(demands, q.link.Now())
}

// giveUpWaiting decides requests that have waited long enough, without the backend. It returns
// false if there are more.
func (q *requests) giveUpWaiting(deadline int64) (done bool) {
	now := q.link.HostNow()
	for handled := 0; ; handled++ {
		w := q.waits.queue.first
		if w == nil || now < w.until && w.until-now <= q.link.Timeout {
			return true
		}
		if q.link.Late(handled, deadline) {
			return false
		}
		q.giveUpOn(w.current())
	}
}

// decideReleased decides requests whose callouts have failed, without the backend, while there is
// time. Do not call it in a request's callback.
func (q *requests) decideReleased(deadline int64) {
	for handled := 0; len(q.waits.released) > 0 && !q.link.Late(handled, deadline); handled++ {
		w := q.waits.released[0]
		if q.waits.released = q.waits.released[1:]; w.waits() {
			q.giveUpOn(w)
		}
	}
	if len(q.waits.released) == 0 {
		q.waits.released = nil
	}
}
