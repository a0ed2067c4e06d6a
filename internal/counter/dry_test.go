package counter

import (
	"math"
	"testing"

	"weir/internal/must"
	"weir/window"
)

// A backend that gave less than requests have asked for is not asked again for a while, and longer
// each time; nor for ever, however wrong the clock was. A refused lease ahead of requests says
// nothing.
func TestDry(t *testing.T) {
	t.Parallel()
	for _, nodes := range []uint64{0, 1, 2, 10, 1000, 1 << 32, math.MaxUint64} {
		for _, limit := range []window.Limit{
			perMinute(5), perMinute(1000), {Shape: shape(window.SlidingWindow, minute), Max: 1000},
			{Shape: shape(window.TokenBucket, minute), Max: 1000, Burst: 3}, {Shape: shape(window.FirstHitWindow, 366*24*3600*second), Max: 1},
			{Shape: shape(window.FixedWindow, window.MinWidth), Max: 1}, perMinute(0),
		} {
			rule := shared(nodes, second, limit)
			c := load(t, rule, nil)
			c.Advance(monday)
			c.Count(limit.Quota())
			c.Granted(0, 1, 10, 0, false, monday, 0.99)
			if limit.Max != 0 && c.dryFor(monday) <= 0 {
				t.Errorf("%d nodes, %+v: not dry after a refusal", nodes, limit)
			}
			must.AtMost(t, c.dryFor(monday), 2*rule.longest(), "%d nodes, %+v: dry for", nodes, limit)
			for _, now := range []int64{monday - 3600*second, monday + 3*rule.longest()} {
				must.Equal(t, c.dryFor(now), 0, "%d nodes, %+v: dry %d s from then", nodes, limit, (now-monday)/second)
			}
		}
	}
	rule := shared(2, second, perHour(1000))
	c := leased(t, rule, 1)
	c.Count(1000)
	c.Granted(1, 1, 300, 0, true, monday, 0.5)
	must.Equal(t, c.dryFor(monday), 0, "dry though requests have got what they have asked for")
	now, last := monday, int64(0)
	for refusal := range maxRefused + 2 {
		c.Advance(now)
		c.Granted(0, 1, 1, 0, false, now, 0.5)
		in := c.dryFor(now)
		if in < last || refusal < 2 && in <= last || in > rule.longest()+2*dueUnit {
			t.Errorf("refusal %d: dry for %d ns, and before for %d", refusal, in, last)
		}
		must.Equal(t, c.Doubtful(now), refusal < doubtful, "refusal %d: doubtful", refusal)
		// Other workers have asked before they could know.
		before := c.lease
		c.Granted(0, 1, 1, 0, false, now, 0.9)
		must.Equal(t, c.lease, before, "refusal %d: after another one of the same moment", refusal)
		now, last = now+in, in
	}
	grant(c, 1, now)
	must.Equal(t, c.lease.Refused, 0, "refusals before a grant that still count")
}

// A key that is known to have room is asked for, whatever was refused before; unless hits come back
// so fast that there would be a question for each.
func TestRoomAfterRefusal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit window.Limit
		back  int64 // when a hit is back
		want  Verdict
	}{
		{perMinute(1000), minute, Unsure},
		{window.Limit{Shape: shape(window.TokenBucket, minute), Max: 1000, Burst: 1000}, 60_000_000, Unsure},
		{window.Limit{Shape: shape(window.TokenBucket, second), Max: 128, Burst: 128}, 8_000_000, Rejected},
		{window.Limit{Shape: shape(window.TokenBucket, minute), Max: 10_000, Burst: 10_000}, 6_000_000, Rejected},
	} {
		rule := shared(2, second, test.limit)
		c := leased(t, rule, test.limit.Quota())
		c.Count(test.limit.Quota())
		c.Granted(0, 1, 1, 0, false, monday, 0.5)
		must.Equal(t, c.Verdict(1, monday), Rejected, "%+v: right after a refusal", test.limit)
		now := monday + test.back
		c.Advance(now)
		must.Equal(t, c.Verdict(1, now), test.want, "%+v: when a hit is back", test.limit)
		// Others have given some back.
		c.Advance(monday)
		c.Learn(0, monday+second, &window.Totals{Newest: test.limit.Number(&c.States[0]), Hits: []uint64{10, 0}})
		must.Equal(t, c.Verdict(1, monday), test.want, "%+v: when others have given hits back", test.limit)
	}
}

