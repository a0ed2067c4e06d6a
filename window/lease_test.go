package window

import (
	"math"
	"math/rand/v2"
	"testing"

	"weir/internal/must"
)

// leasing are limits of all kinds, of 100 hits a minute.
var leasing = []Limit{fixed(100, minute), sliding(100, minute), firstHit(100, minute), subBuckets(100, minute, 10*second), log(100, minute), tokens(100, 100, minute)}

// granted returns the backend's totals for a grant of so many hits at a time, where it had others
// already: the total of the window that they were counted in.
func granted(l *Limit, start, at int64, hits uint64) *Totals {
	switch {
	case l.Kind.Started():
		return &Totals{Newest: uint64(start), Hits: []uint64{hits}}
	case l.Kind.Bucketed():
		return &Totals{Newest: l.NumberAt(&State{}, at), Hits: []uint64{hits}, Ages: []uint64{0}}
	}
	return &Totals{Newest: l.NumberAt(&State{}, at), Hits: []uint64{hits, 0}[:l.Kind.Windows()]}
}

// grantOf is a grant of so many hits that was answered when it was given, and no other answer since.
func grantOf(hits uint64, at int64) *Grant {
	return &Grant{Hits: hits, At: at, Answered: at, Newer: true}
}

// leasedAt is a state at a time with a lease of so many hits, which are all that the backend has.
func leasedAt(l *Limit, hits uint64, at int64) (s State) {
	l.Advance(&s, at)
	l.Lease(&s, grantOf(hits, at), granted(l, at, at, hits))
	return s
}

// pending is how many hits a state has to push, in all windows.
func pending(s *State) (hits int64) {
	s.each(func(h *Hits) { hits += h.Pending })
	return hits
}

// Leased hits of a log that were used, or go back, are in flight until the backend has heard so, and were
// counted with it all the same.
func TestLate(t *testing.T) {
	t.Parallel()
	l, at := log(100, minute), monday
	for i, test := range []struct {
		change func(s *State)
		want   bool
	}{
		{func(s *State) { l.CountLeased(s, 10) }, false},
		{func(s *State) { s.ReturnLease(10) }, false},
		{func(s *State) { l.Count(s, 10) }, true},
		{func(s *State) { l.CountLeased(s, 10); l.Count(s, 1) }, true},
	} {
		s := leasedAt(&l, 30, at)
		l.Advance(&s, at+second)
		test.change(&s)
		s.Claim()
		must.Equal(t, [2]bool{s.InFlight(), s.Late()}, [2]bool{true, test.want}, "%d: in flight, and late", i)
	}
}

// A lease ends with its window. Unused hits of a sliding window go back, as they count in the next.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit   Limit
		pending int64
	}{{fixed(100, minute), 0}, {sliding(100, minute), -20}, {firstHit(100, minute), 0}, {log(100, minute), 0}} {
		l := test.limit
		s := leasedAt(&l, 30, monday)
		l.CountLeased(&s, 10)
		if l.Kind == SlidingBuckets {
			s.ReturnLease(0)
			s.Claim()
			s.EndFlight()
		}
		l.Advance(&s, monday+minute)
		must.Equal(t, l.Leased(&s), 0, "%+v: leased", l)
		must.Equal(t, pending(&s), test.pending, "%+v: pending", l)
	}
}

// A grant that arrives when its window has gone is given back where that still matters, or refused
// so that the caller does.
func TestLateLeases(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit          Limit
		later          int64
		kept           bool
		leased         uint64
		pending, total int64
	}{
		{fixed(100, minute), 50 * second, true, 30, 0, 30},
		{fixed(100, minute), minute, true, 0, 0, 0},
		{sliding(100, minute), minute, true, 0, -30, 0},
		{sliding(100, minute), 2 * minute, true, 0, 0, 0},
		{firstHit(100, minute), 50 * second, true, 30, 0, 30},
		{firstHit(100, minute), minute, false, 0, 0, 0},
		{subBuckets(100, minute, 10*second), 37 * second, true, 30, 0, 30},
		{subBuckets(100, minute, 10*second), 50 * second, true, 0, 0, 30}, // too late for a move to be heard
		{subBuckets(100, minute, 10*second), minute, false, 0, 0, 0},
		{tokens(100, 100, minute), 6 * second, true, 20, 0, 0},
		{tokens(100, 100, minute), minute, true, 0, 0, 0},
	} {
		l := test.limit
		var s State
		l.Advance(&s, monday+test.later)
		kept := l.Lease(&s, grantOf(30, monday), granted(&l, monday, monday, 30))
		if kept != test.kept || l.Leased(&s) != test.leased || pending(&s) != test.pending {
			t.Errorf("%+v, %d s late: kept %v, leased %d, pending %d", l, test.later/second, kept, l.Leased(&s), pending(&s))
		}
	}
}

