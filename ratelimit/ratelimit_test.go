package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// fakeClock is a clock that stands still until it is advanced.
type fakeClock struct{ nanos atomic.Int64 }

func newFakeClock() *fakeClock {
	c := &fakeClock{}
	c.nanos.Store(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// node defines a namespace, and closes it when the test ends.
func node(t *testing.T, o Options) *Namespace {
	t.Helper()
	o.Name = cmp.Or(o.Name, "test")
	n := must.Get(NewNamespace(o))(t)
	t.Cleanup(func() { n.Close(context.Background()) })
	return n
}

func define(t *testing.T, clock *fakeClock, o Options) *Namespace {
	t.Helper()
	o.Now = clock.now
	return node(t, o)
}

func limiter(t *testing.T, n *Namespace, rule string) *Limiter {
	t.Helper()
	return must.Get(n.Limiter(rule))(t)
}

func decide(t *testing.T, l *Limiter, cost uint64, key ...string) Decision {
	t.Helper()
	d, err := l.Decide(t.Context(), key, cost)
	must.Report(t, err)
	return d
}

func increment(t *testing.T, n *Namespace, key string, size time.Duration, hits uint64) float64 {
	t.Helper()
	return must.Get(n.Increment(t.Context(), Key{key}, size, hits))(t)
}

func rate(t *testing.T, n *Namespace, key string, size time.Duration) float64 {
	t.Helper()
	return must.Get(n.Rate(t.Context(), Key{key}, size))(t)
}

func TestNamespacesAreDefinedOnce(t *testing.T) {
	t.Parallel()
	var in Instance
	options := Options{Name: "shop", Windows: []time.Duration{time.Minute}}
	n := must.Get(in.NewNamespace(options))(t)
	options.Windows = []time.Duration{time.Hour}
	second, err := in.NewNamespace(options)
	if !errors.Is(err, ErrDefined) || second != nil || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("second definition: got %v, %v", second, err)
	}
	must.Equal(t, increment(t, n, "k", time.Minute, 1), 1, "the first definition goes on with a rate")
	// Other instances and other names are different namespaces.
	must.Get(NewNamespace(options))(t)
	options.Name = "shop.2"
	must.Get(in.NewNamespace(options))(t)
	_, err = n.Increment(t.Context(), Key{"k"}, time.Hour, 1)
	must.Is(t, err, ErrNotDefined, "a window that the namespace does not have")
	_, err = n.Rate(t.Context(), Key{"k"}, time.Hour)
	must.Is(t, err, ErrNotDefined, "a window that the namespace does not have")
	_, err = n.Limiter("none")
	must.Is(t, err, ErrNotDefined, "a rule that the namespace does not have")
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	of := func(r Rule) func(*Options) {
		r.Name = "r"
		return func(o *Options) { o.Rules = []Rule{r} }
	}
	rule := func(limits ...Limit) func(*Options) { return of(Rule{Limits: limits}) }
	one := []Limit{FixedWindow(1, time.Second)}
	reveals := func(characters int) func(*Options) {
		return func(o *Options) {
			o.Backend = newWorld()
			of(Rule{Limits: one, Reveal: characters})(o)
		}
	}
	for _, test := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no name", func(o *Options) { o.Name = "" }, "want 1 to 64 of A-Za-z0-9._-"},
		{"odd name", func(o *Options) { o.Name = "a b" }, `"a b": name`},
		{"capacity", func(o *Options) { o.Capacity = -1 }, "capacity: want 1 to 16777216, or 0 for 65536, got -1"},
		{"key secret", func(o *Options) { o.KeySecret = "fifteen-letters" }, "key secret: want 16 bytes or more"},
		{"sync rate", func(o *Options) { o.SyncRate = -1 }, "sync rate: want 1ms to 8784h0m0s, or 0 for 1s, got -1ns"},
		{"timeout", func(o *Options) { o.Timeout = 1 }, "timeout: want 1ms to 1h0m0s, or 0 for 200ms, got 1ns"},
		{"exact, at intervals", func(o *Options) { o.Exact, o.SyncRate = true, time.Second }, "sync rate: want none where the backend decides"},
		{"failure mode", func(o *Options) { o.OnBackendFailure = 3 }, "on backend failure: want FailLocal, FailAllow or FailDeny, got 3"},
		{"sync rate alone", func(o *Options) { o.SyncRate = time.Second }, "backend: want a backend"},
		{"exact alone", func(o *Options) { o.Exact = true }, "backend: want a backend"},
		{"many rules", func(o *Options) { o.Windows = make([]time.Duration, 257) }, "rules: want at most 256 rules and windows, got 257"},
		{"two windows alike", func(o *Options) {
			o.Windows = []time.Duration{time.Second, time.Second}
		}, "windows[1]: want unique windows, got 1s twice"},
		{"no window", func(o *Options) { o.Windows = []time.Duration{0} }, "windows[0]: window: want 1ms to 366 days"},
		{"rule name", func(o *Options) { o.Rules = []Rule{{Name: "a.b"}} }, `rules[0].name: want 1 to 64 of A-Za-z0-9_-, got "a.b"`},
		{"rule twice", func(o *Options) {
			o.Rules = []Rule{{Name: "r", Limits: one}, {Name: "r", Limits: one}}
		}, `rules[1].name: want unique names, got "r" twice`},
		{"no limits", rule(), "rules[0].limits: want 1 to 8, got 0"},
		{"window in microseconds", rule(FixedWindow(1, 1500*time.Microsecond)), "rules[0].limits[0].window: want 1ms to 366 days in whole"},
		{"long window", rule(FixedWindow(1, 367*24*time.Hour)), "window: want"},
		{"large limit", rule(FixedWindow(1e15, time.Second)), "limit: want 0 to 999999999999999, got 1000000000000000"},
		{"precision that does not divide", rule(SlidingBuckets(1, time.Minute, 7*time.Second)), "precision: want a duration that divides 1m0s"},
		{"precision too fine", rule(SlidingBuckets(1, time.Minute, 100*time.Millisecond)), "into 2 to 64"},
		{"precision of a whole window", rule(SlidingBuckets(1, time.Minute, time.Minute)), "into 2 to 64"},
		{"no burst", rule(TokenBucket(1, time.Second, 0)), "burst: want 1 to 999999999999999, got 0"},
		{"large log", rule(SlidingLog(100_000, time.Hour)), "limit: want at most "},
		{"no algorithm", rule(Limit{}), "rules[0].limits[0].limit: want a limit made by SlidingWindow or a similar function, got the zero value"},
		{"period", rule(CalendarWindow(1, 9, "UTC", Anchor{})), "rules[0].limits[0].period: want Day, Week or Month, got 9"},
		{"zone", rule(CalendarWindow(1, Day, "Local", Anchor{})), `zone: want the IANA name of a time zone such as Europe/Berlin, got "Local"`},
		{"hour", rule(CalendarWindow(1, Day, "UTC", Anchor{Hour: 24})), "anchor: want an hour from 0 to 23, got 24"},
		{"day of a day", rule(CalendarWindow(1, Day, "UTC", Anchor{Day: 1})), "anchor: want day 0 for windows of a Day"},
		{"limit of a calendar", rule(CalendarWindow(1e15, Day, "UTC", Anchor{})), "limit: want 0 to 999999999999999"},
		{"delay below 0", of(Rule{Limits: one, Delay: -1}), "rules[0].delay: want 0 (for the most) to 5m0s, got -1ns"},
		{"long delay", of(Rule{Limits: one, Delay: 301 * time.Second}), "rules[0].delay: want 0 (for the most) to 5m0s, got 5m1s"},
		{"queue below 0", of(Rule{Limits: one, Queue: -1}), "rules[0].queue: want 0 (for the most) to 10000, got -1"},
		{"long queue", of(Rule{Limits: one, Queue: 10_001}), "rules[0].queue: want 0 (for the most) to 10000, got 10001"},
		{"reveal below 0", reveals(-1), "rules[0].reveal: want 0 to 64, or RevealPlain, got -1"},
		{"reveal of too many", reveals(65), "rules[0].reveal: want 0 to 64, or RevealPlain, got 65"},
		{"reveal alone", of(Rule{Limits: one, Reveal: RevealPlain}), "rules[0].reveal: want a backend"},
	} {
		o := Options{Name: "test"}
		test.change(&o)
		_, err := NewNamespace(o)
		must.Contains(t, fmt.Sprint(err), test.want, "%s", test.name)
	}
}

