package counter

import (
	"bytes"
	"math"
	"slices"
	"testing"

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
		c.Grant(i, hits, now, now, &window.Totals{Newest: number, Hits: []uint64{c.States[i].Hits[0].Total + hits, 0}})
	}
	c.Granted(hits, hits, false, now, 0.5)
	c.Heard(now)
}

func shared(nodes uint64, rate int64, limits ...window.Limit) *Rule {
	r := &Rule{Limits: limits, SyncRate: rate}
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
	if got := c.Verdict(1, monday); got != Unsure {
		t.Errorf("with nothing leased: got %v", got)
	}
	if got := c.Verdict(1001, monday); got != Rejected {
		t.Errorf("a cost above a limit: got %v", got)
	}
	if got := c.Verdict(0, monday); got != Allowed {
		t.Errorf("a cost of 0: got %v", got)
	}
}

// A lease that is not used goes back when it is due, not because the key is due for something else;
// one that is used stays.
func TestReview(t *testing.T) {
	t.Parallel()
	rule := shared(2, second, perMinute(1000))
	review := rule.SyncRate
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
	if in := c.Sync().Due.In(monday); in <= 0 || in > review+2*dueUnit {
		t.Errorf("it is reviewed in %d ns", in)
	}
	now := monday + review + 2*dueUnit
	if c.Count(40); !c.Review(now) || c.Leased() != 59 || c.Pending() {
		t.Errorf("a lease that was used: %d are left", c.Leased())
	}
	// What nobody uses goes back by halves, as a client may only pause. A few hits stand: they are
	// looked at less and less often, and go back together.
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
	if want := []int64{1, 1, 2, 4, 4, 4}; !slices.Equal(pauses, want) {
		t.Errorf("it was looked at after %v s, want %v", pauses, want)
	}
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

// What one limit has leased and others have not is of no use.
func TestUnevenLeases(t *testing.T) {
	t.Parallel()
	rule := shared(2, second, perMinute(1000), perHour(1000))
	c := leased(t, rule, 50)
	c.Advance(monday + minute) // the lease of the minute ends
	if c.Leased() != 0 || c.lease.Granted != 0 {
		t.Errorf("leased %d of %d", c.Leased(), c.lease.Granted)
	}
	if again := c.Review(monday + minute); again || !c.Pending() {
		t.Error("the hour's lease is kept for ever")
	}
}

// A backend that gave less than requests have asked for is not asked again for a while, and longer
// each time; nor for ever, however wrong the clock was. What it does not lease ahead says nothing.
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
			c.Granted(0, 10, false, monday, 0.99)
			if limit.Max != 0 && c.dryFor(monday) <= 0 {
				t.Errorf("%d nodes, %+v: not dry after a refusal", nodes, limit)
			}
			if in := c.dryFor(monday); in > 2*rule.longest() {
				t.Errorf("%d nodes, %+v: dry for %d ns", nodes, limit, in)
			}
			for _, now := range []int64{monday - 3600*second, monday + 3*rule.longest()} {
				if c.dryFor(now) != 0 {
					t.Errorf("%d nodes, %+v: dry %d s from then", nodes, limit, (now-monday)/second)
				}
			}
		}
	}
	rule := shared(2, second, perHour(1000))
	c := leased(t, rule, 1)
	c.Count(1000)
	c.Granted(1, 300, true, monday, 0.5)
	if c.dryFor(monday) != 0 {
		t.Error("dry though requests have got what they have asked for")
	}
	now, last := monday, int64(0)
	for refusal := range maxRefused + 2 {
		c.Advance(now)
		c.Granted(0, 1, false, now, 0.5)
		in := c.dryFor(now)
		if in < last || refusal < 2 && in <= last || in > rule.longest()+2*dueUnit {
			t.Errorf("refusal %d: dry for %d ns, and before for %d", refusal, in, last)
		}
		if doubts := c.Doubtful(now); doubts != (refusal < doubtful) {
			t.Errorf("refusal %d: doubtful %v", refusal, doubts)
		}
		// Other workers have asked before they could know.
		before := c.lease
		if c.Granted(0, 1, false, now, 0.9); c.lease != before {
			t.Errorf("refusal %d: another one of the same moment makes %+v of %+v", refusal, c.lease, before)
		}
		now, last = now+in, in
	}
	if grant(c, 1, now); c.lease.Refused != 0 {
		t.Error("refusals before a grant still count")
	}
}