// Answers in any order leave the sum right: a total that does not know of a lease yet is older than
// that.
func TestLeasesOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		at := monday + second
		var s State
		l.Advance(&s, at)
		l.Lease(&s, grantOf(10, at), granted(&l, at, at, 20)) // the second grant
		must.Equal(t, l.Quota()-l.Remaining(&s), 10, "%+v: used until the first grant is known", l)
		l.Lease(&s, &Grant{Hits: 10, At: at, Answered: at, Newer: false}, granted(&l, at, at, 10)) // the first
		must.Equal(t, [2]uint64{l.Quota() - l.Remaining(&s), l.Leased(&s)}, [2]uint64{0, 20}, "%+v: used, and leased", l)
		l.Settle(&s, true, true, granted(&l, at, at, 5))
		must.Equal(t, [2]uint64{l.Quota() - l.Remaining(&s), l.Leased(&s)}, [2]uint64{0, 20}, "%+v: used, and leased after an older total", l)
	}
}

// Tokens that come back to a bucket can't be used a second time as a lease, nor given back.
func TestTokensOfALeaseComeBack(t *testing.T) {
	t.Parallel()
	l := tokens(60, 100, minute) // one a second
	lease := func(hits, total uint64) (s State) {
		l.Advance(&s, monday)
		l.Lease(&s, grantOf(hits, monday), granted(&l, monday, monday, total))
		return s
	}
	s := lease(30, 100)
	l.Advance(&s, monday+70*second)
	must.Equal(t, l.Leased(&s), 30, "leased of a bucket that lacks 30")
	l.Advance(&s, monday+80*second)
	must.Equal(t, [2]uint64{l.Leased(&s), l.Remaining(&s)}, [2]uint64{20, 100}, "leased of a bucket that lacks 20, and what remains")
	s.ReturnLease(5)
	l.Advance(&s, monday+90*second)
	must.Equal(t, [2]int64{int64(l.Leased(&s)), pending(&s)}, [2]int64{5, -5}, "leased and pending of a bucket that lacks 10")
	l.Advance(&s, monday+100*second)
	must.Equal(t, s.Hits[0].idle(), true, "a full bucket has nothing: %+v", s.Hits[0])
	// If they come back before the answer is there, they are of use to requests that have waited.
	s = State{}
	l.Advance(&s, monday+second)
	l.Lease(&s, &Grant{Hits: 1, Wanted: 1, At: monday, Answered: monday, Newer: true}, granted(&l, monday, monday, 1))
	l.Advance(&s, monday+second)
	must.Equal(t, [2]uint64{l.Leased(&s), l.Remaining(&s)}, [2]uint64{1, 100}, "leased for who has waited, and what remains")
}

// No log may have a limit above what its orphans say.
func TestMostLogged(t *testing.T) {
	t.Parallel()
	for width := MinWidth; width <= MaxWidth; width *= 3 {
		l := log(0, width/MinWidth*MinWidth)
		must.AtMost(t, l.LargestLog(), mostLogged-1, "the largest log of %d ms", width/MinWidth)
	}
}