// A backend that has not had many hits may have fewer, so requests of fewer ask it, however fast hits
// come back. Larger requests wait for the pause.
func TestRoomForLess(t *testing.T) {
	t.Parallel()
	for _, limit := range []window.Limit{
		{Shape: shape(window.SlidingWindow, minute), Max: 10_000}, {Shape: shape(window.TokenBucket, minute), Max: 10_000, Burst: 10_000},
		{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, Max: 10_000},
	} {
		rule := shared(2, second, limit)
		c := leased(t, rule, 6000)
		c.Count(6000)
		want := func(when string, verdicts map[uint64]Verdict) {
			t.Helper()
			for cost, want := range verdicts {
				must.Equal(t, c.Verdict(cost, monday), want, "%+v, %s: %d hits are", limit, when, cost)
			}
			// An entry keeps it.
			must.Equal(t, load(t, rule, c.Append(nil, monday)).lease, c.lease, "%+v, %s: %+v is read as", limit, when, c.lease)
		}
		c.Granted(0, 3000, 3000, 0, false, monday, 0.5)
		want("3000 were refused", map[uint64]Verdict{1: Unsure, 2999: Unsure, 3000: Rejected, 3500: Rejected})
		c.Granted(0, 2000, 2000, 0, false, monday, 0.5)
		want("2000, too", map[uint64]Verdict{1: Unsure, 1999: Unsure, 2000: Rejected, 3500: Rejected})
		c.Granted(0, 2500, 2500, 0, false, monday, 0.5)
		want("2500 before that", map[uint64]Verdict{1999: Unsure, 2000: Rejected})
		c.Granted(0, 1, 1, 0, false, monday, 0.5)
		want("a single hit", map[uint64]Verdict{1: Rejected, 1999: Rejected})
	}
	// The backend gives all that it has.
	c := leased(t, shared(2, second, window.Limit{Shape: shape(window.TokenBucket, minute), Max: 10_000, Burst: 10_000}), 6000)
	c.Count(6000)
	c.Granted(100, 50, 4000, 0, false, monday, 0.5)
	must.Equal(t, c.Verdict(1, monday), Rejected, "when a backend has given 100 of 4000")
}

// While a key is full it is asked for after one, two, four and eight intervals, times 0.5 to 1.5.
func TestPauses(t *testing.T) {
	t.Parallel()
	for spread, part := range map[float64]int64{0: 500, 0.5: 1000, 1: 1500} {
		c := has(t, shared(2, interval, perHour(1000)), start, Lease{}, window.Hits{Total: 1000})
		now := start
		for i, pauses := range []int64{1, 2, 4, 8, 8, 8, 8} {
			c.Granted(0, 1, 1, 0, false, now, spread)
			in := c.dryFor(now)
			must.Equal(t, in, pauses*part*dueUnit, "refusal %d, spread %v: asks again after", i+1, spread)
			now += in
		}
	}
	// Totals are no refusal yet, nor are the answers to a rule with a small limit.
	c := has(t, shared(2, interval, perHour(1000)), start, Lease{Pace: 1}, window.Hits{Total: 1000})
	c.RunDry(start, 0.5)
	small := has(t, shared(2, interval, perHour(100)), start, Lease{Pace: 1}, window.Hits{Total: 100})
	small.Granted(0, 1, 1, 0, false, start, 0.5)
	must.Equal(t, c.dryFor(start), interval, "asks again after")
	must.Equal(t, small.dryFor(start), interval, "a small limit asks again after")
}

