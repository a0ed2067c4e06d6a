package window

// Split says how the nodes that keep a limit together divide it between two synchronisations.
//
// Whatever a node admits is counted in the backend before, in a lease of hits that the backend has
// granted and debited; but for Free hits, which a node may admit without having asked, so that the
// first request of a key needs not wait. The backend leaves Reserve hits of a limit ungranted for
// those: while Reserve is Nodes·Free, no more than the limit passes, whatever nodes know of each
// other.
//
//	limit ≥ 100·nodes           Free = limit/(100·nodes), and all of it is reserved: 1 % of the limit
//	limit from 10 to 100·nodes  Free = 1, and 1 % is reserved: free hits may exceed the limit by 9 %
//	                            and a hit
//	limit below 10·nodes        Free = 0: a node asks before it admits
//	limit up to 100             Free = 0, and nothing is leased either; see [Limit.Leases]
type Split struct {
	// Free is the most hits of a key that a node has admitted without asking and not heard of yet
	// from the backend.
	Free uint64
	// Reserve is what of the limit no lease takes.
	Reserve uint64
	// Quantum is the least part of what is left that a lease may take at once. Below it what is
	// left goes to who comes first.
	Quantum uint64
	// Parts divides what is left: a lease takes one of them.
	Parts uint64
}

const (
	// reserveShare and freeShare are the parts of a limit that are reserved, and that free hits may
	// take, as divisors.
	reserveShare = 100
	freeShare    = 10
	quantumShare = 64
	leaseParts   = 4
)

// smallQuota is the largest quota of which nothing is leased ahead, and no hit is free.
const smallQuota = 100

// Leases reports whether nodes lease hits of the limit ahead of the requests that take them. Few
// requests come for a key of a small limit, and each answer matters: there a hit is granted when it
// is asked for, so that what is refused has no room.
func (l *Limit) Leases() bool { return l.Quota() > smallQuota }

// Split is how so many nodes divide the limit. Of 0, an unknown number, nothing is free.
func (l *Limit) Split(nodes uint64) Split {
	quota := l.Quota()
	s := Split{Quantum: max(1, quota/quantumShare), Parts: leaseParts}
	switch nodes {
	case 0:
		return s
	case 1:
		s.Parts = 1
	}
	if l.Leases() && quota/freeShare >= nodes {
		s.Free = max(1, quota/reserveShare/nodes)
		if nodes > 1 {
			s.Reserve = min(nodes*s.Free, quota/reserveShare)
		}
	}
	return s
}

// Grant is how many of the hits that are left a lease takes that wants from least to most of them;
// 0 if there are too few.
func (s *Split) Grant(left, least, most uint64) uint64 {
	left -= min(left, s.Reserve)
	granted := min(most, left, max(least, left/s.Parts, s.Quantum))
	if granted < least {
		return 0
	}
	return granted
}

// Overshoot is the most hits above the limit that free hits of so many nodes can add up to.
func (s *Split) Overshoot(nodes uint64) uint64 {
	if nodes <= 1 {
		return 0
	}
	free := s.Free * nodes
	return free - min(free, s.Reserve)
}
