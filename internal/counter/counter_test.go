package counter

import (
	"bytes"
	"slices"
	"testing"

	"weir/internal/must"
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
	must.EqualOrEnd(t, c.Load(rule, payload), true, "%x does not decode", payload)
	return c
}

func sums(c *Counter) []uint64 {
	var out []uint64
	for i := range c.States {
		out = append(out, c.States[i].Hits[0].Sum())
	}
	return out
}

func TestAllLimitsOrNone(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(3)}}
	c := load(t, rule, nil)
	c.Advance(monday)
	for _, test := range []struct {
		cost uint64
		want bool
	}{{0, true}, {3, true}, {4, false}, {10, false}, {11, false}} {
		must.Equal(t, c.Possible(test.cost), test.want, "a cost of %d is possible", test.cost)
	}
	for range 3 {
		must.EqualOrEnd(t, c.Allows(1), true, "refused within both limits")
		c.Count(1)
		c = load(t, rule, c.Append(nil, monday))
		c.Advance(monday)
	}
	must.Equal(t, c.Allows(1), false, "above one limit: allowed")
	must.Same(t, sums(c), []uint64{3, 3}, "above one limit: counted")
	c.GiveBack(c.Numbers(nil), 2)
	if !c.Allows(2) || c.Allows(3) || !slices.Equal(sums(c), []uint64{1, 1}) {
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
		must.Equal(t, int64(h[0].Sum()), test.current, "given back after %d s: of the present window", test.later/second)
		must.Equal(t, int64(h[1].Sum()), test.previous, "given back after %d s: of the previous window", test.later/second)
	}
}

// A counter survives a configuration that changes its limits: of those that stay in shape it keeps
// the hits.
func TestChangedLimits(t *testing.T) {
	t.Parallel()
	for _, compiled := range []bool{false, true} {
		before := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}}
		after := &Rule{Limits: []window.Limit{perHour(5), {Shape: shape(window.FixedWindow, second), Max: 9}}}
		if compiled {
			before.Compile()
			after.Compile()
		}
		c := load(t, before, nil)
		c.Advance(monday)
		c.Count(7)
		payload := c.Append(nil, monday)

		c = load(t, after, payload)
		c.Advance(monday + second)
		must.Same(t, sums(c), []uint64{7, 0}, "reordered and changed: counted")
		c.Count(1)
		// Limits that this configuration does not have are carried along for the configuration that
		// has them, by a counter that has had the entry before too, until it tells nothing any
		// more.
		payload = c.Append(nil, monday+second)
		if !c.Load(after, payload) || !bytes.Equal(c.Append(nil, monday+second), payload) {
			t.Errorf("read and written again, %x is %x", payload, c.Append(nil, monday+second))
		}
		c = load(t, before, payload)
		must.Same(t, sums(c), []uint64{7, 8}, "back in the first configuration: counted")
		c = load(t, after, payload)
		c.Advance(monday + 2*minute)
		c = load(t, before, c.Append(nil, monday+2*minute))
		must.Same(t, sums(c), []uint64{0, 8}, "after the window has passed: counted")
	}
}

// An entry carries the states of so many other limits along, and is worth something until the last
// of them tells nothing.
func TestOtherLimitsAreBounded(t *testing.T) {
	t.Parallel()
	var many []window.Limit
	for i := range int64(maxOthers) + 2 {
		many = append(many, window.Limit{Shape: shape(window.FixedWindow, (i+1)*minute), Max: 9})
	}
	c := load(t, &Rule{Limits: many}, nil)
	c.Advance(monday)
	c.Count(3)
	one := &Rule{Limits: many[:1]}
	c = load(t, one, c.Append(nil, monday))
	must.AtLeast(t, c.ForgetAt(), monday+int64(len(many))*minute, "forgotten at")
	c = load(t, &Rule{Limits: many}, c.Append(nil, monday))
	for i, got := range sums(c) {
		want := uint64(0)
		if i <= maxOthers {
			want = 3
		}
		must.Equal(t, got, want, "limit %d: counted", i)
	}
}

