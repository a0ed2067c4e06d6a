package window

import (
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

// A bucket is full at the same time by another limit, and what it lacks until then is that much time.
func TestAdapt(t *testing.T) {
	t.Parallel()
	now := monday + 30*second
	for _, test := range []struct {
		name     string
		from, to uint64
		start    int64
		hits     Hits
		want     Hits
		starts   int64
		left     uint64 // of a burst of 1000
	}{
		{"half full", 1000, 10, monday, Hits{Total: 1000}, Hits{Total: 5}, now, 995},
		{"half full of hits that were not pushed", 1000, 10, monday, Hits{Pending: 1000}, Hits{Pending: 1000}, monday + minute - 6000*second, 995},
		{"drained", 1000, 10, now, Hits{Total: 1000}, Hits{Total: 10}, now, 990},
		{"between two tokens", 1000, 10, now, Hits{Total: 501}, Hits{Total: 6}, now + 30*second + 60e6 - 36*second, 994},
		{"one token", 1000, 10, now, Hits{Total: 1}, Hits{Total: 1}, now + 60e6 - 6*second, 999},
		{"higher", 10, 1000, now - 3*second, Hits{Total: 5}, Hits{Total: 450}, now, 550},
		{"of no divisor", 10, 7, now, Hits{Total: 5}, Hits{Total: 4}, now + 30*second - 34_285_714_286, 996},
		{"full", 1000, 10, monday, Hits{Total: 500}, Hits{}, now, 1000},
		{"pushed and not answered", 1000, 10, now, Hits{Total: 100, InFlight: 200}, Hits{InFlight: 200}, now + 18*second - 1200*second, 997},
		{"pushed, of a higher limit", 10, 1000, now, Hits{Total: 2, InFlight: 3}, Hits{Total: 497, InFlight: 3}, now, 500},
		{"given back", 1000, 10, now, Hits{Total: 900, Pending: -250}, Hits{Total: 9, Pending: -2}, now + 39*second - 42*second, 993},
		{"given back, of a higher limit", 10, 1000, now, Hits{Total: 9, Pending: -2}, Hits{Total: 702, Pending: -2}, now, 300},
		{"leased", 1000, 10, now, Hits{Total: 700, Lease: 200}, Hits{Total: 7, Lease: 2}, now, 995},
		{"leased, less than a token", 1000, 10, now, Hits{Total: 700, Lease: 99}, Hits{Total: 7}, now + 36*second + 60e6 - 42*second, 993},
		{"leased, of a higher limit", 10, 1000, now, Hits{Total: 7, Lease: 2}, Hits{Total: 700, Lease: 200}, now, 500},
		{"leased, and more is pending than missing", 1000, 10, now, Hits{Total: 100, Pending: 9, Lease: 100}, Hits{Pending: 9}, now + 540e6 - 54*second, 999},
		{"all leased", 1000, 10, monday, Hits{Total: 1000, Lease: 500}, Hits{Total: 5, Lease: 5}, now, 1000},
		{"to nothing", 1000, 0, monday, Hits{Total: 700}, Hits{Total: 200}, now, 0},
		{"from nothing", 0, 10, monday, Hits{Total: 7}, Hits{Total: 7}, now, 993},
		{"to nothing, leased", 1000, 0, monday, Hits{Total: 700, Lease: 300}, Hits{Total: 300, Lease: 300}, now, 0},
		{"more than can be counted", 1, MaxLimit, now, Hits{Total: 1000}, Hits{Total: MaxHits}, now, 0},
		{"the same limit", 10, 10, monday, Hits{Total: 9, Pending: -3, InFlight: 2, Lease: 1}, Hits{Total: 9, Pending: -3, InFlight: 2, Lease: 1}, monday, 998},
		{"never taken from", 10, 20, 0, Hits{}, Hits{}, 0, 1000},
	} {
		from, to := tokens(test.from, 1000, minute), tokens(test.to, 1000, minute)
		s := State{Newest: now, Start: test.start, Hits: [2]Hits{test.hits}}
		Adapt(&to, &s, &from)
		must.Equal(t, s.Hits[0], test.want, "%s: hits", test.name)
		must.Equal(t, s.Start, test.starts, "%s: start", test.name)
		if to.Advance(&s, now); to.Max != 0 && to.Remaining(&s) != test.left {
			t.Errorf("%s: %d remain, want %d", test.name, to.Remaining(&s), test.left)
		}
	}
}

// randomBucket is a bucket that lacks tokens, of a random limit.
func randomBucket(random *rand.Rand) (l Limit, s State) {
	l = tokens(1+random.Uint64N(1<<random.UintN(40)), 1e6, MinWidth*(1+random.Int64N(1<<random.UintN(27))))
	lacks := 1 + random.Uint64N(min(2*l.Max, MaxHits))
	s = State{Newest: monday, Start: monday - random.Int64N(l.Width)}
	h := &s.Hits[0]
	h.Total = lacks + tokensIn(&l, s.Start, monday)
	if random.IntN(2) == 0 {
		h.Pending = random.Int64N(int64(h.Total)) / 2
		h.InFlight = random.Int64N(int64(h.Total)) / 2
		h.Total -= uint64(h.Pending + h.InFlight)
	}
	if random.IntN(3) == 0 {
		h.Lease = random.Uint64N(min(h.Total, tokensMissing(&l, &s, monday)) + 1)
	}
	return l, s
}

// fullAt is when the tokens of s are back that were used.
func fullAt(l *Limit, s *State) int64 { return max(tokensBackAt(l, s, s.Hits[0].Sum()), s.Newest) }

// A bucket is full when it was before, to the nanosecond. Until then it lacks what comes back in that
// time, rounded up.
func TestAdaptKeepsTheTime(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 7))
	for range 20_000 {
		from, s := randomBucket(random)
		to := from
		to.Max = 1 + random.Uint64N(1<<random.UintN(40))
		before, was := s, fullAt(&from, &s)
		Adapt(&to, &s, &from)
		is := fullAt(&to, &s)
		if s.Start == 0 && is > was {
			continue // what is pending would have taken longer than since 1970
		}
		if is != was || s.Hits[0].Pending != before.Hits[0].Pending || s.Hits[0].InFlight != before.Hits[0].InFlight {
			t.Fatalf("%d to %d in %d ns: %+v is full at %d, and %+v at %d", from.Max, to.Max, to.Width, before, was, s, is)
		}
		if s.Hits[0].Lease > tokensMissing(&to, &s, s.Newest) || s.Hits[0].Lease > s.Hits[0].Total {
			t.Fatalf("%d to %d in %d ns: %+v became %+v, which leases more than is missing", from.Max, to.Max, to.Width, before, s)
		}
		lacks, most := to.Used(&s), min(MulDivUp(uint64(was-s.Newest), to.Max, uint64(to.Width)), MaxHits)
		if perNano := to.Max/uint64(to.Width) + 1; lacks > most+perNano || lacks+perNano < most {
			t.Fatalf("%d to %d in %d ns: %+v lacks %d, want %d", from.Max, to.Max, to.Width, s, lacks, most)
		}
	}
}

// However often two limits take turns, nothing grows and nothing shrinks, nor do the numbers.
func TestAdaptInTurns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 8))
	for range 20 {
		from, s := randomBucket(random)
		to := from
		to.Max = 1 + random.Uint64N(1<<random.UintN(40))
		if s.Hits[0].Pending = 0; s.Hits[0].Sum() == 0 {
			continue
		}
		s.Hits[0].InFlight = 0
		was := fullAt(&from, &s)
		limits := [2]*Limit{&to, &from}
		for turn := range 1000 {
			l := limits[turn%2]
			Adapt(l, &s, limits[(turn+1)%2])
			if is := fullAt(l, &s); is != max(was, s.Newest) {
				t.Fatalf("%d and %d in %d ns, turn %d: %+v is full %d ns late", from.Max, to.Max, to.Width, turn, s, is-was)
			}
			l.Advance(&s, s.Newest+random.Int64N((was-monday)/500+1))
		}
	}
}
