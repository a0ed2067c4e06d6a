package counter

import (
	"bytes"
	"math"
	"testing"

	"weir/internal/must"
	"weir/window"
)

func leased(t *testing.T, rule *Rule, hits uint64) *Counter {
	t.Helper()
	c := load(t, rule, nil)
	c.Advance(monday)
	c.Identify([16]byte{1})
	grant(c, hits, monday)
	return c
}

// grant grants hits as all that was asked for.
func grant(c *Counter, hits uint64, now int64) {
	for i := range c.States {
		number := c.rule.Limits[i].Number(&c.States[i])
		c.Grant(i, window.Grant{Hits: hits, At: now, Answered: now}, &window.Totals{Newest: number, Hits: []uint64{c.States[i].Hits[0].Total + hits, 0}})
	}
	c.Granted(hits, 1, hits, 0, false, now, 0.5)
	c.Heard(now)
}

func shared(nodes uint64, rate int64, limits ...window.Limit) *Rule {
	r := &Rule{Limits: limits, Interval: rate}
	r.Share(nodes)
	return r
}

// Hits come out of the lease, of all limits alike, and leave nothing to push; when it is low more
// is asked for, once.
func TestLeaseIsTaken(t *testing.T) {
	t.Parallel()
	rule := shared(2, second, perMinute(1000), perHour(2000))
	c := leased(t, rule, 100)
	low := 0
	for i := range 100 {
		if got := c.Verdict(1, monday); got != Allowed || !c.Silent(1) {
			t.Fatalf("hit %d: got %v", i, got)
		}
		if c.Count(1); c.Low(1) {
			low++
		}
		c = load(t, rule, c.Append(nil, monday))
		c.Advance(monday)
	}
	if low != 1 || c.Leased() != 0 || c.Pending() {
		t.Errorf("%d times low, leased %d, pending %v", low, c.Leased(), c.Pending())
	}
	must.Equal(t, c.Verdict(1, monday), Unsure, "with nothing leased")
	must.Equal(t, c.Verdict(1001, monday), Rejected, "a cost above a limit")
	must.Equal(t, c.Verdict(0, monday), Allowed, "a cost of 0")
}

// An interval and a time of whole units, so that nothing is rounded.
const (
	interval = 1000 * dueUnit
	start    = (monday + 90*second) >> dueShift << dueShift
)

// has is a counter at a time that knows this of its lease, and has these hits in the present window of
// each of its limits.
func has(t *testing.T, rule *Rule, now int64, lease Lease, hits ...window.Hits) *Counter {
	t.Helper()
	c := load(t, rule, nil)
	c.Advance(now)
	for i := range hits {
		c.States[i].Start, c.States[i].Hits[0] = now, hits[i]
	}
	c.lease = lease
	return c
}

// More is asked for once, by the hit with which less than a quarter of a lease is left. In a small
// lease that is the last hit; in a lease of a single hit only if the key was hit before.
func TestLow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		granted, pace, left, cost uint64
		want                      bool
	}{
		{100, 0, 25, 1, false}, {100, 0, 24, 1, true}, {100, 0, 23, 1, false}, {100, 0, 24, 0, false},
		{100, 0, 20, 5, true}, {100, 0, 20, 4, false}, {100, 0, 0, 25, true}, {100, 0, 0, 24, false},
		{4, 0, 1, 1, false}, {4, 0, 0, 1, true}, {3, 0, 1, 1, false}, {3, 0, 0, 1, true}, {2, 0, 1, 1, false}, {2, 0, 0, 1, true},
		{1, 0, 0, 1, false}, {1, 1, 0, 1, true}, {0, 0, 0, 1, false},
	} {
		c := has(t, shared(2, interval, perHour(1000)), start, Lease{Granted: test.granted, Pace: test.pace}, window.Hits{Total: test.left, Lease: test.left})
		must.Equal(t, c.Low(test.cost), test.want, "%+v: low", test)
	}
}

