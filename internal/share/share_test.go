package share

import (
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

// An owner that asks for room in a full store takes it from the largest: nobody loses anything to
// another while it has less than an even part, and the room is there in the end.
func TestNobodyLosesAnEvenPart(t *testing.T) {
	const most = 60
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		var s Shares[int, struct{}]
		sum, sizes := 0, map[int]int{}
		grow := func(owner, by int) {
			s.Grow(owner, by)
			sum += by
			if sizes[owner] += by; sizes[owner] == 0 {
				delete(sizes, owner)
			}
		}
		for range 2000 {
			owner := random.IntN(7)
			if random.IntN(4) == 0 && sizes[owner] > 0 {
				grow(owner, -1)
			}
			by := 1 + random.IntN(3)
			for sum+by > most {
				from := s.MakesRoom(owner).Owner
				for other, size := range sizes {
					if size > sizes[from] || from != owner && sizes[from] <= sizes[owner] {
						t.Fatalf("%d makes room for %d, and %d has %d: %v", from, owner, other, size, sizes)
					}
				}
				grow(from, -1)
			}
			grow(owner, by)
			must.EqualOrEnd(t, len(s.byOwner), len(sizes), "shares")
			must.EqualOrEnd(t, len(s.sizes), len(sizes), "shares in the heap")
			for owner, size := range sizes {
				if of := s.Of(owner); of == nil || of.size != size || s.sizes[of.index] != of || of.size > s.sizes[0].size {
					t.Fatalf("share %+v of %d, want %d", of, owner, size)
				}
			}
		}
	}
}
