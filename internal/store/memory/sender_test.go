package memory

import (
	"testing"

	"weir/internal/store"
)

// What pushes were granted is remembered until the floor has passed them, and no longer.
func TestGrantsAreForgottenBelowTheFloor(t *testing.T) {
	s := &sender{}
	for seq := uint64(1); seq <= 3*store.MaxAhead; seq++ {
		floor := seq - min(seq, 9)
		grants, known := s.note(seq, floor, seq%2 == 0)
		if known {
			t.Fatalf("sequence %d is known", seq)
		}
		*grants = append(*grants, granted{units: seq})
		for back := range min(seq, 9) {
			again, known := s.note(seq-back, floor, true)
			if !known || (seq-back)%2 == 0 && (len(*again) != 1 || (*again)[0].units != seq-back) {
				t.Fatalf("sequence %d at %d: known %v, grants %v", seq-back, seq, known, *again)
			}
		}
		if len(s.grants) > 5 {
			t.Fatalf("%d grants remembered, want those from the floor on", len(s.grants))
		}
	}
}
