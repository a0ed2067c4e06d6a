package window

import (
	"math"
	"math/rand/v2"
	"testing"
)

// leasing are limits of all kinds, of 100 hits a minute.
var leasing = []Limit{fixed(100, minute), sliding(100, minute), firstHit(100, minute), subBuckets(100, minute, 10*second), log(100, minute), tokens(100, 100, minute)}

// granted is what the backend says of a grant of so many hits at a time, where it had others
// already: the total of the window that they were counted in.
func granted(l *Limit, start, at int64, hits uint64) *Totals {
	switch l.Kind {
	case FirstHitWindow, TokenBucket:
		return &Totals{Newest: uint64(start), Hits: []uint64{hits}}
	case SlidingBuckets:
		return &Totals{Newest: l.numberAt(at), Hits: []uint64{hits}, Ages: []uint64{0}}
	}
	return &Totals{Newest: l.numberAt(at), Hits: []uint64{hits, 0}[:l.Kind.Windows()]}
}

// pending is what a state has to push, in all windows.
func pending(s *State) (hits int64) {
	s.each(func(h *Hits) { hits += h.Diff })
	return hits
}

// Hits of a grant are used without a trace for the backend, count here when they are used, and go
// back if they aren't.
func TestLeaseIsUsedAndReturned(t *testing.T) {
	t.Parallel()
	for _, l := range leasing {
		at := monday + 7*second
		var s State
		l.Advance(&s, at)
		if !l.Lease(&s, 30, at, true, granted(&l, at, at, 50)) {
			t.Errorf("%+v: a grant has no place", l)
		}
		if l.Leased(&s) != 30 || l.Remaining(&s) != 80 || s.Pending() {
			t.Errorf("%+v: leased %d, %d remain, want 30 and 80: 20 of others count", l, l.Leased(&s), l.Remaining(&s))
		}
		l.CountLeased(&s, 10)
		if l.Leased(&s) != 20 || l.Remaining(&s) != 70 || s.Pending() {
			t.Errorf("%+v: leased %d, %d remain after 10 were used, want 20 and 70", l, l.Leased(&s), l.Remaining(&s))
		}
		var again State
		if encoded := l.AppendState(nil, &s, true); DecodeState(encoded, &again) != len(encoded) || l.Leased(&again) != 20 || len(encoded) > l.MaxStateSize(true) {
			t.Errorf("%+v: %d are leased in shared data", l, l.Leased(&again))
		}
		l.ReturnLease(&s, 5)
		if l.Leased(&s) != 5 || pending(&s) != -15 || l.Remaining(&s) != 70 {
			t.Errorf("%+v: leased %d, pending %d, %d remain, want 5, -15 and 70", l, l.Leased(&s), pending(&s), l.Remaining(&s))
		}
		if l.ForgetAt(&s) <= s.Newest || l.PushEnds(&s) <= s.Newest {
			t.Errorf("%+v: a lease is forgotten at once", l)
		}
		l.ReturnLease(&s, 9)
		if l.Leased(&s) != 5 {
			t.Errorf("%+v: a lease of 5 is %d after all above 9 went back", l, l.Leased(&s))
		}
	}
}

// In the same bucket there is nothing to push of leased hits; in a later one they are moved.
func TestLeasedHitsMoveToTheirBucket(t *testing.T) {
	t.Parallel()
	l := subBuckets(100, minute, 10*second)
	var s State
	l.Advance(&s, monday)
	l.Lease(&s, 30, monday, true, granted(&l, monday, monday, 30))
	if l.MovesLease(&s) {
		t.Error("the present's bucket is another one")
	}
	l.CountLeased(&s, 4)
	if s.Pending() {
		t.Error("hits that stay where they were counted are pushed")
	}
	l.Advance(&s, monday+15*second)
	if !l.MovesLease(&s) {
		t.Error("hits of another bucket stay there")
	}
	l.CountLeased(&s, 4)
	if s.Buckets[0].Diff != -4 || s.Buckets[1].Diff != 4 || l.Leased(&s) != 22 {
		t.Errorf("got %+v", s.Buckets)
	}
	l.Advance(&s, monday+minute)
	if l.Leased(&s) != 0 || l.Remaining(&s) != 96 {
		t.Errorf("leased %d, %d remain when the bucket of the grant has left, want 0 and 96", l.Leased(&s), l.Remaining(&s))
	}
}

