package window

// A request may take hits before its cost is known. Later, the difference is counted or given back
// in the window that the hits were counted in.

// NumberAt is [Limit.Number] for hits that were counted at an earlier time. s is the state that was
// written with them.
func (l *Limit) NumberAt(s *State, at int64) uint64 {
	if l.Kind.Started() {
		return uint64(s.Start)
	}
	return l.numberAt(at)
}

// CountIn counts cost more hits in the window with a number. If that window has gone, it counts
// nothing. Tokens are taken now, because a bucket has no windows.
func (l *Limit) CountIn(s *State, number, cost uint64) {
	switch {
	case l.Kind.Blocks():
	case l.Kind.Refills():
		l.Count(s, cost)
	case l.Kind.Bucketed():
		for i := range s.Buckets {
			if uint64(s.Buckets[i].Number) == number {
				s.Buckets[i].count(cost)
			}
		}
	case l.Kind.Started():
		if number-uint64(s.Start) < uint64(l.Width) && !s.Hits[0].idle() {
			s.Hits[0].count(cost)
		}
	default:
		if turned := l.Number(s) - number; turned < uint64(l.Kind.Windows()) {
			s.Hits[turned].count(cost)
		}
	}
}

// Returnable is how many of the hits that were taken at a time can still be given back. For tokens
// these are the hits that can't have come back since.
func (l *Limit) Returnable(hits uint64, at, now int64) uint64 {
	if l.Kind.Refills() {
		return hits - min(hits, l.tokens(at, now))
	}
	return hits
}

// GiveBackNewest gives back hits that count now, whoever counted them, the newest first. It makes room for
// that number of hits, or for all if fewer count, and returns for how many.
func (l *Limit) GiveBackNewest(s *State, hits uint64) (given uint64) {
	left := min(hits, MaxHits)
	from := func(h *Hits) {
		given := min(left, h.Sum())
		h.giveBack(given)
		left -= given
	}
	switch hits = left; {
	case l.Kind.Blocks(): // nothing that was given back ends a block
	case l.Kind.Refills():
		given := min(left, l.Used(s)) // the others have come back
		s.Hits[0].giveBack(given)
		return given
	case l.Kind.Bucketed():
		for i := len(s.Buckets) - 1; i >= 0 && left > 0; i-- {
			from(&s.Buckets[i].Hits)
		}
	default:
		if from(&s.Hits[0]); l.Kind != SlidingWindow || left == 0 {
			break
		}
		// Only a share of the previous window counts, so hits make room by the same share.
		previous, weighed := s.Hits[1].Sum(), l.weighed(s)
		if weighed <= left {
			s.Hits[1].giveBack(previous)
			left -= weighed
			break
		}
		width, covered := uint64(l.Width), uint64(l.end(s)-s.Newest)
		needed, rest, _ := muldiv(left, width, covered) // at most previous, as less is left than weighs
		s.Hits[1].giveBack(needed + min(rest, 1))
		left = 0
	}
	return hits - left
}
