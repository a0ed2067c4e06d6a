package counter

import (
	"bytes"
	"testing"

	"weir/window"
)

const (
	second = int64(1e9)
	minute = 60 * second
	monday = 1_767_571_200 * second
)

func shape(kind window.Kind, width int64) window.Shape { return window.Shape{Kind: kind, Width: width} }

func perMinute(limit uint64) window.Limit {
	return window.Limit{Shape: shape(window.SlidingWindow, minute), Max: limit}
}

func perHour(limit uint64) window.Limit {
	return window.Limit{Shape: shape(window.FixedWindow, 60*minute), Max: limit}
}

func load(t *testing.T, rule *Rule, payload []byte) *Counter {
	t.Helper()
	c := &Counter{}
	if !c.Load(rule, payload) {
		t.Fatalf("%x does not decode", payload)
	}
	return c
}

func sums(c *Counter) []uint64 {
	var out []uint64
	for i := range c.States {
		out = append(out, c.States[i].Hits[0].Sum())
	}
	return out
}

func equal(a []uint64, b ...uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestAllLimitsOrNone(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(3)}}
	c := load(t, rule, nil)
	c.Advance(monday)
	for range 3 {
		if !c.Allows(1) {
			t.Fatal("refused within both limits")
		}
		c.Count(1)
		c = load(t, rule, c.Append(nil, monday))
		c.Advance(monday)
	}
	if c.Allows(1) || !equal(sums(c), 3, 3) {
		t.Errorf("above one limit: allowed %v, counted %v", c.Allows(1), sums(c))
	}
	c.GiveBack(c.Numbers(nil), 2)
	if !c.Allows(2) || c.Allows(3) || !equal(sums(c), 1, 1) {
		t.Errorf("after giving back: counted %v", sums(c))
	}
}

// Hits go back into the window that they came from, also when that has become the previous one; of
// an older one there is nothing to give back.
func TestGiveBackIntoTheWindowOfTheHit(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}}
	for _, test := range []struct{ later, current, previous int64 }{{0, 4, 0}, {minute, 2, 4}, {2 * minute, 2, 0}} {
		c := load(t, rule, nil)
		c.Advance(monday)
		c.Count(5)
		numbers := c.Numbers(nil)
		c.Advance(monday + test.later)
		if test.later > 0 {
			c.Count(2)
		}
		c.GiveBack(numbers, 1)
		h := c.States[0].Hits
		if int64(h[0].Sum()) != test.current || int64(h[1].Sum()) != test.previous {
			t.Errorf("given back after %d s: got %+v", test.later/second, h)
		}
	}
}

// A counter survives a configuration that changes its limits: of those that stay in shape it keeps
// the hits.
func TestChangedLimits(t *testing.T) {
	t.Parallel()
	before := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}}
	c := load(t, before, nil)
	c.Advance(monday)
	c.Count(7)
	payload := c.Append(nil, monday)

	after := &Rule{Limits: []window.Limit{perHour(5), {Shape: shape(window.FixedWindow, second), Max: 9}}}
	c = load(t, after, payload)
	c.Advance(monday + second)
	if !equal(sums(c), 7, 0) {
		t.Errorf("reordered and changed: counted %v", sums(c))
	}
	c.Count(1)
	// What this configuration does not have is carried along for the one that has it, until it
	// tells nothing any more.
	payload = c.Append(nil, monday+second)
	if c = load(t, before, payload); !equal(sums(c), 7, 8) {
		t.Errorf("back in the first configuration: counted %v", sums(c))
	}
	c = load(t, after, payload)
	c.Advance(monday + 2*minute)
	if c = load(t, before, c.Append(nil, monday+2*minute)); !equal(sums(c), 0, 8) {
		t.Errorf("after the window has passed: counted %v", sums(c))
	}
}

func TestForgetAndUse(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}}
	c := load(t, rule, nil)
	c.Advance(monday + second)
	c.Count(5)
	if got := c.ForgetAt(); got != monday+60*minute {
		t.Errorf("forget after %d s", (got-monday)/second)
	}
	_, light := c.Worth()
	c.Count(1)
	if _, heavy := c.Worth(); heavy <= light {
		t.Errorf("a use of 6 ranks %d, one of 5 %d", heavy, light)
	}
	huge := load(t, &Rule{Limits: []window.Limit{perMinute(1e9)}}, nil)
	huge.Advance(monday)
	huge.Count(1)
	_, one := huge.Worth()
	huge.Count(1)
	if _, two := huge.Worth(); two <= one || two >= light {
		t.Errorf("of a large limit one hit ranks %d and two %d", one, two)
	}
}

