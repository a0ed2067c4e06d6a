package window

import "math"

// A lease is hits that the backend has granted to this node and counted already. The node may use
// them without asking. A lease is kept in the window, or bucket, that the backend counted it in,
// and ends with it. Hits that are used from a lease need no push. Buckets are the exception: there
// a hit moves to the bucket of its own time, or it would leave the window too early. The backend has
// to hear of that before the bucket of the grant leaves the window, or it would grant the hit again.
// So buckets that are about to leave lend nothing.

const (
	// movePart is the part of a window, in eighths, that is left for a hit's move to reach the backend.
	movePart = 3
	// agingWidth is the least width of windows whose leases age. In a shorter window a request
	// might never get to use the hits that it has asked for.
	agingWidth = int64(2e9)
)

// PushWithin is the longest time between two pushes with which moves of hits reach the backend in
// time, in nanoseconds; the largest time for kinds whose hits do not move.
func (l *Limit) PushWithin() int64 {
	if !l.Kind.Bucketed() {
		return math.MaxInt64
	}
	return l.Width / 4
}

// lends reports whether hits that were leased in a bucket may be used at the time of s.
func (l *Limit) lends(s *State, b *Bucket) bool {
	leaves := (b.Number + l.covered()) * l.Precision
	return l.Width < agingWidth || leaves-s.Newest >= l.Width/8*movePart || b.Number == s.Newest/l.Precision
}

// Leased is how many hits may be used without asking.
func (l *Limit) Leased(s *State) (hits uint64) {
	if l.Kind.Blocks() {
		return MaxHits
	}
	if !l.Kind.Bucketed() {
		return s.Hits[0].Lease
	}
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Lease > 0 && l.lends(s, b) {
			hits += b.Lease
		}
	}
	return hits
}

// MovesLease reports whether hits that are used from the lease move to another bucket, which leaves
// something to push.
func (l *Limit) MovesLease(s *State) bool {
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Lease > 0 && b.Number != s.Newest/l.Precision {
			return true
		}
	}
	return false
}

// CountLeased counts cost hits at the time of s, out of its lease. The lease must have them.
func (l *Limit) CountLeased(s *State, cost uint64) {
	if !l.Kind.Bucketed() {
		s.Hits[0].Lease -= min(cost, s.Hits[0].Lease)
		return
	}
	left := cost
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if b.Lease == 0 || !l.lends(s, b) {
			continue
		}
		used := min(left, b.Lease)
		b.returnLease(b.Lease - used)
		left -= used
	}
	l.Count(s, cost)
}

// ReturnLease gives back what is leased above keep. Once that is pushed, other nodes may have it.
func (l *Limit) ReturnLease(s *State, keep uint64) {
	if !l.Kind.Bucketed() {
		s.Hits[0].returnLease(keep)
		return
	}
	for i := len(s.Buckets) - 1; i >= 0; i-- {
		kept := min(keep, s.Buckets[i].Lease)
		s.Buckets[i].returnLease(kept)
		keep -= kept
	}
}

// DropLease forgets what is leased, as the backend does not count it any more. Nobody gives it back.
func (l *Limit) DropLease(s *State) {
	s.Hits[0].Lease = 0
	for i := range s.Buckets {
		s.Buckets[i].Lease = 0
	}
}

func (h *Hits) returnLease(keep uint64) {
	if h.Lease > keep {
		h.giveUp(h.Lease - keep)
		h.Lease = keep
	}
}

// giveUp gives back hits that the backend has counted and nobody has used.
func (h *Hits) giveUp(hits uint64) { h.Pending = max(h.Pending-int64(min(hits, MaxHits)), -MaxHits) }

// Grant is hits that the backend has counted for this node.
type Grant struct {
	Hits uint64
	// Wanted are those of them that requests wait for. They are used at once.
	Wanted uint64
	// At is the time when they were counted, and Answered that of the answer's totals, both of the
	// backend's clock. They are the same unless the push was sent again.
	At, Answered int64
	// Newer is as in [Limit.Settle].
	Newer bool
	// Nodes is how many keep the limit together, 0 for an unknown number.
	Nodes uint64
}

