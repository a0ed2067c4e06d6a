package window

import (
	"math"
	"testing"

	"weir/internal/must"
)

// A bucket that is full again is as if it had seen no hit; but hits that the backend has yet to
// hear of are pushed all the same, and their tokens are back here.
func TestBucketIsFullAgain(t *testing.T) {
	t.Parallel()
	l := tokens(60, 100, minute) // one a second
	now := monday + 10*second
	for _, test := range []struct {
		name  string
		hits  Hits
		start int64
		want  Hits
		began int64 // the bucket's new start; 0 if it has none
	}{
		{"pushed", Hits{Total: 10}, monday, Hits{}, 0},
		{"one is yet to be pushed", Hits{Total: 9, Pending: 1}, monday, Hits{Pending: 1}, now - second},
		{"all are", Hits{Pending: 10}, monday, Hits{Pending: 10}, monday},
		{"one is in flight", Hits{Total: 9, InFlight: 1}, monday, Hits{InFlight: 1}, now - second},
		{"some are, and some to push", Hits{Total: 3, InFlight: 3, Pending: 4}, monday, Hits{InFlight: 3, Pending: 4}, now - 7*second},
		{"one of them goes back", Hits{Total: 11, Pending: -1}, monday, Hits{Total: 1, Pending: -1}, now},
		{"some that go back are back there", Hits{Total: 20, Pending: -10}, monday - 2*second, Hits{Total: 8, Pending: -8}, now},
		{"a lease that is back there", Hits{Total: 10, Lease: 1}, monday, Hits{}, 0},
		{"a nanosecond later", Hits{Total: 10}, monday - 1, Hits{}, 0},
		{"a nanosecond too early", Hits{Total: 10}, monday + 1, Hits{Total: 10}, monday + 1},
		{"a nanosecond too early, to be pushed", Hits{Total: 9, Pending: 1}, monday + 1, Hits{Total: 9, Pending: 1}, monday + 1},
	} {
		s := State{Newest: monday + second, Start: test.start, Hits: [2]Hits{test.hits}}
		l.Advance(&s, now)
		must.Equal(t, s.Hits[0], test.want, "%s", test.name)
		must.Equal(t, s.Start, test.began, "%s: it began", test.name)
	}
	// At a time before the tokens could have come back, the bucket begins with the epoch.
	s := State{Hits: [2]Hits{{Pending: 50, Total: 10}}, Newest: 60 * second}
	if l.Advance(&s, 60*second); s.Hits[0] != (Hits{Pending: 50}) || s.Start != 10*second {
		t.Errorf("near the epoch: got %+v from %d on", s.Hits[0], s.Start)
	}
}

// Whole windows of tokens that came back are forgotten, and the bucket means the same; what is
// leased, or the backend has yet to hear of, is not forgotten.
func TestWindowsOfTokensAreForgotten(t *testing.T) {
	t.Parallel()
	l := tokens(60, 1000, minute)
	for _, test := range []struct {
		name    string
		hits    Hits
		later   int64
		windows int64
	}{
		{"none yet", Hits{Total: 500}, minute - 1, 0},
		{"one", Hits{Total: 500}, minute, 1},
		{"some", Hits{Total: 500}, 5*minute + second, 5},
		{"as many as the total has", Hits{Total: 130, Pending: 500}, 5 * minute, 2},
		{"none of what is in flight", Hits{InFlight: 500}, 5 * minute, 0},
		{"none of what is leased", Hits{Total: 500, Lease: 400, Pending: 100}, minute, 1},
		{"none of what is leased, while others are in flight", Hits{Total: 100, InFlight: 400, Lease: 90}, minute, 0},
		{"none of what is leased, however long ago", Hits{Total: 400, Lease: 60, Pending: 500}, 5*minute + minute/2, 5},
	} {
		s := State{Newest: monday, Start: monday, Hits: [2]Hits{test.hits}}
		remaining := l.Quota() - (test.hits.Sum() - uint64(test.later/second))
		l.Advance(&s, monday+test.later)
		want := test.hits
		want.Total -= uint64(test.windows) * l.Max
		if s.Hits[0] != want || s.Start != monday+test.windows*minute || l.Remaining(&s) != remaining {
			t.Errorf("%s: got %+v from %d s on, %d remain, want %+v and %d", test.name, s.Hits[0], (s.Start-monday)/second, l.Remaining(&s), want, remaining)
		}
	}
}

