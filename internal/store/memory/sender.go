package memory

import "weir/internal/store"

// sender is a sender's record: which of its pushes were applied. All that matter are in [floor,
// floor+MaxAhead). No sender takes more, whatever it sends.
type sender struct {
	namespace string
	id        uint64
	floor     uint64
	// applied has a bit for each push, from the word on that has the floor's. Most senders have a
	// few pushes without an answer, and need no second word.
	applied []uint64
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
		for seq := s.floor; seq < min(floor, s.floor+store.MaxAhead); seq++ {
			all.forget(s.grants.of(seq))
		}
		passed := min(floor/64-s.floor/64, uint64(len(s.applied)))
		s.applied = s.applied[:copy(s.applied, s.applied[passed:])]
		s.floor = floor
	}
	word, bit := sequence/64-s.floor/64, uint64(1)<<(sequence%64)
	if word >= uint64(len(s.applied)) {
		// No more than is needed.
		s.applied = append(make([]uint64, 0, word+1), s.applied...)[:word+1]
	}
	known = s.applied[word]&bit != 0
	s.applied[word] |= bit
	return known
}
