package counter

import (
	"math"
	"testing"

	"weir/internal/must"
	"weir/window"
)

// Nothing is leased ahead of what is hit once, or of small limits; of the others a node's part of
// what is left, less what it has.
func TestAhead(t *testing.T) {
	t.Parallel()
	rule := shared(10, second, perMinute(1000))
	c := leased(t, rule, 1)
	c.Count(1)
	c.Advance(monday + 10*second)
	must.Equal(t, c.Ahead(monday+10*second), mostStanding, "a key that is hit each ten seconds: ahead")
	must.Equal(t, load(t, rule, nil).Ahead(monday), 0, "a key that nothing is known of: ahead")
	c = leased(t, rule, 40)
	c.Count(40)
	must.Equal(t, c.Ahead(monday+second), 48, "a key that is hit 40 times a second: ahead, want a twentieth of 960")
	c = leased(t, rule, 40)
	c.Count(30)
	must.Equal(t, c.Ahead(monday+second), 38, "with 10 leased: ahead, want a twentieth of 970 less 10")
	c = leased(t, shared(2, second, perMinute(100)), 40)
	c.Count(40)
	must.Equal(t, c.Ahead(monday+second), 0, "a small limit: ahead")
}

// A rule that has a small limit leases nothing ahead. Where the backend had less than was asked
// for, the key is full, and nobody asks before a hit comes back.
func TestSmallLimits(t *testing.T) {
	t.Parallel()
	small, mixed, large := shared(2, second, perMinute(100)), shared(2, second, perMinute(1000), perHour(100)), shared(2, second, perMinute(101))
	for i, test := range []struct {
		rule   *Rule
		leases bool
	}{{small, false}, {mixed, false}, {large, true}} {
		c := leased(t, test.rule, 40)
		c.Claim(monday)
		c.Count(40)
		must.Equal(t, c.Ahead(monday+second) > 0, test.leases, "rule %d: it asks for hits ahead", i)
		must.Equal(t, test.rule.Leases(), test.leases, "rule %d: leases", i)
	}
	c := leased(t, small, 100)
	c.Count(100)
	c.Granted(0, 1, 1, 0, false, monday+second, 0)
	ends := minute - (monday+second)%minute
	must.Between(t, c.dryFor(monday+second), 1, min(ends, small.horizon())+2*dueUnit, "asks again after")
}

// A lease is to last for two intervals, or one of tokens, or a quarter of the shortest window.
func TestHorizon(t *testing.T) {
	t.Parallel()
	bucket := window.Limit{Shape: shape(window.TokenBucket, minute), Max: 1000, Burst: 1000}
	aSecond := window.Limit{Shape: shape(window.FixedWindow, second), Max: 1000}
	for name, test := range map[string]struct {
		rule *Rule
		want int64
	}{
		"two intervals":                  {shared(2, second, perMinute(1000)), 2 * second},
		"one, of tokens":                 {shared(2, second, bucket), second},
		"one, of tokens beside hits":     {shared(2, second, perMinute(1000), bucket, perHour(1000)), second},
		"a quarter of the window":        {shared(2, second, aSecond), second / 4},
		"of the shortest of windows":     {shared(2, second, perHour(1000), aSecond, perMinute(1000)), second / 4},
		"what times are kept in, if not": {shared(2, second, window.Limit{Shape: shape(window.FixedWindow, window.MinWidth), Max: 1000}), dueUnit},
	} {
		must.Equal(t, test.rule.horizon(), test.want, "%s: ns", name)
	}
}

// A lease is worth the hits that the key's pace of late takes in two intervals, less those that are
// leased.
func TestAheadOfPace(t *testing.T) {
	t.Parallel()
	const aMinute = Due(longestPause >> dueShift)
	const longAgo = 1 << 52 // a due time of 0 is a time then
	for _, test := range []struct {
		name    string
		now     int64
		since   Due // before now, as claimed is; 0 for unknown
		claimed Due
		granted uint64
		pace    uint64
		hits    window.Hits
		want    uint64
	}{
		{"nothing is known", start, 0, 0, 0, 0, window.Hits{}, 0},
		{"hit once, long ago", start, 10_000, 0, 0, 0, window.Hits{}, mostStanding},
		{"pushed once, long ago", start, 0, 10_000, 0, 0, window.Hits{}, mostStanding},
		{"40 in an interval", start, 1000, 0, 40, 0, window.Hits{}, 80},
		{"40 in two", start, 2000, 0, 40, 0, window.Hits{}, 40},
		{"10 are left", start, 1000, 0, 50, 0, window.Hits{Lease: 10}, 70},
		{"more are left", start, 1000, 0, 140, 0, window.Hits{Lease: 100}, 0},
		{"40 in half an interval", start, 500, 0, 40, 0, window.Hits{}, 160},
		{"in a quarter", start, 250, 0, 40, 0, window.Hits{}, 320},
		{"in less than that", start, 10, 0, 40, 0, window.Hits{}, 320},
		{"a faster pace before", start, 1000, 0, 40, 500, window.Hits{}, 500},
		{"a slower pace before", start, 1000, 0, 40, 50, window.Hits{}, 80},
		{"in a minute", start, aMinute, 0, 40, 0, window.Hits{}, mostStanding},
		{"in more than that: who knows", start, aMinute + 1, 0, 40, 0, window.Hits{}, 80},
		{"by a clock that has gone back", start, math.MaxUint32, 0, 40, 0, window.Hits{}, 80},
		{"hits that the backend has not heard of", start, 1000, 0, 0, 0, window.Hits{Pending: 30, InFlight: 10}, 80},
		{"beside those of a lease", start, 1000, 0, 20, 0, window.Hits{Pending: 20}, 80},
		{"since a push", start, 0, 2000, 0, 0, window.Hits{Pending: 40}, 40},
		{"since nobody knows when", start, 0, 0, 0, 0, window.Hits{Pending: 40}, 80},
		{"long ago, since nobody knows when", longAgo + 10*dueUnit, 0, 0, 0, 0, window.Hits{Pending: 40}, 80},
		{"long ago, since then", longAgo + 10*dueUnit, 9, 0, 0, 0, window.Hits{Pending: 40}, 320},
		{"long ago, since a push then", longAgo + 10*dueUnit, 0, 9, 0, 0, window.Hits{Pending: 40}, 320},
	} {
		lease := Lease{Granted: test.granted, Pace: test.pace}
		if test.since != 0 {
			lease.Since = DueAt(test.now) - test.since
		}
		test.hits.Total = test.hits.Lease
		aDay := window.Limit{Shape: shape(window.FixedWindow, 24*60*minute), Max: 30_000, Burst: 30_000}
		c := has(t, shared(2, interval, aDay), test.now, lease, test.hits)
		if test.claimed != 0 {
			c.sync.Claimed = DueAt(test.now) - test.claimed
		}
		must.Equal(t, c.Ahead(test.now), test.want, "%s", test.name)
	}
	// More hits stand far from a large limit.
	for max, want := range map[uint64]uint64{30_000: 8, 100_000: 24, 1_000_000: 64} {
		c := has(t, shared(2, interval, perHour(max)), start, Lease{Since: DueAt(start) - 10_000}, window.Hits{})
		must.Equal(t, c.Ahead(start), want, "%d an hour: stand", max)
	}
	// The pace is measured from the moment of a grant on, too.
	c := has(t, shared(2, interval, perHour(1_000_000)), start, Lease{Since: DueAt(start), Granted: 40}, window.Hits{})
	must.Equal(t, c.Ahead(start), 320, "in no time")
}