// Kong's vector: previous 40, current 10, size 60, 30 s in: rate 30.
func TestSlidingWindow(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	n := define(t, clock, Options{Windows: []time.Duration{time.Minute, time.Hour}})
	increment(t, n, "k", time.Minute, 40)
	clock.advance(90 * time.Second)
	must.Equal(t, increment(t, n, "k", time.Minute, 10), 30, "increment")
	for _, test := range []struct {
		diff uint64
		want float64
	}{{0, 20}, {10, 30}, {17, 37}} {
		must.Equal(t, must.Get(n.RateWith(t.Context(), Key{"k"}, time.Minute, test.diff))(t), test.want, "with a diff of %d", test.diff)
	}
	for _, test := range []struct {
		name, key string
		size      time.Duration
		want      float64
	}{{"asking changes nothing", "k", time.Minute, 30}, {"another window", "k", time.Hour, 0}, {"another key", "j", time.Minute, 0}} {
		must.Equal(t, rate(t, n, test.key, test.size), test.want, "%s", test.name)
	}
	must.Equal(t, increment(t, n, "k", time.Minute, 0), 30, "no hits")
	clock.advance(15 * time.Second)
	must.Equal(t, rate(t, n, "k", time.Minute), 20, "45 s in")
}

// step asks for cost hits after a pause, for a limiter's timeline.
type step struct {
	pause     time.Duration
	cost      uint64
	allowed   bool
	remaining uint64
	retry     time.Duration
	reset     time.Duration
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, test := range []struct {
		name   string
		limits []Limit
		counts bool
		steps  []step
	}{
		{"fixed window", []Limit{FixedWindow(3, 10*s)}, false, []step{
			{0, 2, true, 1, 0, 10 * s}, {4 * s, 2, false, 1, 6 * s, 6 * s}, {0, 0, true, 1, 0, 6 * s},
			{0, 4, false, 1, Never, 6 * s}, {6 * s, 3, true, 0, 0, 10 * s},
		}},
		{"first hit", []Limit{FirstHitWindow(10, 60*s)}, false, []step{
			{45 * s, 10, true, 0, 0, 60 * s}, {59 * s, 1, false, 0, s, s}, {s, 10, true, 0, 0, 60 * s},
		}},
		{"sliding window", []Limit{SlidingWindow(100, 60*s)}, false, []step{
			{0, 40, true, 60, 0, 60 * s}, {60 * s, 60, true, 0, 0, 60 * s}, {30 * s, 20, true, 0, 0, 30 * s},
			{0, 1, false, 0, 1500 * time.Millisecond, 30 * s}, {1500 * time.Millisecond, 1, true, 0, 0, 28500 * time.Millisecond},
		}},
		{"sub-buckets", []Limit{SlidingBuckets(2, 10*s, 5*s)}, false, []step{
			{0, 2, true, 0, 0, 10 * s}, {9 * s, 1, false, 0, s, s}, {s, 1, true, 1, 0, 10 * s},
		}},
		{"moving window", []Limit{SlidingLog(10, 60*s)}, false, []step{
			{10 * s, 1, true, 9, 0, 60 * s}, {10 * s, 2, true, 7, 0, 60 * s}, {10 * s, 4, true, 3, 0, 60 * s},
			{20 * s, 3, true, 0, 0, 60 * s}, {21 * s, 1, true, 0, 0, 60 * s}, {s, 1, false, 0, 8 * s, 59 * s},
		}},
		{"token bucket", []Limit{TokenBucket(1, s, 3)}, false, []step{
			{0, 3, true, 0, 0, 3 * s}, {500 * time.Millisecond, 1, false, 0, 500 * time.Millisecond, 2500 * time.Millisecond},
			{500 * time.Millisecond, 1, true, 0, 0, 3 * s},
		}},
		{"all or none", []Limit{FixedWindow(10, 60*s), FixedWindow(2, s)}, false, []step{
			{0, 2, true, 0, 0, s}, {0, 1, false, 0, s, s}, {s, 2, true, 0, 0, s}, {s, 0, true, 2, 0, s},
		}},
		{"the longest of equals", []Limit{FixedWindow(1, s), FixedWindow(1, 60*s)}, false, []step{{0, 1, true, 0, 0, 60 * s}}},
		{"alike but for the limit", []Limit{FixedWindow(3, s), FixedWindow(2, s)}, false, []step{
			{0, 1, true, 1, 0, s}, {0, 2, false, 1, s, s},
		}},
		{"rejected hits count", []Limit{FixedWindow(2, 10*s)}, true, []step{
			{0, 3, false, 2, Never, 10 * s}, {0, 1, true, 1, 0, 10 * s}, {0, 2, false, 0, 10 * s, 10 * s}, {0, 1, false, 0, 10 * s, 10 * s},
		}},
		{"limit 0", []Limit{FixedWindow(0, s)}, false, []step{{0, 0, false, 0, Never, s}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			clock := newFakeClock()
			n := define(t, clock, Options{Rules: []Rule{{Name: "r", Limits: test.limits, CountRejected: test.counts}}})
			l := limiter(t, n, "r")
			for i, step := range test.steps {
				clock.advance(step.pause)
				d := decide(t, l, step.cost, "k")
				got := []any{d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter}
				want := []any{step.allowed, step.remaining, step.retry, step.reset}
				must.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "step %d", i)
				if room := d.RoomAfter; d.Allowed && step.cost > 0 && room <= 0 || !d.Allowed && step.cost == 1 && room != step.retry {
					t.Errorf("step %d: one more hit has room after %v", i, room)
				}
			}
		})
	}
}

