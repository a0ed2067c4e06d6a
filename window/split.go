package window

// smallQuota is the largest quota of which nothing is leased ahead. Few requests come for such a
// key, and each answer matters: a hit is granted when it is asked for.
const smallQuota = 100

// Ahead is the most hits that a node leases at once for requests to come, of those that are left of
// a limit that so many nodes keep; an unknown number is 0. It is half of a node's even part, so that
// leases are used up when the limit is. Where less than two hits are left for each node nothing is leased.
func (l *Limit) Ahead(left, nodes uint64) uint64 {
	if parts := l.Parts(nodes); parts > 0 {
		return left / parts
	}
	return 0
}

// Parts is what [Limit.Ahead] divides by; 0 if nothing is leased ahead. Who seems to be alone may not be for long.
func (l *Limit) Parts(nodes uint64) uint64 {
	if l.Quota() <= smallQuota {
		return 0
	}
	return 2 * max(nodes, 2)
}
