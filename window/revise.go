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