// Whatever is asked of a state with leases, in any order and with any numbers, it can be written
// and read again, and no count leaves its bounds.
func FuzzLease(f *testing.F) {
	f.Add(uint64(1), uint64(30), uint64(50), int64(0), uint64(7))
	f.Add(uint64(2), uint64(math.MaxUint64), uint64(math.MaxUint64), int64(math.MaxInt64), uint64(math.MaxUint64))
	f.Add(uint64(3), uint64(MaxHits), uint64(0), int64(math.MinInt64), uint64(1<<63))
	f.Fuzz(func(t *testing.T, seed, hits, total uint64, at int64, newest uint64) {
		for _, l := range leasing {
			random := rand.New(rand.NewPCG(seed, 1))
			var s State
			now := monday
			l.Advance(&s, now)
			for range 20 {
				totals := granted(&l, monday, monday, total)
				switch random.IntN(3) {
				case 0:
					totals.Newest = newest
				case 1:
					totals = &Totals{Newest: newest, Hits: []uint64{total, hits}, Ages: []uint64{0, hits}}
				}
				switch random.IntN(10) {
				case 9:
					other := l
					other.Max = total % (MaxLimit + 1)
					Adapt(&other, &s, &l)
					if random.IntN(2) == 0 {
						other.Advance(&s, now)
						other.CountLeased(&s, min(hits, other.Leased(&s)))
					}
					Adapt(&l, &s, &other)
				case 0:
					l.Lease(&s, &Grant{Hits: hits, At: at, Answered: at, Newer: random.IntN(2) == 0}, totals)
				case 1:
					l.Lease(&s, grantOf(hits, now), totals)
				case 2:
					l.CountLeased(&s, min(hits, l.Leased(&s)))
				case 3:
					s.ReturnLease(total)
				case 4:
					now += random.Int64N(minute)
					l.Advance(&s, now)
				case 5:
					if !s.InFlight() {
						s.Claim()
					}
				case 6:
					l.Settle(&s, true, random.IntN(2) == 0, totals)
				case 7:
					l.GiveBack(&s, l.Number(&s), hits)
				case 8:
					l.Count(&s, hits)
				}
				l.Allows(&s, hits)
				l.FitsAt(&s, 1)
				var again State
				encoded := AppendState(nil, &l, &s, true)
				must.EqualOrEnd(t, DecodeState(encoded, &again), len(encoded), "%+v: %+v was written as %x, and read as %+v", l, s, encoded, again)
				if l.ForgetAt(&s) < 0 {
					t.Fatalf("%+v: forgotten at %d", s, l.ForgetAt(&s))
				}
			}
		}
	})
}

// Leased hits are used from the oldest bucket on, and kept in the newest.
func TestLeaseOfBuckets(t *testing.T) {
	t.Parallel()
	l := subBuckets(100, minute, 10*second)
	number := monday / l.Precision
	state := func() State {
		return State{Newest: monday, Buckets: []Bucket{
			{Number: number - 2, Hits: Hits{Total: 9, Lease: 4}}, {Number: number - 1, Hits: Hits{Total: 9}}, {Number: number, Hits: Hits{Total: 9, Lease: 3}},
		}}
	}
	for _, test := range []struct{ hits, old, newest uint64 }{{0, 4, 3}, {1, 3, 3}, {3, 1, 3}, {4, 0, 3}, {5, 0, 2}, {7, 0, 0}} {
		s := state()
		l.CountLeased(&s, test.hits)
		if s.Buckets[0].Lease != test.old || s.Buckets[2].Lease != test.newest || pending(&s) != 0 || sumBuckets(&s) != 20+test.hits {
			t.Errorf("%d are used: got %+v", test.hits, s.Buckets)
		}
		must.Equal(t, l.MovesLease(&s), test.old > 0, "%d are used: moves", test.hits)
	}
	for _, test := range []struct{ keep, old, newest uint64 }{{0, 0, 0}, {1, 0, 1}, {3, 0, 3}, {4, 1, 3}, {7, 4, 3}, {9, 4, 3}} {
		s := state()
		s.ReturnLease(test.keep)
		if s.Buckets[0].Lease != test.old || s.Buckets[2].Lease != test.newest || pending(&s) != int64(test.old+test.newest)-7 {
			t.Errorf("%d are kept: got %+v", test.keep, s.Buckets)
		}
	}
}

// A clock of the backend's may be 10 s ahead, and any bit more within a window.
func TestLeaseAhead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit Limit
		ahead int64
		want  bool
	}{
		{fixed(100, minute), maxBack, true}, {fixed(100, minute), maxBack + 1, false},
		{fixed(100, 3600*second), minute, true},
		{subBuckets(100, minute, second), maxBack, true}, {subBuckets(100, minute, second), maxBack + 1, false},
	} {
		l, now := test.limit, monday+55*second
		var s State
		l.Advance(&s, now)
		at := now + test.ahead
		must.Equal(t, [2]bool{l.Lease(&s, grantOf(30, at), granted(&l, 0, at, 30)), l.Leased(&s) > 0}, [2]bool{test.want, test.want}, "%+v, ahead by %d ns: kept, and leased", l, test.ahead)
	}
}

