package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/backend/backendtest"
	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// world is a backend in memory behind a network that delays messages and loses some pushes and
// answers.
type world struct {
	store   store.Store
	backend *backend.Backend
	trip    time.Duration // there, and back again

	mu    sync.Mutex
	away  bool          // whether nothing comes through
	slow  bool          // whether no answer comes before the push is given up
	later time.Duration // how much longer the answers to pushes take that are sent now
	loses func() (push, answer bool)
}

var errLost = errors.New("lost on the way")

func newWorld() *world {
	s := memory.New(memory.Options{})
	return &world{store: s, backend: backend.New(s), trip: 5 * time.Millisecond}
}

// loseOneOf loses one in n pushes, and one in n answers.
func (w *world) loseOneOf(n int) {
	random := rand.New(rand.NewPCG(5, uint64(n)))
	w.set(func() { w.loses = func() (push, answer bool) { return random.IntN(n) == 0, random.IntN(n) == 0 } })
}

// Push implements Backend.
func (w *world) Push(ctx context.Context, push []byte) ([]byte, error) {
	w.mu.Lock()
	lost, unanswered, slow, later := w.away, w.away, w.slow, w.later
	if !w.away && w.loses != nil {
		lost, unanswered = w.loses()
	}
	w.mu.Unlock()
	<-time.After(w.trip)
	if lost {
		return nil, errLost
	}
	reply, err := w.backend.Push(context.WithoutCancel(ctx), push)
	<-time.After(w.trip + later)
	if slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if unanswered {
		return nil, errLost
	}
	return reply.Body, err
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// node defines a namespace of the world. It is closed when the test ends.
func (w *world) node(t *testing.T, o Options) *Namespace {
	t.Helper()
	o.Backend = w
	return node(t, o)
}

// sum returns the backend's hits of the first limits of all keys.
func (w *world) sum(t *testing.T) (hits int64) {
	t.Helper()
	return backendtest.Sum(t, w.store, "test")
}

// pause lets time pass, and waits until all that happens in it has ended.
func pause(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func rule(limits ...Limit) []Rule { return []Rule{{Name: "r", Limits: limits}} }

// kinds returns a limit of each kind that lasts longer than a test.
func kinds(limit uint64) map[string]Limit {
	return map[string]Limit{
		"fixed": FixedWindow(limit, time.Hour), "first hit": FirstHitWindow(limit, time.Hour), "sliding": SlidingWindow(limit, time.Hour),
		"buckets": SlidingBuckets(limit, time.Hour, time.Minute), "log": SlidingLog(limit, time.Hour), "tokens": TokenBucket(1, 24*time.Hour, limit),
	}
}

// bubble runs a test in a bubble of synctest, beside others.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// eachKind runs a test of limits of each kind, with and without a backend that decides every request.
func eachKind(t *testing.T, limit uint64, test func(t *testing.T, kind string, l Limit, exact bool)) {
	t.Helper()
	for kind, l := range kinds(limit) {
		for _, exact := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/exact=%v", kind, exact), func(t *testing.T) { test(t, kind, l, exact) })
		}
	}
}

// Nodes that are asked at once never admit more together than a limit of any kind, and use it up.
// If the backend decides every request, they admit exactly the limit.
func TestNodesKeepOneLimit(t *testing.T) {
	t.Parallel()
	const limit, nodes = 400, 3
	asks := nightly.Or(1500, 600)
	eachKind(t, limit, func(t *testing.T, _ string, l Limit, exact bool) {
		w := newWorld()
		var passed uint64
		var mu sync.Mutex
		var clients sync.WaitGroup
		for i := range nodes {
			n := w.node(t, Options{Rules: rule(l), Exact: exact})
			clients.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				var requests sync.WaitGroup
				for range asks {
					requests.Go(func() {
						d := decide(t, limiter(t, n, "r"), 1, "ann")
						if mu.Lock(); d.Allowed {
							passed++
						}
						mu.Unlock()
					})
					<-time.After(time.Duration(random.IntN(4)) * time.Millisecond)
				}
				requests.Wait()
			})
		}
		clients.Wait()
		if passed > limit || passed < limit*97/100 || exact && passed != limit {
			t.Errorf("%d passed of a limit of %d", passed, limit)
		}
	})
}

// asked asks a node a number of times, with pauses, and returns how many requests passed.
func asked(t *testing.T, n *Namespace, times int, apart time.Duration) (passed int) {
	t.Helper()
	for range times {
		if decide(t, limiter(t, n, "r"), 1, "ann").Allowed {
			passed++
		}
		<-time.After(apart)
	}
	return passed
}

