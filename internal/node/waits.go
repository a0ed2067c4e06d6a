package node

const (
	// maxIdleAsks bounds the asks kept for reuse, and maxIdleParts the capacity for keys and
	// requests that each keeps.
	maxIdleAsks  = 2048
	maxIdleParts = 16
)

// waits has the requests that wait for the backend.
type waits struct {
	queue    queue
	released []turn // whose asks are gone, to be decided without the backend
	spare    []*ask
	leases   *leaseAsks
}

// newAsk returns an empty ask.
func (s *waits) newAsk(least, most uint64) *ask {
	last := len(s.spare) - 1
	if last < 0 {
		return &ask{least: least, most: most}
	}
	t := s.spare[last]
	s.spare = s.spare[:last]
	*t = ask{parts: t.parts[:0], least: least, most: most, turns: t.turns[:0]}
	return t
}

// forget unlinks an ask that nobody is to join any more.
//
//go:noinline
func (s *waits) forget(t *ask) {
	if t.lease && s.leases != nil {
		s.leases.remove(t)
	}
}

// recycle keeps an ask for reuse that nothing refers to.
//
//go:noinline
func (s *waits) recycle(t *ask) {
	s.forget(t)
	if len(s.spare) < maxIdleAsks {
		clear(t.parts)
		clear(t.turns)
		// Otherwise a key with many waiting requests would grow every kept ask in turn.
		if cap(t.turns) > maxIdleParts {
			t.turns = nil
		}
		if cap(t.parts) > maxIdleParts {
			t.parts = nil
		}
		s.spare = append(s.spare, t)
	}
}

// release has the requests of an ask decided without the backend. It only puts them on the list of
// released requests, because another request may be under decision now.
func (s *waits) release(t *ask) {
	s.forget(t)
	for _, w := range t.turns {
		switch {
		case !w.waits():
		case w.wait.entering:
			w.wait.stopAsking() // the caller that makes it wait decides it
		default:
			s.released = append(s.released, w)
		}
	}
	if t.lease {
		t.turns = nil
	}
}