// A grant whose answer does not name the window here is none of it.
func TestLeaseOfAnotherWindow(t *testing.T) {
	t.Parallel()
	l := firstHit(100, minute)
	for name, test := range map[string]struct {
		hits  Hits
		total Totals
		want  bool
	}{
		"the same window":     {Hits{Total: 5}, Totals{Newest: uint64(monday), Hits: []uint64{30}}, true},
		"with nothing else":   {Hits{}, Totals{Newest: uint64(monday), Hits: []uint64{1}}, true},
		"a later one":         {Hits{Total: 5}, Totals{Newest: uint64(monday + 1), Hits: []uint64{30}}, false},
		"no totals":           {Hits{Total: 5}, Totals{Newest: uint64(monday)}, false},
		"no hits in a window": {Hits{}, Totals{Newest: uint64(monday), Hits: []uint64{0}}, false},
	} {
		s := State{Newest: monday + second, Start: monday, Hits: [2]Hits{test.hits}}
		must.Equal(t, [2]bool{l.Lease(&s, grantOf(1, monday+second), &test.total), l.Leased(&s) > 0}, [2]bool{test.want, test.want}, "%s: kept, and leased", name)
		if got, counts := l.LeaseNumber(monday+second, &test.total); got != test.total.Newest || counts != (len(test.total.Hits) > 0 && test.total.Hits[0] > 0) {
			t.Errorf("%s: the number is %d, want the answer's; it counts: %v", name, got, counts)
		}
	}
	f, b := fixed(100, minute), subBuckets(100, minute, second)
	total := Totals{Newest: 7}
	at := monday + second
	inMinute, _ := f.LeaseNumber(at, &total)
	inSecond, _ := b.LeaseNumber(at, &total)
	must.Equal(t, [2]uint64{inMinute, inSecond}, [2]uint64{uint64(at / minute), uint64(at / second)}, "a window and a bucket of the clock, those of the grant's time")
}

// A grant whose answer comes when the next window has started, which others' hits began, is neither
// used in that one nor given back there.
func TestLeaseOfAWindowThatHasEnded(t *testing.T) {
	t.Parallel()
	l := firstHit(1, second)
	var s State
	at, start := monday, monday+3*second
	l.Advance(&s, start+second/2)
	total := Totals{Newest: uint64(start), Hits: []uint64{1}}
	if l.Lease(&s, &Grant{Hits: 1, At: at, Answered: start + second/2, Newer: true}, &total) || l.Leased(&s) != 0 || l.Allows(&s, 1) {
		t.Errorf("the hit of %d is leased in the window that started at %d: %+v", at, start, s)
	}
	// A backend that has no window has none to tell of.
	for _, total := range []Totals{total, {Newest: uint64(at), Hits: []uint64{0}}} {
		_, counts := l.LeaseNumber(at, &total)
		must.Equal(t, counts, false, "the hit goes back to a window that isn't its own: %+v", total)
	}
	total.Subtract(&l, at, 1)
	must.Equal(t, total.Hits[0], 1, "left of another's hit")
}

// Numbers of leases, and of what goes back, stay within their bounds.
func TestLeaseIsBounded(t *testing.T) {
	t.Parallel()
	var h Hits
	for range 2 {
		h.lease(math.MaxUint64)
		must.Equal(t, [2]uint64{h.Lease, h.Total}, [2]uint64{MaxHits, MaxHits}, "leased, and in all")
	}
	for range 2 {
		h.giveUp(math.MaxUint64)
		must.Equal(t, h.Pending, -MaxHits, "pending")
	}
	h = Hits{Total: 3, Lease: 2}
	h.lease(2)
	must.Equal(t, h, Hits{Total: 4, Lease: 4}, "two more than all but one that are leased")
}

// Hits that the backend has not heard of for sure are those that were counted here, in all windows,
// but for what goes back.
func TestUnheard(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hits [2]Hits
		want uint64
	}{
		{[2]Hits{}, 0},
		{[2]Hits{{Total: 9}}, 0},
		{[2]Hits{{Pending: 1}}, 1},
		{[2]Hits{{Pending: 5, InFlight: 3}}, 8},
		{[2]Hits{{Pending: 5, InFlight: -3}}, 5},
		{[2]Hits{{Pending: 5}, {InFlight: 3}}, 8},
		{[2]Hits{{Pending: -5, InFlight: 3}}, 0},
	} {
		s := State{Hits: test.hits}
		must.Equal(t, s.Unheard(), test.want, "%+v", test.hits)
	}
}