// Hits leave nothing to push if a lease has all of them, in the sub-bucket where they are counted.
func TestSilent(t *testing.T) {
	t.Parallel()
	buckets := window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: second}, Max: 1000}
	for name, test := range map[string]struct {
		rule  *Rule
		later int64
		cost  uint64
		want  bool
	}{
		"all of a lease":            {shared(2, second, perHour(1000)), 0, 5, true},
		"more than a lease":         {shared(2, second, perHour(1000)), 0, 6, false},
		"a lease that has ended":    {shared(2, second, perHour(1000)), 60 * minute, 1, false},
		"of one of two limits":      {shared(2, second, perMinute(1000), perHour(1000)), minute, 1, false},
		"in the same sub-bucket":    {shared(2, second, buckets), 0, 5, true},
		"in another sub-bucket":     {shared(2, second, buckets), second, 5, false},
		"of one limit of two moves": {shared(2, second, perHour(1000), buckets), second, 5, false},
	} {
		c := load(t, test.rule, nil)
		c.Advance(monday)
		for i := range c.States {
			total := window.Totals{Newest: test.rule.Limits[i].Number(&c.States[i]), Hits: []uint64{5, 0}, Ages: []uint64{0}}
			if test.rule.Limits[i].Kind.Bucketed() {
				total.Hits = total.Hits[:1]
			}
			c.Grant(i, window.Grant{Hits: 5, At: monday, Answered: monday}, &total)
		}
		c.Granted(5, 1, 5, 0, false, monday, 0.5)
		c.Advance(monday + test.later)
		must.Equal(t, c.Silent(test.cost), test.want, "%s: silent", name)
	}
}

// A grant that was asked for ahead of requests leaves no more leased than the node's part of what
// is left. Requests that wait for a grant get all of it, and what they need of the lease besides, whatever
// that part is.
func TestGrantAndPart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ahead                       bool
		before, units, relied, want uint64
	}{
		{true, 100, 20, 0, 120}, {true, 100, 50, 0, 150}, {true, 100, 100, 0, 150}, {true, 200, 0, 0, 150},
		{false, 0, 300, 0, 300}, {false, 100, 100, 0, 200}, {false, 150, 100, 0, 250}, {false, 200, 100, 0, 250}, {false, 200, 0, 0, 150},
		{false, 200, 100, 100, 250}, {false, 200, 100, 180, 280}, {false, 200, 100, 300, 300},
	} {
		leased := test.before + test.units
		c := has(t, shared(2, interval, perHour(1000)), start, Lease{Granted: test.before, Since: DueAt(start)}, window.Hits{Total: 400 + leased, Lease: leased})
		c.Granted(test.units, 1, test.units, test.relied, test.ahead, start, 0.5)
		if back := -c.States[0].Hits[0].Pending; c.Leased() != test.want || c.lease.Granted != test.want || uint64(back) != leased-test.want {
			t.Errorf("%+v: %d are leased, %d granted, %d go back", test, c.Leased(), c.lease.Granted, back)
		}
		must.Equal(t, c.lease.Since, DueAt(start), "%+v: since %d units", test, c.lease.Since.In(start)/dueUnit)
	}
}

// The pace counts the hits used since the last grant. The shorter ago that is, the more of the pace
// before is in it.
func TestPace(t *testing.T) {
	t.Parallel()
	const longAgo = 1 << 52 // a due time of 0 is a time then
	for _, test := range []struct {
		name    string
		now     int64
		lease   Lease // Since is seen from now
		claimed Due   // seen from now, 0 for unknown
		hits    window.Hits
		want    uint64
	}{
		{"the first hit", start, Lease{}, 0, window.Hits{}, 0},
		{"for half a horizon", start, Lease{Since: -1000 & math.MaxUint32, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60}, 50},
		{"for a horizon", start, Lease{Since: -2000 & math.MaxUint32, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60}, 40},
		{"for two", start, Lease{Since: -4000 & math.MaxUint32, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60}, 20},
		{"for an eighth, rounded up", start, Lease{Since: -250 & math.MaxUint32, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60}, 58},
		{"by a clock that has gone back", start, Lease{Since: 1, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60}, 80},
		{"with hits beside the lease", start, Lease{Since: -1000 & math.MaxUint32, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60, Pending: 10}, 60},
		{"with hits that have gone back", start, Lease{Since: -1000 & math.MaxUint32, Granted: 100, Pace: 20}, 0, window.Hits{Lease: 60, Pending: -10}, 50},
		{"since the last push", start, Lease{}, -1000 & math.MaxUint32, window.Hits{Pending: 40}, 40},
		{"since the last grant, not the last push", start, Lease{Since: -2000 & math.MaxUint32}, -1000 & math.MaxUint32, window.Hits{Pending: 40}, 40},
		{"since nobody knows when", start, Lease{}, 0, window.Hits{Pending: 40}, 80},
		{"long ago, since nobody knows when", longAgo + 10*dueUnit, Lease{}, 0, window.Hits{Pending: 40}, 80},
		{"long ago, since then", longAgo + 11*dueUnit, Lease{Since: -10 & math.MaxUint32, Pace: 40}, 0, window.Hits{Pending: 40}, 42},
		{"long ago, since a push then", longAgo + 11*dueUnit, Lease{Pace: 40}, -10 & math.MaxUint32, window.Hits{Pending: 40}, 42},
	} {
		if test.lease.Since != 0 {
			test.lease.Since += DueAt(test.now)
		}
		test.hits.Lease++ // the grant
		test.hits.Total = test.hits.Lease
		c := has(t, shared(2, interval, perHour(1_000_000)), test.now, test.lease, test.hits)
		if test.claimed != 0 {
			c.sync.Claimed = DueAt(test.now) + test.claimed
		}
		c.Granted(1, 1, 1, 0, false, test.now, 0.5)
		must.Equal(t, c.lease.Pace, test.want, "%s", test.name)
	}
}