func TestKeysAndRulesCountApart(t *testing.T) {
	t.Parallel()
	one := []Limit{FixedWindow(1, time.Second)}
	n := define(t, newFakeClock(), Options{
		Windows: []time.Duration{time.Second}, Rules: []Rule{{Name: "a", Limits: one}, {Name: "b", Limits: one}},
	})
	a, b := limiter(t, n, "a"), limiter(t, n, "b")
	for _, key := range [][]string{nil, {""}, {"a", "bc"}, {"ab", "c"}, {"abc"}, {"a", "b", "c"}, {"a\x00bc"}} {
		must.Equal(t, decide(t, a, 1, key...).Allowed, true, "key %q: its first hit", key)
		must.Equal(t, decide(t, b, 1, key...).Allowed, true, "key %q: its first hit of the other rule", key)
		must.Equal(t, decide(t, a, 1, key...).Allowed, false, "key %q: allowed twice", key)
	}
	must.Equal(t, rate(t, n, "abc", time.Second), 0, "a rule's hits count as a key's without one")
}

// With any interleaving exactly the limit passes, and no hit is lost.
func TestConcurrentDecisions_hammer(t *testing.T) {
	t.Parallel()
	const workers, asks, limit, keys = 16, 150, 400, 3
	n := define(t, newFakeClock(), Options{
		Capacity: 8, // so that all keys share a page
		Rules:    []Rule{{Name: "r", Limits: []Limit{SlidingWindow(limit, time.Hour), SlidingLog(limit, time.Hour)}}},
	})
	l := limiter(t, n, "r")
	var allowed [keys]atomic.Int64
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range asks * keys {
				key := random.IntN(keys)
				if decide(t, l, 1, strconv.Itoa(key)).Allowed {
					allowed[key].Add(1)
				}
			}
		})
	}
	group.Wait()
	for key := range allowed {
		must.Equal(t, allowed[key].Load(), limit, "key %d: passed", key)
	}
}

