package memory

import "weir/internal/store"

// sender is a sender's record: which of its pushes were applied. All that matter are in [floor,
// floor+MaxAhead), so a ring of bits has them. No sender takes more, whatever it sends.
type sender struct {
	floor   uint64
	applied [store.MaxAhead / 64]uint64
	// grants are those of its pushes that had takes, as far as they are remembered.
	grants senderGrants
}

// note notes a push, and reports whether it was known: applied before, or below the floor.
// store.Check has bounded its sequence by its floor.
func (s *sender) note(sequence, floor uint64, all *grants) (known bool) {
	if sequence < s.floor {
		return true
	}
	if floor > s.floor {
		// The bits below the new floor are those of sequences to come.
		for seq := s.floor; seq < min(floor, s.floor+store.MaxAhead); seq++ {
			word, bit := place(seq)
			s.applied[word] &^= bit
			all.forget(s.grants.of(seq))
		}
		s.floor = floor
	}
	word, bit := place(sequence)
	known = s.applied[word]&bit != 0
	s.applied[word] |= bit
	return known
}

func place(sequence uint64) (word int, bit uint64) {
	i := sequence % store.MaxAhead
	return int(i / 64), 1 << (i % 64)
}
