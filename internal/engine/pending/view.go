package pending

// BlockKeys is how many keys a block of the list of dirty keys has. It is for tests.
const BlockKeys = dirtyBlockKeys

// Orphans returns the hits of evicted counters that no push has. It is for tests.
func (p *Pending) Orphans() []Orphan { return p.orphans }