// Lease takes in a grant. total holds the backend's totals after it. If s has left the window that
// the hits were counted in, they are given back, as long as that window counts. kept is false if
// nothing of s can give them back. Then the caller does, in the window that [Limit.LeaseNumber]
// names.
func (l *Limit) Lease(s *State, g *Grant, total *Totals) (kept bool) {
	hits, at := g.Hits, g.At
	number := l.numberAt(at)
	if l.Calendar != nil && total.Newest != number {
		return false // it was asked for in the window before
	}
	if at > s.Newest && number != l.numberAt(s.Newest) {
		if at-s.Newest > maxBack {
			return false
		}
		l.Advance(s, at) // the backend's clock is a little ahead
	}
	if l.Kind.Blocks() {
		l.Learn(s, g.Newer, total)
		return true
	}
	if l.Kind.Bucketed() {
		return l.leaseBucket(s, g, total)
	}
	l.Learn(s, g.Newer, total)
	switch {
	case l.Kind.Refills():
		l.leaseTokens(s, g, total)
		return true
	case l.Kind.Started():
		if len(total.Hits) == 0 || s.Hits[0].Total == 0 || uint64(s.Start) != total.Newest || at < s.Start {
			return false
		}
	default:
		if ago := l.numberAt(s.Newest) - number; ago != 0 {
			if ago < uint64(l.Kind.Windows()) {
				s.Hits[ago].giveUp(hits)
			}
			return true
		}
	}
	s.Hits[0].lease(hits)
	return true
}

// leaseBucket is Lease of buckets. The totals tell of the grant, so a log is trimmed only when what
// they tell is known to be leased: else the grant would push out hits that count.
func (l *Limit) leaseBucket(s *State, g *Grant, total *Totals) (kept bool) {
	l.settleBuckets(s, g.Newer, total)
	number := l.numberAt(g.At)
	for i := range s.Buckets {
		if uint64(s.Buckets[i].Number) == number {
			s.Buckets[i].lease(g.Hits)
			kept = true
		}
	}
	l.trimLog(s)
	return kept
}

// lease adds to the lease. A total that does not know of all of it yet comes from an answer that is
// older.
func (h *Hits) lease(hits uint64) {
	h.Lease = clamp(int64(h.Lease) + int64(min(hits, MaxHits)))
	h.Total = max(h.Total, h.Lease)
}

// LeaseNumber names the window or bucket that the backend has counted a lease in, where a push gives
// it back. It does not count if the totals are of another window that starts with a hit, or of none:
// the lease's own has ended.
func (l *Limit) LeaseNumber(at int64, total *Totals) (number uint64, counts bool) {
	switch {
	case l.Kind.Blocks():
		return 0, false
	case l.Kind.Refills():
		return uint64(at), true
	case l.Kind.Started():
		return total.Newest, uint64(at) >= total.Newest && len(total.Hits) > 0 && total.Hits[0] > 0
	case l.Calendar != nil:
		return total.Newest, total.Newest == l.numberAt(at)
	}
	return l.numberAt(at), true
}

// Without takes hits out of totals that tell of them, as they were counted at a time and are on
// their way back.
func (l *Limit) Without(total *Totals, at int64, hits uint64) {
	number, counts := l.LeaseNumber(at, total)
	if !counts {
		return
	}
	for i := range total.Hits {
		of := total.Newest - uint64(i)
		if l.Kind.Bucketed() {
			if i >= len(total.Ages) {
				return // no backend tells that
			}
			of = total.Newest - total.Ages[i]
		}
		if of == number || l.Kind.Refills() {
			total.Hits[i] -= min(hits, total.Hits[i])
		}
	}
}

// numberAt is the number of the window of the clock, or bucket, that a time is in; 0 for kinds that
// have none.
//
//go:noinline
func (l *Limit) numberAt(at int64) uint64 {
	switch {
	case l.Kind.Bucketed():
		return uint64(at / l.Precision)
	case l.Kind.Started():
		return 0
	}
	if l.Calendar != nil {
		return l.Calendar.At(at).Number
	}
	return uint64(at / l.Width)
}

// Unheard is how many hits were counted here without a lease, and are not known to be counted in
// the backend.
func (s *State) Unheard() uint64 {
	sum := int64(0)
	s.each(func(h *Hits) { sum += h.Pending + max(h.InFlight, 0) })
	return uint64(max(sum, 0))
}