func TestClaimAndSettle(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}, SyncRate: second}
	c := load(t, rule, nil)
	c.Advance(monday)
	if c.Identified() {
		t.Error("a new counter has an identity")
	}
	c.Identify([16]byte{1})
	if !c.Adopt(monday, true) || !c.Sync().Due.Passed(monday, second) {
		t.Errorf("the first hit's worker does not push at once, but in %d ns", c.Sync().Due.In(monday))
	}
	c.Count(3)
	c = load(t, rule, c.Append(nil, monday))
	if c.Adopt(monday+second, true) {
		t.Error("two workers want to push")
	}
	if c.Adopt(monday+10*second, false) {
		t.Error("while the backend is away a key changes hands")
	}
	if !c.Adopt(monday+10*second, true) {
		t.Error("nobody adopts a key whose worker has gone")
	}
	if !c.Adopt(monday-3600*second, true) {
		t.Error("nobody adopts a key that is due in an hour, as the clock went back")
	}
	var push window.Push
	number := uint64(monday / minute)
	if !c.Claim(monday) {
		t.Fatal("not claimed")
	}
	first := c.Sync().Claimed
	if c.Outgoing(0, &push); push.Newest != number || len(push.Hits) != 2 || push.Hits[0] != 3 || c.Sync().Due != DueAt(monday+second) {
		t.Fatalf("claimed %+v, due in %d", push, c.Sync().Due.In(monday))
	}
	if c = load(t, rule, c.Append(nil, monday)); c.Pending() || c.Sync().ID != [16]byte{1} {
		t.Errorf("after a claim: pending %v, identity %x", c.Pending(), c.Sync().ID)
	}
	if !c.Adopt(monday+1, true) {
		t.Error("nobody pushes the hit after a claim")
	}
	c.Count(2)
	if c.Claim(monday + second) {
		t.Error("claimed while a push is out")
	}
	c.Settle(0, first, monday+second, &window.Totals{Newest: number, Hits: []uint64{8, 1}})
	if got := c.States[0].Hits; got != [2]window.Hits{{Total: 8, Diff: 2}, {Total: 1}} {
		t.Errorf("settled: got %+v", got)
	}
	// An answer that never comes does not stop the key for ever; if it comes after all, nothing is
	// counted twice.
	c.Claim(monday + 2*second)
	lost := c.Sync().Claimed
	c.Count(1)
	if !c.Claim(monday + 70*second) {
		t.Error("a push without an answer stops the key")
	}
	c.Settle(0, lost, monday+2*second, &window.Totals{Newest: number, Hits: []uint64{10, 1}})
	if got := c.States[0].Hits[0]; got != (window.Hits{Total: 10, Flight: 1}) {
		t.Errorf("settled late: got %+v", got)
	}
	c.Settle(0, c.Sync().Claimed, monday+71*second, &window.Totals{Newest: number, Hits: []uint64{11, 1}})
	if got := c.States[0].Hits; got != [2]window.Hits{{Total: 11}, {Total: 1}} {
		t.Errorf("settled: got %+v", got)
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * second
	for _, test := range []struct {
		in   int64
		want bool
	}{{0, true}, {-second, true}, {2 * second / 1000, false}, {second, false}, {59 * second, false}, {3600 * second, true}, {-20 * day, true}, {-40 * day, true}} {
		if got := DueAt(monday+test.in).Passed(monday, second); got != test.want {
			t.Errorf("due in %d ns: passed %v", test.in, got)
		}
	}
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}, SyncRate: second}
	c := load(t, rule, nil)
	c.Advance(monday)
	c.Identify([16]byte{9})
	c.Count(4)
	visited := 0
	Orphans(c.Append(nil, monday), func(id [16]byte, l *window.Limit, p *window.Push, ends int64) {
		if id != [16]byte{9} || p.Hits[0] != 4 || l.Shape != rule.Limits[visited].Shape || p.Newest != l.Number(&c.States[visited]) || ends <= monday {
			t.Errorf("got %x %+v %+v", id, l, p)
		}
		visited++
	})
	if visited != 2 {
		t.Errorf("got %d orphans, want 2", visited)
	}
	Orphans(load(t, &Rule{Limits: rule.Limits}, nil).Append(nil, monday), func([16]byte, *window.Limit, *window.Push, int64) {
		t.Error("an entry without a backend has something for it")
	})
}

