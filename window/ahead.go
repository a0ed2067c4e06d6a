package window

// smallQuota is the largest quota of which nothing is leased ahead. Few requests come for a key of
// such a limit, and each answer matters: a hit is granted when it is asked for.
const smallQuota = 100

// Ahead is the most hits that a node leases for requests to come, of those that are left of a limit
// which so many nodes keep; of an unknown number, which is 0, as of two. It is half of a node's even
// part: leases are used up when the limit is. Where there are less than two hits for each node,
// nothing is leased.
func (l *Limit) Ahead(left, nodes uint64) uint64 {
	if parts := l.Parts(nodes); parts > 0 {
		return left / parts
	}
	return 0
}

// Parts is the divisor of [Limit.Ahead]; 0 if nothing is leased ahead. A node that seems to be
// alone may just be the first.
func (l *Limit) Parts(nodes uint64) uint64 {
	if l.Quota() <= smallQuota {
		return 0
	}
	return 2 * max(2, min(nodes, 1<<32))
}

const (
	// slowReturn is in how many nanoseconds a hit comes back at least where each can be asked for by
	// itself: so long that answers are not late, and that backends have little to do.
	slowReturn = int64(50e6)
	// quantumShare is the part of a limit that is worth a question where hits come back faster, as a
	// divisor.
	quantumShare = 64
)

// Quantum is how many hits are worth asking for at once while a limit is full. It is 1 where they
// come back together, or so slowly that each can be asked for when it is back. Where they come back
// one by one and faster, there would be a question for each request, and its answer would be late.
func (l *Limit) Quantum() uint64 {
	each := l.Return()
	if each == 0 || each >= slowReturn {
		return 1
	}
	return max(1, l.Quota()/quantumShare)
}

// Return is how many nanoseconds lie between two hits that come back, while a limit is full. It is 0
// if they don't come back one by one.
func (l *Limit) Return() int64 {
	if l.Kind.AtOnce() || l.Kind.Blocks() || l.Kind.Bucketed() && !l.IsLog() || l.Max == 0 {
		return 0
	}
	return max(1, int64(uint64(l.Width)/l.Max))
}
