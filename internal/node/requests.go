package node

import (
	"slices"

	"weir/internal/counter"
)

const (
	// maxWaiting bounds the requests that wait, and with them memory. The next ones are decided as if
	// the backend were away.
	maxWaiting = 1 << 14
	// maxRounds is how often a request asks for leases. Others may use up what it was waiting for.
	maxRounds = 3
)

// Decide takes a request's hits from all limits of all the rules that match it, or from none. now
// is of [Node.Time]. It returns [counter.Unsure] if the request has to wait: then its waiter is
// told, unless it calls [Wait.Leave] before. The demands are of different rules.
func (n *Node) Decide(demands []Demand, now int64, w *Wait) counter.Verdict {
	for i := range demands {
		n.locate(&demands[i])
	}
	return n.decideLocated(demands, now, w)
}

// DecideSaved is Decide of a demand that was saved, which it returns. Call it when [Waiter.Decided] has
// no use for its demands any more.
func (n *Node) DecideSaved(s *Saved, now int64, w *Wait) (*Demand, counter.Verdict) {
	n.restore(&n.demands[0], s)
	return &n.demands[0], n.decideLocated(n.demands[:1], now, w)
}

func (n *Node) decideLocated(demands []Demand, now int64, w *Wait) counter.Verdict {
	verdict := n.decideNow(demands, now, w)
	if n.warns && verdict != counter.Unsure {
		n.warn(demands, now)
	}
	if n.sightings != nil {
		w.weight = n.see(demands, now, verdict)
	}
	return verdict
}

func (n *Node) decideNow(demands []Demand, now int64, w *Wait) counter.Verdict {
	if !n.local && !n.connected(now) && needsBackend(demands) {
		return n.decideAlone(demands, now)
	}
	verdict := n.decide(demands, now)
	if verdict == counter.Unsure && !n.wait(w, demands, ready(demands)) {
		verdict = n.decideAlone(demands, now)
	}
	return verdict
}

func needsBackend(demands []Demand) bool {
	for i := range demands {
		if demands[i].Rule.Synced() {
			return true
		}
	}
	return false
}

// ready reports whether all that a request lacks are hits that the backend has to grant to itself,
// as there is nothing to lease. It is not asked for them before: they would have to go back.
func ready(demands []Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.Verdict == counter.Unsure && !d.Rule.exact() {
			return false
		}
	}
	return true
}

// Look reads what a demand's key has, and reports whether anything is known of it.
func (n *Node) Look(d *Demand, now int64) (known bool) {
	n.locate(d)
	known = n.table.Read(&d.slot, d.address)
	n.decode(d, known)
	d.Counter.Advance(now)
	return known
}

// Ask has the backend asked for the totals of demands that were looked at and cost nothing, of
// different rules. It reports whether the request waits for them: its waiter is told as soon as they
// are known here, or can't be had.
func (n *Node) Ask(demands []Demand, w *Wait) bool {
	asks := false
	for i := range demands {
		if d := &demands[i]; d.Rule.Synced() {
			d.Verdict, asks = counter.Unsure, true
		}
	}
	return asks && n.wait(w, demands, true)
}

// wait has a request wait until the backend has been asked for what it is unsure of: at once, which
// decides it, or for leases. It reports false if that can't be: then what is known here has to do.
func (n *Node) wait(r *Wait, demands []Demand, whole bool) bool {
	now := n.hostNow()
	if len(n.batches) >= maxUnanswered {
		return false
	}
	first := !r.Waiting()
	if first {
		if n.waiting.length >= maxWaiting {
			n.Tallies.Crowded++
			return false
		}
		if !n.link.connected(now) || n.link.shared.failures >= breakAfter && len(n.batches) > 0 || !n.link.enter(now, n.options.Timeout) {
			return false // a push that has failed tells whether the backend is back
		}
		n.waiting.add(r, now+n.options.Timeout)
		// A push that the host does not take fails at once, before the caller knows that the
		// request waits.
		r.entering = true
		n.Tallies.Waited++
	}
	w := r.place()
	if whole {
		n.addWish(n.wholeRequest(w, demands))
	} else {
		r.rounds++
		for i := range demands {
			if d := &demands[i]; d.Verdict == counter.Unsure && !d.Rule.exact() {
				n.wish(d, w)
			}
		}
	}
	if first {
		n.keep(r, demands) // a wish may know a key's identity
	}
	n.askAll()
	waits := r.Waiting() || !r.entering
	r.entering = false
	return waits
}

// keep saves what it takes to decide a request later.
func (n *Node) keep(w *Wait, demands []Demand) {
	w.kept = slices.Grow(w.kept[:0], len(demands))[:len(demands)]
	for i := range demands {
		w.kept[i] = n.Save(&demands[i])
	}
}

// takeUp gives the demands of a request that was kept.
func (n *Node) takeUp(w *Wait) []Demand {
	for i := range w.kept {
		n.restore(&n.demands[i], &w.kept[i])
	}
	return n.demands[:len(w.kept)]
}

// decideAlone decides a request without the backend, which can't be reached, as the configuration
// says.
func (n *Node) decideAlone(demands []Demand, now int64) counter.Verdict {
	n.Tallies.Alone++
	verdict := n.fallBack(demands, now)
	if verdict == counter.Allowed {
		n.link.passedAlone(now, n.lasts)
	}
	return verdict
}