// A client that asks a single node for several hits at a time, and for nothing else meanwhile, gets all
// of the limit, at the second try at the latest. Hits that the node has leased count for a request that
// needs more than them.
func TestSeveralHitsAtATime(t *testing.T) {
	for _, limit := range []uint64{100, 101, 150, 300} {
		for kind, l := range kinds(limit) {
			for _, nodes := range []int{1, 3} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					var asked *Limiter
					for range nodes {
						n := w.node(t, Options{Rules: rule(l)})
						asked, _ = n.Limiter("r")
						must.Get(asked.Allow(t.Context(), "another"))(t)
					}
					pause(2 * time.Second)
					for _, cost := range []uint64{1, 2, 5, 20} {
						key := Key{strconv.FormatUint(cost, 10)}
						for left := limit; left > 0; left -= min(cost, left) {
							d, err := asked.Decide(t.Context(), key, min(cost, left))
							if err == nil && !d.Allowed { // hits may be on their way back
								pause(2 * time.Second)
								d, err = asked.Decide(t.Context(), key, min(cost, left))
							}
							if err != nil || !d.Allowed {
								t.Fatalf("%s, limit %d, %d nodes: of %d hits left, %d got %+v, %v", kind, limit, nodes, left, min(cost, left), d, err)
							}
							pause(time.Millisecond)
						}
						must.EqualOrEnd(t, must.Get(asked.Allow(t.Context(), key...))(t), false, "%s, limit %d, %d nodes: a hit above the limit", kind, limit, nodes)
					}
				})
			}
		}
	}
}

// A token bucket's limit is lowered, first on one node and later on the other. The bucket is full
// at the same time as before, and from then on requests pass at the new rate.
func TestLimitIsLowered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		high, low := Options{Rules: rule(TokenBucket(1000, time.Minute, 1000))}, Options{Rules: rule(TokenBucket(10, time.Minute, 10))}
		change := func(n *Namespace) *Namespace {
			must.OK(t, n.Close(t.Context()))
			return w.node(t, low)
		}
		one, two := w.node(t, high), w.node(t, high)
		start := time.Now()
		passed := 0
		for range 50 {
			passed += asked(t, one, 5, 0) + asked(t, two, 5, 0)
		}
		must.AtLeast(t, passed, 490, "passed of 500 of a limit of 1000")
		full := start.Add(time.Duration(passed) * time.Minute / 1000)
		one = change(one)
		// A bucket that lacks the tokens of half a minute, and possibly leased tokens, has some
		// left.
		early := asked(t, one, 10, 0)
		must.Between(t, early, 3, 5, "passed of a bucket that lacks %v", time.Until(full))
		full = full.Add(time.Duration(early) * time.Minute / 10)
		pause(5 * time.Second)
		two = change(two)
		pause(time.Until(full) + 100*time.Millisecond)
		must.Equal(t, asked(t, one, 7, 0)+asked(t, two, 7, 0), 10, "passed when the bucket was to be full")
		got := 0
		for range 300 {
			got += asked(t, one, 1, 500*time.Millisecond) + asked(t, two, 1, 500*time.Millisecond)
		}
		must.Between(t, got, 49, 50, "passed in 5 minutes")
	})
}

// Nodes with an old and a new limit take from the same bucket. A request costs the time of a token
// by its node's limit.
func TestTwoLimitsBesideEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one := w.node(t, Options{Rules: rule(TokenBucket(1000, time.Minute, 1000))})
		two := w.node(t, Options{Rules: rule(TokenBucket(10, time.Minute, 10))})
		const lasts = 10 * time.Minute
		start := time.Now()
		var high, low time.Duration // the time of their tokens
		for i := 0; time.Since(start) < lasts; i++ {
			high += time.Duration(asked(t, one, 1, 50*time.Millisecond)) * time.Minute / 1000
			if i%100 == 0 {
				low += time.Duration(asked(t, two, 1, 0)) * time.Minute / 10
			}
		}
		// A full bucket lasts for a minute.
		must.Between(t, high+low, lasts*9/10, lasts+time.Minute, "time of tokens that passed in %v, %v of the higher limit, %v of the lower", lasts, high, low)
	})
}