// A bucket that gets no tokens back lacks for ever what was taken from it.
func TestBucketThatGetsNothing(t *testing.T) {
	t.Parallel()
	l := tokens(0, 10, minute)
	for _, hits := range []Hits{{}, {Total: 3}, {Pending: 3}, {Total: 3, Lease: 1}, {Total: 3, Pending: -1}} {
		s := State{Newest: monday, Start: monday, Hits: [2]Hits{hits}}
		if l.Advance(&s, monday+3*minute); s.Hits[0] != hits || l.Allows(&s, 0) {
			t.Errorf("%+v became %+v", hits, s.Hits[0])
		}
	}
}

// The times of tokens are exact, up to the end of time.
func TestTimesOfTokens(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit  Limit
		start  int64
		tokens uint64
		want   int64
	}{
		{tokens(60, 100, minute), monday, 0, monday},
		{tokens(60, 100, minute), monday, 1, monday + second},
		{tokens(7, 100, second), monday, 1, monday + 142857143},
		{tokens(7, 100, second), monday, 7, monday + second},
		{tokens(1, 100, second), maxTime - 3*second, 3, maxTime},
		{tokens(1, 100, second), maxTime - 3*second, 4, maxTime},
		{tokens(1, 100, second), maxTime - 3*second, 2, maxTime - second},
		{tokens(1, MaxLimit, MaxWidth), monday, MaxLimit, maxTime}, // more than 64 bits
		{tokens(0, 100, second), monday, 1, maxTime},
		{tokens(0, 100, second), monday, 0, maxTime},
	} {
		s := State{Start: test.start}
		must.Equal(t, tokensBackAt(&test.limit, &s, test.tokens)-test.start, test.want-test.start, "%+v: ns until %d tokens are back", test.limit, test.tokens)
		if back := tokensIn(&test.limit, test.start, test.want); test.limit.Max > 0 && test.want < maxTime && back < test.tokens {
			t.Errorf("%+v: %d tokens are back when %d should be", test.limit, back, test.tokens)
		}
	}
	l := tokens(MaxLimit, MaxLimit, MinWidth)
	must.Equal(t, tokensIn(&l, 0, maxTime), math.MaxUint64, "tokens are back after all times")
	must.Equal(t, tokensIn(&l, 1, 0), 0, "tokens are back before they were taken")
}

// Products of more than 64 bits are divided exactly.
func TestMuldiv(t *testing.T) {
	t.Parallel()
	const most = math.MaxUint64
	for _, test := range []struct {
		a, b, c, quotient, remainder uint64
		ok                           bool
	}{
		{7, 6, 5, 8, 2, true},
		{7, 6, 1, 42, 0, true},
		{7, 0, 5, 0, 0, true},
		{7, 6, 0, 0, 0, false},
		{0, 0, 0, 0, 0, false},
		{1 << 32, 1 << 32, 3, 6148914691236517205, 1, true},
		{1 << 33, 1 << 32, 2, 0, 0, false},
		{1 << 33, 1 << 32, 3, 12297829382473034410, 2, true},
		{1 << 32, 1 << 32, 1, 0, 0, false},
		{most, most, most, most, 0, true},
		{most, most, most - 1, 0, 0, false},
		{most, 1, 1, most, 0, true},
		{1 << 63, 2, 0, 0, 0, false},
	} {
		if q, r, ok := MulDiv(test.a, test.b, test.c); ok != test.ok || ok && (q != test.quotient || r != test.remainder) {
			t.Errorf("%d·%d/%d: got %d, %d, %v", test.a, test.b, test.c, q, r, ok)
		}
	}
}

