package counter

import (
	"testing"

	"weir/internal/must"
	"weir/window"
)

// A lease that is not used goes back when it is due, not because the key is due for something else;
// a lease that is used stays.
func TestReview(t *testing.T) {
	t.Parallel()
	rule := shared(2, second, perMinute(1000))
	review := rule.Interval
	c := leased(t, rule, 100)
	if !c.Own(false, monday) || c.Sync().Due.In(monday) <= 0 {
		t.Fatal("nobody reviews the lease")
	}
	// A hit that has to be pushed makes the key due at once.
	c.sync.Due = DueAt(monday)
	c.Count(1)
	if !c.Review(monday+dueUnit) || c.Leased() != 99 || c.Pending() {
		t.Errorf("a lease that has just come: %d are left", c.Leased())
	}
	must.Between(t, c.Sync().Due.In(monday), 1, review+2*dueUnit, "it is reviewed in")
	now := monday + review + 2*dueUnit
	if c.Count(40); !c.Review(now) || c.Leased() != 59 || c.Pending() {
		t.Errorf("a lease that was used: %d are left", c.Leased())
	}
	// Unused hits go back by halves, as a client may only pause. A few hits stand: they are looked
	// at less and less often, and go back together, 16 s after the last use.
	kept, pauses := c.Leased(), []int64{}
	for kept > mostStanding {
		now += review + 2*dueUnit
		if !c.Review(now) || c.Leased() > max((kept+1)/2, mostStanding) || !c.Pending() {
			t.Fatalf("a lease that is not used: %d of %d are left", c.Leased(), kept)
		}
		kept = c.Leased()
		c.Claim(now)
		c.Settle(0, c.Sync().Claimed, now, &window.Totals{Newest: uint64(now / minute), Hits: []uint64{41 + kept}})
	}
	for begin := now; c.Leased() > 0; {
		in := c.Sync().Due.In(now)
		if now += in + 2*dueUnit; in <= 0 || now > begin+20*second {
			t.Fatalf("%d hits stand %d s from then, and are looked at in %d ns", c.Leased(), (now-begin)/second, in)
		}
		pauses = append(pauses, (in+dueUnit)/second)
		if again := c.Review(now); again != (c.Leased() > 0) || c.Leased() != kept && c.Leased() != 0 || again == c.Pending() {
			t.Fatalf("%d of %d hits stand", c.Leased(), kept)
		}
	}
	must.Same(t, pauses, []int64{1, 4, 4, 4}, "seconds between looks")
}

// Tokens don't stand: they would come back meanwhile.
func TestTokensDontStand(t *testing.T) {
	t.Parallel()
	bucket := window.Limit{Shape: shape(window.TokenBucket, minute), Max: 1000, Burst: 1000}
	rule := shared(2, second, perMinute(1000), bucket)
	c := load(t, rule, nil)
	if c.Advance(monday); c.standing() != 0 || load(t, shared(2, second, perMinute(1000)), nil).standing() != mostStanding {
		t.Errorf("%d hits stand", c.standing())
	}
}

// Hits that one limit has leased and others have not are of no use.
func TestUnevenLeases(t *testing.T) {
	t.Parallel()
	rule := shared(2, second, perMinute(1000), perHour(1000))
	c := leased(t, rule, 50)
	c.Advance(monday + minute) // the lease of the minute ends
	must.Equal(t, c.Leased(), 0, "leased")
	must.Equal(t, c.lease.Granted, 0, "granted")
	if again := c.Review(monday + minute); again || !c.Pending() {
		t.Error("the hour's lease is kept for ever")
	}
}