// Whatever is lost on the way, each hit reaches the backend once, and unused leases come back.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	for name, exact := range map[string]bool{"leases": false, "exact": true} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld()
			random := rand.New(rand.NewPCG(3, 4))
			w.loseOneOf(4)
			var failures int
			options := Options{
				Rules: rule(FixedWindow(1e9, 240*time.Hour)), Exact: exact, Capacity: 32, // so that counters make room
				OnPushError: func(err error) {
					w.set(func() { failures++ })
					if !errors.Is(err, errLost) || !strings.Contains(err.Error(), `namespace "test": push`) {
						t.Error(err)
					}
				},
			}
			nodes := []*Namespace{w.node(t, options), w.node(t, options)}
			total := int64(0)
			for range 3000 {
				cost := uint64(random.IntN(3))
				must.EqualOrEnd(t, decide(t, limiter(t, nodes[random.IntN(2)], "r"), cost, strconv.Itoa(random.IntN(60))).Allowed, true, "far below the limit")
				total += int64(cost)
				<-time.After(time.Duration(random.IntN(30)) * time.Millisecond)
			}
			w.set(func() { w.loses = nil })
			lost := int64(0)
			for _, n := range nodes {
				pause(10 * time.Second)
				must.Report(t, n.Close(t.Context()))
				lost += int64(n.Stats().LostHits)
			}
			must.Equal(t, w.sum(t), total, "hits that the backend has")
			must.Equal(t, lost, 0, "hits were lost")
			must.AtLeast(t, failures, 50, "failures, without which this test shows nothing")
		})
	}
}

// While the backend is away, the mode decides. When the backend is back, it gets all hits.
func TestBackendFailure(t *testing.T) {
	t.Parallel()
	for mode, want := range map[FailureMode]struct{ passed, counted int }{FailLocal: {10, 10}, FailAllow: {30, 0}, FailDeny: {0, 0}} {
		for _, exact := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%d/exact=%v", mode, exact), func(t *testing.T) {
				w := newWorld()
				n := w.node(t, Options{Rules: rule(FixedWindow(10, 240*time.Hour)), Exact: exact, OnBackendFailure: mode})
				w.set(func() { w.away = true })
				passed := 0
				for range 30 {
					if decide(t, limiter(t, n, "r"), 1, "ann").Allowed {
						passed++
					}
				}
				must.Equal(t, limiter(t, n, "r").OvershootBound(), map[FailureMode]uint64{FailAllow: window.MaxHits, FailLocal: window.MaxHits}[mode], "hits above the limit are possible")
				must.Equal(t, passed, want.passed, "passed")
				must.AtLeast(t, n.Stats().DecidedAlone, 1, "decided alone")
				w.set(func() { w.away = false })
				pause(20 * time.Second)
				must.Report(t, n.Close(t.Context()))
				must.Equal(t, w.sum(t), int64(want.counted), "hits that the backend has")
			})
		}
	}
}

// A waiting request is decided when its push times out. If its context ends, it is given up, and
// its hits go back.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.slow = true
		n := w.node(t, Options{Rules: rule(FixedWindow(10, 240*time.Hour)), Exact: true, Timeout: 300 * time.Millisecond})
		l := limiter(t, n, "r")
		start := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if _, err := l.Decide(ctx, Key{"ann"}, 3); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		start = time.Now()
		if d := decide(t, l, 2, "bob"); !d.Allowed || time.Since(start) < 300*time.Millisecond || time.Since(start) > 500*time.Millisecond {
			t.Errorf("got %+v after %v", d, time.Since(start))
		}
		w.set(func() { w.slow = false })
		pause(20 * time.Second)
		must.Equal(t, decide(t, l, 10, "ann").Allowed, true, "once the hits of a request that has gone are given back")
		must.Report(t, n.Close(t.Context()))
		must.Equal(t, w.sum(t), 12, "the backend has hits")
	})
}

