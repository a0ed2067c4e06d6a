package engine

import (
	"weir/internal/counter"
	"weir/internal/engine/rule"
)

// letGo decides waiting requests that should have room by now, those of each key in the order of
// their coming, as long as the tick has time.
func (q *requests) letGo() {
	now := q.link.HostNow()
	deadline := now + tickNanos
	q.lines.Tick(now)
	for handled := 0; ; handled++ {
		next, at := q.lines.Next()
		if next == nil {
			q.ticks.within(int64(q.ticks.millis) * 1e6)
			return
		}
		if in := at - q.link.HostNow(); in > 0 || q.link.Late(handled, deadline) {
			q.ticks.within(in)
			return
		}
		q.tryFirst(next.Of.(*Wait))
	}
}

// tryFirst decides the first request of a line if it is due. It waits behind requests of other
// workers, until its own time is over. While it asks the backend, it is not decided.
func (q *requests) tryFirst(w *Wait) {
	if w.queue != nil {
		w.room.Rest() // until the backend has answered
		return
	}
	due, first := w.room.Turn(q.link.HostNow())
	if !due {
		return
	}
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
			q.entries.Read(&checks[i], now)
		}
		q.entries.Reject(checks, w.room.Address())
	}
	switch {
	case verdict == counter.Unsure:
		w.room.Rest()
	case !q.waitsOn(w, checks, now, verdict):
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