// A full key is asked for when a hit is back, if that is sooner; where hits come back fast, by all
// nodes together as often as a quantum is back.
func TestPauseUntilHitsAreBack(t *testing.T) {
	t.Parallel()
	bucket := func(tokens, units uint64) window.Limit {
		return window.Limit{Shape: shape(window.TokenBucket, int64(tokens*units)*dueUnit), Max: tokens, Burst: tokens}
	}
	ends := window.Limit{Shape: shape(window.FixedWindow, 64*interval), Max: 1000}
	for _, test := range []struct {
		name   string
		limits []window.Limit
		nodes  uint64
		spread float64
		want   int64 // in units
	}{
		{"a window that ends soon", []window.Limit{ends}, 2, 0.5, 300},
		{"it and one that does not", []window.Limit{ends, perHour(1000)}, 2, 0.5, 1000},
		{"a token", []window.Limit{bucket(1000, 60)}, 10, 0.5, 60},
		{"a token, whatever the spread", []window.Limit{bucket(1000, 60)}, 10, 1, 60},
		{"a quantum of two for each of ten", []window.Limit{bucket(128, 10)}, 10, 0.5, 200},
		{"a quantum", []window.Limit{bucket(640, 10)}, 1, 0.5, 100},
		{"a quantum of two nodes", []window.Limit{bucket(640, 10)}, 2, 0.5, 200},
		{"of an unknown number", []window.Limit{bucket(640, 10)}, 0, 0.5, 100},
		{"at least half of it", []window.Limit{bucket(640, 10)}, 4, 0, 200},
		{"at most half as much again", []window.Limit{bucket(640, 10)}, 4, 1, 600},
		{"no longer than others pause", []window.Limit{bucket(640, 10)}, 20, 0.5, 1000},
		{"nothing ever comes back", []window.Limit{perHour(0)}, 2, 0.5, 1000},
	} {
		const now = start/(64*interval)*(64*interval) + 64*interval - 300*dueUnit
		c := has(t, shared(test.nodes, interval, test.limits...), now, Lease{})
		for i := range c.States {
			c.States[i].Start, c.States[i].Hits[0] = now, window.Hits{Total: test.limits[i].Quota()}
		}
		c.Granted(0, 1, 1, 0, false, now, test.spread)
		must.Equal(t, c.dryFor(now), test.want*dueUnit, "%s: asks again after", test.name)
	}
}

// A pause is believed up to twice the longest, which is more than any is; a longer one is that of a
// clock that was wrong. No pause is one, whatever the time.
func TestDryFor(t *testing.T) {
	t.Parallel()
	const longAgo = 1 << 52 // a due time of 0 is a time then
	rule := shared(2, interval, perHour(1000))
	for _, test := range []struct {
		now      int64
		dry      Due
		want     int64 // in units
		doubtful bool
	}{
		{start, DueAt(start), 0, false}, {start, DueAt(start) - 1, 0, false}, {start, DueAt(start) + 1, 1, true},
		{start, DueAt(start) + 12_000, 12_000, true}, {start, DueAt(start) + 16_000, 16_000, true}, {start, DueAt(start) + 16_001, 0, false},
		{longAgo - 10*dueUnit, 0, 0, false}, {longAgo - 10*dueUnit, 1, 11, true},
	} {
		c := has(t, rule, test.now, Lease{Dry: test.dry})
		want := test.want * dueUnit
		must.Equal(t, c.dryFor(test.now), want, "%+v: dry for", test)
		must.Equal(t, c.DryUntil(test.now), test.now+want, "%+v: dry until", test)
		must.Equal(t, c.Doubtful(test.now), test.doubtful, "%+v: doubtful", test)
	}
}

// Totals that say that a key is full have nobody ask for a while, unless hits are leased here, or
// nobody has ever asked.
func TestRunDry(t *testing.T) {
	t.Parallel()
	known := DueAt(start) - 100
	for _, test := range []struct {
		name  string
		lease Lease
		hits  [2]window.Hits // of 1000 in a minute, and of 2000 in an hour
		want  int64          // in units
	}{
		{"full", Lease{Since: known}, [2]window.Hits{{Total: 1000}, {Total: 1000}}, 1000},
		{"full for an hour", Lease{Since: known}, [2]window.Hits{{Total: 10}, {Total: 2000}}, 1000},
		{"room for a hit", Lease{Since: known}, [2]window.Hits{{Total: 999}, {Total: 1999}}, 0},
		{"a hit is leased", Lease{Since: known, Granted: 1}, [2]window.Hits{{Total: 1000, Lease: 1}, {Total: 2000, Lease: 1}}, 0},
		{"full, with a hit leased", Lease{Since: known, Granted: 1}, [2]window.Hits{{Total: 1001, Lease: 1}, {Total: 2001, Lease: 1}}, 0},
		{"nobody has asked", Lease{}, [2]window.Hits{{Total: 1000}, {Total: 1000}}, 0},
		{"somebody has heard of it already", Lease{Since: known, Dry: DueAt(start) + 1}, [2]window.Hits{{Total: 1000}, {Total: 1000}}, 1},
		{"somebody had heard of it", Lease{Since: known, Dry: DueAt(start)}, [2]window.Hits{{Total: 1000}, {Total: 1000}}, 1000},
	} {
		c := has(t, shared(2, interval, perMinute(1000), perHour(2000)), start, test.lease, test.hits[:]...)
		c.RunDry(start, 0.5)
		must.Equal(t, c.dryFor(start), test.want*dueUnit, "%s: asks again after", test.name)
	}
	// One token is room, too, even if one is back each millisecond.
	fast := window.Limit{Shape: shape(window.TokenBucket, second), Max: 1000, Burst: 1000}
	for taken, dry := range map[uint64]bool{999: false, 1000: true} {
		c := has(t, shared(2, interval, fast), start, Lease{Since: known}, window.Hits{Total: taken})
		c.RunDry(start, 0.5)
		must.Equal(t, c.dryFor(start) > 0, dry, "%d of 1000 tokens are taken: dry", taken)
	}
}

