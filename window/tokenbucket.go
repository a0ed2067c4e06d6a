package window

import "math"

// A token bucket holds Burst tokens and gets Max tokens back per Width, one every Width/Max.
// Refilling begins at Start, when a token was taken from a full bucket. The state keeps the tokens
// taken since then, so nothing needs rounding: at time t
//
//	taken − floor((t − Start)·Max/Width)
//
// tokens are missing. Errors never add up, however long the bucket is not full. The generic cell
// rate algorithm (https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm) decides the same, but
// would have to round Width/Max.

func usedTokens(l *Limit, s *State) uint64 { return s.Hits[0].Sum() - tokensReturned(l, s, s.Newest) }

func tokensFitAt(l *Limit, s *State, cost uint64) int64 {
	return tokensBackAt(l, s, s.Hits[0].Sum()-(l.Burst-cost))
}

// tokensResetAt counts leased tokens as present.
func tokensResetAt(l *Limit, s *State) int64 {
	if l.Max == 0 { // no token ever comes back
		return s.Newest
	}
	return tokensBackAt(l, s, s.Hits[0].Sum())
}

func tokensForgetAt(l *Limit, s *State) int64 {
	if s.Hits[0].idle() {
		return s.Newest
	}
	return max(tokensBackAt(l, s, s.Hits[0].Sum()+s.Hits[0].Lease), s.Newest)
}

func tokensLast(l *Limit) int64 {
	if nanos, _, ok := MulDiv(l.Burst, uint64(l.Width), l.Max); ok && nanos < uint64(maxTime) {
		return int64(nanos) + 1
	}
	return maxTime
}

// tokensReturned is how many tokens have come back from Start to now, at most the number taken.
func tokensReturned(l *Limit, s *State, now int64) uint64 {
	return min(tokensIn(l, s.Start, now), s.Hits[0].Sum())
}

// tokensIn is how many tokens come back in a time.
func tokensIn(l *Limit, from, to int64) uint64 {
	tokens, _, ok := MulDiv(uint64(max(to-from, 0)), l.Max, uint64(l.Width))
	if !ok {
		return math.MaxUint64
	}
	return tokens
}

// tokensMissing is how many tokens the backend's bucket lacks at now, as far as this node knows.
// Leased tokens are missing there too.
func tokensMissing(l *Limit, s *State, now int64) uint64 {
	h := &s.Hits[0]
	taken := clamp(int64(h.Total) + max(h.InFlight, 0))
	return taken - min(taken, tokensIn(l, s.Start, now))
}

// wearTokens drops those claims that the backend's bucket no longer lacks: leased tokens, and tokens on
// their way back. Tokens come back there whether or not they were used here, so a larger lease
// would exceed the bucket. Since other nodes may have taken tokens too, wear may drop too many.
func wearTokens(l *Limit, s *State, now int64) {
	h := &s.Hits[0]
	missing := tokensMissing(l, s, now)
	h.Lease = min(h.Lease, missing)
	h.Pending = max(h.Pending, -int64(missing-h.Lease))
}

// WearLease drops claims that have come back from one time to another, until the node's claims are
// at most its even part of the tokens that the backend's bucket lacks. Each node knows only its own
// claims, but so the claims of all nodes never exceed that. leased is the lease before Advance.
// Tokens on their way back go first.
func (l *Limit) WearLease(s *State, leased, nodes uint64, from, to int64) {
	if !l.Kind.Refills() {
		return
	}
	h, part := &s.Hits[0], tokensMissing(l, s, s.Newest)/max(nodes, 1)
	if claims := h.claims(leased); claims > part {
		worn := min(tokensBetween(l, s, from, to), claims-part)
		returned := min(worn, uint64(max(-h.Pending, 0)))
		h.Pending += int64(returned)
		h.Lease = min(h.Lease, leased-min(worn-returned, leased))
	}
}

// claims are the tokens that the backend's bucket lacks and no request has used: the lease, and
// the tokens on their way back.
func (h *Hits) claims(leased uint64) uint64 {
	return leased + uint64(max(-h.Pending, 0)+max(-h.InFlight, 0))
}

// heldUntil is a time until which tokens on their way back can't have come back by themselves. It
// assumes that all nodes claim the same number: the backend's bucket lacks all of these until then.
func heldUntil(l *Limit, s *State, nodes uint64) int64 {
	claims, missing := s.Hits[0].claims(s.Hits[0].Lease), tokensMissing(l, s, s.Newest)
	if nodes == 0 || claims > missing/nodes {
		return s.Newest
	}
	at := State{Start: s.Newest}
	return min(tokensBackAt(l, &at, missing-claims*nodes), s.Newest+l.Width)
}

// tokensBetween is how many tokens come back in a time. Both ends are counted from a moment at which a token
// came back, so consecutive calls neither skip a token nor count it twice.
func tokensBetween(l *Limit, s *State, from, to int64) uint64 {
	start := s.Start
	if from < start {
		start -= ((start-from)/l.Width + 1) * l.Width
	}
	return tokensIn(l, start, to) - tokensIn(l, start, from)
}

// tokensBackAt is the time when a number of tokens will have come back since Start.
func tokensBackAt(l *Limit, s *State, tokens uint64) int64 {
	return s.Start + int64(min(MulDivUp(tokens, uint64(l.Width), l.Max), uint64(maxTime-s.Start)))
}

// fillTime is the time in which an empty bucket fills. whole is false if that is no whole number of
// nanoseconds.
func fillTime(l *Limit) (nanos int64, whole bool) {
	time, remainder, ok := MulDiv(l.Burst, uint64(l.Width), l.Max)
	return int64(time), ok && remainder == 0 && time <= uint64(maxTime)
}

