package rule

import (
	"math/rand/v2"
	"testing"

	"weir/sharedata"
)

// The number that is told of hits above a limit is never below them while they count, and nothing
// is told once none count.
func TestExcess(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 4))
		p := new(sharedata.Map)
		a, b := NewExcess(p, "n", []byte("rule")), NewExcess(p, "n", []byte("rule"))
		var noted []above
		for now := int64(0); now < 300; now += random.Int64N(5) {
			if random.IntN(4) == 0 {
				hits := above{1 + random.Uint64N(100), now + 1 + random.Int64N(40)}
				noted = append(noted, hits)
				[]*Excess{a, b}[random.IntN(2)].note(hits, now)
			}
			least, last := uint64(0), int64(0)
			for _, hits := range noted {
				if now < hits.until {
					least = max(least, hits.hits)
				}
				last = max(last, hits.until)
			}
			a.Read()
			if got := a.At(now); got < least || got > 0 && now >= last {
				t.Fatalf("seed %d: %d hits are told at %d, want %d, of %v", seed, got, now, least, noted)
			}
		}
	}
}