// Whatever an entry holds, it is either understood, and then written again as it was meant, or
// counts as never seen.
func FuzzCounter(f *testing.F) {
	rules := []*Rule{
		{Limits: []window.Limit{perMinute(10), perHour(100)}, SyncRate: second},
		{Limits: []window.Limit{
			{Shape: shape(window.FirstHitWindow, minute), Max: 5}, {Shape: shape(window.TokenBucket, minute), Max: 5, Burst: 9},
			{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, Max: 5},
			{Shape: window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: 10 * second}, Max: 5},
		}},
	}
	for _, rule := range rules {
		c := &Counter{}
		c.Load(rule, nil)
		c.Advance(monday)
		c.Count(4)
		f.Add(c.Append(nil, monday), monday)
		f.Add(c.Append(nil, monday)[:10], int64(-1))
	}
	f.Add([]byte{}, int64(0))
	compiled := make([]Rule, len(rules))
	for i := range rules {
		compiled[i] = *rules[i]
		compiled[i].Compile()
	}
	f.Fuzz(func(t *testing.T, payload []byte, now int64) {
		for i, rule := range rules {
			c, again, used := &Counter{}, &Counter{}, &Counter{}
			valid := c.Load(rule, payload)
			written := c.Append(nil, 0)
			used.Load(&compiled[i], nil)
			if got := used.Load(&compiled[i], payload); got != valid || !bytes.Equal(used.Append(nil, 0), written) {
				t.Fatalf("%x becomes %x, and the short way %x, %v", payload, written, used.Append(nil, 0), got)
			}
			if !valid && !equal(sums(c), make([]uint64, len(c.States))...) {
				t.Fatalf("%x is not valid, but counts %v", payload, sums(c))
			}
			if !again.Load(rule, written) || valid && !bytes.Equal(again.Append(nil, 0), written) {
				t.Fatalf("%x became %x, and then %x", payload, written, again.Append(nil, 0))
			}
			c.Advance(now)
			c.Count(1)
			c.GiveBack(c.Numbers(nil), 1)
			c.Claim(now)
			var push window.Push
			for i := range c.States {
				c.Outgoing(i, &push)
				c.Settle(i, c.Sync().Claimed, now, &window.Totals{Newest: push.Newest, Hits: []uint64{3, 5}, Ages: []uint64{1, 4}})
			}
			if c.ForgetAt() < 0 || len(c.Append(nil, now)) > rule.MaxSize()+maxOthers*3000 {
				t.Fatalf("%x: forget at %d, %d bytes", payload, c.ForgetAt(), len(c.Append(nil, now)))
			}
		}
		Orphans(payload, func([16]byte, *window.Limit, *window.Push, int64) {})
	})
}

