package ratelimit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/store/memory"
	"weir/window"
)

// fakeClock is a time that stands still until it is moved.
type fakeClock struct{ nanos atomic.Int64 }

func newFakeClock() *fakeClock {
	c := &fakeClock{}
	c.nanos.Store(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

func define(t *testing.T, clock *fakeClock, o NamespaceOptions) *Namespace {
	t.Helper()
	if o.Name == "" {
		o.Name = "test"
	}
	n, err := New(Options{Now: clock.now}).NewNamespace(o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func limiter(t *testing.T, n *Namespace, rule string) *Limiter {
	t.Helper()
	l, err := n.Limiter(rule)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func increment(t *testing.T, n *Namespace, key string, size time.Duration, hits uint64) float64 {
	t.Helper()
	rate, err := n.Increment(key, size, hits)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

func rate(t *testing.T, n *Namespace, key string, size time.Duration) float64 {
	t.Helper()
	rate, err := n.SlidingWindow(key, size)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

func TestNamespacesAreDefinedOnce(t *testing.T) {
	t.Parallel()
	in := New(Options{})
	options := NamespaceOptions{Name: "shop", WindowSizes: []time.Duration{time.Minute}}
	n, err := in.NewNamespace(options)
	if err != nil {
		t.Fatal(err)
	}
	options.WindowSizes = []time.Duration{time.Hour}
	second, err := in.NewNamespace(options)
	if !errors.Is(err, ErrDefined) || second != nil || !strings.Contains(err.Error(), `"shop"`) {
		t.Errorf("second definition: got %v, %v", second, err)
	}
	if _, err := n.Increment("k", time.Minute, 1); err != nil {
		t.Errorf("the first definition has suffered: %v", err)
	}
	// Other instances and other names are others.
	if _, err := New(Options{}).NewNamespace(options); err != nil {
		t.Error(err)
	}
	options.Name = "shop.2"
	if _, err := in.NewNamespace(options); err != nil {
		t.Error(err)
	}
	if _, err := n.Increment("k", time.Hour, 1); !errors.Is(err, ErrNotDefined) {
		t.Errorf("a window that the namespace does not have: got %v", err)
	}
	if _, err := n.SlidingWindow("k", time.Hour); !errors.Is(err, ErrNotDefined) {
		t.Errorf("a window that the namespace does not have: got %v", err)
	}
	if _, err := n.Limiter("none"); !errors.Is(err, ErrNotDefined) {
		t.Errorf("a rule that the namespace does not have: got %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	rule := func(limits ...window.Limit) func(*NamespaceOptions) {
		return func(o *NamespaceOptions) { o.Rules = []Rule{{Name: "r", Limits: limits}} }
	}
	odd := SlidingWindow(1, time.Second)
	odd.Precision = 5
	for _, test := range []struct {
		name   string
		change func(*NamespaceOptions)
		want   string
	}{
		{"no name", func(o *NamespaceOptions) { o.Name = "" }, "want 1 to 64 of A-Za-z0-9._-"},
		{"odd name", func(o *NamespaceOptions) { o.Name = "a b" }, `"a b": name`},
		{"capacity", func(o *NamespaceOptions) { o.Capacity = -1 }, "capacity: want 1 to 16777216, or 0 for 65536, got -1"},
		{"sync rate", func(o *NamespaceOptions) { o.SyncRate = -1 }, "sync rate: want more than 0"},
		{"sync rate alone", func(o *NamespaceOptions) { o.SyncRate = time.Second }, "want none without a store, got 1s"},
		{"many windows", func(o *NamespaceOptions) { o.WindowSizes = make([]time.Duration, 9) }, "window sizes: want at most 8, got 9"},
		{"two windows alike", func(o *NamespaceOptions) {
			o.WindowSizes = []time.Duration{time.Second, time.Second}
		}, "window sizes[1]: want unique sizes, got 1s again"},
		{"no window", func(o *NamespaceOptions) { o.WindowSizes = []time.Duration{0} }, "window sizes[0]: window: want 1ms to 366 days"},
		{"rule name", func(o *NamespaceOptions) { o.Rules = []Rule{{Name: "a.b"}} }, `rules[0].name: want 1 to 64 of A-Za-z0-9_-, got "a.b"`},
		{"rule twice", func(o *NamespaceOptions) {
			r := Rule{Name: "r", Limits: []window.Limit{FixedWindow(1, time.Second)}}
			o.Rules = []Rule{r, r}
		}, `rules[1].name: want unique names, got "r" again`},
		{"no limits", rule(), "rules[0].limits: want 1 to 8, got 0"},
		{"window in microseconds", rule(FixedWindow(1, 1500*time.Microsecond)), "rules[0].limits[0].window: want 1ms to 366 days in whole"},
		{"long window", rule(FixedWindow(1, 367*24*time.Hour)), "window: want"},
		{"large limit", rule(FixedWindow(1e15, time.Second)), "limit: want 0 to 999999999999999, got 1000000000000000"},
		{"precision that does not divide", rule(SlidingBuckets(1, time.Minute, 7*time.Second)), "precision: want one that divides 1m0s"},
		{"precision too fine", rule(SlidingBuckets(1, time.Minute, 100*time.Millisecond)), "into 2 to 64"},
		{"precision of a whole window", rule(SlidingBuckets(1, time.Minute, time.Minute)), "into 2 to 64"},
		{"precision of another algorithm", rule(odd), "precision: want none"},
		{"burst of another algorithm", rule(window.Limit{Shape: SlidingWindow(1, time.Second).Shape, Burst: 1}), "burst: want none"},
		{"no burst", rule(TokenBucket(1, time.Second, 0)), "burst: want 1 to 999999999999999, got 0"},
		{"large log", rule(SlidingLog(100_000, time.Hour)), "limit: want at most "},
		{"no kind", rule(window.Limit{Shape: window.Shape{Width: 1e9}}), "kind: want one of package window's, got 0"},
	} {
		o := NamespaceOptions{Name: "test"}
		test.change(&o)
		if _, err := New(Options{}).NewNamespace(o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.name, err, test.want)
		}
	}
}

// Kong's vector: previous 40, current 10, size 60, 30 s in: rate 30.
func TestSlidingWindow(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	n := define(t, clock, NamespaceOptions{WindowSizes: []time.Duration{time.Minute, time.Hour}})
	increment(t, n, "k", time.Minute, 40)
	clock.advance(90 * time.Second)
	if got := increment(t, n, "k", time.Minute, 10); got != 30 {
		t.Errorf("increment: got %v, want 30", got)
	}
	for _, test := range []struct {
		diff uint64
		want float64
	}{{0, 20}, {10, 30}, {17, 37}} {
		if got, err := n.SlidingWindowWith("k", time.Minute, test.diff); err != nil || got != test.want {
			t.Errorf("with a diff of %d: got %v, %v, want %v", test.diff, got, err, test.want)
		}
	}
	for _, test := range []struct {
		name, key string
		size      time.Duration
		want      float64
	}{{"asking changes nothing", "k", time.Minute, 30}, {"another window", "k", time.Hour, 0}, {"another key", "j", time.Minute, 0}} {
		if got := rate(t, n, test.key, test.size); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
	if got := increment(t, n, "k", time.Minute, 0); got != 30 {
		t.Errorf("no hits: got %v, want 30", got)
	}
	clock.advance(15 * time.Second)
	if got := rate(t, n, "k", time.Minute); got != 20 {
		t.Errorf("45 s in: got %v, want 20", got)
	}
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
		limits []window.Limit
		counts bool
		steps  []step
	}{
		{"fixed window", []window.Limit{FixedWindow(3, 10*s)}, false, []step{
			{0, 2, true, 1, 0, 10 * s}, {4 * s, 2, false, 1, 6 * s, 6 * s}, {0, 0, true, 1, 0, 6 * s},
			{0, 4, false, 1, Never, 6 * s}, {6 * s, 3, true, 0, 0, 10 * s},
		}},
		{"first hit", []window.Limit{FirstHitWindow(10, 60*s)}, false, []step{
			{45 * s, 10, true, 0, 0, 60 * s}, {59 * s, 1, false, 0, s, s}, {s, 10, true, 0, 0, 60 * s},
		}},
		{"sliding window", []window.Limit{SlidingWindow(100, 60*s)}, false, []step{
			{0, 40, true, 60, 0, 60 * s}, {60 * s, 60, true, 0, 0, 60 * s}, {30 * s, 20, true, 0, 0, 30 * s},
			{0, 1, false, 0, 1500 * time.Millisecond, 30 * s}, {1500 * time.Millisecond, 1, true, 0, 0, 28500 * time.Millisecond},
		}},
		{"sub-buckets", []window.Limit{SlidingBuckets(2, 10*s, 5*s)}, false, []step{
			{0, 2, true, 0, 0, 10 * s}, {9 * s, 1, false, 0, s, s}, {s, 1, true, 1, 0, 10 * s},
		}},
		{"moving window", []window.Limit{SlidingLog(10, 60*s)}, false, []step{
			{10 * s, 1, true, 9, 0, 60 * s}, {10 * s, 2, true, 7, 0, 60 * s}, {10 * s, 4, true, 3, 0, 60 * s},
			{20 * s, 3, true, 0, 0, 60 * s}, {21 * s, 1, true, 0, 0, 60 * s}, {s, 1, false, 0, 8 * s, 59 * s},
		}},
		{"token bucket", []window.Limit{TokenBucket(1, s, 3)}, false, []step{
			{0, 3, true, 0, 0, 3 * s}, {500 * time.Millisecond, 1, false, 0, 500 * time.Millisecond, 2500 * time.Millisecond},
			{500 * time.Millisecond, 1, true, 0, 0, 3 * s},
		}},
		{"all or none", []window.Limit{FixedWindow(10, 60*s), FixedWindow(2, s)}, false, []step{
			{0, 2, true, 0, 0, s}, {0, 1, false, 0, s, s}, {s, 2, true, 0, 0, s}, {s, 0, true, 2, 0, s},
		}},
		{"the longest of equals", []window.Limit{FixedWindow(1, s), FixedWindow(1, 60*s)}, false, []step{{0, 1, true, 0, 0, 60 * s}}},
		{"alike but for the limit", []window.Limit{FixedWindow(3, s), FixedWindow(2, s)}, false, []step{
			{0, 1, true, 1, 0, s}, {0, 2, false, 1, s, s},
		}},
		{"rejected hits count", []window.Limit{FixedWindow(2, 10*s)}, true, []step{
			{0, 3, false, 2, Never, 10 * s}, {0, 1, true, 1, 0, 10 * s}, {0, 2, false, 0, 10 * s, 10 * s}, {0, 1, false, 0, 10 * s, 10 * s},
		}},
		{"limit 0", []window.Limit{FixedWindow(0, s)}, false, []step{{0, 0, false, 0, Never, s}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			clock := newFakeClock()
			n := define(t, clock, NamespaceOptions{Rules: []Rule{{Name: "r", Limits: test.limits, CountRejected: test.counts}}})
			l := limiter(t, n, "r")
			for i, step := range test.steps {
				clock.advance(step.pause)
				d := l.Decide(step.cost, "k")
				got := []any{d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter}
				want := []any{step.allowed, step.remaining, step.retry, step.reset}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("step %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestKeysAndRulesCountApart(t *testing.T) {
	t.Parallel()
	one := []window.Limit{FixedWindow(1, time.Second)}
	n := define(t, newFakeClock(), NamespaceOptions{
		WindowSizes: []time.Duration{time.Second}, Rules: []Rule{{Name: "a", Limits: one}, {Name: "b", Limits: one}},
	})
	a, b := limiter(t, n, "a"), limiter(t, n, "b")
	for _, key := range [][]string{nil, {""}, {"a", "bc"}, {"ab", "c"}, {"abc"}, {"a", "b", "c"}, {"a\x00bc"}} {
		if !a.Decide(1, key...).Allowed || !b.Decide(1, key...).Allowed {
			t.Errorf("key %q: refused at its first hit", key)
		}
		if a.Decide(1, key...).Allowed {
			t.Errorf("key %q: allowed twice", key)
		}
	}
	if got := rate(t, n, "abc", time.Second); got != 0 {
		t.Errorf("a rule's hits count as a key's without one: %v", got)
	}
}

// Whatever the interleaving, exactly the limit passes, and no hit is lost.
func TestConcurrentDecisions_hammer(t *testing.T) {
	t.Parallel()
	const workers, asks, limit, keys = 16, 150, 400, 3
	n := define(t, newFakeClock(), NamespaceOptions{
		Capacity: 8, // so that all keys share a page
		Rules:    []Rule{{Name: "r", Limits: []window.Limit{SlidingWindow(limit, time.Hour), SlidingLog(limit, time.Hour)}}},
	})
	l := limiter(t, n, "r")
	var allowed [keys]atomic.Int64
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range asks * keys {
				key := random.IntN(keys)
				if l.Decide(1, strconv.Itoa(key)).Allowed {
					allowed[key].Add(1)
				}
			}
		})
	}
	group.Wait()
	for key := range allowed {
		if got := allowed[key].Load(); got != limit {
			t.Errorf("key %d: %d passed, want %d", key, got, limit)
		}
	}
}

func TestConcurrentIncrements_hammer(t *testing.T) {
	t.Parallel()
	const workers, hits = 8, 2000
	n := define(t, newFakeClock(), NamespaceOptions{WindowSizes: []time.Duration{time.Minute, time.Hour}})
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range hits {
				size := []time.Duration{time.Minute, time.Hour}[i%2]
				if _, err := n.Increment("k", size, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if minute, hour := rate(t, n, "k", time.Minute), rate(t, n, "k", time.Hour); minute != workers*hits/2 || hour != workers*hits/2 {
		t.Errorf("got %v and %v, want %d each", minute, hour, workers*hits/2)
	}
}

// Keys that nobody asks for again, and nobody synchronises, are not remembered without end.
func TestForgottenKeysAreBounded(t *testing.T) {
	t.Parallel()
	const capacity = 100
	clock := newFakeClock()
	n := define(t, clock, NamespaceOptions{
		Capacity: capacity, WindowSizes: []time.Duration{time.Millisecond}, Store: memory.New(memory.Options{Now: clock.now}),
	})
	for i := range 10 * capacity {
		increment(t, n, strconv.Itoa(i), time.Millisecond, 1)
		clock.advance(3 * time.Second)
	}
	if len(n.known) != knownPerCounter*capacity {
		t.Errorf("%d counters to synchronise, want %d", len(n.known), knownPerCounter*capacity)
	}
	if syncAll(t, n); len(n.known) != 0 {
		t.Errorf("%d counters to synchronise, though all have expired", len(n.known))
	}
}

// A flood of keys neither grows memory nor buys a fresh quota.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const capacity, spray = 1000, 30_000
	clock := newFakeClock()
	in := New(Options{Now: clock.now})
	n, err := in.NewNamespace(NamespaceOptions{
		Name: "test", Capacity: capacity, Store: memory.New(memory.Options{Now: clock.now}),
		Rules: []Rule{{Name: "r", Limits: []window.Limit{FixedWindow(10, time.Hour)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, n, "r")
	l.Decide(10, "heavy")
	for i := range spray {
		l.Decide(1, "k", strconv.Itoa(i))
	}
	if l.Decide(1, "heavy").Allowed {
		t.Error("the flood bought a fresh quota")
	}
	bytes := 0
	for name, v := range in.data.values {
		bytes += len(name) + len(v.value)
	}
	if most := 96*capacity + 100; bytes > most {
		t.Errorf("%d bytes of shared data, want at most %d", bytes, most)
	}
	t.Logf("%d bytes of shared data for %d counters", bytes, capacity)
	if len(n.known) > knownPerCounter*capacity || len(n.orphans) > capacity {
		t.Errorf("%d counters to synchronise and %d orphans for %d counters", len(n.known), len(n.orphans), capacity)
	}
	pending := uint64(len(n.orphans)) + uint64(len(n.known)-1)
	if pending+n.Lost() != spray {
		t.Errorf("%d hits pending and %d lost of %d", pending, n.Lost(), spray)
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	d := newData()
	key := []byte("k")
	if _, _, found := d.Get(key, nil); found {
		t.Fatal("found what was never set")
	}
	if !d.Set(key, []byte("one"), 0x7fffffff) {
		t.Fatal("any number creates a missing key")
	}
	value, first, _ := d.Get(key, nil)
	if d.Set(key, []byte("two"), 0x7fffffff) || d.Set(key, []byte("two"), first+1) {
		t.Error("a wrong number wrote")
	}
	if !d.Set(key, []byte("two"), first) || string(value) != "one" {
		t.Errorf("the right number did not write, or changed what was read: %q", value)
	}
	if d.Set(key, []byte("three"), first) {
		t.Error("an old number wrote")
	}
	if !d.Set(key, []byte("three"), 0) {
		t.Error("0 overwrites")
	}
	// Numbers come round without ever being 0, or the one that creates.
	d.values["k"] = versioned{cas: maxNumber}
	d.Set(key, nil, maxNumber)
	if _, cas, _ := d.Get(key, nil); cas != 1 {
		t.Errorf("after the greatest number: got %d, want 1", cas)
	}
}

func BenchmarkDecide(b *testing.B) {
	l := benchLimiter(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		random := rand.New(rand.NewPCG(1, 2))
		keys := make([]string, 10_000)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		for pb.Next() {
			l.Decide(1, keys[random.IntN(len(keys))])
		}
	})
}