// A flood of keys neither grows memory nor gains a fresh quota.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const capacity, spray = 1000, 30_000
	n := define(t, newFakeClock(), Options{
		Capacity: capacity, Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(10, time.Hour)}}},
	})
	l := limiter(t, n, "r")
	decide(t, l, 10, "heavy")
	for i := range spray {
		decide(t, l, 1, "k", strconv.Itoa(i))
	}
	must.Equal(t, decide(t, l, 1, "heavy").Allowed, false, "the flood bought a fresh quota")
	must.AtMost(t, n.data.Bytes(), 96*capacity+100, "bytes of shared data")
	must.Between(t, n.Stats().EvictedCounters, spray-3*capacity, spray, "counters of %d that had to make room", spray)
}

// Demands on several rules are decided together, and the decision has each limit.
func TestDecideTogether(t *testing.T) {
	t.Parallel()
	n := define(t, newFakeClock(), Options{Rules: []Rule{
		{Name: "user", Limits: []Limit{FixedWindow(3, time.Minute), FixedWindow(9, time.Hour)}},
		{Name: "all", Limits: []Limit{TokenBucket(1, time.Second, 4)}},
	}})
	user, all := limiter(t, n, "user"), limiter(t, n, "all")
	ask := func(name string, cost uint64) Decision {
		return must.Get(Decide(t.Context(), user.Demand(Key{name}, 1), all.Demand(nil, cost)))(t)
	}
	d := ask("ann", 2)
	want := []Standing{
		{user, 0, user.Limits()[0], 2, time.Minute, time.Minute}, {user, 1, user.Limits()[1], 8, time.Hour, time.Hour},
		{all, 0, all.Limits()[0], 2, time.Second, 2 * time.Second},
	}
	if !d.Allowed || !slices.Equal(d.Standings, want) || d.Standing != want[0] {
		t.Errorf("got %+v, want %+v and the first of them", d, want)
	}
	if d = ask("ann", 3); d.Allowed || d.RetryAfter != time.Second || d.Standings[0].Remaining != 2 {
		t.Errorf("one rule has no room, and the other was taken from: %+v", d)
	}
	if d = ask("bob", 2); !d.Allowed || d.Limiter != all || d.Remaining != 0 {
		t.Errorf("got %+v, want the bucket as the tightest", d)
	}
	if got := decide(t, user, 0, "ann"); got.Remaining != 2 || got.Standings != nil {
		t.Errorf("got %+v", got)
	}
	other := limiter(t, define(t, newFakeClock(), Options{Name: "other", Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(1, time.Second)}}}}), "r")
	for want, demands := range map[string][]Demand{
		`demands[1]: want rules of one namespace, got one of "test" and one of "other"`: {all.Demand(nil, 1), other.Demand(nil, 1)},
		"demands[0]: want a demand made by Limiter.Demand":                              {{}},
		`demands[1]: want a single demand of rule "all"`:                                {all.Demand(nil, 1), all.Demand(nil, 1)},
	} {
		_, err := Decide(t.Context(), demands...)
		must.Contains(t, fmt.Sprint(err), want, "")
	}
	must.Equal(t, must.Get(Decide(t.Context()))(t).Allowed, true, "nothing asked")
}

