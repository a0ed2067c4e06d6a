package window

// A fixed window counts the hits of one window at a time. FixedWindow's windows start at multiples
// of their width since the Unix epoch, so that all nodes with a correct clock have the same
// windows. FirstHitWindow's start with the first hit after the last window ended, so that no two
// keys need to have the same windows. SlidingWindow counts in windows of the clock too.

// end is the end of the window that contains Newest.
func (l *Limit) end(s *State) int64 {
	if s.ends != 0 {
		return s.ends
	}
	if l.Kind == FirstHitWindow {
		return s.Start + l.Width
	}
	if l.Calendar != nil {
		return l.Calendar.At(s.Newest).End
	}
	return int64((uint64(s.Newest)/uint64(l.Width) + 1) * uint64(l.Width))
}

func (l *Limit) settleFirstHit(s *State, newest bool, start int64, hits uint64) {
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

// turn drops all windows of the clock except the current window and, for SlidingWindow, the
// previous window.
func (l *Limit) turn(s *State, now int64) {
	switch turned := l.numberAt(now) - l.numberAt(s.Newest); {
	case turned == 0:
	case turned == 1 && l.Kind == SlidingWindow:
		s.Hits = [2]Hits{1: s.Hits[0]}
		s.Hits[1].returnLease(0)
	default:
		s.Hits = [2]Hits{}
	}
}

// expire drops a FirstHitWindow that has ended by now.
func (l *Limit) expire(s *State, now int64) {
	if now-s.Start >= l.Width {
		s.Start, s.Hits = 0, [2]Hits{}
	}
}
