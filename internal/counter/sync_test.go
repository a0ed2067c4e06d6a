package counter

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"testing"

	"weir/internal/must"
	"weir/window"
)

// leaseSize is the most bytes that an encoded Lease takes.
const leaseSize = 3*4 + 1 + 3*8

func TestClaimAndSettle(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}, Interval: second}
	c := load(t, rule, nil)
	c.Advance(monday)
	must.Equal(t, c.Identified(), false, "a new counter has an identity")
	c.Identify([16]byte{1})
	must.Equal(t, c.Adopt(monday, true), true, "the first hit's worker pushes")
	must.Equal(t, c.Sync().Due.Passed(monday, second), true, "it pushes at once, not in %d ns", c.Sync().Due.In(monday))
	c.Count(3)
	c = load(t, rule, c.Append(nil, monday))
	must.Equal(t, c.Adopt(monday+second, true), false, "two workers want to push")
	must.Equal(t, c.Adopt(monday+10*second, false), false, "while the backend is away a key changes hands")
	must.Equal(t, c.Adopt(monday+10*second, true), true, "nobody adopts a key whose worker has gone")
	must.Equal(t, c.Adopt(monday-3600*second, true), true, "nobody adopts a key that is due in an hour, as the clock went back")
	var push window.Push
	number := uint64(monday / minute)
	must.EqualOrEnd(t, c.Claim(monday), true, "not claimed")
	first := c.Sync().Claimed
	if c.Outgoing(0, &push); push.Newest != number || len(push.Hits) != 2 || push.Hits[0] != 3 || c.Sync().Due != DueAt(monday+second) {
		t.Fatalf("claimed %+v, due in %d", push, c.Sync().Due.In(monday))
	}
	if c = load(t, rule, c.Append(nil, monday)); c.Pending() || c.Sync().ID != [16]byte{1} {
		t.Errorf("after a claim: pending %v, identity %x", c.Pending(), c.Sync().ID)
	}
	must.Equal(t, c.Adopt(monday+1, true), true, "nobody pushes the hit after a claim")
	c.Count(2)
	must.Equal(t, c.Claim(monday+second), false, "claimed while a push is out")
	c.Settle(0, first, monday+second, &window.Totals{Newest: number, Hits: []uint64{8, 1}})
	must.Equal(t, c.States[0].Hits, [2]window.Hits{{Total: 8, Pending: 2}, {Total: 1}}, "settled")
	// An answer that never comes does not stop the key for ever; if it comes after all, nothing is
	// counted twice.
	c.Claim(monday + 2*second)
	lost := c.Sync().Claimed
	c.Count(1)
	must.Equal(t, c.Claim(monday+70*second), true, "a push without an answer stops the key")
	c.Settle(0, lost, monday+2*second, &window.Totals{Newest: number, Hits: []uint64{10, 1}})
	must.Equal(t, c.States[0].Hits[0], window.Hits{Total: 10, InFlight: 1}, "settled late")
	c.Settle(0, c.Sync().Claimed, monday+71*second, &window.Totals{Newest: number, Hits: []uint64{11, 1}})
	must.Equal(t, c.States[0].Hits, [2]window.Hits{{Total: 11}, {Total: 1}}, "settled")
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}, Interval: second}
	// At some of these times the bytes of a state look like a lease.
	for now := monday; now < monday+1<<40; now += 1 << 32 {
		c := load(t, rule, nil)
		c.Advance(now)
		c.Identify([16]byte{8})
		c.Count(4)
		visited := 0
		payload := c.Append(nil, now)
		Orphans(payload, func(id [16]byte, l *window.Limit, p *window.Push, ends int64) {
			if id != [16]byte{8} || p.Hits[0] != 4 || l.Shape != rule.Limits[visited].Shape || p.Newest != l.Number(&c.States[visited]) || ends <= now {
				t.Errorf("got %x %+v %+v", id, l, p)
			}
			visited++
		})
		must.Equal(t, visited, 2, "orphans")
		payload[0] &^= syncedFlag
		Orphans(payload, func([16]byte, *window.Limit, *window.Push, int64) {
			t.Error("an entry without a backend has something for it")
		})
	}
}

