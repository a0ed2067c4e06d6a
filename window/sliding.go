package window

// The sliding window counter estimates the hits of the last Width nanoseconds from two windows of
// the clock:
//
//	rate = current + previous·(Width − elapsed)/Width
//
// as Cloudflare (https://blog.cloudflare.com/counting-things-a-lot-of-different-things/) and Kong
// do. Decisions use integers, with the previous window's share rounded up. Since the limit and the
// cost are whole numbers, the rounding changes no decision.

func turnSliding(l *Limit, s *State, now int64) {
	switch clockNumber(l, now) - clockNumber(l, s.Newest) {
	case 0:
	case 1:
		s.Hits = [2]Hits{1: s.Hits[0]}
		s.Hits[1].returnLease(0)
	default:
		s.Hits = [2]Hits{}
	}
}

// Rate is the rate of a sliding window at the time of s, in hits per window. It is meant for
// people: decisions use integers.
func Rate(l *Limit, s *State) float64 {
	covered := l.Width - s.Newest%l.Width
	return float64(s.Hits[0].Sum()) + float64(s.Hits[1].Sum())*float64(covered)/float64(l.Width)
}

func usedSliding(l *Limit, s *State) uint64 { return s.Hits[0].Sum() + weighed(l, s) }

// weighed is the previous window's share at the time of s, in hits, rounded up.
func weighed(l *Limit, s *State) uint64 {
	previous := s.Hits[1].Sum()
	if previous == 0 {
		return 0
	}
	return MulDivUp(previous, uint64(clockEnd(l, s)-s.Newest), uint64(l.Width))
}

// slidingFitsAt expects 0 < cost ≤ Max, or a state over the limit. The hits must not fit now.
func slidingFitsAt(l *Limit, s *State, cost uint64) int64 {
	current := s.Hits[0].Sum()
	start := clockEnd(l, s) - l.Width
	if current <= l.Max-cost {
		return start + elapsedWhenFits(l, s.Hits[1].Sum(), l.Max-cost-current)
	}
	// The current window alone is too full: it has to become the previous window, and wear off.
	return start + l.Width + elapsedWhenFits(l, current, l.Max-cost)
}

// elapsedWhenFits is how far into a window the previous window's hits have worn off to room: the
// least elapsed with previous·(Width − elapsed) ≤ room·Width.
func elapsedWhenFits(l *Limit, previous, room uint64) int64 {
	if previous <= room {
		return 0
	}
	covered, _, _ := MulDiv(room, uint64(l.Width), previous)
	return l.Width - int64(covered)
}

// freeSliding gives back so many hits of the previous window that their share is no more than what is to go back. Rounding may
// keep one hit's room, but never makes more: neither now, nor later, nor where more hits are known than here.
func freeSliding(l *Limit, s *State, hits uint64) (given uint64) {
	given = s.Hits[0].giveBackAny(hits)
	old, rest := uint64(MaxHits), uint64(clockEnd(l, s)-s.Newest)
	if left := hits - given; left < weighed(l, s) {
		old, _, _ = MulDiv(left, uint64(l.Width), rest)
	}
	return given + MulDivUp(s.Hits[1].giveBackAny(old), rest, uint64(l.Width))
}
