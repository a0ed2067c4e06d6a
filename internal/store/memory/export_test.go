package memory

import "weir/internal/store"

// NewTiny returns a store with very small bounds.
func NewTiny(o Options) *Store {
	o.MaxCounters = 48
	s := New(o)
	s.senders.most, s.grants.max = 16, 2<<10
	s.notes[store.Changes].most = 16 << 10
	s.notes[store.Nodes].most, s.notes[store.AppliedLists].most, s.notes[store.Reports].most = 16, 16, 16<<10
	return s
}

// OneWindow is the memory of a counter with a window.
const OneWindow = counterBytes + windowBytes*9/8

// Limits is how many limits a store knows of which a namespace's senders advance hits.
func Limits(s *Store, namespace string) int { return len(s.fleets[namespace].Limits) }
