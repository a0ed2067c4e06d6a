package window

// A first-hit window starts with the first hit after the last window ended, so that no two keys
// need to have the same windows.

func expireFirstHit(l *Limit, s *State, now int64) {
	if now-s.Start >= l.Width {
		s.Start, s.Hits = 0, [2]Hits{}
	}
}

func firstHitForgetAt(l *Limit, s *State) int64 {
	if s.Hits[0].idle() {
		return s.Newest
	}
	return s.Start + l.Width
}

// firstHitWindow allows for an earlier first hit on another node, which moves the start back.
func firstHitWindow(l *Limit, s *State, number uint64) *Hits {
	if s.Hits[0].idle() || number-uint64(s.Start) >= uint64(l.Width) {
		return nil
	}
	return &s.Hits[0]
}

// countStarted is for all kinds that start with a hit.
func countStarted(s *State, cost uint64) {
	if s.Hits[0].idle() {
		s.Start = s.Newest
	}
	s.Hits[0].count(cost)
}

func settleFirstHit(l *Limit, s *State, newest bool, start int64, hits uint64) {
	h := &s.Hits[0]
	switch {
	case hits == 0:
		if newest && start == s.Start {
			h.settle(true, 0)
		}
	case h.idle():
		if start <= s.Newest && s.Newest-start < l.Width {
			s.Start, h.Total = start, hits
		}
	case start == s.Start:
		h.settle(newest, hits)
	case start > s.Start || s.Start-start >= l.Width:
		// The backend's window is another.
	case s.Newest-start >= l.Width:
		// Another node had the window's first hit, and the window has ended by now. Hits that were
		// counted here since then start the next window.
		s.Start, h.Total, h.Lease = s.Newest, 0, 0
	default:
		s.Start = start
		h.settle(true, hits)
	}
}

func leaseFirstHit(s *State, g *Grant, total *Totals) (kept bool) {
	if len(total.Hits) == 0 || s.Hits[0].Total == 0 || uint64(s.Start) != total.Newest || g.At < s.Start {
		return false
	}
	s.Hits[0].lease(g.Hits)
	return true
}

// firstHitLeaseNumber allows for totals of another window, or of none. Then the lease has ended with
// its own window.
func firstHitLeaseNumber(at int64, total *Totals) (number uint64, counts bool) {
	return total.Newest, uint64(at) >= total.Newest && len(total.Hits) > 0 && total.Hits[0] > 0
}
