package node

import (
	"weir/sharedata"
)

const (
	// leastDelay is the least time between two decisions of a request that waits for room.
	leastDelay = int64(1e6)
	// lineGrace is for how much longer than its requests wait a line keeps its entry. Its worker gives the
	// entry back, unless it has died.
	lineGrace = int64(200e6)
)

// lines are the requests that wait for room, those of each key in a line of their own.
type lines struct {
	link    *link
	ticks   *ticks
	of      map[sharedata.Address]*keyLine
	due     alarms[*keyLine] // when there is something to do for a line
	order   order
	waiting int
	ticked  int64 // the host's time at the last tick
}

// keyLine has the requests of a key that wait for room, in the order of their coming. Only the first is
// decided. The order over all workers is in shared data.
type keyLine struct {
	alarm       alarm[*keyLine] // at dueAt, or when the entry is to be renewed
	all         *lines
	address     sharedata.Address
	first, last *Wait
	waiting     int
	dueAt       int64 // when the first is to be decided again
	ends        int64 // when the last of all that have joined waits no more
	// renewAt is when the line's entry in the order is to be renewed.
	renewAt int64
}

// waitingFor is how many requests of all workers wait for room at an address.
func (s *lines) waitingFor(a sharedata.Address) (n int) {
	seen, _ := s.order.read(a, s.link.hostNow())
	if l := s.of[a]; l != nil {
		n = l.waiting
	}
	return seen.waiting + n
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
	if s.waiting >= maxWaiting {
		return false
	}
	l := s.of[a]
	if l == nil {
		l = &keyLine{all: s, address: a}
		l.alarm.of = l
	}
	p := l.entry(now, max(l.ends, until))
	ticket, joined := s.order.join(a, p, now, most)
	if !joined {
		return false
	}
	l.ends = max(l.ends, until)
	l.keptUntil(p.until)
	if w.room == nil {
		w.room = new(roomWait)
	}
	w.room.since, w.room.leaves, w.room.ticket = now, until, ticket
	w.room.line, w.room.ahead, w.room.behind = l, l.last, nil
	if l.last == nil {
		l.first, l.dueAt = w, now
		s.of[a] = l
	} else {
		l.last.room.behind = w
	}
	l.last = w
	l.waiting++
	s.waiting++
	l.wake()
	return true
}

// at takes in the host's time at a tick. If its clock has gone back, all lines are due.
func (s *lines) at(now int64) {
	if now < s.ticked {
		for _, a := range s.due.list {
			a.at, a.of.dueAt, a.of.renewAt = now, now, now
			for w := a.of.first; w != nil; w = w.room.behind {
				w.room.rewind(now)
			}
		}
	}
	s.ticked = now
}

// remove takes a request out, which need not be the first. The next one may have room too.
func (l *keyLine) remove(w *Wait) {
	s := l.all
	now := s.link.hostNow()
	r := w.room
	l.waiting--
	s.waiting--
	if r.behind == nil {
		l.last = r.ahead
	} else {
		r.behind.room.ahead = r.ahead
	}
	if r.ahead != nil {
		r.ahead.room.behind = r.behind
	} else if l.first = r.behind; l.first != nil {
		s.ticks.within(leastDelay) // an answer may have let the one before go
		l.dueAt = now
	}
	l.tell(now)
	if l.first == nil {
		s.due.stop(&l.alarm)
		delete(s.of, l.address)
	} else if r.ahead == nil {
		l.wake()
	}
	r.line, r.ahead, r.behind = nil, nil, nil
	r.delayed = max(now-r.since, 1)
}

// entry is the line's entry in the order, if the last of its requests ends then.
func (l *keyLine) entry(now, ends int64) entry {
	p := entry{waiting: l.waiting, until: min(ends+lineGrace, now+entryHolds)}
	if l.first != nil {
		p.first = l.first.room.ticket
	}
	return p
}

// keptUntil notes until when the line has its entry.
func (l *keyLine) keptUntil(until int64) {
	if l.renewAt = until; until <= l.ends {
		l.renewAt -= entryRenews
	}
}

// tell has other workers know of the line. If they are always faster, the line tells again when it wakes.
func (l *keyLine) tell(now int64) {
	p := l.entry(now, l.ends)
	if l.keptUntil(p.until); !l.all.order.tell(l.address, p, now) {
		l.renewAt = now + leastDelay
	}
}

// wake sets the line's alarm.
func (l *keyLine) wake() { l.all.due.set(&l.alarm, min(l.dueAt, l.renewAt)) }

// goesFirst reports whether the line's first request is the first of all workers. It renews the line's entry.
func (l *keyLine) goesFirst(now int64) bool {
	seen, _ := l.all.order.read(l.address, now)
	if !seen.told || now >= l.renewAt {
		l.tell(now)
	}
	return l.first.room.ticket < seen.first
}

// lineOf is the line that a request waits in, nil if it is in none.
func lineOf(w *Wait) *keyLine {
	if !w.waitsForRoom() {
		return nil
	}
	l, _ := w.room.line.(*keyLine)
	return l
}
