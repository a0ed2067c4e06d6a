package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/counter"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/window"
)

// wireStore is a store behind a network that loses some pushes on the way, and some answers.
type wireStore struct {
	store.Store
	lose func() (push, answer bool)
	seen []wire.Push
}

var errLost = errors.New("lost on the way")

func (s *wireStore) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	s.seen = append(s.seen, *p)
	push, answer := s.lose()
	if push {
		return store.Outcome{}, errLost
	}
	out, err := s.Store.Push(ctx, p, nodes)
	if answer {
		return store.Outcome{}, errLost
	}
	return out, err
}

// sums are the store's hits of all windows, by kind and width.
func sums(t *testing.T, counters Store, namespace string) map[string]int64 {
	t.Helper()
	sums := map[string]int64{}
	err := counters.Counters(t.Context(), namespace, nil, func(c store.Counter) error {
		for _, w := range c.Windows {
			sums[fmt.Sprint(c.Kind, " ", c.WidthMillis)] += w.Hits
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func syncAll(t *testing.T, namespaces ...*Namespace) {
	t.Helper()
	for _, n := range namespaces {
		if err := n.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInstancesConverge(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		clock := newFakeClock()
		testConvergence(t, clock, memory.New(memory.Options{Now: clock.now}))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		// Keys expire by Redis's own clock, so that this one must not be behind it.
		clock := newFakeClock()
		clock.nanos.Store(time.Now().Truncate(time.Hour).Add(time.Hour).UnixNano())
		counters, err := redis.Open(redistest.Start(t).URL(), redis.Options{Now: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := counters.Close(); err != nil {
				t.Error(err)
			}
		})
		testConvergence(t, clock, counters)
	})
}

func testConvergence(t *testing.T, clock *fakeClock, counters Store) {
	options := NamespaceOptions{
		WindowSizes: []time.Duration{time.Minute, time.Hour}, Store: counters,
		Rules: []Rule{
			{Name: "r", Limits: []window.Limit{FixedWindow(1e6, time.Hour), FirstHitWindow(1e6, time.Hour)}},
			{Name: "s", Limits: []window.Limit{SlidingBuckets(1e6, time.Hour, time.Minute), SlidingLog(300, time.Hour), TokenBucket(1, 24*time.Hour, 1e6)}},
		},
	}
	nodes := []*Namespace{define(t, clock, options), define(t, clock, options), define(t, clock, options)}
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]float64{}
	taken := map[string]uint64{}
	for range 3000 {
		n := nodes[random.IntN(len(nodes))]
		key, hits := "k"+strconv.Itoa(random.IntN(1200)), uint64(random.IntN(5))
		increment(t, n, key, time.Hour, hits)
		want[key] += float64(hits)
		limiter(t, n, "r").Decide(hits, key)
		limiter(t, n, "s").Decide(hits, key)
		taken[key] += hits
		clock.advance(time.Duration(random.IntN(100)) * time.Millisecond)
		if random.IntN(300) == 0 {
			syncAll(t, n)
		}
	}
	syncAll(t, nodes...)
	syncAll(t, nodes...)
	for i, n := range nodes {
		for id, p := range n.known {
			h := n.hand(p.rule)
			if h.address = p.address; !n.fetch(h) || h.cell.Pending() {
				t.Errorf("node %d, counter %x: not settled", i, id)
			}
		}
		// Those that only others have hit.
		if err := n.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := limiter(t, n, "r")
		for key := range want {
			if got := rate(t, n, key, time.Hour); got != want[key] {
				t.Errorf("node %d, %s: rate %v, want %v", i, key, got, want[key])
			}
			if got := l.Decide(0, key).Remaining; got != 1e6-taken[key] {
				t.Errorf("node %d, %s: %d remaining, want %d", i, key, got, 1e6-taken[key])
			}
			if got := limiter(t, n, "s").Decide(0, key); got.Limit != 1 || got.Remaining != 300-taken[key] {
				t.Errorf("node %d, %s: %+v of the log, want %d", i, key, got, 300-taken[key])
			}
		}
	}
	total := int64(0)
	for _, hits := range taken {
		total += int64(hits)
	}
	got := sums(t, counters, "test")
	if got["3 3600000"] != total || got["1 3600000"] != total || got["2 3600000"] != total || got["4 3600000"] != 2*total || got["5 86400000"] != total {
		t.Errorf("the store has %v, want %d of each", got, total)
	}
}

// Hits of the window before count with the store's total for it, and a key that only others hit is followed while it lives.
func TestTotalsOfOtherWindows(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	options := NamespaceOptions{WindowSizes: []time.Duration{time.Minute}, Store: counters}
	one, two := define(t, clock, options), define(t, clock, options)
	increment(t, one, "k", time.Minute, 10)
	increment(t, two, "k", time.Minute, 30)
	syncAll(t, one, two, one)
	clock.advance(90 * time.Second)
	increment(t, two, "k", time.Minute, 10)
	syncAll(t, two, one)
	if got := rate(t, one, "k", time.Minute); got != 30 {
		t.Errorf("previous 40, current 10, 30 s in: got %v, want 30", got)
	}
	if got, err := one.SlidingWindowWith("k", time.Minute, 5); err != nil || got != 35 {
		t.Errorf("with another diff, which comes on top of what was pushed: got %v, %v, want 35", got, err)
	}
	// Once nothing is left of a key, nobody asks for it any more.
	clock.advance(2 * time.Minute)
	syncAll(t, one, two)
	if len(one.known)+len(two.known) != 0 {
		t.Errorf("%d and %d counters are still synchronised", len(one.known), len(two.known))
	}
}

func TestLostOnTheWay_exactlyOnce(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	random := rand.New(rand.NewPCG(3, 4))
	steady := false
	inner := memory.New(memory.Options{Now: clock.now})
	counters := &wireStore{Store: inner, lose: func() (push, answer bool) {
		return !steady && random.IntN(4) == 0, !steady && random.IntN(4) == 0
	}}
	options := NamespaceOptions{
		Store: counters, Capacity: 32, // so that counters make room, and their hits are rescued
		Rules: []Rule{{Name: "r", Limits: []window.Limit{FixedWindow(1e9, 24*time.Hour), SlidingWindow(1e9, 24*time.Hour)}}},
	}
	nodes := []*Namespace{define(t, clock, options), define(t, clock, options)}
	total, failed := int64(0), 0
	for range 4000 {
		n := nodes[random.IntN(2)]
		hits := uint64(random.IntN(3))
		if !limiter(t, n, "r").Decide(hits, strconv.Itoa(random.IntN(60))).Allowed {
			t.Fatal("refused far below the limit")
		}
		total += int64(hits)
		if random.IntN(10) == 0 {
			clock.advance(time.Second)
			if err := n.Sync(t.Context()); err != nil {
				if failed++; !errors.Is(err, errLost) || !strings.Contains(err.Error(), `namespace "test": sync`) {
					t.Fatal(err)
				}
			}
		}
	}
	steady = true
	syncAll(t, nodes...)
	if failed < 50 {
		t.Errorf("only %d failures: this test shows nothing", failed)
	}
	got := sums(t, inner, "test")
	lost := int64(nodes[0].Lost() + nodes[1].Lost())
	// Some are lost while the store is away, as more counters make room than are kept; but never more than is said.
	if sum := got["1 86400000"] + got["3 86400000"]; sum+lost != 2*total || sum < total {
		t.Errorf("the store has %v, %d lost, want %d of each", got, lost, total)
	}
	// Whatever came more than once was the same.
	first := map[string]wire.Push{}
	for _, p := range counters.seen {
		name := fmt.Sprint(p.Sender, " ", p.Sequence)
		if before, ok := first[name]; ok && !reflect.DeepEqual(before, p) {
			t.Errorf("push %s was sent again, but not unchanged", name)
		}
		first[name] = p
	}
	if len(first) == len(counters.seen) {
		t.Error("nothing was sent again")
	}
}

// A round that fails half-way leaves the rest, counters and what was rescued of others, to the next one.
func TestFailureHalfWay(t *testing.T) {
	t.Parallel()
	const capacity, keys = 3000, 9000
	clock := newFakeClock()
	pushes := 0
	inner := memory.New(memory.Options{Now: clock.now})
	counters := &wireStore{Store: inner, lose: func() (push, answer bool) {
		pushes++
		return pushes == 2 || pushes == 5, false
	}}
	n := define(t, clock, NamespaceOptions{Store: counters, Capacity: capacity, WindowSizes: []time.Duration{24 * time.Hour}})
	for i := range keys {
		increment(t, n, strconv.Itoa(i), 24*time.Hour, 1)
	}
	for range 2 {
		if err := n.Sync(t.Context()); !errors.Is(err, errLost) {
			t.Fatalf("got %v, want %v", err, errLost)
		}
	}
	syncAll(t, n)
	if got := sums(t, inner, "test")["3 86400000"] + int64(n.Lost()); got != keys {
		t.Errorf("%d hits have arrived or were said to be lost, want %d", got, keys)
	}
	if n.Lost() > keys-2*capacity {
		t.Errorf("%d hits lost", n.Lost())
	}
}

// The hits of a counter that had to make room arrive in the windows that they were counted in.
func TestRescue(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	n := define(t, clock, NamespaceOptions{
		Store: counters, Capacity: 1, Rules: []Rule{{Name: "r", Limits: []window.Limit{FixedWindow(100, time.Minute), FixedWindow(100, time.Hour)}}},
	})
	l := limiter(t, n, "r")
	l.Decide(2, "k")
	clock.advance(time.Minute)
	l.Decide(1, "k")
	for i := range 20 {
		l.Decide(5, strconv.Itoa(i)) // uses more, and pushes k out
	}
	// As many orphans are kept as counters: k is the first of them, with its first limit.
	if len(n.orphans) != 1 || n.Lost() == 0 {
		t.Fatalf("%d orphans, %d lost", len(n.orphans), n.Lost())
	}
	if got := n.orphans[0].item; got.WidthMillis != 60_000 || !reflect.DeepEqual(got.Hits, []int64{1}) {
		t.Errorf("the first orphan is %+v, want 1 hit of the minute", got)
	}
}

// Limits that are alike but for the number have totals of their own.
func TestAlikeLimits(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	options := NamespaceOptions{
		Store: counters, Rules: []Rule{{Name: "r", Limits: []window.Limit{FixedWindow(10, time.Minute), FixedWindow(20, time.Minute)}}},
	}
	one, two := define(t, clock, options), define(t, clock, options)
	limiter(t, one, "r").Decide(4, "k")
	syncAll(t, one)
	if err := two.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := limiter(t, two, "r").Decide(0, "k").Remaining; got != 6 {
		t.Errorf("%d remaining of 10 after 4", got)
	}
}

// While a push has no answer, nobody knows whether the store's totals have its hits: they are not counted twice.
func TestFetchWhileInFlight(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	away := true
	counters := &wireStore{Store: memory.New(memory.Options{Now: clock.now}), lose: func() (push, answer bool) { return false, away }}
	n := define(t, clock, NamespaceOptions{Store: counters, WindowSizes: []time.Duration{time.Minute}})
	increment(t, n, "k", time.Minute, 3)
	if err := n.Sync(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if err := n.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rate(t, n, "k", time.Minute); got != 3 {
		t.Errorf("before the answer: rate %v, want 3", got)
	}
	away = false
	syncAll(t, n)
	if got := rate(t, n, "k", time.Minute); got != 3 {
		t.Errorf("after it: rate %v, want 3", got)
	}
}

func TestAStoreThatDisagrees(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		outcome store.Outcome
		err     error
		lost    uint64
		want    string
	}{
		{"short answer", store.Outcome{}, nil, 0, "want an answer of 1 totals, got 0"},
		{"invalid", store.Outcome{}, store.ErrInvalid, 3, "invalid push"},
	} {
		clock := newFakeClock()
		counters := &stubStore{outcome: test.outcome, err: test.err}
		n := define(t, clock, NamespaceOptions{WindowSizes: []time.Duration{time.Minute}, Store: counters})
		increment(t, n, "k", time.Minute, 3)
		if err := n.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.name, err, test.want)
		}
		if got := rate(t, n, "k", time.Minute); got != 3 || n.Lost() != test.lost {
			t.Errorf("%s: rate %v and %d lost, want 3 and %d", test.name, got, n.Lost(), test.lost)
		}
		// A push is sent again until its windows no longer count, and does not stand in the way then.
		clock.advance(time.Hour)
		if err := n.Sync(t.Context()); test.err == nil && err == nil {
			t.Errorf("%s: the last attempt tells no error", test.name)
		}
		if err := n.Sync(t.Context()); err != nil {
			t.Errorf("%s: an hour later: %v", test.name, err)
		}
	}
}

// Hits of a push that was given up are in flight for a while. What comes after them waits as long, and arrives.
func TestHitsAfterAPushThatWasGivenUp(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	stub, inner := &stubStore{err: store.ErrInvalid}, memory.New(memory.Options{Now: clock.now})
	n := define(t, clock, NamespaceOptions{WindowSizes: []time.Duration{time.Hour}, Store: stub})
	increment(t, n, "k", time.Hour, 3)
	if err := n.Sync(t.Context()); !errors.Is(err, store.ErrInvalid) {
		t.Fatal(err)
	}
	n.store = inner
	increment(t, n, "k", time.Hour, 4)
	syncAll(t, n)
	clock.advance(time.Minute)
	syncAll(t, n)
	if got := sums(t, inner, "test")["3 3600000"]; got != 4 {
		t.Errorf("the store has %d hits, want 4", got)
	}
	if got := rate(t, n, "k", time.Hour); got != 4 {
		t.Errorf("here are %v hits, want 4 as in the store", got)
	}
}

type stubStore struct {
	outcome  store.Outcome
	err      error
	counters func(visit func(store.Counter) error) error
}

func (s *stubStore) Push(context.Context, *wire.Push, uint64) (store.Outcome, error) {
	return s.outcome, s.err
}

func (s *stubStore) Counters(_ context.Context, _ string, _ []uint64, visit func(store.Counter) error) error {
	return s.counters(visit)
}

func TestFetch(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	options := NamespaceOptions{
		WindowSizes: []time.Duration{time.Minute}, Store: counters,
		Rules: []Rule{{Name: "r", Limits: []window.Limit{FixedWindow(10, time.Hour), FirstHitWindow(10, time.Hour)}}},
	}
	one, two := define(t, clock, options), define(t, clock, options)
	clock.advance(30 * time.Second)
	increment(t, one, "k", time.Minute, 20)
	limiter(t, one, "r").Decide(4, "k")
	clock.advance(45 * time.Second)
	increment(t, one, "k", time.Minute, 7)
	increment(t, two, "known", time.Minute, 1)
	syncAll(t, one, two)
	increment(t, one, "known", time.Minute, 2)
	syncAll(t, one)

	if err := two.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rate(t, two, "k", time.Minute); got != 22 {
		t.Errorf("rate of a key that was never hit here: got %v, want 22", got)
	}
	if got := rate(t, two, "known", time.Minute); got != 3 {
		t.Errorf("rate of a key in use: got %v, want 3", got)
	}
	if got := increment(t, two, "k", time.Minute, 1); got != 23 {
		t.Errorf("its first hit: got %v, want 23", got)
	}
	d := limiter(t, two, "r").Decide(6, "k")
	if !d.Allowed || d.Remaining != 0 {
		t.Errorf("6 of 10 after 4: got %+v", d)
	}
	if d := limiter(t, two, "r").Decide(1, "k"); d.RetryAfter != time.Hour-45*time.Second {
		t.Errorf("the window that the first hit elsewhere has started ends after %v", d.RetryAfter)
	}
	if len(two.fetched) != 0 {
		t.Errorf("%d counters still wait for their keys", len(two.fetched))
	}
	syncAll(t, two, one)
	if got := sums(t, counters, "test"); got["1 3600000"] != 10 || got["2 3600000"] != 10 || got["3 60000"] != 31 {
		t.Errorf("the store has %v", got)
	}
}

// What was fetched is bounded, is forgotten with its windows, and stays as it was after an error.
func TestFetchIsBounded(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	options := NamespaceOptions{WindowSizes: []time.Duration{time.Minute}, Store: counters}
	one := define(t, clock, options)
	for i := range 500 {
		increment(t, one, strconv.Itoa(i), time.Minute, 1)
	}
	syncAll(t, one)
	options.Capacity = 100
	two := define(t, clock, options)
	if err := two.Fetch(t.Context()); err != nil || len(two.fetched) != 100 {
		t.Fatalf("fetched %d counters, %v, want 100", len(two.fetched), err)
	}
	two.store = &stubStore{counters: func(func(store.Counter) error) error { return errLost }}
	if err := two.Fetch(t.Context()); !errors.Is(err, errLost) || len(two.fetched) != 100 {
		t.Errorf("after an error: %d counters, %v", len(two.fetched), err)
	}
	two.store = counters
	clock.advance(3 * time.Minute)
	syncAll(t, two)
	if len(two.fetched) != 0 || two.waiting.Load() != 0 {
		t.Errorf("%d counters wait for keys though their windows have ended", len(two.fetched))
	}
}

// The identity in the store is the one that proxies use, so that a program and a proxy count together.
func TestIdentityIsThePlugins(t *testing.T) {
	t.Parallel()
	// BLAKE2s-256 of the rule's name and the key's values, each with its length before it, cut to 16 bytes.
	want := counter.Identity([]byte("\x08per-user\x03ann"))
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	n := define(t, clock, NamespaceOptions{
		Store: counters, Rules: []Rule{{Name: "per-user", Limits: []window.Limit{SlidingWindow(10, time.Minute)}}},
	})
	limiter(t, n, "per-user").Decide(1, "ann")
	syncAll(t, n)
	var got []wire.ID
	err := counters.Counters(t.Context(), "test", nil, func(c store.Counter) error {
		got = append(got, c.ID)
		return nil
	})
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}

// Decisions, increments, reads, rounds of Sync and Fetch at once: every hit arrives once.
func TestSync_hammer(t *testing.T) {
	t.Parallel()
	const workers, hits = 6, 1500
	clock := newFakeClock()
	counters := memory.New(memory.Options{Now: clock.now})
	n := define(t, clock, NamespaceOptions{
		Store: counters, Capacity: 32, WindowSizes: []time.Duration{24 * time.Hour},
		Rules: []Rule{{Name: "r", Limits: []window.Limit{FixedWindow(1e9, 24*time.Hour)}}},
	})
	l := limiter(t, n, "r")
	done := make(chan struct{})
	var rounds, group sync.WaitGroup
	rounds.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(n.Sync(t.Context()), n.Fetch(t.Context())); err != nil {
				t.Error(err)
			}
			clock.advance(time.Millisecond)
		}
	})
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(worker)))
			for range hits {
				key := strconv.Itoa(random.IntN(100))
				l.Decide(1, key)
				if _, err := n.Increment(key, 24*time.Hour, 1); err != nil {
					t.Error(err)
				}
				if _, err := n.SlidingWindow(key, 24*time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	close(done)
	rounds.Wait()
	syncAll(t, n)
	lost := int64(n.Lost())
	got := sums(t, counters, "test")
	if sum := got["1 86400000"] + got["3 86400000"]; sum+lost != 2*workers*hits {
		t.Errorf("the store has %v, %d lost, want %d in all", got, lost, 2*workers*hits)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counters := memory.New(memory.Options{})
		var failing atomic.Bool
		failing.Store(true)
		var told []error
		n, err := New(Options{}).NewNamespace(NamespaceOptions{
			Name: "test", WindowSizes: []time.Duration{time.Hour}, SyncRate: 10 * time.Second,
			Store: &wireStore{Store: counters, lose: func() (push, answer bool) { return failing.Load(), false }},
			OnSyncError: func(err error) {
				told = append(told, err)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		increment(t, n, "k", time.Hour, 5)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		<-time.After(11 * time.Second)
		synctest.Wait()
		if len(told) != 1 || !errors.Is(told[0], errLost) || len(sums(t, counters, "test")) != 0 {
			t.Errorf("after a round that failed: told %v", told)
		}
		failing.Store(false)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if got := sums(t, counters, "test"); got["3 3600000"] != 5 {
			t.Errorf("after a second round: the store has %v", got)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run ended with %v", err)
		}
	})
}

func TestWithoutAStore(t *testing.T) {
	t.Parallel()
	n := define(t, newFakeClock(), NamespaceOptions{WindowSizes: []time.Duration{time.Minute}})
	increment(t, n, "k", time.Minute, 1)
	if err := errors.Join(n.Sync(t.Context()), n.Fetch(t.Context())); err != nil {
		t.Error(err)
	}
	if len(n.known) != 0 {
		t.Error("there is nobody to synchronise with")
	}
}
