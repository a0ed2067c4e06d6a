package window

import "math"

// A token bucket holds Burst tokens and gets Max back in each Width: one every Width/Max. That
// begins at Start, when a token was taken from a full bucket. The state has what was taken since
// then, so that there is nothing to round: at time t
//
//	taken − floor((t − Start)·Max/Width)
//
// tokens are missing. Nothing drifts, however long the bucket is not full. The generic cell rate
// algorithm (https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm) decides alike, but would
// have to round Width/Max.

// returned is how many tokens have come back from Start to now, and at most what was taken.
func (l *Limit) returned(s *State, now int64) uint64 {
	return min(l.tokens(s.Start, now), s.Hits[0].Sum())
}

// tokens is how many tokens come back between two times.
func (l *Limit) tokens(from, to int64) uint64 {
	tokens, _, ok := muldiv(uint64(max(to-from, 0)), l.Max, uint64(l.Width))
	if !ok {
		return math.MaxUint64
	}
	return tokens
}

// missing is how many tokens the backend's bucket lacks at now, as far as is known. Leased tokens
// are among them.
func (l *Limit) missing(s *State, now int64) uint64 {
	h := &s.Hits[0]
	taken := clamp(int64(h.Total) + max(h.InFlight, 0))
	return taken - min(taken, l.tokens(s.Start, now))
}

// wear takes from the lease, and from what is on its way back, the tokens that the backend's bucket
// does not lack any more. Tokens come back there whether or not they were used here. A lease beside
// them would be more than the bucket holds. Other nodes may have taken tokens since, so wear may
// take too many.
func (l *Limit) wear(s *State, now int64) {
	h := &s.Hits[0]
	missing := l.missing(s, now)
	h.Lease = min(h.Lease, missing)
	h.Pending = max(h.Pending, -int64(missing-h.Lease))
}

// WearLease takes from a node's claims, of which the lease had so many tokens before Advance, those
// that have come back between two times, while they are more than the node's even part of what the
// backend's bucket lacks. So the claims of all nodes are never more than that, though each node
// knows of its own only. Tokens on their way back wear first.
func (l *Limit) WearLease(s *State, leased, nodes uint64, from, to int64) {
	if !l.Kind.Refills() {
		return
	}
	h, part := &s.Hits[0], l.missing(s, s.Newest)/max(nodes, 1)
	if claims := h.claims(leased); claims > part {
		worn := min(l.back(s, from, to), claims-part)
		returned := min(worn, uint64(max(-h.Pending, 0)))
		h.Pending += int64(returned)
		h.Lease = min(h.Lease, leased-min(worn-returned, leased))
	}
}

// claims are the tokens that the backend's bucket lacks and nobody has used: those of a lease, and
// those that are on their way back.
func (h *Hits) claims(leased uint64) uint64 {
	return leased + uint64(max(-h.Pending, 0)+max(-h.InFlight, 0))
}

// heldUntil is the time until which the tokens that go back can't have come back, whatever others
// do: the backend's bucket lacks those of all nodes until then, if each claims the same number.
func (l *Limit) heldUntil(s *State, nodes uint64) int64 {
	claims, missing := s.Hits[0].claims(s.Hits[0].Lease), l.missing(s, s.Newest)
	if nodes == 0 || claims > missing/nodes {
		return s.Newest
	}
	at := State{Start: s.Newest}
	return min(l.returnedAt(&at, missing-claims*nodes), s.Newest+l.Width)
}

// back is how many tokens come back between two times. The tokens up to both are counted from one
// time on, at which one came back: so from one call to the next none is left out or counted twice.
func (l *Limit) back(s *State, from, to int64) uint64 {
	start := s.Start
	if from < start {
		start -= ((start-from)/l.Width + 1) * l.Width
	}
	return l.tokens(start, to) - l.tokens(start, from)
}

// returnedAt is the time when so many tokens will have come back.
func (l *Limit) returnedAt(s *State, tokens uint64) int64 {
	if l.Max == 0 {
		return maxTime
	}
	after, remainder, ok := muldiv(tokens, uint64(l.Width), l.Max)
	if remainder != 0 {
		after++
	}
	if !ok || after > uint64(maxTime-s.Start) {
		return maxTime
	}
	return s.Start + int64(after)
}

// fillTime is how long an empty bucket takes to be full, if that is a whole number of nanoseconds.
func (l *Limit) fillTime() (nanos int64, whole bool) {
	time, remainder, ok := muldiv(l.Burst, uint64(l.Width), l.Max)
	return int64(time), ok && remainder == 0 && time <= uint64(maxTime)
}