// A lease is reviewed when it is due, and an interval after it has come.
func TestReviewWhenDue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		age, due int64 // in units
		reviewed bool
	}{
		{"not due", 5000, 1, false},
		{"due", 5000, 0, true},
		{"overdue", 5000, -1, true},
		{"due for its hits, as it comes", 0, 0, false},
		{"due for its hits, later", 999, 0, false},
		{"after an interval", 1000, 0, true},
		{"by a clock that has gone back", -1, 0, true},
	} {
		for _, leased := range []uint64{1, 20} {
			c := has(t, shared(2, interval, perHour(1000)), start, Lease{Since: DueAt(start - test.age*dueUnit), Granted: leased + 1, Pace: 1}, window.Hits{Total: leased, Lease: leased})
			c.sync.Due = DueAt(start + test.due*dueUnit)
			again := c.Review(start)
			if reviewed := c.lease.Granted != leased+1; !again || reviewed != test.reviewed {
				t.Errorf("%s: of %d, again %v, reviewed %v", test.name, leased, again, reviewed)
			}
			must.Between(t, c.Sync().Due.In(start), 1, interval, "%s: the next review of %d is in", test.name, leased)
		}
	}
}

// Times of reviews are rounded: a lease that is looked at right then is reviewed, not put off.
func TestReviewOnTime(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{1e6, second / 2, second, interval} {
		for _, fraction := range []int64{0, 1, dueUnit / 2, dueUnit - 1} {
			now := start + fraction
			c := has(t, shared(2, rate, perHour(10_000)), now, Lease{Since: DueAt(now), Granted: 1024, Pace: 1024}, window.Hits{Total: 1024, Lease: 1024})
			c.Own(false, now)
			for want := uint64(512); want >= mostStanding; want /= 2 {
				now = (now + max(c.Sync().Due.In(now), dueUnit)) >> dueShift << dueShift // as soon as it is due
				c.Review(now)
				must.EqualOrEnd(t, c.Leased(), want, "each %d ns: leased", rate)
				must.EqualOrEnd(t, c.Claim(now), true, "it is not claimed")
				c.Settle(0, c.Sync().Claimed, now, &window.Totals{Newest: uint64(now / (3600 * second)), Hits: []uint64{want}})
				// At the same time it has only come.
				if c.sync.Due = DueAt(now); !c.Review(now) || c.Leased() != want {
					t.Fatalf("each %d ns: %d are leased, and it is reviewed again", rate, c.Leased())
				}
			}
		}
	}
}

// A lease keeps twice the hits that were used in the last interval, or more if the pace was higher
// before. The pace becomes the mean of both, rounded up, and falls by halves if nothing is used.
func TestReviewKeepsThePace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ granted, leased, pace, kept, wantPace uint64 }{
		{130, 100, 40, 60, 50}, {130, 100, 41, 60, 51}, {130, 100, 100, 80, 80}, {110, 100, 200, 100, 110},
		{100, 100, 40, 20, 20}, {100, 100, 41, 20, 20}, {100, 100, 10, 8, 5}, {100, 100, 0, 8, 0},
		{101, 100, 0, 8, 1}, {101, 100, 1, 8, 2}, {9, 8, 0, 8, 1}, {4, 3, 0, 3, 1}, {2, 1, 0, 1, 1}, {3, 1, 0, 1, 2},
	} {
		c := has(t, shared(2, interval, perHour(1000)), start, Lease{Since: DueAt(start) - 1000, Granted: test.granted, Pace: test.pace, Dry: DueAt(start) + 50},
			window.Hits{Total: test.granted, Lease: test.leased})
		c.sync.Due = DueAt(start)
		must.Equal(t, c.Review(start), true, "%+v: nobody reviews it again", test)
		if c.Leased() != test.kept || c.lease.Granted != test.kept || c.lease.Pace != test.wantPace || (c.lease.Since == DueAt(start)) != (test.granted > test.leased) {
			t.Errorf("%+v: %d of %d are leased, at a pace of %d", test, c.Leased(), c.lease.Granted, c.lease.Pace)
		}
		// If something goes back, there is something to have again.
		if dry := c.dryFor(start) > 0; dry != (test.kept == test.leased) || dry != !c.Pending() {
			t.Errorf("%+v: dry %v, pending %v", test, dry, c.Pending())
		}
		must.Equal(t, c.Sync().Due.In(start), interval, "%+v: the next review is in", test)
	}
	const longAgo = 1<<52 - 10*dueUnit // a due time of 0 is soon, then
	c := has(t, shared(2, interval, perHour(1000)), longAgo, Lease{Since: DueAt(longAgo) - 1000, Granted: 100, Dry: DueAt(longAgo) + 50}, window.Hits{Total: 100, Lease: 100})
	c.sync.Due = DueAt(longAgo)
	if c.Review(longAgo); c.Leased() == 100 || c.dryFor(longAgo) != 0 {
		t.Errorf("%d are leased, dry for %d units", c.Leased(), c.dryFor(longAgo)/dueUnit)
	}
}

