package memory

import "weir/internal/store"

// sender is a sender's record of applied pushes. Only sequences in [floor, floor+MaxAhead) matter,
// so the record's size is bounded for any pushes.
type sender struct {
	namespace string
	id        uint64
	floor     uint64
	// applied has a bit for each sequence, from the word of the floor on. Most senders have a few
	// unanswered pushes, and need one word.
	applied []uint64
	// grants has the remembered grants of its pushes.
	grants senderGrants
}

// note records a push, and reports whether it was known: applied before, or below the floor.
// store.Check has bounded the distance from its floor to its sequence.
func (s *sender) note(sequence, floor uint64, all *grants) (known bool) {
	if sequence < s.floor {
		return true
	}
	if floor > s.floor {
		for seq := s.floor; seq < min(floor, s.floor+store.MaxAhead); seq++ {
			all.forget(s.grants.of(seq))
		}
		passed := min(floor/64-s.floor/64, uint64(len(s.applied)))
		s.applied = s.applied[:copy(s.applied, s.applied[passed:])]
		s.floor = floor
	}
	word, bit := sequence/64-s.floor/64, uint64(1)<<(sequence%64)
	if word >= uint64(len(s.applied)) {
		// Allocate exactly the words needed.
		s.applied = append(make([]uint64, 0, word+1), s.applied...)[:word+1]
	}
	known = s.applied[word]&bit != 0
	s.applied[word] |= bit
	return known
}