// Adapt makes a state that was counted for another limit of the same shape one of l. Only a kind
// that refills notices. The bucket is full at the same time as before, and until then its tokens
// come back at the new rate. So a state that two limits take turns with neither loses tokens nor
// gets them back sooner. Leased tokens, and those that were given back at a higher rate, are worth
// as much time as before. Pending tokens stay as they were, for the backend: if they are more than
// are missing now, the start lies so long ago that the rest is back. With a limit of 0 nothing
// comes back, so that tokens have no time, and the same number is missing as before.
func (l *Limit) Adapt(s *State, other *Limit) {
	h := &s.Hits[0]
	if !l.Kind.Refills() || l.Max == other.Max || h.idle() {
		return
	}
	if l.Max == 0 || other.Max == 0 {
		h.Total -= min(other.returned(s, s.Newest), h.Total)
		s.Start = s.Newest
		h.Lease = min(h.Lease, l.missing(s, s.Newest))
		return
	}
	full := max(other.returnedAt(s, h.Sum()), s.Newest)
	missing := int64(roundedUp(uint64(full-s.Newest), l.Max, uint64(l.Width)))
	h.Lease = roundedDown(h.Lease, l.Max, other.Max)
	if h.Pending < 0 && l.Max < other.Max {
		h.Pending = -int64(roundedDown(uint64(-h.Pending), l.Max, other.Max))
	}
	if pending := h.Pending + max(h.InFlight, 0); pending <= missing {
		h.Total = clamp(missing - pending + int64(h.Lease))
	} else {
		h.Total, h.Lease = 0, 0
	}
	s.Start = 0
	s.Start = max(0, min(full-l.returnedAt(s, h.Sum()), s.Newest))
}

// roundedDown is a·b/c, but at most MaxHits.
func roundedDown(a, b, c uint64) uint64 {
	quotient, _, ok := muldiv(a, b, c)
	if !ok {
		return MaxHits
	}
	return min(quotient, MaxHits)
}

// roundedUp is a·b/c, but at most MaxHits.
func roundedUp(a, b, c uint64) uint64 {
	quotient, remainder, ok := muldiv(a, b, c)
	if !ok || quotient >= MaxHits {
		return MaxHits
	}
	if remainder != 0 {
		quotient++
	}
	return quotient
}

// fill makes a bucket full whose tokens are all back. Tokens that the backend has yet to hear of
// are kept, with a start so long ago that they are back by now: other nodes' tokens may not be.
func (l *Limit) fill(s *State, now int64) {
	h := &s.Hits[0]
	if h.Pending == 0 && h.InFlight == 0 {
		s.Start, *h = 0, Hits{}
		return
	}
	pending := h.Pending + h.InFlight
	h.Total, s.Start = clamp(-pending), 0
	s.Start = now - l.returnedAt(s, clamp(pending))
}

// refill makes the bucket full if it is by now. Otherwise it moves Start on by whole windows, and
// forgets the tokens that came back in them. So numbers stay small, and the state means the same.
func (l *Limit) refill(s *State, now int64) {
	h := &s.Hits[0]
	if h.idle() || l.Max == 0 {
		return
	}
	if h.Lease > 0 || h.Pending < 0 {
		l.wear(s, now)
	}
	if l.returned(s, now) >= h.Sum() {
		if h.Lease == 0 { // what is leased is missing in the backend's bucket
			l.fill(s, now)
		}
		return
	}
	// Hits not pushed yet stay as they are, so the total bounds what can be forgotten.
	windows := min(uint64((now-s.Start)/l.Width), (h.Total-min(h.Lease, h.Total))/l.Max)
	s.Start += int64(windows) * l.Width
	h.Total -= windows * l.Max
}

// settleTokens takes in the backend's bucket. A full one has the start of what was pushed, or the
// time when that was given back.
func (l *Limit) settleTokens(s *State, newest, gaveBack bool, start int64, taken uint64) {
	h := &s.Hits[0]
	if taken == 0 {
		if newest && (gaveBack || start == s.Start) {
			h.settle(true, 0)
		}
		return
	}
	same := !h.idle() && (start-s.Start)%l.Width == 0
	if ahead := start - s.Newest; same && ahead > 0 { // the backend's clock is: say the same of an earlier start
		windows := (ahead-1)/l.Width + 1
		start, taken = start-windows*l.Width, taken+min(uint64(windows), MaxHits/max(l.Max, 1))*l.Max
		taken = min(taken, MaxHits)
	}
	switch apart := (start - s.Start) / l.Width; {
	case !same:
		s.Start = min(start, s.Newest)
		h.settle(true, taken)
	case apart >= 0: // the same, but written by some windows later
		s.Start = start
		h.settle(true, l.worn(h.Total, apart))
		h.settle(newest, taken)
	default:
		h.settle(newest, l.worn(taken, -apart))
	}
	l.refill(s, s.Newest)
}

// worn is taken without the tokens that come back in so many windows.
func (l *Limit) worn(taken uint64, windows int64) uint64 {
	if l.Max != 0 && uint64(windows) > taken/l.Max {
		return 0
	}
	return taken - uint64(windows)*l.Max
}

// leaseTokens takes in tokens that were taken from the backend's bucket. Those that have come back
// while the answer was on its way wear, but for those that requests have waited for: these are
// decided as of the grant. If all have come back, they are missing from now on.
func (l *Limit) leaseTokens(s *State, g *Grant, total *Totals) {
	h := &s.Hits[0]
	spare := g.Hits - min(g.Wanted, g.Hits)
	// Nobody knows what the bucket has lacked between the grant and the answer.
	worn := min(l.back(s, g.At, max(g.At, g.Answered)), spare)
	h.lease(g.Hits - worn)
	if len(total.Hits) > 0 && g.Answered < s.Newest {
		missing := total.Hits[0] - min(total.Hits[0], l.tokens(int64(total.Newest), s.Newest))
		if claims, part := h.claims(h.Lease), missing/max(g.Nodes, 1); claims > part {
			h.Lease -= min(l.back(s, g.Answered, s.Newest), claims-part, spare-worn, h.Lease)
		}
	}
	if l.missing(s, s.Newest) < h.Lease {
		s.Start, h.Total = s.Newest, h.Lease
	}
}