// A decision allocates nothing.
func TestNothingIsAllocated(t *testing.T) {
	n := define(t, newFakeClock(), Options{Rules: []Rule{{Name: "r", Limits: []Limit{SlidingWindow(1000, time.Hour), TokenBucket(1, time.Hour, 500)}}}})
	l := limiter(t, n, "r")
	must.Equal(t, testing.AllocsPerRun(1500, func() { decide(t, l, 1, "ann", "7") }), 0, "allocations a decision")
	must.Equal(t, decide(t, l, 1, "ann", "7").Allowed, false, "nothing was refused")
	ctx := t.Context()
	must.Equal(t, testing.AllocsPerRun(100, func() {
		if allowed, err := l.Allow(ctx, "ann", "7"); allowed || err != nil {
			t.Error(allowed, err)
		}
	}), 0, "allocations of Allow")
}

// After Close nothing is counted, and the name is free.
func TestClose(t *testing.T) {
	t.Parallel()
	var in Instance
	options := Options{
		Name: "shop", Windows: []time.Duration{time.Minute}, Rules: []Rule{{Name: "r", Limits: []Limit{FixedWindow(1, time.Second)}}},
	}
	n := must.Get(in.NewNamespace(options))(t)
	for range 2 {
		must.OK(t, n.Close(t.Context()))
	}
	_, err := limiter(t, n, "r").Decide(t.Context(), nil, 1)
	must.Is(t, err, ErrClosed, "decide")
	_, err = n.Increment(t.Context(), Key{"k"}, time.Minute, 1)
	must.Is(t, err, ErrClosed, "increment")
	must.Is(t, limiter(t, n, "r").GiveBack(t.Context(), nil, 1), ErrClosed, "give back")
	must.Report(t, n.Sync(t.Context()))
	must.Get(in.NewNamespace(options))(t)
}

