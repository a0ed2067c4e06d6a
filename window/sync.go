package window

// Merging the hits of several nodes gives the hits that a single node would have counted:
//
//   - windows of the clock, and buckets of a precision, merge to the sum of each, whatever the
//     order;
//   - windows that start with their first hit, and overlap, merge to their sum, from the earliest
//     start;
//   - token buckets merge to the sum of the tokens taken since the bucket was full, by the clock of
//     the node that was first.
//
// A node moves its new hits in flight ([State.Claim]), pushes them ([Limit.Outgoing]), and takes in
// the totals that the backend answers with ([Limit.Settle]).

// Push has the part of a state that the backend does not know yet. Callers reuse its memory.
type Push struct {
	// Newest is the number of the newest window or bucket: [Limit.Number]. If tokens are given
	// back, it is a time until which they can't have come back by themselves.
	Newest uint64
	// Hits are to be added to the backend's totals. Hits[i] belongs to the window i before the newest
	// or, if there are ages, to the bucket Ages[i] before it. It is negative if more hits were given
	// back than counted.
	Hits []int64
	// Ages exist for bucketed kinds only, in ascending order.
	Ages []uint64
}

// Added is how many hits a push adds in sum; 0 if it gives back more.
func (p *Push) Added() uint64 {
	sum := int64(0)
	for _, h := range p.Hits {
		sum += h
	}
	return uint64(max(sum, 0))
}

// Totals are the backend's answer. Callers reuse their memory.
type Totals struct {
	// Newest is as in a Push. The backend may know a window with another start, or a newer bucket.
	Newest uint64
	// Hits are the backend's totals, indexed as in a Push.
	Hits []uint64
	Ages []uint64
}

// each calls f with the hits of all windows and buckets of s.
func (s *State) each(f func(h *Hits)) {
	for i := range s.Hits {
		f(&s.Hits[i])
	}
	s.unpack()
	for i := range s.Buckets {
		f(&s.Buckets[i].Hits)
	}
}

func (s *State) any(f func(h *Hits) bool) (found bool) {
	s.each(func(h *Hits) { found = found || f(h) })
	return found
}

// Pending reports whether s has hits that were not pushed yet, or hits to give back.
//
//go:noinline // in each caller its function would be another
func (s *State) Pending() bool { return s.any(func(h *Hits) bool { return h.Pending != 0 }) }

// InFlight reports whether s has hits that were pushed, but not answered yet.
//
//go:noinline // in each caller its function would be another
func (s *State) InFlight() bool { return s.any(func(h *Hits) bool { return h.InFlight != 0 }) }

// Late reports whether s has hits in flight that were counted without the backend. Leased hits that move to
// the time of their use are none, and those that go back are fewer.
//
//go:noinline // in each caller its function would be another
func (s *State) Late() bool {
	sum := int64(0)
	s.each(func(h *Hits) { sum += h.InFlight })
	return sum > 0
}

// Owes reports whether s has hits to give back that the backend may not know of yet.
//
//go:noinline // in each caller its function would be another
func (s *State) Owes() bool {
	return s.any(func(h *Hits) bool { return min(h.Pending, h.InFlight) < 0 })
}

// Doubt removes from s everything that the backend may have counted or given back already, so that
// s has too few hits rather than too many. Use the result for a question, and never write it.
func (s *State) Doubt() {
	s.each(func(h *Hits) { h.Pending, h.InFlight = h.Pending+min(h.InFlight, 0), 0 })
}

// Presume is the opposite of Doubt: it assumes that the backend has heard of nothing in flight, so
// that s has too many hits rather than too few.
func (s *State) Presume() {
	s.each(func(h *Hits) { h.Pending, h.InFlight = h.Pending+max(h.InFlight, 0), 0 })
}

// EndFlight adds the hits in flight to the totals, after their answer or when nobody waits for it
// any more. It does not subtract hits that were given back: only the backend's answer does that.
//
//go:noinline // in each caller its function would be another
func (s *State) EndFlight() {
	s.each(func(h *Hits) { h.Total, h.InFlight = clamp(int64(h.Total)+max(h.InFlight, 0)), 0 })
}

