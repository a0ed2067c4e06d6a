package window

// The sliding window counter estimates the hits of the last Width nanoseconds from two windows of
// the clock:
//
//	rate = current + previous·(Width − elapsed)/Width
//
// as Cloudflare (https://blog.cloudflare.com/counting-things-a-lot-of-different-things/) and Kong
// do. Decisions use integers, with the previous window's share rounded up. Since the limit and the
// cost are whole numbers, the rounding changes no decision.

// Rate is the rate of a sliding window at the time of s, in hits per window. It is meant for
// people: decisions use integers.
func Rate(l *Limit, s *State) float64 {
	covered := l.Width - s.Newest%l.Width
	return float64(s.Hits[0].Sum()) + float64(s.Hits[1].Sum())*float64(covered)/float64(l.Width)
}

// weighed is the previous window's share at the time of s, in hits, rounded up.
func (l *Limit) weighed(s *State) uint64 {
	previous := s.Hits[1].Sum()
	if previous == 0 {
		return 0
	}
	weighed, remainder, _ := muldiv(previous, uint64(l.end(s)-s.Newest), uint64(l.Width))
	if remainder != 0 {
		weighed++
	}
	return weighed
}

// fitsSlidingAt expects 0 < cost ≤ Max, or a state over the limit. The hits must not fit now.
func (l *Limit) fitsSlidingAt(s *State, cost uint64) int64 {
	current := s.Hits[0].Sum()
	start := l.end(s) - l.Width
	if current <= l.Max-cost {
		return start + l.elapsedWhenFits(s.Hits[1].Sum(), l.Max-cost-current)
	}
	// The current window alone is too full: it has to become the previous window, and wear off.
	return start + l.Width + l.elapsedWhenFits(current, l.Max-cost)
}

// elapsedWhenFits is how far into a window the previous window's hits have worn off to room: the
// least elapsed with previous·(Width − elapsed) ≤ room·Width.
func (l *Limit) elapsedWhenFits(previous, room uint64) int64 {
	if previous <= room {
		return 0
	}
	covered, _, _ := muldiv(room, uint64(l.Width), previous)
	return l.Width - int64(covered)
}
