package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/rule"
)

// letGo decides waiting requests that should have room by now, those of each key in the order of
// their coming, as long as the tick has time.
func (q *requests) letGo() {
	deadline := q.link.HostNow() + tickNanos
	for handled := 0; !q.link.Late(handled, deadline); handled++ {
		p, first, more := q.lines.Turn()
		if !more {
			return
		}
		if p != nil {
			q.decideFirst(p.Of.(*Wait), first)
		}
	}
	q.ticks.within(0)
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
		if verdict = q.decideAtOnce(checks, at, w); at < now {
			for i := range checks {
				checks[i].Counter.Advance(now) // for the standings of the answer
			}
		}
	} else {
		for i := range checks {
			d := &checks[i]
			if q.entries.Read(d, now); d.Address == w.room.Address {
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
	ahead := now - q.link.HostNow()
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