// Close decides waiting requests without the backend, and fails if the backend does not accept the
// last hits.
func TestCloseWithoutBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.slow = true
		n := w.node(t, Options{Rules: rule(FixedWindow(10, time.Hour)), Exact: true})
		decided := make(chan Decision)
		go func() { decided <- decide(t, limiter(t, n, "r"), 3, "ann") }()
		pause(50 * time.Millisecond)
		closed := make(chan error)
		go func() { closed <- n.Close(t.Context()) }()
		if d := <-decided; !d.Allowed || d.Remaining != 7 {
			t.Errorf("got %+v", d)
		}
		if err := <-closed; err == nil || !strings.Contains(err.Error(), "close: not all hits and usage were pushed") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// A node with a wrong clock uses the backend's.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		late := func() time.Time { return time.Now().Add(-40 * time.Second) }
		n := w.node(t, Options{Now: late, Rules: rule(FixedWindow(10, time.Minute))})
		on := w.node(t, Options{Rules: rule(FixedWindow(10, time.Minute))})
		pause(time.Second)
		passed := 0
		for range 20 {
			for _, n := range []*Namespace{n, on} {
				d := decide(t, limiter(t, n, "r"), 1, "ann")
				if d.Allowed {
					passed++
				}
				must.Between(t, time.Since(d.At), -50*time.Millisecond, 50*time.Millisecond, "decided ago")
			}
			pause(time.Second)
		}
		must.Equal(t, passed, 10, "passed")
	})
}

// Nodes know each other's rates: for a new key from its first look, and for others from the last
// push. Hits of the window before count with the backend's total, and a key that only others hit is
// followed while it has hits.
func TestRatesConverge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		options := Options{Windows: []time.Duration{time.Minute}}
		one, two := w.node(t, options), w.node(t, options)
		increment(t, one, "k", time.Minute, 10)
		must.OK(t, one.Sync(t.Context()))
		must.Equal(t, increment(t, two, "k", time.Minute, 30), 40, "the first hit of another node's key: rate")
		pause(90*time.Second - time.Since(time.Now().Truncate(time.Minute)))
		increment(t, two, "k", time.Minute, 10)
		// One node pushes within an interval, and the other asks within another, each at a tick. An
		// interval has at least eight ticks.
		pause(2*time.Second + time.Second/4)
		// The minute before still counts: 40 hits, by the share of it that is left.
		left := 40 * (1 - time.Since(time.Now().Truncate(time.Minute)).Minutes())
		must.Equal(t, rate(t, one, "k", time.Minute), left+10, "previous 40, current 10")
		must.Equal(t, must.Get(one.RateWith(t.Context(), Key{"k"}, time.Minute, 5))(t), left+15, "with another diff, which comes on top of what was pushed")
		// When a key has no hits left, no node asks for it any more.
		pause(4 * time.Minute)
		for i, n := range []*Namespace{one, two} {
			n.mu.Lock()
			got := n.node.Backlog().Keys
			n.mu.Unlock()
			must.Equal(t, got, 0, "keys that node %d still asks for", i)
		}
	})
}

// Whatever nodes count, and however often, in the end all know the same.
func TestCountsConverge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		random := rand.New(rand.NewPCG(1, 2))
		w.loseOneOf(8)
		options := Options{Windows: []time.Duration{240 * time.Hour}, Timeout: time.Second}
		nodes := []*Namespace{w.node(t, options), w.node(t, options), w.node(t, options)}
		want := map[string]float64{}
		for range 2000 {
			key, hits := "k"+strconv.Itoa(random.IntN(300)), uint64(random.IntN(5))
			increment(t, nodes[random.IntN(3)], key, 240*time.Hour, hits)
			want[key] += float64(hits)
			<-time.After(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		w.set(func() { w.loses = nil })
		pause(20 * time.Second)
		for i, n := range nodes {
			for key := range want {
				must.Equal(t, rate(t, n, key, 240*time.Hour), want[key], "node %d, %s: rate", i, key)
			}
		}
	})
}

func TestIdentityIsThePlugins(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "of-this-deployment"} {
		bubble(t, "secret "+secret, func(t *testing.T) {
			// BLAKE2s-256 of the rule's name and the key's values, each with its length before it, cut
			// to 16 bytes.
			identities := counter.NewIdentities(secret)
			want := identities.Of([]byte("\x08per-user\x03ann"))
			w := newWorld()
			n := w.node(t, Options{KeySecret: secret, Rules: []Rule{{Name: "per-user", Limits: []Limit{SlidingWindow(10, time.Minute)}}}})
			decide(t, limiter(t, n, "per-user"), 1, "ann")
			must.OK(t, n.Sync(t.Context()))
			var got []wire.ID
			err := w.store.Counters(t.Context(), "test", nil, func(c store.LimitCounter) error {
				got = append(got, c.ID)
				return nil
			})
			must.OK(t, err)
			must.Same(t, got, []wire.ID{want}, "")
		})
	}
}