// Tokens wear from when a lease was heard of, to the unit, and never by what has come back before.
func TestWearBegins(t *testing.T) {
	t.Parallel()
	small, large := uint64(100), uint64(1000)
	for name, test := range map[string]struct {
		burst uint64
		hear  func(c *Counter, now int64)
	}{
		"a grant":                   {large, func(c *Counter, now int64) { c.Granted(30, 1, 30, 0, false, now, 0.5) }},
		"a grant of a small bucket": {small, func(c *Counter, now int64) { c.Granted(30, 1, 30, 0, false, now, 0.5) }},
		"totals":                    {small, func(c *Counter, now int64) { c.lease.Granted = 30; c.Trim(false, now) }},
	} {
		// A token comes back in each unit, and the node's part of what is missing is none.
		bucket := window.Limit{Shape: shape(window.TokenBucket, 1000*dueUnit), Max: 1000, Burst: test.burst}
		for _, begin := range []int64{start, start + 1, start + dueUnit - 1} {
			for _, fraction := range []int64{0, 1, dueUnit - 1} {
				c := has(t, shared(1<<32, interval, bucket), begin, Lease{}, window.Hits{Total: 100, Lease: 30})
				test.hear(c, begin)
				now := start + 8*dueUnit + fraction
				c.Advance(now)
				worn := int64(30-c.Leased()) * dueUnit
				if since := now - begin; c.Leased() > 30 || worn > since || worn <= since-2*dueUnit {
					t.Errorf("%s: %d units of %d ns have worn", name, worn/dueUnit, since)
				}
			}
		}
	}
}

// A lease wears by the tokens that come back, however fast they do, and however often it is looked
// at.
func TestWearIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []uint64{10, 1000, 10_000} {
		bucket := window.Limit{Shape: shape(window.TokenBucket, second), Max: perSecond, Burst: 1_000_000}
		rule := shared(1<<40, second, bucket, perHour(1_000_000))
		for _, each := range []int64{dueUnit / 5, dueUnit, dueUnit * 7 / 3, 100 * dueUnit} {
			c := has(t, rule, start, Lease{Granted: 500_000, Worn: DueAt(start)}, window.Hits{Total: 900_000, Lease: 500_000}, window.Hits{Total: 500_000, Lease: 500_000})
			const end = start + 1000*dueUnit
			for now := start; now < end; now += each {
				c = load(t, rule, c.Append(nil, now))
				c.Advance(now)
			}
			c.Advance(end)
			must.Equal(t, 500_000-c.Leased(), perSecond*uint64(end-start)/uint64(second), "%d tokens a second, looked at each %d ns: have worn", perSecond, each)
			must.Equal(t, c.lease.Granted, c.Leased(), "%d tokens a second, looked at each %d ns: granted", perSecond, each)
		}
	}
	// A clock that has gone back wears nothing, and nothing twice.
	bucket := window.Limit{Shape: shape(window.TokenBucket, interval), Max: 1000, Burst: 1_000_000}
	c := has(t, shared(1<<40, interval, bucket), start, Lease{Granted: 5000, Worn: DueAt(start)}, window.Hits{Total: 900_000, Lease: 5000})
	for _, now := range []int64{start + 100*dueUnit, start + 50*dueUnit, start + 100*dueUnit} {
		c.Advance(now)
		must.Equal(t, c.Leased(), 4900, "%d units from then: leased", (now-start)/dueUnit)
	}
}

