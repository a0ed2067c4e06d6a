package memory

import "weir/backend"

// sender remembers which pushes of a sender were applied: all that count are in [floor, floor+MaxAhead), so a ring of
// bits has them. No sender takes more, whatever it sends.
type sender struct {
	floor   uint64
	applied [backend.MaxAhead / 64]uint64
}

// record tells whether the push was not applied before, and remembers it. backend.Check has bounded its sequence by its
// floor.
func (s *sender) record(sequence, floor uint64) bool {
	if sequence < s.floor {
		return false
	}
	if floor > s.floor {
		// The bits below the new floor are those of sequences to come.
		for seq := s.floor; seq < min(floor, s.floor+backend.MaxAhead); seq++ {
			word, bit := place(seq)
			s.applied[word] &^= bit
		}
		s.floor = floor
	}
	word, bit := place(sequence)
	if s.applied[word]&bit != 0 {
		return false
	}
	s.applied[word] |= bit
	return true
}

func place(sequence uint64) (word int, bit uint64) {
	i := sequence % backend.MaxAhead
	return int(i / 64), 1 << (i % 64)
}
