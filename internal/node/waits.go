package node

const (
	// maxIdleAsks bounds the asks that are kept to be used again, and maxIdleParts the keys and
	// requests that each keeps room for.
	maxIdleAsks  = 2048
	maxIdleParts = 16
)

// waits are the requests that wait for the backend.
type waits struct {
	queue    queue
	released []turn // that wait for nothing any more, and are to be decided without the backend
	spare    []*ask
}

// newAsk makes an ask for nothing yet.
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

// recycle has an ask used again that nothing refers to any more.
//
//go:noinline
func (s *waits) recycle(t *ask) {
	if len(s.spare) < maxIdleAsks {
		clear(t.parts)
		clear(t.turns)
		// A key that many wait for would leave its room to each of them in turn.
		if cap(t.turns) > maxIdleParts {
			t.turns = nil
		}
		if cap(t.parts) > maxIdleParts {
			t.parts = nil
		}
		s.spare = append(s.spare, t)
	}
}

// release has the requests that wait for an ask decided without the backend. Not at once, as
// another may be being decided: when released are.
func (s *waits) release(t *ask) {
	for _, w := range t.turns {
		switch {
		case !w.waits():
		case w.wait.entering:
			w.wait.stopAsking() // who makes it wait decides it
		default:
			s.released = append(s.released, w)
		}
	}
	if t.lease {
		t.turns = nil
	}
}
