package window

// The hits of several nodes merge to those that a single node would have counted:
//
//   - windows of the clock, and buckets of a precision, merge to the sum of each, whatever the
//     order;
//   - windows that start with their first hit, and overlap, merge to their sum, from the earliest
//     start;
//   - token buckets merge to the sum of the tokens taken since the bucket was full, by the clock of
//     the node that was first.
//
// A node moves what it has counted in flight ([Limit.Claim]), pushes it ([Limit.Outgoing]), and
// takes in the totals that come back ([Limit.Settle]).

// Push has the part of a state that the backend does not know yet. Its memory is reused.
type Push struct {
	// Newest names the newest window, as [Limit.Number] does. If tokens are given back, it is a
	// time until which they can't have come back.
	Newest uint64
	// Hits are to be added to the backend's totals. Hits[i] are those of the window i before the
	// newest, or where there are ages, of the bucket Ages[i] before it. They are negative where
	// more was given back than counted.
	Hits []int64
	// Ages are there for bucketed kinds only, ascending.
	Ages []uint64
}

// Added is how many hits a push adds: 0 if it gives back more.
func (p *Push) Added() uint64 {
	sum := int64(0)
	for _, h := range p.Hits {
		sum += h
	}
	return uint64(max(sum, 0))
}

// Totals are the backend's answer. Their memory is reused.
type Totals struct {
	// Newest is as in a push. It may be another start, or a newer bucket, that the backend knows.
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
	s.each(func(h *Hits) { pending = pending || h.Pending != 0 })
	return pending
}

// InFlight reports whether s has hits that were pushed and not answered yet.
//
//go:noinline
func (s *State) InFlight() (flying bool) {
	s.each(func(h *Hits) { flying = flying || h.InFlight != 0 })
	return flying
}

// Owes reports whether s has hits to give back that the backend may not know of.
func (s *State) Owes() (owes bool) {
	s.each(func(h *Hits) { owes = owes || h.Pending < 0 || h.InFlight < 0 })
	return owes
}

// Doubt leaves out of s what the backend may have counted or given back already, so that it has too
// few hits and not too many. It is for a question, and not to be written.
func (s *State) Doubt() {
	s.each(func(h *Hits) { h.Pending, h.InFlight = h.Pending+min(h.InFlight, 0), 0 })
}

// Presume is Doubt the other way: the backend has heard of nothing that is in flight, so that s has too
// many hits and not too few.
func (s *State) Presume() {
	s.each(func(h *Hits) { h.Pending, h.InFlight = h.Pending+max(h.InFlight, 0), 0 })
}

// EndFlight adds the hits in flight to the totals: they were answered, or nobody waits for their
// answer any more. Hits that were given back are not subtracted: only the backend's answer does
// that.
//
//go:noinline
func (s *State) EndFlight() {
	s.each(func(h *Hits) { h.Total, h.InFlight = clamp(int64(h.Total)+max(h.InFlight, 0)), 0 })
}

// Owe has all hits of s pushed: they were counted while there was no backend.
func (s *State) Owe() {
	s.each(func(h *Hits) { h.Total, h.Pending = 0, h.Pending+int64(h.Total) })
}

// Claim moves hits that were not pushed yet in flight. Call it only while nothing is in flight.
func (l *Limit) Claim(s *State) {
	s.each(func(h *Hits) { h.Pending, h.InFlight = 0, h.InFlight+h.Pending })
}

// Outgoing describes what is in flight, for the backend. nodes is how many keep the limit together, 0
// for an unknown number.
func (l *Limit) Outgoing(s *State, nodes uint64, p *Push) {
	p.Newest, p.Hits, p.Ages = l.Number(s), p.Hits[:0], p.Ages[:0]
	if !l.Kind.Bucketed() {
		if l.Kind.Refills() && s.Hits[0].InFlight < 0 {
			p.Newest = uint64(l.heldUntil(s, nodes))
		}
		for i := range l.Kind.Windows() {
			p.Hits = append(p.Hits, s.Hits[i].InFlight)
		}
		return
	}
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		if b := &s.Buckets[i]; b.InFlight != 0 {
			p.Hits = append(p.Hits, b.InFlight)
			p.Ages = append(p.Ages, p.Newest-uint64(b.Number))
		}
	}
}

// PushEnds is the time from which the backend needs no hits of s any more, as none of its windows
// counts there. A token bucket that is full here may lack all of its tokens in the backend.
func (l *Limit) PushEnds(s *State) int64 {
	at := l.ForgetAt(s)
	if h := &s.Hits[0]; l.Kind.Refills() && (h.Pending != 0 || h.InFlight != 0) {
		there := State{Start: s.Newest}
		at = max(at, l.returnedAt(&there, clamp(h.Pending+h.InFlight)+l.Quota()))
	}
	return max(at, s.Newest+1)
}

// Settle takes in the backend's answer to a push. inFlight says that this push is in flight. newer
// says that no newer answer was taken in. If s has left a window since, what the answer says of
// that is not used.
//
// The answer's totals replace those of s, as other nodes may have given hits back. If inFlight or
// newer is false, they only raise them. Those of buckets replace those of s if newer is true: what is in
// flight is no part of them there.
func (l *Limit) Settle(s *State, inFlight, newer bool, total *Totals) {
	if l.Kind.Bucketed() {
		if inFlight {
			lands := l.IsLog() && !newer
			s.each(func(h *Hits) {
				if lands && h.InFlight < 0 {
					// Answers of the same moment only raise totals, and this push has taken hits out.
					h.Total = max(h.Lease, h.Total-min(h.Total, uint64(-h.InFlight)))
				}
				h.InFlight = 0 // the answer has it
			})
		}
		l.settle(s, newer, false, total)
		return
	}
	gaveBack := inFlight && s.Hits[0].InFlight < 0
	if inFlight {
		s.EndFlight()
	}
	l.settle(s, inFlight && newer, gaveBack, total)
}

// Learn takes in totals of the backend that answer no push.
func (l *Limit) Learn(s *State, newer bool, total *Totals) {
	l.settle(s, newer && (l.Kind.Bucketed() || !s.InFlight()), false, total)
}

func (l *Limit) settle(s *State, newest, gaveBack bool, total *Totals) {
	switch {
	case l.Kind.Bucketed():
		l.settleBuckets(s, newest, total)
		l.trimLog(s)
	case len(total.Hits) == 0 || total.Newest > uint64(maxTime):
	case l.Kind.Started():
		hits := min(total.Hits[0], MaxHits)
		if l.Kind.Refills() {
			l.settleTokens(s, newest, gaveBack, int64(total.Newest), hits)
		} else {
			l.settleFirstHit(s, newest, int64(total.Newest), hits)
		}
	default:
		for i, hits := range total.Hits {
			// If the window is newer than s, this wraps, and is out of range as it is for a window
			// that is too old.
			if at := l.Number(s) - total.Newest + uint64(i); at < uint64(l.Kind.Windows()) {
				s.Hits[at].settle(newest, min(hits, MaxHits))
			}
		}
	}
}

// settle sets or raises the total. A total below the lease comes from an answer that is older than
// the lease.
func (h *Hits) settle(newest bool, total uint64) {
	if newest || total > h.Total {
		h.Total = max(total, h.Lease)
	}
}

func clamp(hits int64) uint64 { return uint64(max(0, min(hits, MaxHits))) }