// Adapt converts a state that was counted for another limit of the same shape. Only kinds that
// refill need it. The bucket becomes full at the same time as before, and until then refills at the
// new rate. So a state that two limits use in turn neither loses tokens nor gets them back sooner.
// Leased tokens stay worth the same time, and so do given-back tokens if the rate rises. Pending
// tokens keep their number, for the backend: if they are more than are missing now, Start moves
// so far that the rest has returned. With a limit of 0 nothing comes back and tokens have no
// time, so the same number stays missing.
func Adapt(l *Limit, s *State, other *Limit) {
	h := &s.Hits[0]
	if !l.Kind.Refills() || l.Max == other.Max || h.idle() {
		return
	}
	if l.Max == 0 || other.Max == 0 {
		h.Total -= min(tokensReturned(other, s, s.Newest), h.Total)
		s.Start = s.Newest
		h.Lease = min(h.Lease, tokensMissing(l, s, s.Newest))
		return
	}
	full := max(tokensBackAt(other, s, h.Sum()), s.Newest)
	missing := int64(min(MulDivUp(uint64(full-s.Newest), l.Max, uint64(l.Width)), MaxHits))
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
	s.Start = max(0, min(full-tokensBackAt(l, s, h.Sum()), s.Newest))
}

// roundedDown is a·b/c rounded down, at most MaxHits.
func roundedDown(a, b, c uint64) uint64 {
	quotient, _, ok := MulDiv(a, b, c)
	if !ok {
		return MaxHits
	}
	return min(quotient, MaxHits)
}

// fillBucket makes a bucket full whose tokens are all back. Tokens that the backend has not heard of stay
// in the state, with a Start that has them back by now: other nodes' tokens may still be missing.
func fillBucket(l *Limit, s *State, now int64) {
	h := &s.Hits[0]
	if h.Pending == 0 && h.InFlight == 0 {
		s.Start, *h = 0, Hits{}
		return
	}
	pending := h.Pending + h.InFlight
	h.Total, s.Start = clamp(-pending), 0
	s.Start = now - tokensBackAt(l, s, clamp(pending))
}

// refill makes the bucket full if all tokens are back by now. Otherwise it moves Start on by whole
// windows, and drops the tokens that came back in them. Numbers stay small, and the meaning is the
// same.
func refill(l *Limit, s *State, now int64) {
	h := &s.Hits[0]
	if h.idle() || l.Max == 0 {
		return
	}
	if h.Lease > 0 || h.Pending < 0 {
		wearTokens(l, s, now)
	}
	if tokensReturned(l, s, now) >= h.Sum() {
		if h.Lease == 0 { // leased tokens are missing in the backend's bucket
			fillBucket(l, s, now)
		}
		return
	}
	if now-s.Start < l.Width { // divisions are slow
		return
	}
	// Tokens that were not pushed yet must stay, so the total bounds the tokens to drop.
	windows := min(uint64((now-s.Start)/l.Width), (h.Total-min(h.Lease, h.Total))/l.Max)
	s.Start += int64(windows) * l.Width
	h.Total -= windows * l.Max
}

// settleTokens takes in the backend's bucket. If it is full, start is that of the push or, if this gave
// tokens back or was a question, a later time. Tokens taken after start may be unknown there.
func settleTokens(l *Limit, s *State, newest, gaveBack bool, start int64, taken uint64) {
	h := &s.Hits[0]
	if taken == 0 {
		if newest && (gaveBack || start >= s.Start) {
			h.settle(true, 0)
		}
		return
	}
	same := !h.idle() && (start-s.Start)%l.Width == 0
	if ahead := start - s.Newest; same && ahead > 0 { // express the same bucket with an earlier start
		windows := (ahead-1)/l.Width + 1
		start, taken = start-windows*l.Width, taken+min(uint64(windows), MaxHits/max(l.Max, 1))*l.Max
		taken = min(taken, MaxHits)
	}
	switch apart := (start - s.Start) / l.Width; {
	case !same:
		s.Start = min(start, s.Newest)
		h.settle(true, taken)
	case apart >= 0: // the same bucket, with a start some windows later
		s.Start = start
		h.settle(true, tokensLeft(l, h.Total, apart))
		h.settle(newest, taken)
	default:
		h.settle(newest, tokensLeft(l, taken, -apart))
	}
	refill(l, s, s.Newest)
}

// tokensLeft is taken minus the tokens that come back in a number of windows.
func tokensLeft(l *Limit, taken uint64, windows int64) uint64 {
	if l.Max != 0 && uint64(windows) > taken/l.Max {
		return 0
	}
	return taken - uint64(windows)*l.Max
}

// leaseTokens takes in a lease of tokens. Tokens that came back while the answer was on its way
// wear off the lease, except those that requests wait for: these were decided at the time of the
// grant. If all tokens have come back, leased tokens count as missing from now on.
func leaseTokens(l *Limit, s *State, g *Grant, total *Totals) {
	h := &s.Hits[0]
	spare := g.Hits - min(g.Wanted, g.Hits)
	// The bucket's content between the grant and the answer is unknown.
	worn := min(tokensBetween(l, s, g.At, max(g.At, g.Answered)), spare)
	h.lease(g.Hits - worn)
	if len(total.Hits) > 0 && g.Answered < s.Newest {
		missing := total.Hits[0] - min(total.Hits[0], tokensIn(l, int64(total.Newest), s.Newest))
		if claims, part := h.claims(h.Lease), missing/max(g.Nodes, 1); claims > part {
			h.Lease -= min(tokensBetween(l, s, g.Answered, s.Newest), claims-part, spare-worn, h.Lease)
		}
	}
	if tokensMissing(l, s, s.Newest) < h.Lease {
		s.Start, h.Total = s.Newest, h.Lease
	}
}