// An entry that ends early, or has flags that nobody writes, is that of a key that was never seen.
func TestEntriesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}, Interval: second}
	rule.Compile()
	c := load(t, rule, nil)
	c.Advance(monday)
	c.Identify([16]byte{1})
	c.Count(4)
	var payload []byte
	for _, lease := range []Lease{{}, {Granted: 300, Since: 7}} {
		c.lease = lease
		payload = c.Append(nil, monday)
		var whole []int // lengths of entries that have no state, or that of one limit
		for i, rest := 1, len(payload); i >= 0; i-- {
			rest -= len(window.AppendState(nil, &rule.Limits[i], &c.States[i], true))
			whole = append(whole, rest)
		}
		read := load(t, rule, nil)
		for n := range payload {
			got, want := read.Load(rule, payload[:n:n]), slices.Contains(whole, n)
			if got != want || !want && (read.Pending() || !read.lease.none() || read.Sync() != (Sync{})) {
				t.Errorf("%d bytes of %d: valid %v, pending %v, %+v, %+v", n, len(payload), got, read.Pending(), read.lease, read.Sync())
			}
		}
	}
	for bit := range 8 {
		flags := append([]byte{payload[0] | 1<<bit}, payload[1:]...)
		must.Equal(t, c.Load(rule, flags), 1<<bit <= knownFlags, "flags %x: valid", flags[0])
	}
	must.Equal(t, c.Load(rule, nil), true, "a key that was never seen is read from no entry")
	must.Equal(t, c.Load(rule, []byte{}), false, "it is read from an empty one")
}

func TestForgetAndUse(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10), perHour(100)}}
	c := load(t, rule, nil)
	c.Advance(monday + second)
	c.Count(5)
	must.Equal(t, c.ForgetAt(), monday+60*minute, "forgotten at")
	_, light := c.Worth()
	// 0x3f80 is a full limit. Half of that is 1 less in its exponent.
	must.Equal(t, light, 0x3f00, "rank of half a limit")
	c.Count(1)
	if _, heavy := c.Worth(); heavy <= light {
		t.Errorf("a use of 6 ranks %d, one of 5 %d", heavy, light)
	}
	c.Count(4)
	_, full := c.Worth()
	c.Count(20)
	if _, above := c.Worth(); full != 0x3f80 || above != full {
		t.Errorf("a full limit ranks %x, and one that is exceeded %x", full, above)
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

// Whatever an entry holds, it is either understood, and then written again as it was meant, or
// counts as never seen.
func FuzzCounter(f *testing.F) {
	rules := []*Rule{
		{Limits: []window.Limit{perMinute(10), perHour(100)}, Interval: second},
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
			if !valid && !slices.Equal(sums(c), make([]uint64, len(c.States))) {
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
			most := 1 + syncSize + leaseSize + maxOthers*3000
			for i := range rule.Limits {
				most += window.MaxStateSize(&rule.Limits[i], rule.Synced())
			}
			if c.ForgetAt() < 0 || len(c.Append(nil, now)) > most {
				t.Fatalf("%x: forget at %d, %d bytes", payload, c.ForgetAt(), len(c.Append(nil, now)))
			}
		}
		Orphans(payload, func([16]byte, *window.Limit, *window.Push, int64) {})
	})
}

// The entries that nearly all requests find are read the short way, and others never are.
func TestShortWay(t *testing.T) {
	t.Parallel()
	one, two := []window.Limit{perMinute(10)}, []window.Limit{perMinute(10), perHour(7)}
	for name, rule := range map[string]*Rule{
		"one limit":    {Limits: one},
		"two limits":   {Limits: two},
		"revocable":    {Limits: two},
		"synchronised": {Limits: two, Interval: 1},
		"leased":       {Limits: two, Interval: second},
	} {
		rule.Compile()
		c := load(t, rule, nil)
		c.Advance(monday)
		switch c.Count(2); name {
		case "leased":
			c.lease = Lease{Granted: 7, Since: 1}
		case "revocable":
			c.CountRevocable(1)
		}
		payload := c.Append(nil, monday)
		if synced := payload[0]&syncedFlag != 0; synced != (rule.Interval > 0) || synced != rule.Synced() {
			t.Errorf("%s: synchronised %v", name, synced)
		}
		if read := load(t, rule, nil); !read.loadOwn(rule, payload) || !bytes.Equal(read.Append(nil, monday), payload) {
			t.Errorf("%s: %x is read as %x", name, payload, read.Append(nil, monday))
		}
		last := window.AppendState(nil, &rule.Limits[len(rule.Limits)-1], &c.States[len(rule.Limits)-1], rule.Synced())
		first := window.AppendState(nil, &rule.Limits[0], &c.States[0], rule.Synced())
		if head := len(payload) - len(last) - len(first); len(rule.Limits) == 2 && load(t, rule, nil).loadOwn(rule, append(bytes.Clone(payload[:head]), last...)) {
			t.Errorf("%s: with the second limit alone", name)
		}
		must.Equal(t, load(t, rule, nil).loadOwn(rule, append(bytes.Clone(payload), last...)), false, "%s: with more limits", name)
		must.Equal(t, load(t, &Rule{Limits: rule.Limits}, nil).loadOwn(rule, payload), false, "%s: in a counter of another rule", name)
		plain := (&Rule{Limits: rule.Limits, Interval: rule.Interval})
		must.Equal(t, load(t, plain, nil).loadOwn(plain, payload), false, "%s: by a rule that is not compiled", name)
		if read := load(t, rule, nil); read.loadOwn(rule, nil) || read.loadOwn(rule, append([]byte{payload[0] | 0x80}, payload[1:]...)) {
			t.Errorf("%s: no entry, or one with a flag that nobody writes", name)
		}
	}
}

