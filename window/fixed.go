package window

// A fixed window counts the hits of one window at a time. Its windows start at multiples of their
// width since the Unix epoch, so that all nodes with a correct clock have the same windows. A
// calendar may say otherwise. SlidingWindow counts in windows of the clock too, and uses what has
// clock in its name.

func turnFixed(l *Limit, s *State, now int64) {
	if clockNumber(l, now) != clockNumber(l, s.Newest) {
		s.Hits = [2]Hits{}
	}
}

func fixedLasts(l *Limit) int64 {
	if l.Calendar != nil {
		return l.Width + calendarSlack
	}
	return l.Width
}

// clockEnd is the end of the window that contains Newest.
func clockEnd(l *Limit, s *State) int64 {
	if s.ends != 0 {
		return s.ends
	}
	return findClockEnd(l, s)
}

func findClockEnd(l *Limit, s *State) int64 {
	if l.Calendar != nil {
		return l.Calendar.At(s.Newest).End
	}
	return int64((uint64(s.Newest)/uint64(l.Width) + 1) * uint64(l.Width))
}

func clockForgetAt(l *Limit, s *State) int64 {
	switch idle := s.Hits[0].idle(); {
	case idle && s.Hits[1].idle():
		return s.Newest
	case !idle && l.Kind == SlidingWindow:
		return clockEnd(l, s) + l.Width
	}
	return clockEnd(l, s)
}

//go:noinline // at nine places it would make the plugin larger
func clockNumber(l *Limit, at int64) uint64 {
	if l.Calendar != nil {
		return l.Calendar.At(at).Number
	}
	return uint64(at / l.Width)
}

// clockWindow wraps around for a window newer than s, which is out of range then, as is one that is
// too old.
func clockWindow(l *Limit, s *State, number uint64) *Hits {
	turned := clockNumber(l, s.Newest) - number
	if turned == 0 || turned == 1 && l.Kind == SlidingWindow {
		return &s.Hits[turned]
	}
	return nil
}

func clockSettle(l *Limit, s *State, newest bool, total *Totals) {
	for i, hits := range total.Hits {
		if h := clockWindow(l, s, total.Newest-uint64(i)); h != nil {
			h.settle(newest, min(hits, MaxHits))
		}
	}
}

func clockLease(l *Limit, s *State, g *Grant) {
	switch h := clockWindow(l, s, clockNumber(l, g.At)); h {
	case nil:
	case &s.Hits[0]:
		h.lease(g.Hits)
	default:
		h.giveUp(g.Hits)
	}
}