// What is known to have room is asked for, whatever was refused before; unless hits come back so
// fast that there would be a question for each.
func TestRoomAfterRefusal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit window.Limit
		back  int64 // when a hit is back
		want  Verdict
	}{
		{perMinute(1000), minute, Unsure},
		{window.Limit{Shape: shape(window.TokenBucket, minute), Max: 1000, Burst: 1000}, 60_000_000, Unsure},
		{window.Limit{Shape: shape(window.TokenBucket, minute), Max: 10_000, Burst: 10_000}, 6_000_000, Rejected},
	} {
		rule := shared(2, second, test.limit)
		c := leased(t, rule, test.limit.Quota())
		c.Count(test.limit.Quota())
		c.Granted(0, 1, false, monday, 0.5)
		if got := c.Verdict(1, monday); got != Rejected {
			t.Errorf("%+v: %v right after a refusal", test.limit, got)
		}
		now := monday + test.back
		if c.Advance(now); c.Verdict(1, now) != test.want {
			t.Errorf("%+v: %v when a hit is back, want %v", test.limit, c.Verdict(1, now), test.want)
		}
		// Others have given some back.
		c.Advance(monday)
		c.Learn(0, monday+second, &window.Totals{Newest: test.limit.Number(&c.States[0]), Hits: []uint64{10, 0}})
		if c.Verdict(1, monday) != test.want {
			t.Errorf("%+v: %v when others have given hits back, want %v", test.limit, c.Verdict(1, monday), test.want)
		}
	}
}

// Nothing is leased ahead of what is hit once, or of small limits; of the others a node's part of
// what is left, less what it has.
func TestAhead(t *testing.T) {
	t.Parallel()
	rule := shared(10, second, perMinute(1000))
	c := leased(t, rule, 1)
	c.Count(1)
	c.Advance(monday + 10*second)
	if got := c.Ahead(monday + 10*second); got != mostStanding {
		t.Errorf("a key that is hit each ten seconds: %d ahead, want %d", got, mostStanding)
	}
	if got := load(t, rule, nil).Ahead(monday); got != 0 {
		t.Errorf("a key that nothing is known of: %d ahead", got)
	}
	c = leased(t, rule, 40)
	c.Count(40)
	if got := c.Ahead(monday + second); got != 48 {
		t.Errorf("a key that is hit 40 times a second: %d ahead, want a twentieth of 960", got)
	}
	c = leased(t, rule, 40)
	c.Count(30)
	if got := c.Ahead(monday + second); got != 38 {
		t.Errorf("with 10 leased: %d ahead, want a twentieth of 970 less 10", got)
	}
	c = leased(t, shared(2, second, perMinute(100)), 40)
	c.Count(40)
	if got := c.Ahead(monday + second); got != 0 {
		t.Errorf("a small limit: %d ahead", got)
	}
}

// Of a rule that has a small limit nothing is leased ahead. Where the backend had less than was
// asked for, the key is full, and nobody asks before a hit comes back.
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
		if got := c.Ahead(monday+second) > 0; got != test.leases || test.rule.Leases() != test.leases {
			t.Errorf("rule %d: leases %v, want %v", i, got, test.leases)
		}
	}
	c := leased(t, small, 100)
	c.Count(100)
	c.Granted(0, 1, false, monday+second, 0)
	ends := minute - (monday+second)%minute
	if in := c.dryFor(monday + second); in <= 0 || in > min(ends, small.horizon())+2*dueUnit {
		t.Errorf("asks again after %d ns", in)
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
							c.Grant(i, units, now, now, &window.Totals{Newest: hits, Hits: []uint64{hits, units}, Ages: []uint64{0, 1}})
						}
						c.Granted(units, most, what%2 == 0, now, 0.999)
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
					c.Trim(now)
					c.Own(false, now)
					if in := c.DryUntil(now) - now; in < 0 || in > 2*rule.longest() {
						t.Fatalf("dry for %d", in)
					}
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
