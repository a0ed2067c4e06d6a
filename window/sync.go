package window

// What several nodes have counted merges to what one node would have counted:
//
//   - of windows of the clock, and of buckets of a precision, the sum for each, whatever the order;
//   - of windows that start with their first hit, the sum from the earliest start of windows that
//     overlap;
//   - of token buckets, the sum of what was taken since the bucket was full, by the clock of the
//     node that was first.
//
// A node pushes what it took ([Limit.Outgoing]) after moving it in flight ([Limit.Claim]), and
// takes in the totals that come back ([Limit.Settle]).

// Push is what a state has for the backend. Its memory is reused.
type Push struct {
	// Newest identifies the newest window, as [Limit.Number] does.
	Newest uint64
	// Hits are to be added to the backend's totals: Hits[i] to those of the window i before the
	// newest, or Ages[i] before it where there are ages. They are negative where more was given
	// back than taken.
	Hits []int64
	// Ages are there for bucketed kinds only, ascending.
	Ages []uint64
}

// Added is how many hits a push adds.
func (p *Push) Added() uint64 {
	sum := int64(0)
	for _, h := range p.Hits {
		sum += h
	}
	return uint64(max(sum, 0))
}

// Totals are what the backend answers. Their memory is reused.
type Totals struct {
	// Newest is the push's, or the start or newest bucket that the backend knows.
	Newest uint64
	// Hits are the backend's, named as in a Push.
	Hits []uint64
	Ages []uint64
}

// each calls f with the hits of all windows of s.
func (s *State) each(f func(h *Hits)) {
	for i := range s.Hits {
		f(&s.Hits[i])
	}
	for i := range s.Buckets {
		f(&s.Buckets[i].Hits)
	}
}

// Pending reports whether s has hits that were not pushed yet.
//
//go:noinline
func (s *State) Pending() (pending bool) {
	s.each(func(h *Hits) { pending = pending || h.Diff != 0 })
	return pending
}

// InFlight reports whether s has hits that were pushed and not answered yet.
//
//go:noinline
func (s *State) InFlight() (flying bool) {
	s.each(func(h *Hits) { flying = flying || h.Flight != 0 })
	return flying
}

// EndFlight counts hits in flight as arrived: they were answered, or nobody waits for their answer
// any more. Those that were given back are left to what the backend says.
//
//go:noinline
func (s *State) EndFlight() {
	s.each(func(h *Hits) { h.Total, h.Flight = clamp(int64(h.Total)+max(h.Flight, 0)), 0 })
}

// Claim moves the hits not yet pushed in flight. Call it only while nothing is in flight.
func (l *Limit) Claim(s *State) {
	s.each(func(h *Hits) { h.Diff, h.Flight = 0, h.Flight+h.Diff })
}

// Outgoing describes what is in flight, for the backend.
func (l *Limit) Outgoing(s *State, p *Push) {
	p.Newest, p.Hits, p.Ages = l.Number(s), p.Hits[:0], p.Ages[:0]
	if !l.Kind.Bucketed() {
		for i := range l.Kind.Windows() {
			p.Hits = append(p.Hits, s.Hits[i].Flight)
		}
		return
	}
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		if b := &s.Buckets[i]; b.Flight != 0 {
			p.Hits = append(p.Hits, b.Flight)
			p.Ages = append(p.Ages, p.Newest-uint64(b.Number))
		}
	}
}

// PushEnds is the time from which nobody wants what s has for the backend any more, as none of its
// windows counts. A token bucket that is full here may lack all of its tokens in the backend.
func (l *Limit) PushEnds(s *State) int64 {
	at := l.ForgetAt(s)
	if h := &s.Hits[0]; l.Kind.Refills() && (h.Diff != 0 || h.Flight != 0) {
		there := State{Start: s.Newest}
		at = max(at, l.returnedAt(&there, clamp(h.Diff+h.Flight)+l.Quota()))
	}
	return max(at, s.Newest+1)
}

// Settle takes in the backend's answer to a push; inFlight says that it is the one that is in
// flight. The state may have moved on since: what the answer says of windows that s has left is of
// no use any more.
//
// What the answer says replaces the totals, as other nodes may have given hits back; but if it is
// not in flight, or is not newer than what s knows already, it only raises them.
func (l *Limit) Settle(s *State, inFlight, newer bool, total *Totals) {
	if inFlight {
		s.EndFlight()
	}
	l.settle(s, inFlight && newer, total)
}

// Learn takes in totals of the backend that come with no push.
func (l *Limit) Learn(s *State, newer bool, total *Totals) {
	l.settle(s, newer && !s.InFlight(), total)
}

func (l *Limit) settle(s *State, newest bool, total *Totals) {
	switch {
	case l.Kind.Bucketed():
		l.settleBuckets(s, newest, total)
	case len(total.Hits) == 0 || total.Newest > uint64(maxTime):
	case l.Kind.Started():
		hits := min(total.Hits[0], MaxHits)
		if l.Kind.Refills() {
			l.settleTokens(s, newest, int64(total.Newest), hits)
		} else {
			l.settleFirstHit(s, newest, int64(total.Newest), hits)
		}
	default:
		for i, hits := range total.Hits {
			// This wraps for a window that is newer than s, and is then as far out of range as for
			// one that is too old.
			if at := l.Number(s) - total.Newest + uint64(i); at < uint64(l.Kind.Windows()) {
				s.Hits[at].settle(newest, min(hits, MaxHits))
			}
		}
	}
}

// settle sets or raises the total. An answer that does not know of a lease yet is older than that.
func (h *Hits) settle(newest bool, total uint64) {
	if newest || total > h.Total {
		h.Total = max(total, h.Lease)
	}
}

func clamp(hits int64) uint64 { return uint64(max(0, min(hits, MaxHits))) }