// Hits that the backend has to hear of keep an entry for as long as the backend has a use for them.
func TestForgetAtWithHitsToPush(t *testing.T) {
	t.Parallel()
	// One token a second. A token that was taken here may be missing from a bucket that was empty
	// there.
	bucket := window.Limit{Shape: shape(window.TokenBucket, minute), Max: 60, Burst: 100}
	for _, test := range []struct {
		name string
		hits window.Hits
		want int64 // in seconds
	}{
		{"nothing", window.Hits{Total: 10}, 10},
		{"pending", window.Hits{Pending: 10}, 110},
		{"in flight", window.Hits{InFlight: 10}, 110},
		{"both", window.Hits{Pending: 5, InFlight: 5}, 110},
		{"one", window.Hits{Pending: 1}, 101},
		{"one in flight", window.Hits{InFlight: 1}, 101},
	} {
		for _, synced := range []int64{0, second} {
			c := load(t, &Rule{Limits: []window.Limit{perMinute(10), bucket}, Interval: synced}, nil)
			c.Advance(monday)
			c.States[1] = window.State{Newest: monday, Start: monday, Hits: [2]window.Hits{test.hits}}
			want := test.want
			if synced == 0 {
				want = int64(test.hits.Sum())
				aSecond := window.Limit{Shape: shape(window.FixedWindow, second), Max: 9}
				c.others = window.AppendState(nil, &aSecond, &window.State{Newest: monday, Hits: [2]window.Hits{{Total: 1}}}, false)
			}
			must.Equal(t, (c.ForgetAt()-monday)/second, want, "%s, synchronised every %d ns: seconds until it is forgotten", test.name, synced)
		}
	}
}

// Leased hits whose window has ended were not used: they are no part of what was granted any more.
func TestLeaseOfAWindowThatHasEnded(t *testing.T) {
	t.Parallel()
	for _, hits := range []uint64{1, 2, 50} {
		c := leased(t, &Rule{Limits: []window.Limit{perHour(1000)}, Interval: second}, hits)
		if c.Advance(monday + 60*minute); c.Leased() != 0 || c.lease.Granted != 0 {
			t.Errorf("of %d, %d are leased and %d granted", hits, c.Leased(), c.lease.Granted)
		}
	}
}

// When a key is due is told in units, in the future and in the past, where the numbers wrap too.
func TestDueIn(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{monday, 0, 1<<52 - dueUnit} {
		now = now >> dueShift << dueShift
		for _, units := range []int64{0, 1, -1, 1000, -1000, 1<<31 - 1, -1 << 31} {
			in := units * dueUnit
			must.Equal(t, DueAt(now+in).In(now), in, "%d units from %d", units, now)
			// Within a unit, times are the unit's start.
			must.Equal(t, DueAt(now+in+dueUnit-1).In(now), in, "at the end of %d units from %d", units, now)
		}
	}
}

// A push is not due before its time, unless that is farther ahead than any push of the rule can be.
func TestPassed(t *testing.T) {
	t.Parallel()
	const long = 60_000 * dueUnit // more than longestPause
	const pause = longestPause >> dueShift << dueShift
	for _, test := range []struct {
		in, rate int64
		want     bool
	}{
		{-40 * 24 * 60 * minute, second, true}, {-20 * 24 * 60 * minute, second, true}, {-second, second, true}, {59 * second, second, false},
		{0, second, true}, {dueUnit, second, false}, {pause, second, false}, {pause + dueUnit, second, true},
		{pause + dueUnit, long, false}, {long, long, false}, {long + dueUnit, long, true},
	} {
		must.Equal(t, DueAt(monday+test.in).Passed(monday, test.rate), test.want, "due in %d ns, at a rate of %d: passed", test.in, test.rate)
	}
}

// A worker that counts hits pushes them if nobody else seems to: after 5 s and two intervals, or if
// the interval does not explain the time.
func TestAdopt(t *testing.T) {
	t.Parallel()
	const rate = 1000 * dueUnit
	const patience = (adoptAfter + dueUnit - 1) >> dueShift << dueShift
	for _, test := range []struct {
		name        string
		pending     bool
		unreachable bool
		in          int64 // when the key is due
		want        bool
		now         bool // it is due at once
	}{
		{"a key that waits for its interval", false, false, rate, true, false},
		{"whose clock has gone on by the rounding", false, false, rate - dueUnit, true, false},
		{"whose clock has gone back by the rounding", false, false, rate + dueUnit, true, false},
		{"whose clock has gone back", false, false, rate + 2*dueUnit, true, true},
		{"whose interval has passed", false, false, 0, true, true},
		{"whose interval has not quite passed", false, false, dueUnit, true, false},
		{"whose interval has long passed", false, true, -1000 * rate, true, true},
		{"another worker's, soon", true, false, rate, false, false},
		{"another worker's, now", true, false, 0, false, false},
		{"another worker's, for one interval", true, false, -patience - rate, false, false},
		{"another worker's, for two", true, false, -patience - 2*rate + dueUnit, false, false},
		{"another worker's, for longer", true, false, -patience - 2*rate, true, true},
		{"the same without a backend", true, true, -patience - 2*rate, false, false},
		{"another worker's, in a minute", true, false, longestPause, false, false},
		{"another worker's, in more than that", true, false, longestPause + dueUnit, true, true},
		{"the same without a backend", true, true, longestPause + dueUnit, false, false},
	} {
		c := load(t, &Rule{Limits: []window.Limit{perHour(10)}, Interval: rate}, nil)
		if c.Advance(monday); test.pending {
			c.Count(1)
		}
		due := DueAt(monday + test.in)
		c.sync.Due = due
		must.Equal(t, c.Adopt(monday, !test.unreachable), test.want, "%s: adopted", test.name)
		if test.now {
			due = DueAt(monday)
		}
		must.Equal(t, c.sync.Due, due, "%s: due in %d units", test.name, c.sync.Due.In(monday)/dueUnit)
	}
}

