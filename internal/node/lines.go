package node

import (
	"weir/sharedata"
)

const (
	// leastDelay is the least time between two decisions of a request that waits for room, in
	// nanoseconds.
	leastDelay = int64(1e6)
	// lineGrace is how much longer than its requests a line keeps its entry, in nanoseconds. Only
	// an entry of a dead worker lasts that long.
	lineGrace = int64(200e6)
)

// lines are the requests that wait for room, with a line for each key.
type lines struct {
	link    *link
	ticks   *ticks
	of      map[sharedata.Address]*keyLine
	due     alarms[*keyLine] // when a line has something to do
	order   order
	waiting int
	ticked  int64 // the host's time at the last tick
}

// keyLine is the line of a key's requests that wait for room, in the order of their coming. Only
// the first is decided. The order across workers is in shared data.
type keyLine struct {
	alarm       alarm[*keyLine] // at dueAt, or when the entry is to be renewed
	all         *lines
	address     sharedata.Address
	first, last *Wait
	waiting     int
	dueAt       int64 // when to decide the first again
	ends        int64 // when the wait of the last to join ends
	// renewAt is when to renew the line's entry in the order.
	renewAt int64
}

// waitingFor is how many requests of all workers wait for room at an address.
func (s *lines) waitingFor(a sharedata.Address) (n int) {
	seen := s.order.read(a, s.link.hostNow())
	if l := s.of[a]; l != nil {
		n = l.waiting
	}
	return seen.waiting + n
}

// occupied returns the first demand of a request that others wait for already; nil if there is
// none.
func (s *lines) occupied(demands []Demand) *Demand {
	for i := range demands {
		if d := &demands[i]; d.Rule.delays() && s.waitingFor(d.address) > 0 {
			return d
		}
	}
	return nil
}

// add makes a request wait from now until a time, unless most requests are before it.
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

// at takes in the host's time at a tick. If the clock has gone back, all lines are due.
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

// remove removes a request from any place in the line. The next request may have room too.
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
		s.ticks.within(leastDelay) // an answer may have admitted the previous request
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

// entry is the line's entry in the order, given when the wait of its last request ends.
func (l *keyLine) entry(now, ends int64) entry {
	p := entry{waiting: l.waiting, until: min(ends+lineGrace, now+entryHolds)}
	if l.first != nil {
		p.first = l.first.room.ticket
	}
	return p
}

// keptUntil records until when the line has its entry.
func (l *keyLine) keptUntil(until int64) {
	if l.renewAt = until; until <= l.ends {
		l.renewAt -= entryRenews
	}
}

// tell writes the line's entry for other workers. If they win every race, the line tries again when
// it wakes.
func (l *keyLine) tell(now int64) {
	p := l.entry(now, l.ends)
	if l.keptUntil(p.until); !l.all.order.tell(l.address, p, now) {
		l.renewAt = now + leastDelay
	}
}

// wake sets the line's alarm.
func (l *keyLine) wake() { l.all.due.set(&l.alarm, min(l.dueAt, l.renewAt)) }

// goesFirst reports whether the line's first request is first among all workers. It also renews the
// entry.
func (l *keyLine) goesFirst(now int64) bool {
	seen := l.all.order.read(l.address, now)
	if !seen.told || now >= l.renewAt {
		l.tell(now)
	}
	return l.first.room.ticket < seen.first
}

// lineOf returns the line in which a request waits; nil if it is in none.
func lineOf(w *Wait) *keyLine {
	if !w.waitsForRoom() {
		return nil
	}
	l, _ := w.room.line.(*keyLine)
	return l
}