// Hits that may be given back stay so while others are counted, whatever way the entry is read.
func TestRevocable(t *testing.T) {
	t.Parallel()
	limits := []window.Limit{perMinute(10)}
	for _, test := range []struct{ writer, reader, want bool }{{false, false, false}, {false, true, true}, {true, false, true}, {true, true, true}} {
		for _, compiled := range []bool{false, true} {
			rule := &Rule{Limits: limits}
			if compiled {
				rule.Compile()
			}
			count := func(c *Counter, revocable bool) []byte {
				if c.Advance(monday); revocable {
					c.CountRevocable(1)
				} else {
					c.Count(1)
				}
				return c.Append(nil, monday)
			}
			payload := count(load(t, rule, nil), test.writer)
			c := load(t, rule, nil)
			if !c.Load(rule, payload) || count(c, test.reader)[0]&revocableFlag != 0 != test.want || c.Revocable() != test.want {
				t.Errorf("%+v, compiled %v: got %v", test, compiled, c.Revocable())
			}
		}
	}
}

// Hits are only counted in place where nothing else has to be known, and then as they are
// elsewhere.
func TestCountInPlace(t *testing.T) {
	t.Parallel()
	one, two := []window.Limit{perMinute(10)}, []window.Limit{perMinute(10), perHour(7)}
	buckets := window.Limit{Shape: shape(window.SlidingBuckets, minute), Max: 10}
	buckets.Precision = second
	for name, test := range map[string]struct {
		rule      *Rule
		revocable bool
		want      bool
	}{
		"one limit":           {&Rule{Limits: one}, false, true},
		"one, revocable":      {&Rule{Limits: one}, true, true},
		"two limits":          {&Rule{Limits: two}, false, true},
		"two, revocable":      {&Rule{Limits: two}, true, true},
		"synchronised":        {&Rule{Limits: one, Interval: second}, false, false},
		"another kind":        {&Rule{Limits: []window.Limit{buckets}}, false, false},
		"another kind behind": {&Rule{Limits: []window.Limit{perMinute(10), buckets}}, false, false},
		"another, revocable":  {&Rule{Limits: []window.Limit{perMinute(10), buckets}}, true, false},
	} {
		test.rule.Compile()
		c, want := load(t, test.rule, nil), &Counter{}
		c.Advance(monday)
		c.Count(2)
		payload := c.Append(nil, monday)
		unchanged := func(payload []byte, rule *Rule, cost uint64, what string) {
			before := bytes.Clone(payload)
			if c.CountInPlace(rule, payload, monday+second, cost, test.revocable, true) || !bytes.Equal(payload, before) {
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
		other := &Rule{Limits: test.rule.Limits}
		unchanged(payload, other, 3, "of another rule")
		other.Compile()
		unchanged(payload, other, 3, "of another rule, which is compiled")
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
			must.Equal(t, c.CountInPlace(test.rule, payload, monday+second, 3, test.revocable, true), true, "%s: not counted", name)
			want.Load(test.rule, before)
			want.Advance(monday + second)
			if test.revocable {
				want.CountRevocable(3)
			} else {
				want.Count(3)
			}
			if encoded := want.Append(nil, monday+second); !bytes.Equal(payload, encoded) || !slices.Equal(sums(c), sums(want)) {
				t.Errorf("%s: got %x and %v, want %x", name, payload, sums(c), encoded)
			}
			if revocable := test.revocable || flags != 0; c.Revocable() != revocable || load(t, test.rule, payload).Revocable() != revocable {
				t.Errorf("%s: revocable is %v after flags %x", name, c.Revocable(), flags)
			}
			c.GiveBack(c.Numbers(nil), 3)
			must.Same(t, sums(c), sums(load(t, test.rule, before)), "%s: given back to", name)
		}
	}
}

// A counter keeps nothing of the entry that it had before.
func TestCounterIsUsedAgain(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}}
	rule.Compile()
	synced := &Rule{Limits: rule.Limits, Interval: second}
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
	if payload := hit.Append(nil, monday); !c.CountInPlace(rule, payload, monday, 1, false, true) || c.synced || !c.lease.none() {
		t.Errorf("counted in %x: synced %v, %+v", payload, c.synced, c.lease)
	}
}

// An entry that claims to be of a configuration that does not synchronise, but has the states of a
// configuration that does, is synchronised by a rule that does, and tells nothing of the entry
// before.
func TestUnsyncedEntryOfSyncedStates(t *testing.T) {
	t.Parallel()
	rule := &Rule{Limits: []window.Limit{perMinute(10)}, Interval: second}
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