// A push that the backend refuses for good is given up, and reported. The answer to another push
// doesn't count.
func TestABackendThatDisagrees(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(push []byte) ([]byte, error)
		lost   uint64
		want   string
	}{
		"refused": {func([]byte) ([]byte, error) { return nil, fmt.Errorf("%w: too odd", ErrPushRefused) }, 3, "push refused: too odd"},
		"another answer": {func([]byte) ([]byte, error) {
			return wire.AppendAnswer(nil, &wire.Answer{}), nil
		}, 0, "want the answer to a push, got other bytes"},
		"no answer": {func([]byte) ([]byte, error) { return []byte("<html>"), nil }, 0, "want the answer to a push, got other bytes"},
	} {
		bubble(t, name, func(t *testing.T) {
			n := node(t, Options{Backend: answers(test.answer), Windows: []time.Duration{time.Hour}})
			must.Equal(t, increment(t, n, "k", time.Hour, 3), 3, "rate")
			must.Contains(t, fmt.Sprint(n.Sync(t.Context())), test.want, "")
			must.Equal(t, n.Stats().LostHits, test.lost, "hits lost")
		})
	}
}

// Sync says if a part of the store is away, so that the backend lacks hits, also those of evicted counters. It does not ask again
// and again.
func TestSyncWhilePartOfTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{1, 40} { // the table has fewer
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			s := &partlyAway{Store: w.store}
			w.backend = backend.New(s)
			s.away.Store(true)
			n := w.node(t, Options{Capacity: 16, Windows: []time.Duration{time.Hour}})
			for i := range keys {
				must.Equal(t, increment(t, n, strconv.Itoa(i), time.Hour, 3), 3, "rate")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := n.Sync(ctx); err == nil || !strings.HasSuffix(err.Error(), "sync: a part of the backend's store is away") {
				t.Errorf("%d keys: %v", keys, err)
			}
			s.away.Store(false)
			must.OK(t, n.Sync(t.Context()))
			must.Equal(t, w.sum(t), int64(3*keys), "hits")
		})
	}
}

// partlyAway is a store whose pushes are all for a part that may be away.
type partlyAway struct {
	store.Store
	away atomic.Bool
}

// Push implements store.Store.
func (s *partlyAway) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if !s.away.Load() {
		return s.Store.Push(ctx, p, nodes)
	}
	missing := make([]wire.Missing, len(p.Items)+len(p.Takes))
	for i := range missing {
		missing[i] = wire.NotApplied
	}
	return store.Outcome{Answer: wire.Answer{
		NowNanos: uint64(time.Now().UnixNano()), Nodes: nodes, Missing: missing, Totals: make([]wire.Total, len(p.Items)), Grants: make([]wire.Grant, len(p.Takes)),
	}}, nil
}

// answers is a backend with any answers.
type answers func(push []byte) ([]byte, error)

func (a answers) Push(_ context.Context, push []byte) ([]byte, error) { return a(push) }

// Decisions, increments, looks and pushes happen at once: every hit arrives once.
func TestEverythingAtOnce_hammer(t *testing.T) {
	t.Parallel()
	const workers, hits = 6, 600
	w := newWorld()
	w.trip = 0
	n := w.node(t, Options{
		Capacity: 32, Windows: []time.Duration{240 * time.Hour}, SyncRate: time.Millisecond, Timeout: time.Minute,
		Rules: rule(FixedWindow(1e9, 240*time.Hour)),
	})
	l := limiter(t, n, "r")
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(worker)))
			for i := range hits {
				key := strconv.Itoa(random.IntN(100))
				must.Equal(t, decide(t, l, 1, key).Allowed, true, "refused far below the limit")
				_, err := n.Increment(t.Context(), Key{key}, 240*time.Hour, 1)
				must.Report(t, err)
				if i%200 == 0 {
					must.Report(t, n.Sync(t.Context()))
				}
			}
		})
	}
	group.Wait()
	must.Report(t, n.Close(t.Context()))
	must.Equal(t, w.sum(t), 2*workers*hits, "hits that the backend has")
	must.Equal(t, n.Stats().LostHits, 0, "hits were lost")
}