// Owe marks all hits of s as not pushed yet. They were counted while there was no backend.
func (s *State) Owe() {
	s.each(func(h *Hits) { h.Total, h.Pending = 0, h.Pending+int64(h.Total) })
}

// Claim moves pending hits in flight. Call it only while nothing is in flight.
func (s *State) Claim() {
	s.each(func(h *Hits) { h.Pending, h.InFlight = 0, h.InFlight+h.Pending })
}

// Outgoing fills p with the hits in flight. nodes is how many nodes share the limit; 0 if unknown.
func (l *Limit) Outgoing(s *State, nodes uint64, p *Push) {
	p.Newest, p.Hits, p.Ages = l.Number(s), p.Hits[:0], p.Ages[:0]
	if !l.Kind.Bucketed() {
		if l.Kind.Refills() && s.Hits[0].InFlight < 0 {
			p.Newest = uint64(heldUntil(l, s, nodes))
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

// PushEnds is the time from which no hit of s counts in the backend, so that a push is pointless. A
// bucket that is full here may still be empty in the backend.
func (l *Limit) PushEnds(s *State) int64 {
	at := l.ForgetAt(s)
	if h := &s.Hits[0]; l.Kind.Refills() && (h.Pending != 0 || h.InFlight != 0) {
		there := State{Start: s.Newest}
		at = max(at, tokensBackAt(l, &there, clamp(h.Pending+h.InFlight)+l.Quota()))
	}
	return max(at, s.Newest+1)
}

// Settle takes in the backend's answer to a push. inFlight says whether this push is in
// flight. newer says whether the answer is newer than all answers before. Totals of windows that s
// has left are ignored.
//
// The answer's totals replace those of s, as other nodes may have given hits back. If inFlight or
// newer is false, they only raise them. The totals of buckets replace those of s whenever newer is
// true, because hits in flight are not part of them.
func (l *Limit) Settle(s *State, inFlight, newer bool, total *Totals) {
	if inFlight && !newer { // an answer of the same moment only raises totals
		s.each(func(h *Hits) {
			if h.InFlight < 0 {
				h.Total = max(h.Lease, h.Total-min(h.Total, uint64(-h.InFlight)))
			}
		})
	}
	if l.Kind.Bucketed() {
		if inFlight {
			s.each(func(h *Hits) { h.InFlight = 0 }) // the answer includes it
		}
		l.Learn(s, newer, total)
		return
	}
	gaveBack := inFlight && s.Hits[0].InFlight < 0
	if inFlight && !newer && (l.Kind.Clocked() || total.Newest == uint64(s.Start)) {
		for i := range total.Hits {
			if h := windowOf(l, s, total.Newest-uint64(i)); h != nil {
				h.InFlight = 0 // these totals include it, and so may those of the newer answer
			}
		}
	}
	if inFlight {
		s.EndFlight()
	}
	settle(l, s, inFlight && newer, gaveBack, total)
}

// Learn takes in totals that the backend sent without a push of this state. They may or may not have what is in flight: if that
// adds hits to a window, they only raise its totals.
func (l *Limit) Learn(s *State, newer bool, total *Totals) {
	settle(l, s, newer && (l.Kind.Bucketed() || !l.adds(s)), false, total)
}

// adds reports whether hits in flight add to a window, or to all buckets together: in these they may only move.
func (l *Limit) adds(s *State) bool {
	if l.Kind.Bucketed() {
		return s.Late()
	}
	return s.any(func(h *Hits) bool { return h.InFlight > 0 })
}

// Overtaken takes in that an answer that is not here yet, to the push in flight, is older than one that [Limit.Learn] has taken in. If
// the push has added nothing, the totals are right as they are, and ended is true: that answer is to be ignored.
func (l *Limit) Overtaken(s *State) (ended bool) {
	if ended = !l.adds(s); ended {
		s.each(func(h *Hits) { h.InFlight = 0 })
	}
	return ended
}

// settle replaces the total if newest is set, and otherwise only raises it. A total below the lease
// comes from an answer older than the lease.
func (h *Hits) settle(newest bool, total uint64) {
	if newest || total > h.Total {
		h.Total = max(total, h.Lease)
	}
}

func clamp(hits int64) uint64 { return uint64(max(0, min(hits, MaxHits))) }