// Hits are only counted in place where nothing else has to be known, and then as they are
// elsewhere.
func TestCountInPlace(t *testing.T) {
	t.Parallel()
	one, two := []window.Limit{perMinute(10)}, []window.Limit{perMinute(10), perHour(7)}
	firstHit := window.Limit{Shape: shape(window.FirstHitWindow, minute), Max: 10}
	for name, test := range map[string]struct {
		rule      *Rule
		revocable bool
		want      bool
	}{
		"one limit":           {&Rule{Limits: one}, false, true},
		"one, revocable":      {&Rule{Limits: one}, true, true},
		"two limits":          {&Rule{Limits: two}, false, true},
		"two, revocable":      {&Rule{Limits: two}, true, true},
		"synchronised":        {&Rule{Limits: one, SyncRate: second}, false, false},
		"another kind":        {&Rule{Limits: []window.Limit{firstHit}}, false, false},
		"another kind behind": {&Rule{Limits: []window.Limit{perMinute(10), firstHit}}, false, false},
		"another, revocable":  {&Rule{Limits: []window.Limit{perMinute(10), firstHit}}, true, false},
	} {
		test.rule.Compile()
		c, want := load(t, test.rule, nil), &Counter{}
		c.Advance(monday)
		c.Count(2)
		payload := c.Append(nil, monday)
		unchanged := func(payload []byte, rule *Rule, cost uint64, what string) {
			before := bytes.Clone(payload)
			if c.CountInPlace(rule, payload, monday+second, cost, test.revocable) || !bytes.Equal(payload, before) {
				t.Errorf("%s: counted in %x %s, which is %x now", name, before, what, payload)
			}
		}
		for flags := range 256 {
			if flags&^revocableFlag != 0 || !test.want {
				unchanged(append([]byte{byte(flags)}, payload[1:]...), test.rule, 3, "of other flags")
			}
		}
		unchanged(append(bytes.Clone(payload), payload[1:]...), test.rule, 3, "with more limits")
		unchanged(payload[:len(payload)-1], test.rule, 3, "that ends early")
		unchanged(nil, test.rule, 3, "that isn't there")
		unchanged(payload, &Rule{Limits: test.rule.Limits}, 3, "of another rule")
		if len(test.rule.Limits) == 2 {
			unchanged(payload, test.rule, 6, "without room in the second limit")
		}
		unchanged(payload, test.rule, 9, "without room")
		if !test.want {
			continue
		}
		for _, flags := range []byte{0, revocableFlag} {
			payload := append([]byte{flags}, payload[1:]...)
			before := bytes.Clone(payload)
			if !c.CountInPlace(test.rule, payload, monday+second, 3, test.revocable) {
				t.Errorf("%s: not counted", name)
			}
			want.Load(test.rule, before)
			want.Advance(monday + second)
			if test.revocable {
				want.CountRevocable(3)
			} else {
				want.Count(3)
			}
			if encoded := want.Append(nil, monday+second); !bytes.Equal(payload, encoded) || !equal(sums(c), sums(want)...) {
				t.Errorf("%s: got %x and %v, want %x", name, payload, sums(c), encoded)
			}
			if revocable := test.revocable || flags != 0; c.Revocable() != revocable || load(t, test.rule, payload).Revocable() != revocable {
				t.Errorf("%s: revocable is %v after flags %x", name, c.Revocable(), flags)
			}
			c.GiveBack(c.Numbers(nil), 3)
			if again := load(t, test.rule, before); !equal(sums(c), sums(again)...) {
				t.Errorf("%s: given back to %v, want %v", name, sums(c), sums(again))
			}
		}
	}
}

// A counter keeps nothing of the entry that it had before.
func TestCounterIsUsedAgain(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}}
	rule.Compile()
	synced := &Rule{Limits: rule.Limits, SyncRate: second}
	plain := load(t, rule, nil).Append(nil, monday)
	leased := load(t, synced, nil)
	leased.Identify([16]byte{1})
	leased.lease = Lease{Granted: 7, Since: 1}

	c := load(t, rule, leased.Append(nil, monday)) // by a configuration that does not synchronise any more
	if !c.Load(rule, plain) || !bytes.Equal(c.Append(nil, monday), plain) || !c.lease.none() {
		t.Errorf("got %x and %+v, want %x", c.Append(nil, monday), c.lease, plain)
	}
	c.Load(rule, leased.Append(nil, monday))
	c.States[0].Newest = monday
	hit := load(t, rule, nil)
	hit.Advance(monday)
	hit.Count(1)
	if payload := hit.Append(nil, monday); !c.CountInPlace(rule, payload, monday, 1, false) || c.synced || !c.lease.none() {
		t.Errorf("counted in %x: synced %v, %+v", payload, c.synced, c.lease)
	}
}

// An entry that claims to be of a configuration that does not synchronise, but has states of one
// that does, is synchronised by a rule that does, and tells nothing of the entry before.
func TestUnsyncedEntryOfSyncedStates(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}, SyncRate: second}
	rule.Compile()
	c := load(t, rule, nil)
	c.Identify([16]byte{1})
	c.Advance(monday)
	c.Count(1)
	other := append([]byte{0}, c.Append(nil, monday)[1+syncSize:]...)
	if !c.Load(rule, other) || !c.synced || c.Sync() != (Sync{}) {
		t.Errorf("synced %v, %+v", c.synced, c.Sync())
	}
}
