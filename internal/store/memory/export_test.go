package memory

// NewTiny returns a store with very small bounds.
func NewTiny(o Options) *Store {
	o.MaxCounters = 48
	s := New(o)
	s.senders.most, s.nodes.joined.most, s.told.most, s.reports.most, s.grants.max = 16, 16, 16, 16<<10, 2<<10
	return s
}

// OneWindow is the memory of a counter with a window.
const OneWindow = counterBytes + windowBytes*9/8
