package node

const (
	// maxIdleTakes bounds the takes that are kept to be used again, and maxIdleParts the keys and
	// waiters that each keeps room for.
	maxIdleTakes = 2048
	maxIdleParts = 16
)

// waits are the requests that wait for the backend.
type waits struct {
	queue    queue
	released []waiting // that wait for nothing any more, and are to be decided without the backend
	spare    []*take
}

// newTake makes a take of nothing yet.
func (s *waits) newTake(least, most uint64) *take {
	last := len(s.spare) - 1
	if last < 0 {
		return &take{least: least, most: most}
	}
	t := s.spare[last]
	s.spare = s.spare[:last]
	*t = take{parts: t.parts[:0], least: least, most: most, waiters: t.waiters[:0]}
	return t
}

// recycle has a take used again that nothing refers to any more.
//
//go:noinline
func (s *waits) recycle(t *take) {
	if len(s.spare) < maxIdleTakes {
		clear(t.parts)
		clear(t.waiters)
		// A key that many wait for would leave its room to each of them in turn.
		if cap(t.waiters) > maxIdleParts {
			t.waiters = nil
		}
		if cap(t.parts) > maxIdleParts {
			t.parts = nil
		}
		s.spare = append(s.spare, t)
	}
}

// release has the requests that wait for a take decided without the backend. Not at once, as
// another may be being decided: when released are.
func (s *waits) release(t *take) {
	for _, w := range t.waiters {
		switch {
		case !w.waits():
		case w.wait.entering:
			w.wait.Leave() // who makes it wait decides it
		default:
			s.released = append(s.released, w)
		}
	}
	if t.lease {
		t.waiters = nil
	}
}