// BenchmarkDecide decides hits of one of 10,000 users.
func BenchmarkDecide(b *testing.B) {
	const most = 1 << 40
	for name, limits := range map[string][]Limit{
		"sliding window": {SlidingWindow(most, time.Minute)},
		"60 sub-buckets": {SlidingBuckets(most, time.Minute, time.Second)},
		"two windows":    {FixedWindow(most, time.Second), FixedWindow(most, time.Hour)},
		"refused":        {FixedWindow(1, time.Hour)},
	} {
		b.Run(name, func(b *testing.B) {
			l := must.Get(NewLimiter(limits...))(b)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				random := rand.New(rand.NewPCG(1, 2))
				keys := make([]string, 10_000)
				for i := range keys {
					keys[i] = strconv.Itoa(i)
				}
				for pb.Next() {
					if _, err := l.Decide(b.Context(), Key{keys[random.IntN(len(keys))]}, 1); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// The library has calendar windows too, and an invalid window is an error.
func TestCalendarWindow(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	clock.nanos.Store(time.Date(2026, 11, 30, 22, 59, 59, 0, time.UTC).UnixNano()) // a second before December in Berlin
	l := limiter(t, define(t, clock, Options{Rules: rule(CalendarWindow(2, Month, "Europe/Berlin", Anchor{}))}), "r")
	for _, month := range []string{"November", "December"} {
		for i := range 4 {
			must.Equal(t, decide(t, l, 1, "ann").Allowed, i < 2, "%s: decision %d", month, i)
		}
		clock.advance(time.Second)
	}
}

// The documentation begins with two lines that are run by the first example.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	var texts [2]string
	for i, name := range []string{"doc.go", "example_test.go"} {
		text := must.Get(os.ReadFile(name))(t)
		texts[i] = string(text)
	}
	_, example, _ := strings.Cut(texts[1], "func Example() {")
	example, _, _ = strings.Cut(example, "\n}\n")
	lines := strings.Split(texts[0], "\n")[2:4]
	for _, line := range lines {
		must.Contains(t, example, "\t"+strings.TrimPrefix(line, "//\t")+"\n", "the first example")
	}
}

// A limiter made alone decides, and shares nothing with another.
func TestNewLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			l := must.Get(NewLimiter(FixedWindow(3, time.Minute), FixedWindow(9, time.Hour)))(t)
			for i, want := range []bool{true, false, true, false} {
				cost := uint64(2 - i/2)
				must.Equal(t, must.Get(l.AllowN(t.Context(), Key{"ann"}, cost))(t), want, "cost %d", cost)
			}
			for range 3 {
				must.Equal(t, must.Get(l.Allow(t.Context(), "ann", "b"))(t), true, "another key")
			}
			must.Equal(t, must.Get(l.Allow(t.Context(), "ann", "b"))(t), false, "above the limit")
			if d, err := Decide(t.Context(), l.Demand(nil, 1)); err != nil || !d.Allowed || d.Limiter.Name() != "default" || len(d.Standings) != 2 {
				t.Errorf("got %+v, %v", d, err)
			}
		}
	})
	for want, limits := range map[string][]Limit{
		"ratelimit: limits: want 1 to 8, got 0":                      nil,
		"ratelimit: limits[1].limit: want a limit made":              {FixedWindow(1, time.Second), {}},
		"ratelimit: limits[0].window: want 1ms to 366 days in whole": {FixedWindow(1, 0)},
	} {
		if l, err := NewLimiter(limits...); err == nil || l != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, %v, want an error that begins with %q", l, err, want)
		}
	}
}