// If the backend decides every request, a request that does not fit into one question is refused
// with an error, and the largest that fits is decided. Otherwise there is no such bound.
func TestExactFitsOneQuestion(t *testing.T) {
	t.Parallel()
	fixed, log := FixedWindow(5, time.Hour), SlidingLog(505, time.Minute)
	for _, test := range []struct {
		exact bool
		rules int
		limit Limit
		want  string
	}{
		{true, 128, fixed, ""},
		{true, 129, fixed, "demands: want at most 1024 limits in all where the backend decides every request, got 1032"},
		{true, 12, log, ""},
		{true, 13, log, "demands: want fewer or smaller logs and sub-buckets: the backend's answer has at most 1048576 bytes " +
			"where it decides every request, got up to 1053954"},
		{false, 129, fixed, ""},
		{false, 13, log, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			var rules []Rule
			for i := range test.rules {
				rules = append(rules, Rule{Name: fmt.Sprint("r", i), Limits: slices.Repeat([]Limit{test.limit}, 8)})
			}
			nodes := []*Namespace{w.node(t, Options{Rules: rules, Exact: test.exact}), w.node(t, Options{Rules: rules, Exact: test.exact})}
			passed, got := uint64(0), ""
			for i := range 2 * (test.limit.Quota()/100 + 5) {
				n := nodes[i%2]
				var demands []Demand
				for j := range rules {
					demands = append(demands, limiter(t, n, rules[j].Name).Demand(nil, max(1, test.limit.Quota()/5)))
				}
				d, err := Decide(t.Context(), demands...)
				if err != nil {
					got = err.Error()
				}
				if d.Allowed {
					passed++
				}
			}
			if want := test.want; want != "" {
				if !strings.HasSuffix(got, want) || passed != 0 {
					t.Errorf("%d rules of %+v: got %q, %d passed, want the error %q", test.rules, test.limit, got, passed, want)
				}
				must.Equal(t, decide(t, limiter(t, nodes[0], "r0"), 1).Allowed, true, "one of %d rules alone", test.rules)
			} else if got != "" || passed > 5 || passed == 0 || test.exact && passed != 5 {
				t.Errorf("%d rules of %+v, exact %v: %q, %d passed, want 5", test.rules, test.limit, test.exact, got, passed)
			}
		})
	}
}

// A request that is refused says nothing about a smaller one after it: a client that asks a single
// node for more than is left, and then for less, gets the latter, however soon.
func TestLargeThenSmall(t *testing.T) {
	t.Parallel()
	for kind, limits := range map[string][]Limit{
		"fixed": {FixedWindow(5000, time.Minute)}, "first hit": {FirstHitWindow(5000, time.Minute)}, "sliding": {SlidingWindow(5000, time.Minute)},
		"buckets": {SlidingBuckets(5000, time.Minute, time.Second)}, "log": {SlidingLog(500, time.Minute)}, "tokens": {TokenBucket(5000, time.Minute, 5000)},
		"two": {TokenBucket(2000, time.Second, 5000), SlidingWindow(8000, time.Minute)}, "a small one beside": {TokenBucket(5000, time.Minute, 5000), FixedWindow(30, time.Minute)},
	} {
		for seed := range nightly.Or(uint64(100), 4) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 17))
				shared := limiter(t, newWorld().node(t, Options{Rules: rule(limits...)}), "r")
				alone := must.Get(NewLimiter(limits...))(t) // decides at once, and says what is left
				// quota is the most that ever passes.
				quota := decide(t, alone, 0, "k").Remaining
				// By the way to the backend the two count at slightly different times. So nobody asks where windows or buckets
				// begin, nor where one ends that began with a request, and room that comes on the way makes no difference.
				onWay := 1 + quota/20
				for i := range 100 {
					later := func(most time.Duration) {
						pause(time.Duration(random.Int64N(int64(most))))
						second := time.Now().Truncate(time.Second).Add(time.Second)
						pause(time.Until(second.Add(time.Duration(100+8*i) * time.Millisecond)))
					}
					later(5 * time.Second)
					left := decide(t, alone, 0, "k").Remaining
					if left < 2 || left+onWay >= quota {
						if used := random.Uint64N(quota); decide(t, shared, used, "k").Allowed {
							decide(t, alone, used, "k")
						}
						continue
					}
					large := left + onWay + 1 + random.Uint64N(quota-left-onWay)
					must.Equal(t, decide(t, shared, large, "k").Allowed, false, "%s, seed %d: %d of %d hits that are left", kind, seed, large, left)
					if random.IntN(3) > 0 {
						later(time.Second)
					}
					left = decide(t, alone, 0, "k").Remaining
					small := 1 + random.Uint64N(left/2)
					if got := decide(t, shared, small, "k"); !got.Allowed {
						t.Errorf("%s, seed %d: after a request of %d, one of %d of %d hits that are left: %+v", kind, seed, large, small, left, got.Standing)
						continue
					}
					decide(t, alone, small, "k")
				}
			})
		}
	}
}
