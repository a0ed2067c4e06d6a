package node

import "weir/internal/counter"

// letGo decides the requests that are due to have room, those of a key in the order of their coming, for
// as long as that may take.
func (q *requests) letGo() {
	due, deadline := &q.lines.due, q.link.hostNow()+tickNanos
	for handled := 0; ; handled++ {
		next := due.earliest()
		if next == nil {
			q.ticks.within(int64(q.ticks.millis) * 1e6)
			return
		}
		if in := next.at - q.link.hostNow(); in > 0 || q.link.late(handled, deadline) {
			q.ticks.within(in)
			return
		}
		q.tryFirst(next.of)
	}
}

// tryFirst decides the first request of a line. While requests of other workers are before it, it waits, but
// no longer than it may. While it asks the backend, nobody decides it.
func (q *requests) tryFirst(l *keyLine) {
	w, now := l.first, q.link.now()
	if w.queue != nil {
		q.lines.due.stop(&l.alarm) // until the backend has answered
		return
	}
	demands := q.takeUp(w)
	verdict := counter.Rejected
	if n, mine := q.lines.order.waiting(l.address, q.link.hostNow()); mine || n == 0 {
		verdict = q.decideAtOnce(demands, now, w)
	} else {
		for i := range demands {
			q.keys.read(&demands[i], now)
		}
		q.keys.reject(demands, l.address)
	}
	switch {
	case verdict == counter.Unsure:
		q.lines.due.stop(&l.alarm)
	case !q.waitsOn(w, demands, now, verdict):
		q.tell(w, demands, now, verdict)
	}
}