// A counter that gets all that requests have asked for has been refused nothing, whatever was
// refused before.
func TestGrantEndsRefusals(t *testing.T) {
	t.Parallel()
	c := has(t, shared(2, interval, perHour(1000)), start, Lease{}, window.Hits{Total: 1000})
	c.Granted(0, 1, 1, 0, false, start, 0.5)
	c.Granted(3, 1, 3, 0, false, start, 0.5)
	must.Equal(t, c.lease.Refused, 0, "refusals that count after a grant")
	small := has(t, shared(2, interval, perHour(100)), start, Lease{}, window.Hits{Total: 100})
	small.Granted(3, 1, 3, 0, false, start, 0.5)
	must.Equal(t, small.dryFor(start), 0, "a small limit is dry after a grant for")
	small.Granted(2, 1, 3, 0, false, start, 0.5)
	must.Equal(t, small.dryFor(start) > 0, true, "a small limit that has less than was asked for is dry")
}

// A key is asked for again although it is full, once the pause is over. Only where hits come back
// together at a window's end is the answer known to be no, unless others have given back leases.
func TestStale(t *testing.T) {
	t.Parallel()
	dry, past := DueAt(start)+10, DueAt(start)-10
	sliding := perMinute(1000)
	for name, test := range map[string]struct {
		limits []window.Limit
		lease  Lease
		used   []uint64
		want   bool
	}{
		"full":                      {[]window.Limit{perHour(1000)}, Lease{Dry: past, Refused: 1}, []uint64{1000}, true},
		"in the pause":              {[]window.Limit{perHour(1000)}, Lease{Dry: dry, Refused: 1}, []uint64{1000}, false},
		"not refused":               {[]window.Limit{perHour(1000)}, Lease{}, []uint64{1000}, false},
		"with room":                 {[]window.Limit{perHour(1000)}, Lease{Dry: past, Refused: 1}, []uint64{999}, false},
		"a window that slides":      {[]window.Limit{sliding}, Lease{Dry: past, Refused: 1}, []uint64{1000}, false},
		"one of two":                {[]window.Limit{sliding, perHour(1000)}, Lease{Dry: past, Refused: 1}, []uint64{1, 1000}, true},
		"both, of which one slides": {[]window.Limit{sliding, perHour(1000)}, Lease{Dry: past, Refused: 1}, []uint64{1000, 1000}, false},
	} {
		var hits []window.Hits
		for _, used := range test.used {
			hits = append(hits, window.Hits{Total: used})
		}
		must.Equal(t, has(t, shared(10, interval, test.limits...), start, test.lease, hits...).Stale(start), test.want, "%s", name)
	}
}

// Hits that were granted ahead end a row of refusals, as in a new window.
func TestGrantsAheadEndRefusals(t *testing.T) {
	t.Parallel()
	for units, want := range map[uint64]uint8{0: 5, 2: 0} {
		c := has(t, shared(10, interval, perHour(1000)), start, Lease{Dry: DueAt(start) - 10, Refused: 5}, window.Hits{Total: 100})
		c.Granted(units, 1, 3, 0, true, start, 0.5)
		must.Equal(t, c.lease.Refused, want, "%d granted: refusals that count", units)
	}
}
