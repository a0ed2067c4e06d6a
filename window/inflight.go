package window

// InFlight counts requests at the same time. Each request holds its places from its beginning to
// its end. Places are hits in buckets, as in SlidingBuckets, and count until they are given back or
// their bucket leaves the window. The holder of a place therefore moves it to the present bucket
// now and then, and the places of a process that has died come back by themselves. This is a lease
// in time, as described by Gray and Cheriton: "Leases: an efficient fault-tolerant mechanism for
// distributed file cache consistency", SOSP 1989.

const (
	// inFlightWidth is how long a place lives that nobody renews, in nanoseconds.
	inFlightWidth     = int64(32e9)
	inFlightPrecision = int64(4e9)
	// RenewEvery is how often to renew a place, in nanoseconds. Two renewals may be missed, and the
	// third still reaches the backend before the place expires.
	RenewEvery = int64(8e9)
	// inFlightPause is the time after which to ask again for a place, in nanoseconds: nobody knows
	// when a request will end.
	inFlightPause = int64(50e6)
)

func inFlightResetAt(l *Limit, s *State) int64 {
	if l.Max == 0 || sumBuckets(s) < l.Max {
		return s.Newest
	}
	return s.Newest + inFlightPause
}

// NewInFlight returns a limit of most requests at the same time.
func NewInFlight(most uint64) Limit {
	return Limit{Shape: Shape{Kind: InFlight, Width: inFlightWidth, Precision: inFlightPrecision}, Max: most}
}

// Relend turns cost places in the bucket with a number back into leased hits, because the request
// that held them has ended. If the bucket has left the window, there is nothing to lease.
func (l *Limit) Relend(s *State, number, cost uint64) {
	if l.Kind.Held() && number > l.Number(s) {
		l.GiveBackNewest(s, cost) // as in GiveBack
		return
	}
	if h := windowOf(l, s, number); h != nil && l.Kind.Bucketed() {
		h.Lease = min(h.Lease+min(cost, h.Sum()), MaxHits)
	}
}