// A key is adopted after 5 s and two intervals, to the unit.
func TestAdoptAfter(t *testing.T) {
	t.Parallel()
	const patience = 7000 * dueUnit
	const rate = (patience - adoptAfter) / 2
	for in, want := range map[int64]bool{-patience + dueUnit: false, -patience: false, -patience - dueUnit: true} {
		c := load(t, &Rule{Limits: []window.Limit{perHour(10)}, Interval: rate}, nil)
		c.Advance(monday)
		c.Count(1)
		c.sync.Due = DueAt(monday + in)
		must.Equal(t, c.Adopt(monday, true), want, "due in %d units: adopted", in/dueUnit)
	}
}

// Nobody pushes what no backend counts, even if another configuration did.
func TestNothingToAdopt(t *testing.T) {
	t.Parallel()
	limits := []window.Limit{perHour(10)}
	synced := load(t, &Rule{Limits: limits, Interval: second}, nil)
	synced.Advance(monday)
	synced.Count(1)
	alone := &Rule{Limits: limits}
	for name, c := range map[string]*Counter{"a new one": load(t, alone, nil), "one that was pushed": load(t, alone, synced.Append(nil, monday))} {
		must.Equal(t, c.Adopt(monday+3600*second, true), false, "%s is adopted", name)
	}
	must.Equal(t, load(t, alone, nil).Identified(), true, "a counter that nobody pushes needs an identity")
}

// While a push is out, nobody makes another push of the key, however short the time; until it seems
// to be lost, or the clock went back.
func TestClaimWhileAPushIsOut(t *testing.T) {
	t.Parallel()
	const patience = abandonAfter >> dueShift << dueShift
	for later, want := range map[int64]bool{0: false, dueUnit: false, patience: false, patience + dueUnit: true, -dueUnit: true} {
		c := load(t, &Rule{Limits: []window.Limit{perHour(10), perMinute(10)}, Interval: second}, nil)
		now := monday + 5*second
		c.Advance(now)
		c.Count(2)
		c.Claim(now)
		c.Count(1)
		if got := c.Claim(now + later); got != want || c.Pending() == want {
			t.Errorf("claimed again after %d units: %v, pending %v", later/dueUnit, got, c.Pending())
		}
		if got := c.Sync().Claimed == DueAt(now+later); got != (want || later == 0) {
			t.Errorf("after %d units the time of the claim is %d units away", later/dueUnit, c.Sync().Claimed.In(now)/dueUnit)
		}
	}
}

// The totals of an answer that is not newer than another one never lower what is known.
func TestAnswersOutOfOrder(t *testing.T) {
	t.Parallel()
	for later, want := range map[int64]uint64{dueUnit - longestAnswer: 8, -dueUnit: 8, 0: 8, dueUnit: 3, 720 * 3600 * second: 3, 1000 * 3600 * second: 3, -2 * longestAnswer: 3} {
		c := load(t, &Rule{Limits: []window.Limit{perHour(10)}, Interval: second}, nil)
		c.Advance(monday)
		total := window.Totals{Newest: c.Numbers(nil)[0], Hits: []uint64{8}}
		for wrap := range int64(4) {
			must.Equal(t, c.newer(monday+wrap<<(dueShift+30)), true, "the first answer is not the newest")
		}
		c.Learn(0, monday, &total)
		c.Heard(monday)
		total.Hits[0] = 3
		c.Learn(0, monday+later, &total)
		c.Heard(monday + later)
		if got := sums(c); !slices.Equal(got, []uint64{want}) || (c.Sync().Heard == DueAt(monday+later)) != (want == 3 || later == 0) {
			t.Errorf("an answer %d units later: got %d, want %d", later/dueUnit, got, want)
		}
	}
}