// A grant of tokens that arrives late is of use, less what has come back. Requests that have waited
// for it get theirs. If the answer tells that the bucket lacked enough all the while, none is lost.
func TestLateTokens(t *testing.T) {
	t.Parallel()
	l := tokens(600, 100, minute) // ten a second
	for _, test := range []struct {
		name         string
		later        int64 // when it arrives
		again        int64 // when it was answered
		hits, wanted uint64
		lacked       uint64 // by the bucket when it was answered
		leased       uint64
	}{
		{"at once", 0, 0, 30, 0, 30, 30},
		{"before one is back", second/10 - 1, 0, 30, 0, 30, 30},
		{"when one is back", second / 10, 0, 30, 0, 30, 29},
		{"when some are", second, 0, 30, 0, 30, 20},
		{"when all are", 3 * second, 0, 30, 0, 30, 0},
		{"by a clock that is behind", -second, 0, 30, 0, 30, 30},
		{"of much that is missing", second, 0, 30, 0, 70, 30},
		{"of nearly as much", second, 0, 30, 0, 69, 29},
		{"waited for", second, 0, 30, 25, 30, 25},
		{"waited for by more", second, 0, 30, 31, 30, 30},
		{"waited for, when all are", 4 * second, 0, 30, 1, 30, 1},
		{"sent again", second, second, 30, 0, 100, 20},
		{"sent again, waited for", second, second, 30, 22, 100, 22},
		{"sent again, and late", 2 * second, second, 30, 0, 30, 10},
		{"sent again, and late, of much that is missing", 2 * second, second, 30, 0, 100, 20},
		{"nothing", second, 0, 0, 9, 0, 0},
	} {
		var s State
		l.Advance(&s, monday+test.later)
		total := &Totals{Newest: uint64(monday + test.again), Hits: []uint64{test.lacked}}
		g := &Grant{Hits: test.hits, Wanted: test.wanted, At: monday, Answered: monday + test.again, Newer: true, Nodes: 2}
		must.Equal(t, l.Lease(&s, g, total), true, "%s: kept", test.name)
		must.Equal(t, l.Leased(&s), test.leased, "%s: leased", test.name)
	}
}

// Tokens that are to be given back wear as tokens come back, however often one looks, and a push
// tells until when they can't have. That it was answered by a full bucket is known.
func TestTokensGivenBackWear(t *testing.T) {
	t.Parallel()
	l := tokens(60, 100, minute) // one a second
	const after = 10 * second
	for _, each := range []int64{second / 7, second, after} {
		for _, test := range []struct {
			hits           Hits
			nodes          uint64
			lease, returns uint64
			until          int64 // after they are pushed
		}{
			{Hits{Total: 30, Pending: -20}, 1, 0, 20, 0},
			{Hits{Total: 30, Pending: -20}, 5, 0, 10, 0},
			{Hits{Total: 30, Pending: -20}, 0, 0, 20, 0},
			{Hits{Total: 60, Pending: -20, Lease: 5}, 1, 5, 20, 25 * second},
			{Hits{Total: 60, Pending: -20, Lease: 5}, 2, 5, 20, 0},
			{Hits{Total: 60, Pending: -20, Lease: 5}, 3, 5, 11, 2 * second},
			{Hits{Total: 90, Pending: -5}, 2, 0, 5, minute},
		} {
			s := State{Newest: monday, Start: monday, Hits: [2]Hits{test.hits}}
			for from := monday; from < monday+after; from = s.Newest {
				leased := l.Leased(&s)
				l.Advance(&s, min(from+each, monday+after))
				l.WearLease(&s, leased, test.nodes, from, s.Newest)
			}
			s.Claim()
			var p Push
			l.Outgoing(&s, test.nodes, &p)
			if until := int64(p.Newest) - monday - after; until != test.until || p.Hits[0] != -int64(test.returns) || l.Leased(&s) != test.lease {
				t.Errorf("%+v, %d nodes, looked at each %d ns: %d go back until %d s and %d are leased, want %d until %d s and %d",
					test.hits, test.nodes, each, -p.Hits[0], until/second, l.Leased(&s), test.returns, test.until/second, test.lease)
			}
			l.Settle(&s, true, true, &Totals{Newest: p.Newest, Hits: []uint64{0}})
			must.Equal(t, l.Remaining(&s), 100, "%+v: are left of a full bucket", test.hits)
		}
	}
}

