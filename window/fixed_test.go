package window

import "testing"

// An answer about a first-hit window is taken in as far as that is the window here, or overlaps it
// and began earlier. An older answer only raises what is known.
func TestFirstHitSettles(t *testing.T) {
	t.Parallel()
	l := firstHit(100, minute)
	const now = monday + 30*second
	for _, test := range []struct {
		name  string
		hits  Hits
		since int64 // the window here began so long ago
		start int64 // the answer's began so long ago
		total uint64
		older bool
		want  Hits
		began int64
	}{
		{"the same, with more", Hits{Total: 5, Pending: 1}, 10, 10, 9, false, Hits{Total: 9, Pending: 1}, 10},
		{"the same, with less", Hits{Total: 5, Pending: 1}, 10, 10, 3, false, Hits{Total: 3, Pending: 1}, 10},
		{"the same, with less, older", Hits{Total: 5, Pending: 1}, 10, 10, 3, true, Hits{Total: 5, Pending: 1}, 10},
		{"the same, with one", Hits{Total: 5, Pending: 1}, 10, 10, 1, false, Hits{Total: 1, Pending: 1}, 10},
		{"all given back", Hits{Total: 5, Pending: 1}, 10, 10, 0, false, Hits{Pending: 1}, 10},
		{"all given back, older", Hits{Total: 5, Pending: 1}, 10, 10, 0, true, Hits{Total: 5, Pending: 1}, 10},
		{"another, all given back", Hits{Total: 5, Pending: 1}, 10, 20, 0, false, Hits{Total: 5, Pending: 1}, 10},
		{"none here", Hits{}, 0, 20, 9, true, Hits{Total: 9}, 20},
		{"none here, and one that has just begun", Hits{}, 0, 0, 9, true, Hits{Total: 9}, 0},
		{"none here, and one that has yet to begin", Hits{}, 0, -1, 9, true, Hits{}, 0},
		{"none here, and one that has almost ended", Hits{}, 0, 59, 9, true, Hits{Total: 9}, 59},
		{"none here, and one that has ended", Hits{}, 0, 60, 9, true, Hits{}, 0},
		{"a later one", Hits{Total: 5}, 10, 9, 9, false, Hits{Total: 5}, 10},
		{"an earlier one", Hits{Total: 5, Pending: 1}, 10, 11, 3, true, Hits{Total: 3, Pending: 1}, 11},
		{"an earlier one that has almost ended", Hits{Total: 5, Pending: 1}, 10, 59, 3, true, Hits{Total: 3, Pending: 1}, 59},
		{"an earlier one that has ended", Hits{Total: 5, Pending: 1, Lease: 2}, 10, 60, 3, false, Hits{Pending: 1}, 0},
		{"one that ended just before this began", Hits{Total: 5, Pending: 1, Lease: 2}, 10, 70, 3, false, Hits{Total: 5, Pending: 1, Lease: 2}, 10},
		{"one that ended just after this began", Hits{Total: 5, Pending: 1, Lease: 2}, 10, 69, 3, false, Hits{Pending: 1}, 0},
	} {
		s := State{Newest: now, Hits: [2]Hits{test.hits}}
		if s.Start = now - test.since*second; s.Hits[0].idle() {
			s.Start = 0
		}
		settleFirstHit(&l, &s, !test.older, now-test.start*second, test.total)
		if want := now - test.began*second; s.Hits[0] != test.want || s.Start != want && !s.Hits[0].idle() {
			t.Errorf("%s: got %+v, begun %d s ago", test.name, s.Hits[0], (now-s.Start)/second)
		}
	}
}

// A window that has ended leaves a state that has seen no hit.
func TestFirstHitWindowEnds(t *testing.T) {
	t.Parallel()
	l := firstHit(100, minute)
	for later, want := range map[int64]State{
		minute - 1: {Newest: monday + minute - 1, Start: monday, Hits: [2]Hits{{Total: 5}}},
		minute:     {Newest: monday + minute},
	} {
		s := State{Newest: monday, Start: monday, Hits: [2]Hits{{Total: 5}}}
		if l.Advance(&s, monday+later); s.Newest != want.Newest || s.Start != want.Start || s.Hits != want.Hits {
			t.Errorf("after %d ns: got %+v, want %+v", later, s, want)
		}
	}
}
