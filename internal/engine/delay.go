package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/engine/wait"
	"weir/internal/failure"
)

// settlesWithin is how often a waiting request checks for room that costs of responses may leave,
// in nanoseconds.
const settlesWithin = int64(20e6)

// queues reports whether a request may have to wait for room, or behind others that do.
func (q *requests) queues(w *Wait) bool {
	return q.lines != nil && (w.Patience >= 0 || q.lines.Count > 0)
}

// delaying returns the check whose room a rejected request should wait for. It is nil if the
// request is to be refused: a rule that does not delay has no room, or the backend is away and no
// rule can decide.
func (q *requests) delaying(checks []rule.Check) (of *rule.Check) {
	away := q.failure == failure.Deny && q.link.Reach() == link.Away
	for i := range checks {
		d := &checks[i]
		if away && d.Synced() {
			return nil
		}
		if d.Verdict != counter.Rejected || d.Over {
			continue
		}
		if !d.Rule.Delays() {
			return nil
		}
		if of == nil {
			of = d
		}
	}
	return of
}

// follow makes a request wait behind others, if there are some that wait for the room of one of its checks. Nothing is
// decided otherwise.
func (q *requests) follow(w *Wait, checks []rule.Check, now int64) (verdict counter.Verdict, decided bool) {
	for i := range checks {
		if d := &checks[i]; d.Rule.Delays() && !decided {
			verdict, decided = q.lineUp(w, checks, d, now, true)
		}
	}
	return verdict, decided
}

// waitForRoom makes a rejected request wait, if a rule delays it.
func (q *requests) waitForRoom(w *Wait, checks []rule.Check, now int64) counter.Verdict {
	verdict := counter.Rejected
	if of := q.delaying(checks); of != nil {
		verdict, _ = q.lineUp(w, checks, of, now, false)
	}
	return verdict
}

// lineUp makes a request wait for the room of a check, behind those that wait already; with behind, only if
// others do, or else nothing is decided. It refuses the request if too many wait, or if room will certainly come too late.
func (q *requests) lineUp(w *Wait, checks []rule.Check, of *rule.Check, now int64, behind bool) (verdict counter.Verdict, decided bool) {
	delay, hostNow := of.Rule.Delay, q.outbox.host.Now()
	if w.Patience > 0 {
		delay.Most = min(delay.Most, w.Patience)
	}
	fits := func(ahead int) bool {
		for i := range checks {
			d := &checks[i]
			if q.decider.taker.Read(d, now); d != of {
				d.Verdict = counter.Allowed
			}
		}
		if of.Verdict = counter.Rejected; ahead >= delay.Queue || w.Patience < 0 {
			return false
		}
		for i := 0; i < len(checks); i += 1 + checks[i].Rule.Spares {
			d, before := &checks[i], 0
			if d == of {
				before = ahead
			}
			if at, ok := rule.FitsAfter(checks[i:i+1+d.Rule.Spares], uint64(before), now); !ok || at-now > delay.Most {
				of.Verdict, d.Verdict, d.Over = counter.Allowed, counter.Rejected, false
				return false
			}
		}
		return true
	}
	joined := q.lines.Join(&w.room, w, &wait.Wish{
		Address: of.Address, From: hostNow, Until: hostNow + delay.Most, Most: delay.Queue, Fits: fits, Behind: behind,
	})
	switch joined {
	case wait.Free:
		return counter.Unsure, false
	case wait.Refused:
		return counter.Rejected, true
	}
	q.tallies.Delayed++
	rule.Afresh(checks)
	if joined == wait.Leads {
		q.setDue(w, checks, now)
	}
	q.keep(w, checks)
	return counter.Unsure, true
}

// setDue sets when to decide the first request of a line again, once it should have room. Its
// checks were read. Settled charges may make room earlier.
func (q *requests) setDue(w *Wait, checks []rule.Check, now int64) {
	at, ok := rule.RetryAt(checks, now)
	if !ok {
		at = now + rule.MaxDelay
	}
	for i := range checks {
		if checks[i].Rule.CostsLater && !checks[i].Rule.Synced() {
			at = min(at, now+settlesWithin)
		}
	}
	hostNow := q.outbox.host.Now()
	w.room.Again(hostNow+at-now, hostNow)
}

// waitsOn reports whether a request that has asked the backend now waits for room, or continues to.
func (q *requests) waitsOn(w *Wait, checks []rule.Check, now int64, verdict counter.Verdict) bool {
	switch {
	case verdict != counter.Rejected || w.Patience < 0:
	case w.room.Leaves == 0:
		if q.waitForRoom(w, checks, now) == counter.Unsure {
			return true
		}
	case q.outbox.host.Now() < w.room.Leaves && q.delaying(checks) != nil:
		q.setDue(w, checks, now)
		return true
	}
	w.room.Leave()
	return false
}

// letGo decides waiting requests that should have room by now, those of each key in the order of
// their coming, as long as the tick has time.
func (q *requests) letGo() {
	deadline := q.outbox.host.Now() + tickNanos
	for handled := 0; !late(q.outbox.host, handled, deadline); handled++ {
		p, first, more := q.lines.Turn()
		if !more {
			return
		}
		if p != nil {
			q.decideFirst(p.Of.(*Wait), first)
		}
	}
	q.ticks.expect(deadline)
}

// decideFirst decides the first request of a line. It waits behind requests of other workers, until its
// own time is over.
func (q *requests) decideFirst(w *Wait, first bool) {
	checks, now := q.takeUp(w), q.link.Now()
	verdict := counter.Rejected
	if first {
		for i := range checks {
			checks[i].Heard = false
		}
		at := q.roomAt(w, checks, now)
		if verdict = q.decideAtOnce(w, checks, at); at < now {
			for i := range checks {
				checks[i].Counter.Advance(now) // for the standings of the answer
			}
		}
	} else {
		for i := range checks {
			d := &checks[i]
			if q.decider.taker.Read(d, now); d.Address == w.room.Address {
				d.Verdict = counter.Rejected
			}
		}
	}
	if verdict != counter.Unsure && !q.waitsOn(w, checks, now, verdict) {
		q.tell(w, checks, now, verdict)
	}
}

// roomAt is the time at which to decide a waiting request: the time when it got room, or now if it
// has none yet. A tick may come so late that several requests have got room one after the other. No
// request gets room after its time is over.
func (q *requests) roomAt(w *Wait, checks []rule.Check, now int64) int64 {
	for i := range checks {
		if r := checks[i].Rule; r.Synced() || r.CostsLater {
			return now // the backend's bucket has changed, or room does not come by itself
		}
	}
	// A counter goes back only a little, and its time is that of the last request that had room.
	ahead := now - q.outbox.host.Now()
	from := w.room.Since + ahead
	for i := range checks {
		q.entries.Fetch(&checks[i])
		for j := range checks[i].Counter.States {
			from = max(from, checks[i].Counter.States[j].Newest)
		}
	}
	from = min(from, now)
	for i := range checks {
		checks[i].Counter.Advance(from)
	}
	latest := min(now, max(from, w.room.Leaves+ahead))
	if at, ok := rule.RetryAt(checks, from); ok {
		return min(at, latest)
	}
	return latest
}
