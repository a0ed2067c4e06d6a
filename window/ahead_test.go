package window

import (
	"math"
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

func TestAhead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		limit       Limit
		left, nodes uint64
		want        uint64
	}{
		{"half of an even part", fixed(1000, minute), 1000, 10, 50},
		{"less when less is left", sliding(1000, minute), 100, 10, 5},
		{"a hit for each", fixed(1000, minute), 20, 10, 1},
		{"not two for each", fixed(1000, minute), 19, 10, 0},
		{"alone, as of two", fixed(1000, minute), 1000, 1, 250},
		{"an unknown number, as of two", fixed(1000, minute), 1000, 0, 250},
		{"a small limit", fixed(100, minute), 100, 1, 0},
		{"the smallest that is not", log(101, minute), 101, 2, 25},
		{"a bucket is what it holds", tokens(10, 1000, minute), 1000, 10, 50},
		{"a bucket that holds little", tokens(1000, 10, minute), 10, 2, 0},
		{"nothing", fixed(0, minute), 0, 10, 0},
		{"more nodes than can be", fixed(MaxHits, minute), MaxHits, math.MaxUint64, MaxHits >> 33},
	} {
		must.Equal(t, test.limit.Ahead(test.left, test.nodes), test.want, "%s", test.name)
	}
}

// If each node leases what it may, one after the other, half of what was left stays.
func TestAheadLeavesHalf(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		l, nodes := fixed(random.Uint64()>>(11+random.IntN(53)), minute), 1+random.Uint64N(200)
		left := l.Max
		for range nodes {
			left -= l.Ahead(left, nodes)
		}
		must.AtLeast(t, left, l.Max/2, "limit %d, %d nodes: left", l.Max, nodes)
	}
}

// Where hits come back one by one and fast, a part of the limit is asked for at once.
func TestQuantum(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit Limit
		back  int64
		want  uint64
	}{
		{"all hits at once", fixed(1_000_000, minute), 0, 1},
		{"all hits at once, after the first", firstHit(1_000_000, minute), 0, 1},
		{"some hits at once", subBuckets(100_000, minute, second), 0, 1},
		{"slowly", sliding(1000, minute), 60_000_000, 1},
		{"each 50 ms", sliding(1200, minute), 50_000_000, 1},
		{"a little faster", sliding(1201, minute), 49_958_368, 18},
		{"fast", tokens(10_000, 64, minute), 6_000_000, 1},
		{"fast, of a small bucket", tokens(10_000, 63, minute), 6_000_000, 1},
		{"fast, of a large bucket", tokens(10_000, 6400, minute), 6_000_000, 100},
		{"a log", log(1280, second), 781_250, 20},
		{"faster than a nanosecond", sliding(MaxHits, minute), 1, MaxHits / 64},
		{"never", sliding(0, minute), 0, 1},
	} {
		must.Equal(t, test.limit.Return(), test.back, "%s: a hit each ns", test.name)
		must.Equal(t, test.limit.Quantum(), test.want, "%s", test.name)
	}
}
