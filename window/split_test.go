package window

import (
	"math/rand/v2"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		limit     Limit
		nodes     uint64
		want      Split
		overshoot uint64
	}{
		{"1 % is free, and reserved", fixed(2000, minute), 10, Split{Free: 2, Reserve: 20, Quantum: 31, Parts: 4}, 0},
		{"of what 1 % is, whole hits for each", fixed(2999, minute), 10, Split{Free: 2, Reserve: 20, Quantum: 46, Parts: 4}, 0},
		{"just enough for one each", sliding(1000, minute), 10, Split{Free: 1, Reserve: 10, Quantum: 15, Parts: 4}, 0},
		{"one too few for one each", sliding(999, minute), 10, Split{Free: 1, Reserve: 9, Quantum: 15, Parts: 4}, 1},
		{"a free hit each exceeds 1 %", log(200, minute), 10, Split{Free: 1, Reserve: 2, Quantum: 3, Parts: 4}, 8},
		{"by up to 9 % and a hit", log(149, minute), 14, Split{Free: 1, Reserve: 1, Quantum: 2, Parts: 4}, 13},
		{"ten for each node", fixed(110, minute), 11, Split{Free: 1, Reserve: 1, Quantum: 1, Parts: 4}, 10},
		{"a small limit", fixed(100, minute), 10, Split{Quantum: 1, Parts: 4}, 0},
		{"the least that is not small", fixed(101, minute), 10, Split{Free: 1, Reserve: 1, Quantum: 1, Parts: 4}, 9},
		{"less than ten for each", fixed(99, minute), 10, Split{Quantum: 1, Parts: 4}, 0},
		{"fewer than nodes", fixed(3, minute), 10, Split{Quantum: 1, Parts: 4}, 0},
		{"nothing", fixed(0, minute), 10, Split{Quantum: 1, Parts: 4}, 0},
		{"a bucket is what it holds", tokens(10, 1000, minute), 10, Split{Free: 1, Reserve: 10, Quantum: 15, Parts: 4}, 0},
		{"a bucket that gets nothing", tokens(0, 1000, minute), 10, Split{Quantum: 1, Parts: 4}, 0},
		{"an unknown number of nodes", fixed(1000, minute), 0, Split{Quantum: 15, Parts: 4}, 0},
		{"two nodes", fixed(1000, minute), 2, Split{Free: 5, Reserve: 10, Quantum: 15, Parts: 4}, 0},
		{"alone, all at once", fixed(1000, minute), 1, Split{Free: 10, Quantum: 15, Parts: 1}, 0},
		{"alone, with a small limit", fixed(10, minute), 1, Split{Quantum: 1, Parts: 1}, 0},
		{"alone, with a smaller one", fixed(9, minute), 1, Split{Quantum: 1, Parts: 1}, 0},
		{"as much as there may be", fixed(MaxHits, minute), 1 << 20, Split{Free: 85899345, Reserve: 85899345 << 20, Quantum: 1<<47 - 1, Parts: 4}, 0},
	} {
		got := test.limit.Split(test.nodes)
		if got != test.want || got.Overshoot(test.nodes) != test.overshoot {
			t.Errorf("%s: %+v and %d above the limit, want %+v and %d", test.name, got, got.Overshoot(test.nodes), test.want, test.overshoot)
		}
	}
}

// What is free and not reserved is never more than the regimes promise, whatever the limit and the
// nodes.
func TestSplitKeepsItsWord(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		l, nodes := fixed(random.Uint64()>>(11+random.IntN(53)), minute), 2+random.Uint64()>>random.IntN(64)
		s := l.Split(nodes)
		switch over := s.Overshoot(nodes); {
		case s.Quantum == 0 || s.Parts != leaseParts || s.Reserve > l.Max/100:
			t.Fatalf("limit %d, %d nodes: %+v", l.Max, nodes, s)
		case l.Leases() && l.Max/100 >= nodes && (s.Free != l.Max/100/nodes || s.Reserve != s.Free*nodes || over != 0):
			t.Fatalf("limit %d, %d nodes: %+v, want all that is free reserved", l.Max, nodes, s)
		case l.Leases() != (l.Max > 100) || !l.Leases() && (s.Free != 0 || s.Reserve != 0 || over != 0):
			t.Fatalf("limit %d, %d nodes: %+v, want nothing free of a small limit", l.Max, nodes, s)
		case l.Leases() && l.Max/100 < nodes && l.Max/10 >= nodes && (s.Free != 1 || s.Reserve != l.Max/100 || over > l.Max*9/100+1):
			t.Fatalf("limit %d, %d nodes: %+v, want one free hit, and 9 %% at most above the limit", l.Max, nodes, s)
		case l.Max/10 < nodes && (s.Free != 0 || s.Reserve != 0 || over != 0):
			t.Fatalf("limit %d, %d nodes: %+v, want nothing free", l.Max, nodes, s)
		}
	}
}

func TestGrant(t *testing.T) {
	t.Parallel()
	s := Split{Reserve: 20, Quantum: 15, Parts: 4}
	for _, test := range []struct{ left, least, most, want uint64 }{
		{1000, 1, 1000, 245},
		{1000, 1, 100, 100},
		{1000, 300, 1000, 300},
		{1000, 980, 1000, 980},
		{1000, 981, 1000, 0},
		{84, 1, 1000, 16},
		{80, 1, 1000, 15},
		{35, 1, 1000, 15},
		{34, 1, 1000, 14},
		{34, 15, 1000, 0},
		{21, 1, 1000, 1},
		{21, 2, 1000, 0},
		{20, 1, 1000, 0},
		{3, 1, 1000, 0},
		{0, 1, 1000, 0},
		{1 << 63, 1, 1<<64 - 1, (1<<63 - 20) / 4},
	} {
		if got := s.Grant(test.left, test.least, test.most); got != test.want {
			t.Errorf("%d of %d left, at least %d: %d, want %d", test.most, test.left, test.least, got, test.want)
		}
	}
	alone := Split{Quantum: 15, Parts: 1}
	if got := alone.Grant(1000, 1, 1000); got != 1000 {
		t.Errorf("alone: %d, want all", got)
	}
}

// Whoever leases, and however much: nobody gets less than is of use, and what is reserved stays.
func TestGrantsNeverExceed(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		l, nodes := fixed(random.Uint64N(5000), minute), 1+random.Uint64N(50)
		s := l.Split(nodes)
		left, rounds := l.Max, 0
		for {
			least := 1 + random.Uint64N(3)
			most := least + random.Uint64N(l.Max+1)
			granted := s.Grant(left, least, most)
			if granted == 0 {
				if left >= s.Reserve+least {
					t.Fatalf("%+v: nothing of %d left for at least %d", s, left, least)
				}
				break
			}
			share := max(least, (left-s.Reserve)/s.Parts, s.Quantum)
			if granted < least || granted > most || granted > left-s.Reserve || granted > share || granted < min(most, left-s.Reserve, share) {
				t.Fatalf("%+v: %d of %d left, for %d to %d", s, granted, left, least, most)
			}
			left -= granted
			rounds++
		}
		if left < s.Reserve {
			t.Fatalf("%+v: %d left", s, left)
		}
		if rounds == 0 && l.Max > s.Reserve+3 {
			t.Fatalf("%+v: nothing was granted", s)
		}
	}
}
