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

// Parts is what [Limit.Ahead] divides by; 0 if nothing is leased ahead. A node that seems to be alone
// may just be the first.
func (l *Limit) Parts(nodes uint64) uint64 {
	if l.Quota() <= smallQuota {
		return 0
	}
	return 2 * max(2, min(nodes, 1<<32))
}
