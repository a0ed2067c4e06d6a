package window

// smallQuota is the largest quota from which nothing is leased ahead. A key with so small a limit
// has few requests, and each answer matters: hits are granted when they are asked for.
const smallQuota = 100

// Ahead is the most hits that a node leases for requests to come. left is how many hits the limit
// has left, and nodes how many nodes share it; 0, an unknown number, counts as two. The result is
// half of the node's even part, so leases run out only when the limit does. It is 0 if fewer than
// two hits are left per node.
func (l *Limit) Ahead(left, nodes uint64) uint64 {
	if parts := l.Parts(nodes); parts > 0 {
		return left / parts
	}
	return 0
}

// Parts is the divisor that [Limit.Ahead] applies to the hits left; 0 if nothing is leased ahead. A
// single node counts as two, since it may just be the first.
func (l *Limit) Parts(nodes uint64) uint64 {
	if l.Quota() <= smallQuota {
		return 0
	}
	return 2 * max(2, min(nodes, 1<<32))
}

const (
	// slowReturn is the least time between two returning hits, in nanoseconds, at which a node can
	// ask for each by itself: the answers are not late, and backends have little to do.
	slowReturn = int64(50e6)
	// quantumShare is the divisor of a limit that gives the quantum if hits come back faster.
	quantumShare = 64
)

// Quantum is how many hits are worth asking for at once while a limit is full. It is 1 if hits come
// back together, or so slowly that each can be asked for when it is back. If they come back one by
// one and faster, asking for each would cost a question per request, and the answers would be late.
func (l *Limit) Quantum() uint64 {
	each := l.Return()
	if each == 0 || each >= slowReturn {
		return 1
	}
	return max(1, l.Quota()/quantumShare)
}

// Return is the time between two returning hits while a limit is full, in nanoseconds. It is 0 if
// hits don't come back one by one.
func (l *Limit) Return() int64 {
	if l.Kind.AtOnce() || l.Kind.Blocks() || l.Kind.Bucketed() && !l.IsLog() || l.Max == 0 {
		return 0
	}
	return max(1, int64(uint64(l.Width)/l.Max))
}
