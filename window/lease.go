package window

import "math"

// A lease is a number of hits that the backend has granted to this node and has counted already.
// The node may use them without asking. A lease lives in the window or bucket that the backend
// counted it in, and ends with it. Using leased hits leaves nothing to push, except with buckets:
// there a hit moves to the bucket of its own time, or it would leave the window too early. The
// backend must hear of the move before the bucket of the grant leaves the window, or it would grant
// the hit again. So buckets that are about to leave lend nothing.

const (
	// movePart is the part of a window, in eighths, that a hit's move needs to reach the backend.
	movePart = 3
	// agingWidth is the least width of windows whose leases age. In a shorter window a request
	// might never get to use its lease.
	agingWidth = int64(2e9)
)

// PushWithin is the longest time between two pushes, in nanoseconds, that brings moved hits to the
// backend in time. It is the largest int64 for kinds whose hits don't move.
func (s Shape) PushWithin() int64 {
	if !s.Kind.Bucketed() {
		return math.MaxInt64
	}
	return s.Width / 4
}

// lends reports whether the leased hits of a bucket may be used at the time of s.
func lends(l *Limit, s *State, b *Bucket) bool {
	leaves := (b.Number + l.covered()) * l.Precision
	return l.Width < agingWidth || leaves-s.Newest >= l.Width/8*movePart || b.Number == s.Newest/l.Precision
}

// Leased is how many hits the node may use without asking.
func (l *Limit) Leased(s *State) (hits uint64) {
	if l.Kind.Blocks() {
		return MaxHits
	}
	hits = s.Hits[0].Lease
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Lease > 0 && lends(l, s, b) {
			hits += b.Lease
		}
	}
	return hits
}

// MovesLease reports whether using leased hits moves them to another bucket, and so leaves
// something to push.
func (l *Limit) MovesLease(s *State) bool {
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Lease > 0 && b.Number != s.Newest/l.Precision {
			return true
		}
	}
	return false
}

// CountLeased counts cost hits at the time of s out of the lease, which must have them.
func (l *Limit) CountLeased(s *State, cost uint64) {
	if !l.Kind.Bucketed() {
		s.Hits[0].Lease -= min(cost, s.Hits[0].Lease)
		return
	}
	left := cost
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if b.Lease == 0 || !lends(l, s, b) {
			continue
		}
		used := min(left, b.Lease)
		b.returnLease(b.Lease - used)
		left -= used
	}
	l.Count(s, cost)
}

// ReturnLease gives back the leased hits above keep. Once they are pushed, other nodes may have
// them.
func (s *State) ReturnLease(keep uint64) {
	s.Hits[0].returnLease(keep)
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		kept := min(keep, s.Buckets[i].Lease)
		s.Buckets[i].returnLease(kept)
		keep -= kept
	}
}

// DropLease forgets the lease, because the backend no longer counts it. Nothing is given back.
func (s *State) DropLease() { s.each(func(h *Hits) { h.Lease = 0 }) }

func (h *Hits) returnLease(keep uint64) {
	if h.Lease > keep {
		h.giveUp(h.Lease - keep)
		h.Lease = keep
	}
}

// giveUp gives back hits that the backend has counted and no request has used.
func (h *Hits) giveUp(hits uint64) { h.Pending = max(h.Pending-int64(min(hits, MaxHits)), -MaxHits) }

// Grant is a number of hits that the backend has counted for this node.
type Grant struct {
	Hits uint64
	// Wanted is the part of Hits that requests wait for, and use at once.
	Wanted uint64
	// At is the time when the backend counted the hits, and Answered that of the totals in its
	// answer, both by its clock. They differ only if the push was sent again.
	At, Answered int64
	// Newer has the meaning of newer in [Limit.Settle].
	Newer bool
	// Nodes is how many nodes share the limit; 0 if that is unknown.
	Nodes uint64
}

// Lease takes in a grant and the totals that the backend had after it. If s has left the window
// that the hits were counted in, it gives them back, as long as that window counts. If no window of
// s can give them back, kept is false, and the caller must give them back in the window that
// [Limit.LeaseNumber] returns.
func (l *Limit) Lease(s *State, g *Grant, total *Totals) (kept bool) {
	number := l.NumberAt(s, g.At)
	if l.Calendar != nil && total.Newest != number {
		return false // the question was for the previous window
	}
	if g.At > s.Newest && number != l.Number(s) {
		if g.At-s.Newest > maxBack {
			return false
		}
		l.Advance(s, g.At) // the backend's clock is slightly ahead
	}
	return lease(l, s, g, total)
}

// lease adds to the lease. A total below the lease comes from an older answer, and is raised.
func (h *Hits) lease(hits uint64) {
	h.Lease = clamp(int64(h.Lease) + int64(min(hits, MaxHits)))
	h.Total = max(h.Total, h.Lease)
}

// Subtract takes from the totals of a limit the hits that were counted at a time and are on their
// way back. The totals still include them.
func (t *Totals) Subtract(l *Limit, at int64, hits uint64) {
	number, counts := l.LeaseNumber(at, t)
	if !counts {
		return
	}
	for i := range t.Hits {
		of := t.Newest - uint64(i)
		if l.Kind.Bucketed() {
			if i >= len(t.Ages) {
				return // no backend sends this
			}
			of = t.Newest - t.Ages[i]
		}
		if of == number || l.Kind.Refills() {
			t.Hits[i] -= min(hits, t.Hits[i])
		}
	}
}

// Unheard is how many hits were counted here without a lease and may not be counted in the backend
// yet.
func (s *State) Unheard() uint64 {
	sum := int64(0)
	s.each(func(h *Hits) { sum += h.Pending + max(h.InFlight, 0) })
	return uint64(max(sum, 0))
}