// Of hits that go back, an answer later than that to their push has the totals without them. If they are in flight when it comes,
// that holds for one of the same moment, too. An answer that seems to be much older is the newest, by a clock that was set back.
func TestAnswersOvertakeWhatGoesBack(t *testing.T) {
	t.Parallel()
	const later = 10_000_000
	for _, test := range []struct {
		learnsBefore    bool  // whether the other answer comes before the hits are pushed
		learned, settle int64 // when both are given
		want            uint64
	}{
		{false, monday + later, monday, 6},
		{false, monday, monday, 6},
		{true, monday, monday, 4},
		{false, monday + longestLate, monday, 4},
		{false, monday, monday + later, 4},
	} {
		c := load(t, &Rule{Limits: []window.Limit{perMinute(10)}, Interval: second}, nil)
		c.Advance(monday)
		c.States[0].Hits[0] = window.Hits{Total: 9, Pending: -3}
		learn := func() {
			c.Learn(0, test.learned, &window.Totals{Newest: uint64(monday / minute), Hits: []uint64{6, 0}})
			c.Heard(test.learned)
		}
		if test.learnsBefore {
			learn()
		}
		must.Equal(t, c.Claim(monday), true, "%+v: claimed", test)
		if !test.learnsBefore {
			learn()
		}
		c.Settle(0, c.Sync().Claimed, test.settle, &window.Totals{Newest: uint64(monday / minute), Hits: []uint64{4, 0}})
		must.Equal(t, c.States[0].Hits[0], window.Hits{Total: test.want}, "%+v: hits", test)
	}
}

// The fields of synchronisation have a place of their own in an entry, which stays.
func TestFormat(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perHour(10)}, Interval: second}
	c := load(t, rule, nil)
	c.CountRevocable(0)
	c.Identify([16]byte{0x10, 0x11, 15: 0x1f})
	c.sync.Due, c.sync.Claimed, c.sync.Heard = 0x23222120, 0x33323130, 0x43424140
	c.lease = Lease{Dry: 0x53525150, Since: 0x63626160, Worn: 0x73727170, Granted: 0x7f, Pace: 300, Refused: 2}
	const want = "07 101100000000000000000000000000 1f 20212223 30313233 40414243 50515253 60616263 70717273 02 7f ac02"
	got := c.Append(nil, 0)
	if decoded, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(want), []byte(" "), nil))); err != nil || !bytes.HasPrefix(got, decoded) {
		t.Errorf("got %x, want %s", got, want)
	}
	if again := load(t, rule, got); again.Sync() != c.Sync() || again.lease != c.lease || !again.Revocable() {
		t.Errorf("%x is read as %+v, %+v", got, again.Sync(), again.lease)
	}
}

// A lease is read as it was written, with each of its numbers as large as it may be; a larger one
// makes no sense.
func TestLeaseBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lease Lease
		want  bool
	}{
		{Lease{Granted: window.MaxHits, Pace: window.MaxHits, Refused: maxRefused, Dry: math.MaxUint32, Since: math.MaxUint32, Worn: math.MaxUint32}, true},
		{Lease{Granted: window.MaxHits, Pace: window.MaxHits, Short: window.MaxHits, Refused: maxRefused}, true},
		{Lease{Short: 2}, true},
		{Lease{Short: window.MaxHits + 1}, false},
		{Lease{Granted: window.MaxHits + 1}, false},
		{Lease{Pace: window.MaxHits + 1}, false},
		{Lease{Refused: maxRefused + 1}, false},
		{Lease{Granted: math.MaxUint64}, false},
	} {
		var got Lease
		encoded := test.lease.append(nil)
		if length := got.decode(append(encoded, 0xff)); length == len(encoded) != test.want || test.want && got != test.lease || !test.want && length != 0 {
			t.Errorf("%+v is read as %+v, in %d bytes of %d", test.lease, got, length, len(encoded))
		}
		for n := range encoded {
			must.Equal(t, got.decode(encoded[:n:n]), 0, "%d bytes of %d are read", n, len(encoded))
		}
	}
	for _, part := range []Lease{{Dry: 1}, {Since: 1}, {Worn: 1}, {Granted: 1}, {Pace: 1}, {Refused: 1}, {Short: 2}} {
		must.Equal(t, part.none(), false, "%+v is nothing", part)
	}
}