// A limit has the numbers that clients see.
func TestLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit Limit
		quota uint64
		per   time.Duration
	}{
		{SlidingWindow(100, time.Minute), 100, time.Minute},
		{SlidingBuckets(100, time.Minute, time.Second), 100, time.Minute},
		{SlidingLog(7, time.Millisecond), 7, time.Millisecond},
		{FirstHitWindow(7, time.Hour), 7, time.Hour},
		{TokenBucket(10, time.Second, 5), 5, time.Second / 2},
		{TokenBucket(7, time.Second, 5), 5, 0},
		{TokenBucket(0, time.Second, 5), 0, 0},
		{FixedWindow(0, time.Second), 0, 0},
		{CalendarWindow(5, Month, "UTC", Anchor{Day: 15}), 5, 0},
		{Limit{}, 0, 0},
	} {
		must.Equal(t, test.limit.Quota(), test.quota, "%+v: quota", test.limit)
		must.Equal(t, test.limit.Window(), test.per, "%+v: window", test.limit)
	}
}

// A clock that jumps ahead begins new windows. When it is back it begins none: hits stay counted, and
// nobody is locked out for longer than two windows.
func TestClockJumpsAndIsBack(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"none", "leases", "exact"} {
		for kind, l := range kinds(10) {
			if kind == "tokens" {
				l = TokenBucket(10, time.Hour, 10)
			}
			for _, jump := range []time.Duration{time.Second, 30 * time.Minute, 2 * time.Hour, 48 * time.Hour, 8760 * time.Hour} {
				if backend != "none" && jump != 2*time.Hour {
					continue // the backend's clock decides
				}
				synctest.Test(t, func(t *testing.T) {
					var ahead atomic.Int64
					o := Options{Rules: rule(l), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
					if o.Exact = backend == "exact"; backend != "none" {
						o.Backend = newWorld()
					}
					n := node(t, o)
					r := limiter(t, n, "r")
					asked := func() (passed int) {
						for range 25 {
							if decide(t, r, 1, "k").Allowed {
								passed++
							}
							pause(time.Millisecond)
						}
						return passed
					}
					pause(17 * time.Minute)
					passed := asked()
					ahead.Store(int64(jump))
					pause(time.Second)
					passed += asked()
					ahead.Store(0)
					for range 5 {
						pause(time.Second)
						passed += asked()
					}
					if passed > 20 || backend != "none" && passed > 10 {
						t.Errorf("%s, %s, ahead for a second by %v: %d passed of a limit of 10", backend, kind, jump, passed)
					}
					pause(2*time.Hour + time.Minute)
					must.Equal(t, asked(), 10, "%s, %s, ahead for a second by %v: passed two windows later", backend, kind, jump)
				})
			}
		}
	}
}