// fallBack is decideAlone of what the configuration says.
func (n *Node) fallBack(demands []Demand, now int64) counter.Verdict {
	switch n.options.OnBackendFailure {
	case FailAllow:
		for i := range demands {
			demands[i].passed = demands[i].Rule.Synced()
		}
		return n.decide(demands, now)
	case FailDeny:
		return n.rejectAlone(demands, now)
	}
	n.alone = true
	verdict := n.decide(demands, now)
	n.alone = false
	return verdict
}

// rejectAlone rejects a request, as rules of it need the backend. Others may have no room besides.
func (n *Node) rejectAlone(demands []Demand, now int64) counter.Verdict {
	for i := range demands {
		d := &demands[i]
		// Nobody may have looked for the entry yet, which the headers tell of.
		n.read(d, now)
		if d.Verdict = counter.Allowed; !d.Rule.Synced() && !d.Counter.Allows(d.Cost) {
			d.Verdict = counter.Rejected
		}
	}
	n.countRejected(demands, now)
	for i := range demands {
		if d := &demands[i]; d.Rule.Synced() {
			d.Verdict = counter.Rejected
		}
	}
	return counter.Rejected
}

// takeRest takes the hits of a waiting request that a take of its own had no part in, once that was
// granted: all of them, or none.
func (n *Node) takeRest(demands []Demand, t *take) counter.Verdict {
	t.pass(demands)
	return n.decide(demands, n.now())
}

// decideBy decides a waiting request as the backend has: if its hits were granted, rest is the
// verdict of what else it needs. If that is unsure, the request asks again.
func (n *Node) decideBy(w waiting, demands []Demand, t *take, rest counter.Verdict) {
	if t.granted || rest == counter.Unsure {
		for i := range demands {
			if d := &demands[i]; d.passed {
				n.read(d, n.now()) // for what the answer has told
			}
		}
		n.goOn(w, demands, rest, t.granted)
		return
	}
	t.pass(demands)
	full := false
	for i := range demands {
		d := &demands[i]
		if n.read(d, n.now()); d.passed && !d.Counter.Allows(d.Cost) {
			d.Verdict, full = counter.Rejected, true
		}
	}
	for i := range demands {
		if d := &demands[i]; d.passed && !full {
			d.Verdict = counter.Rejected // which of them was full is not known here
		}
	}
	n.finishWaiting(w, demands, counter.Rejected)
}

// retry decides a waiting request again, with what has been granted by now.
func (n *Node) retry(w waiting, granted bool) {
	demands := n.takeUp(w.wait)
	n.goOn(w, demands, n.decide(demands, n.now()), granted)
}

// goOn ends the waiting of a request that was decided. One that is unsure asks again, if that is of
// use.
func (n *Node) goOn(w waiting, demands []Demand, verdict counter.Verdict, granted bool) {
	if verdict == counter.Unsure {
		w.wait.asked = 0
		whole := ready(demands)
		again := whole || w.wait.rounds < maxRounds && (granted || n.hasRoom(demands))
		switch {
		case again && n.hostNow() < w.wait.until && n.wait(w.wait, demands, whole):
			return
		case whole:
			verdict = n.decideLate(demands) // the backend has said nothing of its part
		default:
			verdict = n.refuse(demands, n.now())
		}
	}
	n.finishWaiting(w, demands, verdict)
}

// hasRoom reports whether what is unsure has room, as far as is known: a window has ended while the
// backend was asked.
func (n *Node) hasRoom(demands []Demand) bool {
	for i := range demands {
		if d := &demands[i]; d.Verdict == counter.Unsure && !d.Rule.exact() && !d.Counter.Allows(d.Cost) {
			return false
		}
	}
	return true
}

// finishWaiting ends a request's waiting.
func (n *Node) finishWaiting(w waiting, demands []Demand, verdict counter.Verdict) {
	w.wait.Leave()
	now := n.now()
	if verdict == counter.Rejected {
		n.seeRefused(demands, now, w.wait.weight)
	}
	if n.warns {
		n.warn(demands, now)
	}
	w.wait.Waiter.Decided(demands, now, verdict)
}

// giveUpOn decides a waiting request without the backend.
func (n *Node) giveUpOn(w waiting) {
	demands := n.takeUp(w.wait)
	n.finishWaiting(w, demands, n.decideLate(demands))
}

// decideLate decides a request alone whose wait was in vain.
func (n *Node) decideLate(demands []Demand) counter.Verdict {
	n.Tallies.Late++
	return n.decideAlone(demands, n.now())
}

// giveUpWaiting decides, without the backend, the requests that have waited long enough. It reports
// false if there are more.
func (n *Node) giveUpWaiting(deadline int64) (done bool) {
	now := n.hostNow()
	for handled := 0; ; handled++ {
		w := n.waiting.first
		if w == nil || now < w.until && w.until-now <= n.options.Timeout {
			return true
		}
		if n.late(handled, deadline) {
			return false
		}
		n.giveUpOn(w.place())
	}
}

// decideReleased decides, without the backend, the requests whose callouts have failed, for as long
// as that may take. Call it outside of a request's callbacks.
func (n *Node) decideReleased(deadline int64) {
	for handled := 0; len(n.released) > 0 && !n.late(handled, deadline); handled++ {
		w := n.released[0]
		if n.released = n.released[1:]; w.waits() {
			n.giveUpOn(w)
		}
	}
	if len(n.released) == 0 {
		n.released = nil
	}
}