// A few hits stand for as long as one of them is used each 16 seconds, or each four intervals; no
// longer, to the unit.
func TestHitsStand(t *testing.T) {
	t.Parallel()
	const long = 5000 * dueUnit // an interval longer than standingPause
	for age, want := range map[int64]bool{4*long - dueUnit: true, 4 * long: false, 4*long + dueUnit: false} {
		c := has(t, shared(2, long, perHour(1000)), start, Lease{Since: DueAt(start - age), Granted: 8}, window.Hits{Total: 8, Lease: 8})
		c.sync.Due = DueAt(start)
		must.Equal(t, c.Review(start), want, "after %d units: reviewed again", age/dueUnit)
		must.Equal(t, c.Leased() > 0, want, "after %d units: some stand", age/dueUnit)
	}
	c := has(t, shared(2, second, perHour(1000)), monday, Lease{Since: DueAt(monday), Granted: 8}, window.Hits{Total: 8, Lease: 8})
	c.Own(false, monday)
	for now := monday + second/2; now < monday+5*15*second; now += second / 2 {
		if now%(15*second) == 0 {
			c.Count(1)
		}
		if c.Sync().Due.In(now) <= 0 && !c.Review(now) {
			t.Fatalf("none is left after %d s", (now-monday)/second)
		}
	}
	must.Equal(t, c.Leased(), 8-4, "are left of 8, and 4 were used")
}

// A lease that ends before an interval is looked at when it has ended.
func TestReviewAtTheEnd(t *testing.T) {
	t.Parallel()
	const width = 64 * interval
	const begin = start / width * width
	for _, kind := range []window.Kind{window.FixedWindow, window.FirstHitWindow, window.SlidingWindow, window.TokenBucket} {
		for left, want := range map[int64]int64{10_000 * dueUnit: 1000, 1000 * dueUnit: 1000, 999 * dueUnit: 1000, 998 * dueUnit: 999, 20 * dueUnit: 21} {
			if kind == window.TokenBucket {
				want = 1000 // it has no end
			}
			now := begin + width - left
			c := has(t, shared(2, interval, window.Limit{Shape: shape(kind, width), Max: 1000, Burst: 1000}), now, Lease{Since: DueAt(now) - 2000, Granted: 100, Pace: 50}, window.Hits{Total: 50, Lease: 50})
			c.States[0].Start, c.sync.Due = begin, DueAt(now)
			c.Review(now)
			must.Equal(t, c.Sync().Due.In(now), want*dueUnit, "kind %d, %d units before the end: reviewed in", kind, left/dueUnit)
		}
	}
}

// A worker that has changed a counter comes back to it if nobody else does: at once to push what is
// pending, and after an interval to review a lease.
func TestOwn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		wasPending bool
		hits       window.Hits
		want       bool
		in         int64 // in units
	}{
		{"nothing", false, window.Hits{Total: 5}, false, 7},
		{"another worker's", true, window.Hits{Total: 5, Pending: 2, Lease: 1}, false, 7},
		{"something to push", false, window.Hits{Total: 5, Pending: -2}, true, 0},
		{"and a lease", false, window.Hits{Total: 5, Pending: -2, Lease: 1}, true, 0},
		{"a lease", false, window.Hits{Total: 5, Lease: 5}, true, 1001},
		{"of a hit", false, window.Hits{Total: 5, Lease: 1}, true, 1001},
	} {
		for _, now := range []int64{start, start + 1, start + dueUnit - 1} {
			c := has(t, shared(2, interval, perHour(1000)), now, Lease{}, test.hits)
			c.sync.Due = DueAt(now) + 7
			must.Equal(t, c.Own(test.wasPending, now), test.want, "%s: own", test.name)
			must.Equal(t, c.Sync().Due.In(now), test.in*dueUnit, "%s: due in", test.name)
		}
	}
}
