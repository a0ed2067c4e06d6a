package window

import (
	"math"
	"testing"

	"weir/internal/must"
)

// No number of hits leaves its bounds, however many are counted or given back.
func TestHitsAreBounded(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		if l.IsLog() {
			continue // which keeps what its limit allows for
		}
		for _, cost := range []uint64{MaxHits - 1, MaxHits, MaxHits + 1, math.MaxUint64} {
			var s State
			l.Advance(&s, monday)
			l.Count(&s, cost)
			must.Equal(t, pending(&s), int64(min(cost, MaxHits)), "%+v: %d hits count as", l, cost)
			l.Count(&s, 5)
			must.Equal(t, pending(&s), min(int64(min(cost, MaxHits))+5, MaxHits), "%+v: %d hits and 5 count as", l, cost)
			s.Claim()
			s.EndFlight()
			l.GiveBack(&s, l.Number(&s), cost)
			l.GiveBack(&s, l.Number(&s), math.MaxUint64)
			must.Equal(t, pending(&s), -MaxHits, "%+v: pending", l)
			must.Equal(t, l.Used(&s), 0, "%+v: used", l)
		}
	}
}

// Hits are given back to the window that they were counted in, and to no other.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit Limit
		later int64
		want  [2]int64 // what is pending in the window, and in the one before
	}{
		{"fixed", fixed(100, minute), 0, [2]int64{2, 0}},
		{"fixed, a window later", fixed(100, minute), minute, [2]int64{4, 0}},
		{"sliding", sliding(100, minute), 59 * second, [2]int64{6, 0}},
		{"sliding, a window later", sliding(100, minute), minute, [2]int64{4, 2}},
		{"sliding, two windows later", sliding(100, minute), 2 * minute, [2]int64{4, 0}},
		{"first hit", firstHit(100, minute), minute - 1, [2]int64{6, 0}},
		{"first hit, a window later", firstHit(100, minute), minute, [2]int64{4, 0}},
		{"sub-buckets", subBuckets(100, minute, 10*second), 59 * second, [2]int64{6, 0}},
		{"sub-buckets, a window later", subBuckets(100, minute, 10*second), minute, [2]int64{4, 0}},
		{"tokens", tokens(1, 100, minute), 59 * second, [2]int64{6, 0}},
		{"tokens, a window later", tokens(1, 100, minute), minute, [2]int64{6, 0}},
	} {
		l := test.limit
		var s State
		l.Advance(&s, monday)
		l.Count(&s, 5)
		number := l.Number(&s)
		if l.Advance(&s, monday+test.later); test.later > 0 {
			l.Count(&s, 4)
		}
		l.GiveBack(&s, number, 3)
		got := [2]int64{s.Hits[0].Pending, s.Hits[1].Pending}
		for i := range s.Buckets {
			got[0] += s.Buckets[i].Pending
		}
		must.Equal(t, got, test.want, "%s", test.name)
	}
}

// Hits that go back make room for the same number, whichever window they were counted in.
func TestGiveBackNewest(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		must.AtLeast(t, l.Quota(), 4, "%+v: room for hits", l)
		for _, after := range []int64{0, l.Width / 4, l.Width / 3, l.Width / 2, l.Width - l.Width/8, l.Width - 1, l.Width + 1, l.Width + l.Width/700, l.Width + l.Width/3} {
			var s State
			l.Advance(&s, monday)
			l.Count(&s, l.Quota()/2)
			l.Advance(&s, monday+after)
			l.Count(&s, l.Remaining(&s))
			for hits := range l.Quota() + 2 {
				s := s
				s.Buckets = append([]Bucket(nil), s.Buckets...)
				had, used := l.Remaining(&s), l.Used(&s)
				given := l.GiveBackNewest(&s, hits)
				rounded := uint64(0)
				if l.Kind == SlidingWindow && after > l.Width && given < used {
					rounded = 1
				}
				if has := l.Remaining(&s); has > had+given || has+rounded < had+given || given != min(hits, used) {
					t.Errorf("%+v: of %d hits, %d of which are %d ns old, %d go back for %d: %d remain of %d", l, used, l.Quota()/2, after, given, hits, has, had)
				}
			}
			l.GiveBackNewest(&s, math.MaxUint64)
			must.Equal(t, l.Used(&s), 0, "%+v: used though all went back", l)
		}
	}
}