// An answer may be of the same bucket, of the bucket as it was written some windows later, here or
// there, or of another bucket. An older answer only raises what is taken.
func TestTokensSettle(t *testing.T) {
	t.Parallel()
	const start = monday + 7*second
	l := tokens(6, 100, minute)
	for _, test := range []struct {
		name  string
		limit Limit
		hits  Hits
		later int64 // the answer's bucket began
		taken uint64
		older bool
		start int64 // after start
		total uint64
	}{
		{"the same, with less", l, Hits{Total: 20}, 0, 15, false, 0, 15},
		{"the same, with less, older", l, Hits{Total: 20}, 0, 15, true, 0, 20},
		{"the same, with more, older", l, Hits{Total: 20}, 0, 25, true, 0, 25},
		{"the same, all given back", l, Hits{Total: 20}, 0, 0, false, 0, 0},
		{"the same, all given back, older", l, Hits{Total: 20}, 0, 0, true, 0, 20},
		{"a later question, all given back", l, Hits{Total: 20}, second, 0, false, 0, 0},
		{"a later question, all given back, older", l, Hits{Total: 20}, second, 0, true, 0, 20},
		{"a later question, all given back, with hits it does not know", l, Hits{Total: 20, Pending: 3}, second, 0, false, 0, 0},
		{"a question before, all given back", l, Hits{Total: 20}, -second, 0, false, 0, 20},
		{"later there, with less", l, Hits{Total: 20}, minute, 10, false, minute, 10},
		{"later there, with less, older", l, Hits{Total: 20}, minute, 10, true, minute, 14},
		{"later there, with more, older", l, Hits{Total: 20}, minute, 15, true, minute, 15},
		{"later there, when all was back here", l, Hits{Total: 11, Pending: 30}, 2 * minute, 3, true, 2 * minute, 3},
		{"later here, with less", l, Hits{Total: 20}, -minute, 20, false, 0, 14},
		{"later here, with less, older", l, Hits{Total: 20}, -minute, 20, true, 0, 20},
		{"later here, with more, older", l, Hits{Total: 20}, -minute, 30, true, 0, 24},
		{"later here, when all is back there", l, Hits{Total: 20, Pending: 30}, -2 * minute, 11, false, 0, 0},
		{"later here, when just all is back there", l, Hits{Total: 20, Pending: 30}, -2 * minute, 12, false, 0, 0},
		{"later here, when one is left there", l, Hits{Total: 20, Pending: 30}, -2 * minute, 13, false, 0, 1},
		{"another, of one token", l, Hits{Total: 20}, second, 1, false, second, 1},
		{"another, older", l, Hits{Total: 20}, -second, 9, true, -second, 9},
		{"another, of a clock that is ahead", l, Hits{Total: 20}, 2*minute + second, 9, false, 2 * minute, 9},
		{"none yet", l, Hits{}, -2 * minute, 30, true, -2 * minute, 30},
		{"that gets nothing back, later here", tokens(0, 100, minute), Hits{Total: 20}, -minute, 30, false, 0, 30},
		{"that gets one back, later here", tokens(1, 100, minute), Hits{Total: 20}, -minute, 30, false, 0, 29},
	} {
		s := State{Newest: start + 2*minute, Start: start, Hits: [2]Hits{test.hits}}
		settleTokens(&test.limit, &s, !test.older, false, start+test.later, test.taken)
		// Tokens that have come back since are forgotten in whole windows.
		refill(&test.limit, &s, s.Newest)
		want := State{Newest: s.Newest, Start: start + test.start, Hits: [2]Hits{test.hits}}
		want.Hits[0].Total = test.total
		refill(&test.limit, &want, want.Newest)
		must.Equal(t, s.Hits[0], want.Hits[0], "%s", test.name)
		must.Equal(t, s.Start, want.Start, "%s: it began", test.name)
	}
}

// A grant of all that the bucket lacks leaves the times of its tokens as they are.
func TestLeaseKeepsTimes(t *testing.T) {
	t.Parallel()
	l := tokens(60, 100, minute) // one a second
	now := monday + 10*second + second/2
	for _, test := range []struct{ hits, fits uint64 }{{29, uint64(second / 2)}, {30, uint64(second / 2)}, {31, uint64(second)}} {
		s := State{Newest: now, Start: monday, Hits: [2]Hits{{Total: 40}}}
		leaseTokens(&l, &s, &Grant{Hits: test.hits, At: now, Answered: now}, &Totals{Newest: uint64(monday), Hits: []uint64{40}})
		l.CountLeased(&s, test.hits)
		at, _ := l.FitsAt(&s, l.Remaining(&s)+1)
		must.Equal(t, uint64(at-now), test.fits, "a lease of %d of 30: ns until a token comes back", test.hits)
	}
}

// A backend whose clock is a little ahead may have moved a bucket's start on to a time that is still
// to come here. No state has such a start: it could not be read again.
func TestBackendsBucketStartsAhead(t *testing.T) {
	t.Parallel()
	l := tokens(3, 3, second)
	var s State
	l.Advance(&s, monday)
	l.Count(&s, 3)
	l.Advance(&s, monday+second-1)
	l.Settle(&s, false, true, &Totals{Newest: uint64(monday + second), Hits: []uint64{2}})
	var read State
	if b := AppendState(nil, &l, &s, true); s.Start > s.Newest || DecodeState(b, &read) != len(b) {
		t.Errorf("the bucket starts at %d, and it is %d: %+v", s.Start-monday, s.Newest-monday, read)
	}
	l.Advance(&s, monday+second)
	must.Equal(t, tokensMissing(&l, &s, s.Newest), 2, "tokens that are missing when it starts, the backend's")
}
