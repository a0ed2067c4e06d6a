package memory

import "weir/internal/store"

// sender is a sender's record: which of its pushes were applied. All that matter are in [floor,
// floor+MaxAhead), so a ring of bits has them. No sender takes more, whatever it sends.
type sender struct {
	floor   uint64
	applied [store.MaxAhead / 64]uint64
	grants  map[uint64]*[]granted // of pushes that had takes
}

// granted is what a take was given.
type granted struct{ units, at uint64 }

// note notes a push, and reports whether it was known: applied before, or below the floor. grants
// is where its takes' grants are kept. store.Check has bounded its sequence by its floor.
func (s *sender) note(sequence, floor uint64, takes bool) (grants *[]granted, known bool) {
	if sequence < s.floor {
		return &[]granted{}, true
	}
	if floor > s.floor {
		// The bits below the new floor are those of sequences to come.
		for seq := s.floor; seq < min(floor, s.floor+store.MaxAhead); seq++ {
			word, bit := place(seq)
			s.applied[word] &^= bit
		}
		for seq := range s.grants {
			if seq < floor {
				delete(s.grants, seq)
			}
		}
		s.floor = floor
	}
	grants = s.grants[sequence]
	if grants == nil {
		grants = &[]granted{}
	}
	word, bit := place(sequence)
	if s.applied[word]&bit != 0 {
		return grants, true
	}
	s.applied[word] |= bit
	if takes {
		if s.grants == nil {
			s.grants = make(map[uint64]*[]granted)
		}
		s.grants[sequence] = grants
	}
	return grants, false
}

func place(sequence uint64) (word int, bit uint64) {
	i := sequence % store.MaxAhead
	return int(i / 64), 1 << (i % 64)
}
