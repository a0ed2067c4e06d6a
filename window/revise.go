package window

// A request may take hits before it is known what it costs. When the cost is known, it is put right
// where the hits were counted.

// NumberAt names the window or bucket that hits of a time were counted in, as [Limit.Number] does.
// s is the state that was written with them.
func (l *Limit) NumberAt(s *State, at int64) uint64 {
	if l.Kind.Started() {
		return uint64(s.Start)
	}
	return l.numberAt(at)
}

// CountIn counts cost hits beside others that are in the window of a number. If that has gone, there
// is nothing to count. Tokens are taken now: their bucket has no windows.
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

// Returnable is how many of so many hits that were taken at a time can still be given back: of
// tokens, those that can't have come back since.
func (l *Limit) Returnable(hits uint64, at, now int64) uint64 {
	if l.Kind.Refills() {
		return hits - min(hits, l.tokens(at, now))
	}
	return hits
}