// What goes back of a sliding window's past makes room for no more hits than go back: at once and later, all at once or one by
// one, here and where more hits are known.
func TestGiveBackOfThePast(t *testing.T) {
	t.Parallel()
	l := sliding(1000, minute)
	for _, previous := range []uint64{1, 2, 10, 100, 103, 1000} {
		for _, current := range []uint64{0, 3} {
			for at := int64(0); at < minute; at += minute / 40 {
				for _, step := range []uint64{1, 3, 40} {
					with := State{Newest: monday + at, Start: 0, Hits: [2]Hits{{Total: current}, {Total: previous}}}
					without := with
					given := uint64(0)
					for range 5 {
						given += l.GiveBackNewest(&with, step)
						for later := int64(0); at+later < minute; later += minute / 400 {
							for _, others := range []uint64{0, 3, 93} {
								a, b := with, without
								a.Hits[1].Total, b.Hits[1].Total = previous+others, previous+others
								l.Advance(&a, monday+at+later)
								l.Advance(&b, monday+at+later)
								if freed := l.Used(&b) - l.Used(&a); freed > given {
									t.Fatalf("of %d old hits and %d new ones, %d go back %d ns into the window: %d ns later, with %d more hits, there is room for %d more", previous, current, given, at, later, others, freed)
								}
							}
						}
						with.Newest += minute / 20_000
						without.Newest = with.Newest
						if with.Newest >= monday+minute {
							break
						}
					}
				}
			}
		}
	}
}

// A place that is given back while another of its bucket is on its way back goes back, too, also if an answer lacks the first
// already.
func TestGiveBackBesideAnother(t *testing.T) {
	t.Parallel()
	l := log(200, minute)
	number := monday / l.Precision
	s := State{Newest: monday, Buckets: []Bucket{{Hits: Hits{Total: 2, Pending: -1}, Number: number}}}
	s.Claim()
	l.Learn(&s, true, &Totals{Newest: uint64(number), Hits: []uint64{1}, Ages: []uint64{0}})
	l.GiveBack(&s, uint64(number), 1)
	must.Equal(t, s.Buckets[0].Hits, Hits{Total: 1, Pending: -1, InFlight: -1}, "hits of the bucket")
}

// Hits that are on their way back do not go back once more, and neither do leased hits that move to the time of their use.
func TestGiveBackOnTheWay(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		var s State
		l.Advance(&s, monday)
		l.Count(&s, 100)
		s.Claim()
		s.EndFlight()
		l.Advance(&s, monday+l.Width/2) // half of a bucket's tokens are back
		used := l.Used(&s)
		must.Equal(t, l.GiveBackNewest(&s, used-20), used-20, "%+v: hits that went back", l)
		s.Claim()
		must.Equal(t, l.GiveBackNewest(&s, 100), uint64(20), "%+v: hits that went back beside them", l)
		must.Equal(t, l.GiveBackNewest(&s, 100), uint64(0), "%+v: hits that went back once more", l)
	}
	l := log(200, minute)
	s := State{Newest: monday, Buckets: []Bucket{{Hits: Hits{Total: 5, InFlight: -1, Lease: 4}, Number: monday/l.Precision - 1}, {Hits: Hits{InFlight: 1}, Number: monday / l.Precision}}}
	must.Equal(t, l.GiveBackNewest(&s, 2), uint64(1), "hits that went back of one that moves")
}

// Hits that are on their way back are not kept, and neither are those that are not used. Those that move to another bucket are.
func TestKeeps(t *testing.T) {
	t.Parallel()
	bucket := func(back int64, h Hits) Bucket { return Bucket{Hits: h, Number: monday - back} }
	for _, test := range []struct {
		name  string
		limit Limit
		state State
		want  uint64
	}{
		{"on their way back", fixed(100, minute), State{Hits: [2]Hits{{Total: 10, InFlight: -4, Lease: 1}}}, 5},
		{"on their way there", fixed(100, minute), State{Hits: [2]Hits{{Total: 10, InFlight: 4}}}, 14},
		{"more than are known", fixed(100, minute), State{Hits: [2]Hits{{Total: 3, InFlight: -4}}}, 0},
		{"of the past", sliding(100, minute), State{Hits: [2]Hits{{Total: 5, InFlight: -1}, {Total: 10, InFlight: -3}}}, 11},
		{"tokens, some of which are back", tokens(60, 60, minute), State{Start: monday - 2*second, Hits: [2]Hits{{Total: 10, InFlight: -5}}}, 3},
		{"moves", log(100, minute), State{Buckets: []Bucket{bucket(9, Hits{Total: 5, InFlight: -1, Lease: 4}), bucket(0, Hits{InFlight: 1})}}, 1},
		{"moves, and others go back", log(100, minute), State{Buckets: []Bucket{bucket(9, Hits{Total: 5, InFlight: -3}), bucket(0, Hits{InFlight: 1})}}, 3},
		{"beside new ones", log(100, minute), State{Buckets: []Bucket{bucket(9, Hits{Total: 5, InFlight: -1}), bucket(0, Hits{InFlight: 3})}}, 7},
	} {
		s := test.state
		s.Newest = monday
		must.Equal(t, test.limit.Keeps(&s), test.want, "%s: hits are kept", test.name)
	}
}

// A cost that is more than anything is refused, also if something is used already.
func TestHugeCosts(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		var s State
		l.Advance(&s, monday)
		l.Count(&s, 5)
		for _, cost := range []uint64{96, 101, MaxHits, MaxHits + 1, math.MaxUint64 - 4, math.MaxUint64} {
			must.Equal(t, l.Allows(&s, cost), false, "%+v: %d hits have room", l, cost)
		}
		must.Equal(t, l.Allows(&s, 95), true, "%+v: the rest has no room", l)
	}
}