// Leased hits beyond the node's part of what is left go back when totals come; the used part of the
// rest is known still. A lease on which a request relies stays, and a rule that leases nothing ahead gives
// nothing back.
func TestTrim(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit, used, granted, leased, want, wantGranted uint64
	}{
		{1000, 400, 300, 200, 150, 150}, {1000, 400, 300, 151, 150, 150}, {1000, 400, 300, 150, 150, 300},
		{1000, 400, 300, 149, 149, 300}, {1000, 400, 140, 100, 100, 140}, {1000, 1000, 3, 1, 0, 0}, {1000, 1000, 3, 0, 0, 3},
		{100, 40, 30, 20, 20, 30},
	} {
		c := has(t, shared(2, interval, perHour(test.limit)), start, Lease{Granted: test.granted}, window.Hits{Total: test.used + test.leased, Lease: test.leased})
		c.Trim(true, start)
		must.Equal(t, c.Leased(), test.leased, "%+v: leased, and a request relies on the lease", test)
		if c.Trim(false, start); c.Leased() != test.want || c.lease.Granted != test.wantGranted {
			t.Errorf("%+v: %d of %d are leased", test, c.Leased(), c.lease.Granted)
		}
	}
}

// A lease is written and read as it is, and anything else is none.
func FuzzLeaseCodec(f *testing.F) {
	l := Lease{Dry: 1, Since: math.MaxUint32, Granted: window.MaxHits, Pace: 7, Refused: maxRefused}
	f.Add(l.append(nil))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, again Lease
		length := l.decode(b)
		if length < 0 || length > len(b) || length == 0 && l != (Lease{}) {
			t.Fatalf("%x: %d bytes are %+v", b, length, l)
		}
		if length == 0 {
			return
		}
		encoded := l.append(nil)
		if n := again.decode(encoded); n != len(encoded) || again != l || n > leaseSize {
			t.Fatalf("%+v was written as %x, and read as %+v", l, encoded, again)
		}
	})
}

// Whatever a counter has seen, and however many nodes there are, what it asks for can be asked, and
// nothing overflows.
func FuzzWishes(f *testing.F) {
	f.Add(uint64(3), uint64(10), uint64(20), int64(5), uint64(1), uint8(2))
	f.Add(uint64(1<<32), uint64(window.MaxHits), uint64(window.MaxHits), int64(math.MaxInt64), uint64(math.MaxUint64), uint8(255))
	f.Add(uint64(math.MaxUint64), uint64(0), uint64(1), int64(math.MinInt64), uint64(0), uint8(0))
	limits := [][]window.Limit{
		{perMinute(10), perHour(100)}, {{Shape: shape(window.TokenBucket, minute), Max: 5, Burst: 9}},
		{{Shape: shape(window.FirstHitWindow, window.MaxWidth), Max: 999_999_999_999_999}}, {perMinute(0)},
		{{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, Max: 5}},
		{{Shape: shape(window.SlidingWindow, window.MinWidth), Max: 1}},
	}
	f.Fuzz(func(t *testing.T, nodes, units, most uint64, now int64, hits uint64, what uint8) {
		for _, l := range limits {
			for _, rate := range []int64{1e6, second, math.MaxInt64 / 64} {
				rule := shared(nodes, rate, l...)
				c := &Counter{}
				c.Load(rule, nil)
				for step := range 8 {
					c.Advance(now)
					switch (int(what) + step) % 6 {
					case 0:
						for i := range c.States {
							c.Grant(i, window.Grant{Hits: units, At: now, Answered: now}, &window.Totals{Newest: hits, Hits: []uint64{hits, units}, Ages: []uint64{0, 1}})
						}
						c.Granted(units, 1, most, hits, what%2 == 0, now, 0.999)
					case 1:
						c.Count(min(hits, c.Leased()))
					case 2:
						c.Count(hits)
					case 3:
						c.Review(now)
					case 4:
						c.Claim(now)
					case 5:
						c.RunDry(now, 0)
					}
					if ahead := c.Ahead(now); ahead > window.MaxHits {
						t.Fatalf("wants %d", ahead)
					}
					c.Verdict(hits, now)
					c.Low(hits)
					c.Doubtful(now)
					c.Trim(what%2 == 0, now)
					c.Own(false, now)
					must.Between(t, c.DryUntil(now)-now, 0, 2*rule.longest(), "dry for")
					again, written := &Counter{}, c.Append(nil, 0)
					if !again.Load(rule, written) || !bytes.Equal(again.Append(nil, 0), written) {
						t.Fatalf("%+v was written as %x", c.lease, written)
					}
					now += rate / 4
				}
			}
		}
	})
}