// Any worker that claims pushes the hits of another configuration's limits, once, and keeps them.
func TestOthersArePushed(t *testing.T) {
	t.Parallel()
	both := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}, Interval: second}
	one := &Rule{Limits: both.Limits[:1], Interval: second}
	c := load(t, both, nil)
	c.Advance(monday)
	c.Identify([16]byte{9})
	c.Count(4)
	c.States[0] = window.State{Newest: monday} // only the other has something to push
	c = load(t, one, c.Append(nil, monday))
	must.Equal(t, c.Pending(), true, "nobody has to push the other limit's hits")
	must.AtLeast(t, c.ForgetAt(), monday+60*minute, "with hits to push, forgotten at")
	for round, want := range []int{1, 0} {
		must.EqualOrEnd(t, c.Claim(monday+int64(round)*second), true, "not claimed")
		visited := 0
		c.ClaimedOthers(func(id [16]byte, l *window.Limit, p *window.Push, ends int64) {
			if visited++; id != [16]byte{9} || l.Shape != both.Limits[1].Shape || p.Hits[0] != 4 || ends != monday+60*minute {
				t.Errorf("got %x, %+v, %+v, until %d s", id, l, p, (ends-monday)/second)
			}
		})
		must.Equal(t, visited, want, "round %d: pushed", round)
		must.Equal(t, c.Pending(), false, "round %d: pending", round)
		c = load(t, one, c.Append(nil, monday))
	}
	c = load(t, both, c.Append(nil, monday))
	must.Same(t, sums(c), []uint64{0, 4}, "kept")
}

// A lease of another configuration's limit goes back when the key is pushed.
func TestLeaseOfAnotherLimit(t *testing.T) {
	t.Parallel()
	both := &Rule{Limits: []window.Limit{perMinute(1000), perHour(1000)}, Interval: second}
	one := &Rule{Limits: both.Limits[:1], Interval: second}
	c := load(t, one, leased(t, both, 20).Append(nil, monday))
	c.Claim(monday)
	c.ClaimedOthers(func(_ [16]byte, _ *window.Limit, p *window.Push, _ int64) {
		must.Equal(t, p.Hits[0], -20, "hits that go back: %+v", p)
	})
	c = load(t, both, c.Append(nil, monday))
	must.Equal(t, c.States[1].Hits[0].Lease, 0, "still leased")
}

// An entry that leaves the table gives its lease back, and nothing of what is in flight: an answer
// has that.
func TestOrphansOfALease(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perHour(1000)}, Interval: second}
	c := leased(t, rule, 50)
	c.Count(20)
	payload := c.Append(nil, monday)
	var got []int64
	visit := func(_ [16]byte, _ *window.Limit, p *window.Push, _ int64) { got = append(got, p.Hits...) }
	Orphans(payload, visit)
	must.Same(t, got, []int64{-30}, "hits that go back of 50, of which 20 are used")
	got = nil
	c.ReturnLeases()
	c.Claim(monday)
	Orphans(c.Append(nil, monday), visit)
	for n := range payload[:len(payload)-1] {
		if n != 1+syncSize {
			Orphans(payload[:n:n], visit)
		}
	}
	must.Same(t, got, nil, "what is in flight, or makes no sense, has to push")
}

// A key that was counted without a backend is nobody's yet: whoever hits it first pushes all of it,
// whether or not the backend can be reached.
func TestKeyThatGetsABackend(t *testing.T) {
	t.Parallel()
	limits := []window.Limit{perHour(10), perMinute(10)}
	for _, reachable := range []bool{false, true} {
		here := load(t, &Rule{Limits: limits}, nil)
		here.Advance(monday)
		here.Count(3)
		c := load(t, &Rule{Limits: limits, Interval: second}, here.Append(nil, monday))
		if c.Advance(monday); !c.Pending() || !slices.Equal(sums(c), []uint64{3, 3}) || !c.Adopt(monday, reachable) {
			t.Errorf("reachable %v: pending %v, %v hits, or not adopted", reachable, c.Pending(), sums(c))
		}
		c.Count(1)
		c = load(t, &Rule{Limits: limits, Interval: second}, c.Append(nil, monday))
		must.Equal(t, c.Adopt(monday, reachable), false, "reachable %v: adopted twice", reachable)
		if c = load(t, &Rule{Limits: limits}, c.Append(nil, monday)); !c.Pending() || !slices.Equal(sums(c), []uint64{4, 4}) {
			t.Errorf("reachable %v: without a backend again %v hits, pending %v", reachable, sums(c), c.Pending())
		}
	}
}