// Rejected hits count in windows, and empty a token bucket at most.
func TestRejected(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		var s State
		l.Advance(&s, monday)
		l.Count(&s, 99)
		for _, test := range []struct{ cost, tokens uint64 }{{0, 0}, {1, 1}, {2, 1}, {50, 1}} {
			want := test.cost
			if l.Kind.Refills() {
				want = test.tokens
			}
			must.Equal(t, l.Rejected(&s, test.cost), want, "%+v: of %d rejected hits count", l, test.cost)
		}
	}
}

// A state is kept until it means no more than a state that has seen no hit.
func TestForgetAt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit Limit
		state State
		want  int64 // from monday on
	}{
		{"fixed, no hits", fixed(10, minute), State{}, 0},
		{"fixed", fixed(10, minute), State{Hits: [2]Hits{{Total: 1}}}, minute},
		{"sliding, no hits", sliding(10, minute), State{}, 0},
		{"sliding", sliding(10, minute), State{Hits: [2]Hits{{Total: 1}}}, 2 * minute},
		{"sliding, the window before", sliding(10, minute), State{Hits: [2]Hits{1: {Total: 1}}}, minute},
		{"sliding, both", sliding(10, minute), State{Hits: [2]Hits{{Total: 1}, {Total: 1}}}, 2 * minute},
		{"sliding, what goes back", sliding(10, minute), State{Hits: [2]Hits{{Pending: -1}}}, 2 * minute},
		{"first hit", firstHit(10, minute), State{Start: monday - second, Hits: [2]Hits{{Total: 1}}}, minute - second},
		{"tokens, none taken", tokens(60, 60, minute), State{}, 0},
		{"tokens", tokens(60, 60, minute), State{Start: monday, Hits: [2]Hits{{Total: 10}}}, 10 * second},
		{"tokens, some leased", tokens(60, 60, minute), State{Start: monday, Hits: [2]Hits{{Total: 30, Lease: 20}}}, 30 * second},
		{"tokens that are back", tokens(60, 60, minute), State{Start: monday - minute, Hits: [2]Hits{{Pending: 10}}}, 0},
		{"sub-buckets", subBuckets(60, minute, 10*second), State{Buckets: []Bucket{{Number: monday/(10*second) - 2, Hits: Hits{Total: 1}}}}, 40 * second},
		{"sub-buckets, an idle one last", subBuckets(60, minute, 10*second), State{Buckets: []Bucket{
			{Number: monday/(10*second) - 2, Hits: Hits{Total: 1}}, {Number: monday / (10 * second)},
		}}, 40 * second},
		{"log", log(60, minute), State{Buckets: []Bucket{{Number: monday - second, Hits: Hits{Total: 1}}}}, 59 * second},
	} {
		s := test.state
		s.Newest = monday
		must.Equal(t, test.limit.ForgetAt(&s)-monday, test.want, "%s: ns until it is forgotten", test.name)
	}
}

// A clock outside of all times is taken for the nearest one.
func TestTimesAreBounded(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		for now, want := range map[int64]int64{math.MinInt64: 0, -1: 0, 0: 0, 1: 1, maxTime: maxTime, maxTime + 1: maxTime, math.MaxInt64: maxTime} {
			var s State
			l.Advance(&s, now)
			must.Equal(t, s.Newest, want, "%+v: %d is taken for", l, now)
		}
	}
}

// A clock may go back by a window, and by 10 s: until it has caught up the state waits. If it was
// farther ahead the hits become hits of now.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{fixed(9, second), fixed(9, minute), sliding(9, minute), firstHit(9, minute), log(9, second), tokens(9, 9, second), tokens(9, 9, minute)} {
		for _, test := range []struct {
			back int64
			want bool // it moves
		}{{second, false}, {maxBack, false}, {maxBack + 1, l.Width < maxBack}, {minute, l.Width < maxBack}, {minute + 1, true}} {
			s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 9}}}
			if l.IsLog() {
				s = State{Newest: monday, Buckets: []Bucket{{Number: monday, Hits: Hits{Total: 9}}}}
			}
			if l.Advance(&s, monday-test.back); l.Used(&s) != 9 || (s.Newest == monday) == test.want {
				t.Errorf("%+v: back by %d ns, %d are used, and it is %d ns later", l, test.back, l.Used(&s), s.Newest-monday)
			}
		}
	}
}

// The rate of the contract: 80 hits, and 40 in the window before.
func TestRate(t *testing.T) {
	t.Parallel()
	l := sliding(100, minute)
	for at, want := range map[int64]float64{0: 120, 30 * second: 100, 45 * second: 90, 57 * second: 82} {
		must.Equal(t, Rate(&l, &State{Newest: monday + at, Hits: [2]Hits{{Total: 80}, {Total: 40}}}), want, "after %d s the rate is", at/second)
	}
}
