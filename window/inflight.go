package window

// InFlight counts requests at the same time. Each holds its places from its beginning to its end. They
// are hits in buckets, as those of SlidingBuckets are, and count until they are given back, or until
// their bucket leaves the window. So whoever holds a place moves it to the present's bucket now and then
// ([Limit.Renew]), and the places of a process that has died come back by themselves.
// This is a lease in time, as Gray and Cheriton describe it: "Leases: an efficient fault-tolerant
// mechanism for distributed file cache consistency", SOSP 1989.

const (
	// inFlightWidth is after how long a place comes back that nobody has renewed.
	inFlightWidth     = int64(32e9)
	inFlightPrecision = int64(4e9)
	// RenewEvery is how often a place is to be renewed: so that two renewals may be missed, and what is
	// pushed then is there before the place would come back.
	RenewEvery = int64(8e9)
	// inFlightPause is in how many nanoseconds a place may be free again, as nobody knows when requests
	// end.
	inFlightPause = int64(50e6)
)

// NewInFlight is a limit of requests at the same time.
func NewInFlight(most uint64) Limit {
	return Limit{Shape: Shape{Kind: InFlight, Width: inFlightWidth, Precision: inFlightPrecision}, Max: most}
}

// Renew moves cost places, that were counted in the bucket of a number, to the present's. If that bucket
// has left the window, they are counted anew, whether or not they have room.
func (l *Limit) Renew(s *State, number, cost uint64) {
	if number == l.Number(s) {
		return
	}
	l.GiveBack(s, number, cost)
	l.Count(s, cost)
}

// Relend has places that were counted in the bucket of a number leased again, as the request has ended
// that held them. If the bucket has left the window, there is nothing to lease.
func (l *Limit) Relend(s *State, number, cost uint64) {
	if l.Kind.Blocks() {
		return
	}
	for i := range s.Buckets {
		if b := &s.Buckets[i]; uint64(b.Number) == number {
			b.Lease = min(b.Lease+min(cost, b.Sum()), MaxHits)
		}
	}
}