// The pace is that of the limit that knows the most of it: another one's window may just have begun.
func TestPaceOfSeveralLimits(t *testing.T) {
	t.Parallel()
	for _, hits := range [][]window.Hits{{{Pending: 40}, {}}, {{}, {Pending: 40}}} {
		c := has(t, shared(2, interval, perMinute(1000), perHour(1000)), start, Lease{}, hits...)
		must.Equal(t, c.Ahead(start), 80, "%+v: ahead", hits)
	}
}

// A lease that ends with its window is to last until then, or for an eighth of what it lasts else.
func TestAheadOfAnEnd(t *testing.T) {
	t.Parallel()
	const width = 64 * interval
	const begin = start / width * width
	for _, kind := range []window.Kind{window.FixedWindow, window.FirstHitWindow, window.SlidingWindow, window.TokenBucket} {
		for left, want := range map[int64]uint64{
			width - dueUnit: 2000, 2 * interval: 2000, interval: 1000, interval / 2: 500, interval / 4: 250, interval / 8: 250, 1: 250,
		} {
			if kind == window.TokenBucket {
				want = 1000 // it has no end, and a lease is to last for one interval
			}
			now := begin + width - left
			limit := window.Limit{Shape: shape(kind, width), Max: 1_000_000, Burst: 1_000_000}
			c := has(t, shared(2, interval, limit), now, Lease{Granted: 1000, Since: DueAt(now) - 1000}, window.Hits{Total: 1})
			c.States[0].Start = begin
			must.Equal(t, c.Ahead(now), want, "kind %d, %d ns before the end", kind, left)
		}
	}
}

// Up to 8 hits stand for a key that is hit seldom, but no more than half of the node's even part of
// what is left. For a new key these alone are worth a lease.
func TestStanding(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ left, nodes, want uint64 }{
		{1000, 10, 8}, {160, 10, 8}, {159, 10, 7}, {140, 10, 7}, {20, 10, 1}, {19, 10, 0}, {0, 10, 0}, {1000, 2, 8}, {32, 2, 8}, {31, 2, 7}, {1000, 100, 5},
	} {
		c := has(t, shared(test.nodes, interval, perHour(1000)), start, Lease{Since: DueAt(start) - 5000}, window.Hits{Total: 1000 - test.left})
		must.Equal(t, c.Ahead(start), test.want, "%+v", test)
		must.Equal(t, has(t, shared(test.nodes, interval, perHour(1000)), start, Lease{}, window.Hits{Total: 1000 - test.left}).Stands(), test.want, "%+v, a new key", test)
	}
}

// Where hits come back too fast to ask for each, a request asks for more than its own: for a part of
// the limit, but no more than the pace.
func TestAsks(t *testing.T) {
	t.Parallel()
	fast := window.Limit{Shape: shape(window.TokenBucket, minute), Max: 6400, Burst: 6400}
	for _, test := range []struct {
		limits           []window.Limit
		pace, cost, want uint64
	}{
		{[]window.Limit{fast}, 1000, 1, 100}, {[]window.Limit{fast}, 50, 1, 50}, {[]window.Limit{fast}, 0, 1, 1},
		{[]window.Limit{fast}, 1000, 200, 200}, {[]window.Limit{fast}, 50, 70, 70}, {[]window.Limit{fast, perHour(1000)}, 1000, 1, 100},
		{[]window.Limit{perHour(1000)}, 1000, 1, 1}, {[]window.Limit{perHour(1000)}, 1000, 3, 3},
	} {
		c := has(t, shared(2, interval, test.limits...), start, Lease{Pace: test.pace})
		must.Equal(t, c.Asks(test.cost), test.want, "%+v", test)
	}
}
