package window

// What several nodes have counted merges to what one node would have counted. For windows of the clock that is a sum for
// each window, whatever the order: a node pushes its diffs by the window's number, and adopts the totals that come back. For
// windows that start with their first hit, the earliest start of windows that overlap is the start of all.

// Push is what a state has for the backend.
type Push struct {
	// Newest identifies the newest window, as [Limit.Number] does; Hits[i] belongs to the window i before it.
	Newest uint64
	// Hits are to be added to the backend's totals. They are negative where more was given back than taken.
	Hits [2]int64
}

// Taken is how many hits a push adds.
func (p *Push) Taken() uint64 { return uint64(max(p.Hits[0]+p.Hits[1], 0)) }

// Totals are what the backend answers: its hits of the windows that a push named.
type Totals struct {
	// Newest is the push's, or the start of the window as the backend knows it.
	Newest uint64
	Hits   [2]uint64
}

// Windows is the number of windows of which a push of this kind has hits; 0 for a kind that is not synchronised.
func (k Kind) Windows() int {
	switch k {
	case FixedWindow, FirstHitWindow, SlidingWindow:
		return k.windows()
	}
	return 0
}

// Pending tells whether s has hits that were not pushed yet.
func (s *State) Pending() bool { return s.Hits[0].Diff|s.Hits[1].Diff != 0 }

// InFlight tells whether s has hits that were pushed and not answered yet.
func (s *State) InFlight() bool { return s.Hits[0].Flight|s.Hits[1].Flight != 0 }

// Abandon counts hits in flight as arrived: nobody waits for their answer any more.
func (s *State) Abandon() {
	for i := range s.Hits {
		h := &s.Hits[i]
		h.Total, h.Flight = clamp(int64(h.Total)+h.Flight), 0
	}
}

// Claim moves the hits not yet pushed in flight and returns them. Call it only while nothing is in flight: the answer tells
// what arrived by its amount alone.
func (l *Limit) Claim(s *State) Push {
	p := Push{Newest: l.Number(s)}
	for i := range s.Hits {
		h := &s.Hits[i]
		p.Hits[i] = h.Diff
		h.Flight += h.Diff
		h.Diff = 0
	}
	return p
}

// Settle takes in the backend's answer to a push. The state may have moved on since: what the answer says of windows that s
// has left is of no use any more. Totals never go down, and a push that was answered is part of its total: a backend that
// lost its memory does not make a node forget its own.
func (l *Limit) Settle(s *State, pushed Push, total Totals) {
	if l.Kind == FirstHitWindow {
		l.settleFirstHit(s, pushed, total)
		return
	}
	if total.Newest != pushed.Newest {
		return
	}
	turned := l.Number(s) - pushed.Newest
	for i := range pushed.Hits {
		// This wraps for a window that is newer than s, and is then as far out of range as for one that is too old.
		if at := turned + uint64(i); at < uint64(len(s.Hits)) {
			s.Hits[at].land(pushed.Hits[i], total.Hits[i])
		}
	}
}

func (l *Limit) settleFirstHit(s *State, pushed Push, total Totals) {
	h := &s.Hits[0]
	if h.Sum() == 0 || uint64(s.Start) != pushed.Newest {
		return
	}
	switch {
	case total.Newest == pushed.Newest:
		h.land(pushed.Hits[0], total.Hits[0])
	case total.Newest > pushed.Newest:
		// The backend knows a window after this one only: what this one counted is its own.
		h.land(pushed.Hits[0], 0)
	default:
		// Other nodes had the window's first hit. If their window has ended, hits since taken here start the next one.
		h.land(pushed.Hits[0], 0)
		h.Total = min(total.Hits[0], MaxHits)
		s.Start = int64(total.Newest)
		if s.Newest-s.Start >= l.Width {
			h.Total = 0
			s.Start = s.Newest
		}
	}
}

// land counts what was pushed, as far as it still is in flight, as arrived.
func (h *Hits) land(pushed int64, total uint64) {
	landed := min(max(h.Flight, 0), pushed)
	if pushed < 0 {
		landed = max(min(h.Flight, 0), pushed)
	}
	h.Flight -= landed
	h.Total = max(clamp(int64(h.Total)+landed), min(total, MaxHits))
}

func clamp(hits int64) uint64 { return uint64(max(0, min(hits, MaxHits))) }