// A lease ends with its window. Of a sliding window, what was not used goes back, as it counts in
// the next.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit   Limit
		pending int64
	}{{fixed(100, minute), 0}, {sliding(100, minute), -20}, {firstHit(100, minute), 0}, {log(100, minute), 0}} {
		l := test.limit
		var s State
		l.Advance(&s, monday)
		l.Lease(&s, 30, monday, true, granted(&l, monday, monday, 30))
		l.CountLeased(&s, 10)
		if l.Kind == SlidingBuckets {
			l.ReturnLease(&s, 0)
			l.Claim(&s)
			s.EndFlight()
		}
		l.Advance(&s, monday+minute)
		if l.Leased(&s) != 0 || pending(&s) != test.pending {
			t.Errorf("%+v: leased %d, pending %d, want 0 and %d", l, l.Leased(&s), pending(&s), test.pending)
		}
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
		{subBuckets(100, minute, 10*second), 50 * second, true, 30, 0, 30},
		{subBuckets(100, minute, 10*second), minute, false, 0, 0, 0},
		{tokens(100, 100, minute), 6 * second, true, 20, 0, 0},
		{tokens(100, 100, minute), minute, true, 0, 0, 0},
	} {
		l := test.limit
		var s State
		l.Advance(&s, monday+test.later)
		kept := l.Lease(&s, 30, monday, true, granted(&l, monday, monday, 30))
		if kept != test.kept || l.Leased(&s) != test.leased || pending(&s) != test.pending {
			t.Errorf("%+v, %d s late: kept %v, leased %d, pending %d", l, test.later/second, kept, l.Leased(&s), pending(&s))
		}
	}
}

// The backend's clock may be a little ahead, so that its window is the next; much ahead, its grant
// is refused, and nothing is forgotten.
func TestLeaseOfALaterWindow(t *testing.T) {
	t.Parallel()
	l := fixed(100, minute)
	var s State
	l.Advance(&s, monday-second)
	l.Count(&s, 3)
	if !l.Lease(&s, 30, monday+second, true, granted(&l, 0, monday+second, 30)) || l.Leased(&s) != 30 || s.Newest != monday+second {
		t.Errorf("got %+v", s)
	}
	l.Count(&s, 3)
	if l.Lease(&s, 30, monday+3600*second, true, granted(&l, 0, monday+3600*second, 30)) || pending(&s) != 3 || l.Leased(&s) != 30 {
		t.Errorf("an hour ahead: got %+v", s)
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
		l.Lease(&s, 10, at, true, granted(&l, at, at, 20)) // the second grant
		if got := l.Quota() - l.Remaining(&s); got != 10 {
			t.Errorf("%+v: %d are used, want 10 until the first grant is known", l, got)
		}
		l.Lease(&s, 10, at, false, granted(&l, at, at, 10)) // the first
		if got := l.Quota() - l.Remaining(&s); got != 0 || l.Leased(&s) != 20 {
			t.Errorf("%+v: %d are used and %d leased, want 0 and 20", l, got, l.Leased(&s))
		}
		l.Settle(&s, true, true, granted(&l, at, at, 5))
		if l.Leased(&s) != 20 || l.Quota()-l.Remaining(&s) != 0 {
			t.Errorf("%+v: after an older total %d are leased", l, l.Leased(&s))
		}
	}
}

// What comes back of a bucket can't be used a second time as a lease, nor given back.
func TestTokensOfALeaseComeBack(t *testing.T) {
	t.Parallel()
	l := tokens(60, 100, minute) // one a second
	lease := func(hits, total uint64) (s State) {
		l.Advance(&s, monday)
		l.Lease(&s, hits, monday, true, granted(&l, monday, monday, total))
		return s
	}
	s := lease(30, 100)
	if l.Advance(&s, monday+70*second); l.Leased(&s) != 30 {
		t.Errorf("leased %d of a bucket that lacks 30", l.Leased(&s))
	}
	if l.Advance(&s, monday+80*second); l.Leased(&s) != 20 || l.Remaining(&s) != 100 {
		t.Errorf("leased %d of a bucket that lacks 20, %d remain", l.Leased(&s), l.Remaining(&s))
	}
	l.ReturnLease(&s, 5)
	if l.Advance(&s, monday+90*second); l.Leased(&s) != 5 || pending(&s) != -5 {
		t.Errorf("leased %d and pending %d of a bucket that lacks 10, want 5 and -5", l.Leased(&s), pending(&s))
	}
	if l.Advance(&s, monday+100*second); !s.Hits[0].idle() {
		t.Errorf("a full bucket has %+v", s.Hits[0])
	}
	// If they come back before the answer is there, they are of use all the same.
	s = State{}
	l.Advance(&s, monday+second)
	l.Lease(&s, 1, monday, true, granted(&l, monday, monday, 1))
	if l.Advance(&s, monday+second); l.Leased(&s) != 1 || l.Remaining(&s) != 100 {
		t.Errorf("leased %d, %d remain", l.Leased(&s), l.Remaining(&s))
	}
}

