package node

import (
	"weir/sharedata"
)

// leastDelay is the least time between two decisions of a request that waits for room.
const leastDelay = int64(1e6)

// lines are the requests that wait for room, those of each key in a line of their own.
type lines struct {
	link    *link
	ticks   *ticks
	of      map[sharedata.Address]*keyLine
	due     alarms[*keyLine] // when the first of a line is to be decided again
	order   order
	waiting int
}

// keyLine has the requests of a key that wait for room, in the order of their coming. Only the first is
// decided. The order over all workers is in shared data.
type keyLine struct {
	alarm       alarm[*keyLine] // when the first is to be decided again
	all         *lines
	address     sharedata.Address
	first, last *Wait
}

// waitingFor is how many requests of all workers wait for room at an address.
func (s *lines) waitingFor(a sharedata.Address) (n int) {
	n, _ = s.order.waiting(a, s.link.hostNow())
	return n
}

// occupied is the first demand of a request for whose room others wait; nil if there is none.
func (s *lines) occupied(demands []Demand) *Demand {
	for i := range demands {
		if d := &demands[i]; d.Rule.delays() && s.waitingFor(d.address) > 0 {
			return d
		}
	}
	return nil
}

// add has a request wait from now until some time, unless there are most before it.
func (s *lines) add(w *Wait, a sharedata.Address, now, until int64, most int) (added bool) {
	if s.waiting >= maxWaiting || !s.order.join(a, until, now, most) {
		return false
	}
	l := s.of[a]
	if l == nil {
		l = &keyLine{all: s, address: a}
		l.alarm.of = l
		s.of[a] = l
	}
	if w.room == nil {
		w.room = new(roomWait)
	}
	w.room.since, w.room.leaves = now, until
	w.room.line, w.room.ahead, w.room.behind = l, l.last, nil
	if l.last == nil {
		l.first = w
		s.due.set(&l.alarm, now)
	} else {
		l.last.room.behind = w
	}
	l.last = w
	s.waiting++
	return true
}

// remove takes a request out, which need not be the first. The next one may have room too.
func (l *keyLine) remove(w *Wait) {
	s := l.all
	now := s.link.hostNow()
	r := w.room
	s.order.leave(l.address, r.leaves, now)
	s.waiting--
	if r.behind == nil {
		l.last = r.ahead
	} else {
		r.behind.room.ahead = r.ahead
	}
	if r.ahead != nil {
		r.ahead.room.behind = r.behind
	} else if l.first = r.behind; l.first != nil {
		s.due.set(&l.alarm, now)
		s.ticks.within(leastDelay) // an answer may have let the one before go
	} else {
		s.due.stop(&l.alarm)
		delete(s.of, l.address)
	}
	r.line, r.ahead, r.behind = nil, nil, nil
	r.delayed = max(now-r.since, 1)
}

// lineOf is the line that a request waits in, nil if it is in none.
func lineOf(w *Wait) *keyLine {
	if !w.waitsForRoom() {
		return nil
	}
	l, _ := w.room.line.(*keyLine)
	return l
}