// Without doubts a state has neither hits that the backend may have counted, nor those that it may
// have given back.
func TestDoubt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hits Hits
		want uint64
	}{
		{Hits{Total: 10, Pending: 3}, 13},
		{Hits{Total: 10, Pending: 3, InFlight: 5}, 13},
		{Hits{Total: 10, Pending: 3, InFlight: -5}, 8},
		{Hits{Total: 10, Pending: 3, InFlight: -5, Lease: 2}, 6},
	} {
		s := State{Hits: [2]Hits{test.hits, test.hits}}
		s.Doubt()
		must.Equal(t, [2]uint64{s.Hits[0].Sum(), s.Hits[1].Sum()}, [2]uint64{test.want, test.want}, "%+v: hits", test.hits)
	}
}

// However fast tokens come back, and however often it is looked at, a lease wears by the number
// that has come back. Kinds that do not refill do not wear.
func TestLeaseWearsToTheToken(t *testing.T) {
	t.Parallel()
	const lease = 500_000
	for _, perSecond := range []uint64{1, 3, 700, 9999} {
		l := tokens(perSecond, 1_000_000, second)
		for _, each := range []int64{1e6, 7e6 + 1, 3e8, second} {
			s := State{Newest: monday, Start: monday - 10*second, Hits: [2]Hits{{Total: 1_000_000, Lease: lease}}}
			last := monday
			for now := monday; now <= monday+3*second; now += each {
				leased := l.Leased(&s)
				l.Advance(&s, now)
				l.WearLease(&s, leased, 1<<40, last, now)
				last = now
			}
			back := tokensIn(&l, monday-10*second, last) - 10*perSecond
			must.Equal(t, lease-l.Leased(&s), back, "%d tokens a second, looked at each %d ns: have worn", perSecond, each)
		}
	}
	fast := tokens(MaxHits/8, MaxHits, MinWidth)
	s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: MaxHits, Lease: MaxHits / 2}}}
	now := monday + MinWidth*3/2
	fast.Advance(&s, now)
	if fast.WearLease(&s, MaxHits/2, 1<<40, monday, now); s.Start <= monday || MaxHits/2-s.Hits[0].Lease != tokensIn(&fast, monday, now) {
		t.Errorf("of %d a millisecond %d have worn in 1.5 ms", MaxHits/8, MaxHits/2-s.Hits[0].Lease)
	}
	for _, l := range leasing {
		if !l.Kind.Refills() && !l.Kind.Bucketed() {
			s := State{Newest: monday + second, Start: monday, Hits: [2]Hits{{Total: 30, Lease: 30}}}
			l.WearLease(&s, 30, 100, monday, monday+second)
			must.Equal(t, l.Leased(&s), 30, "%+v: left of 30", l)
		}
	}
}

// Totals that tell of a grant push no hits out of a log, while more were counted here than the backend
// had heard of: two of these are granted now, and need no push.
func TestLateGrantOfALog(t *testing.T) {
	t.Parallel()
	l, at := log(10, minute), monday
	var s State
	totals := &Totals{Newest: uint64(at + 5)}
	for i := range int64(6) {
		totals.Hits, totals.Ages = append(totals.Hits, 1), append(totals.Ages, uint64(i))
	}
	l.Advance(&s, at+10)
	l.Learn(&s, true, totals)
	l.Count(&s, 3)
	totals.Newest, totals.Hits, totals.Ages = uint64(at+7), append([]uint64{3}, totals.Hits...), []uint64{0, 2, 3, 4, 5, 6, 7}
	must.EqualOrEnd(t, l.Lease(&s, grantOf(3, at+7), totals), true, "the grant has no place")
	must.Equal(t, [3]uint64{l.Leased(&s), l.Remaining(&s), s.Unheard()}, [3]uint64{1, 1, 1}, "leased, remaining of 10 after 9, and to be pushed")
}

// Totals without ages are none of buckets. Whatever an answer tells, its reader goes on.
func TestWithoutAges(t *testing.T) {
	l := Limit{Max: 10, Shape: Shape{Kind: SlidingBuckets, Width: 1e9, Precision: LogPrecision}}
	total := Totals{Newest: 5, Hits: []uint64{3}}
	total.Subtract(&l, 5*LogPrecision, 1)
	must.Equal(t, total.Hits[0], 3, "hits")
}