// No log may have a limit above what its orphans say.
func TestMostLogged(t *testing.T) {
	t.Parallel()
	for width := MinWidth; width <= MaxWidth; width *= 3 {
		l := log(0, width/MinWidth*MinWidth)
		if most := l.LargestLog(); most >= mostLogged {
			t.Errorf("a window of %d ms may have a log of %d", width/MinWidth, most)
		}
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
					other.Adapt(&s, &l)
					if random.IntN(2) == 0 {
						other.Advance(&s, now)
						other.CountLeased(&s, min(hits, other.Leased(&s)))
					}
					l.Adapt(&s, &other)
				case 0:
					l.Lease(&s, hits, at, random.IntN(2) == 0, totals)
				case 1:
					l.Lease(&s, hits, now, true, totals)
				case 2:
					l.CountLeased(&s, min(hits, l.Leased(&s)))
				case 3:
					l.ReturnLease(&s, total)
				case 4:
					now += random.Int64N(minute)
					l.Advance(&s, now)
				case 5:
					if !s.InFlight() {
						l.Claim(&s)
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
				encoded := l.AppendState(nil, &s, true)
				if length := DecodeState(encoded, &again); length != len(encoded) {
					t.Fatalf("%+v: %+v was written as %x, and read as %+v", l, s, encoded, again)
				}
				if l.ForgetAt(&s) < 0 {
					t.Fatalf("%+v: forgotten at %d", s, l.ForgetAt(&s))
				}
			}
		}
	})
}

// A lease of tokens stays while it is no more than the node's even part of what the backend's bucket
// lacks. What is more wears as tokens come back, to the token, however often it is looked at.
func TestLeaseOfTokensWears(t *testing.T) {
	t.Parallel()
	l := tokens(60, 100, minute) // one a second
	for _, test := range []struct {
		name                 string
		taken, leased, nodes uint64
		after                int64
		want                 uint64
	}{
		{"an even part", 50, 10, 5, 0, 10},
		{"an even part, not any more", 50, 10, 5, 2 * second, 9},
		{"far from full", 90, 10, 5, 40 * second, 10},
		{"nearly full", 10, 10, 5, 3 * second, 7},
		{"nearly full for longer", 10, 10, 5, 8 * second, 2},
		{"the even part of what is missing stays", 10, 10, 5, 5 * second, 5},
		{"the even part is more than what has not worn", 30, 10, 5, 15 * second, 3},
		{"full", 10, 10, 5, 10 * second, 0},
		{"alone", 10, 10, 1, 4 * second, 6},
		{"an unknown number", 20, 10, 0, 4 * second, 10},
	} {
		for _, each := range []int64{second / 8, second, 7 * second / 3, minute} {
			s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: test.taken, Lease: test.leased}}}
			worn := monday
			for now := monday; ; now = min(now+each, monday+test.after) {
				leased := l.Leased(&s)
				l.Advance(&s, now)
				if worn = l.WearLease(&s, leased, test.nodes, worn); worn > now {
					t.Fatalf("%s: it has worn up to %d ns from then", test.name, worn-now)
				}
				if now == monday+test.after {
					break
				}
			}
			if each > second && test.want > 0 && l.Leased(&s) >= test.want {
				continue // it was not looked at in between, when it was an even part
			}
			if got := l.Leased(&s); got != test.want {
				t.Errorf("%s, each %v s: %d are left, want %d", test.name, float64(each)/float64(second), got, test.want)
			}
		}
	}
}
