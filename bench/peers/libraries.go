package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/must"
	"weir/ratelimit"
)

// allower asks a library for a hit of a user.
type allower func(ctx context.Context, user string) (bool, error)

// libraries count in this process.
func libraries() group {
	many := page.Thousands(manyKeys) + " users"
	fastest := []string{"time-rate", "go-limiter"}
	nanos := func(title string) metric { return metric{title, "ns", 0, "vr"} }
	library := func(name, title string, open func(b *bench, limit int) (allower, error)) contender {
		return contender{name: name, title: title, than: "weir", start: func(ctx context.Context, b *bench, limit int) (*subject, error) {
			allow, err := open(b, limit)
			return &subject{allow, func(ctx context.Context) (values []float64, err error) {
				err = page.Hosted(func(t testing.TB) (err error) { // so that it ends, and its memory is free
					own := *b
					own.TB = t
					values, err = own.library(ctx, func() (allower, error) { return open(&own, limit) })
					return err
				})
				return values, err
			}}, err
		}}
	}
	weir := func(name, title string, of func(limit uint64) ratelimit.Limit) contender {
		return library(name, title, func(_ *bench, limit int) (allower, error) {
			n, err := ratelimit.NewNamespace(ratelimit.Options{
				Name: site.Namespace, Capacity: 4 * manyKeys, Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{of(uint64(limit))}}},
			})
			if err != nil {
				return nil, err
			}
			l, err := n.Limiter("r")
			return func(ctx context.Context, user string) (bool, error) { return l.Allow(ctx, user) }, err
		})
	}
	return group{
		name: "libraries", title: "a Go library's decision", reference: "of Weir's",
		versions: func(*options) []string {
			return linked("golang.org/x/time", "throttled/v2", "ulule/limiter/v3", "sethvargo/go-limiter")
		},
		metrics: []metric{
			nanos("1 goroutine, one user"), nanos("1 goroutine, " + many), nanos("8 goroutines, one user"), nanos("8 goroutines, " + many),
			{"allocations", "", 0, "v"}, {"memory of a user", "B", 0, "v"},
		},
		quotes: []quotes{
			{"weir", 0, 'r', fastest}, {"weir", 1, 'r', fastest}, {"weir", 2, 'r', fastest}, {"weir", 3, 'r', fastest}, {"weir", 5, 'r', append([]string{"ulule", "throttled"}, fastest...)},
		},
		contenders: []contender{
			weir("weir", "Weir, a fixed window", func(limit uint64) ratelimit.Limit { return ratelimit.FixedWindow(limit, time.Minute) }),
			weir("weir-bucket", "Weir, a token bucket", func(limit uint64) ratelimit.Limit { return ratelimit.TokenBucket(limit, time.Minute, limit) }),
			library("time-rate", "x/time/rate in a `sync.Map`", func(_ *bench, limit int) (allower, error) {
				var all sync.Map
				return func(_ context.Context, user string) (bool, error) {
					l, ok := all.Load(user)
					if !ok {
						l, _ = all.LoadOrStore(user, rate.NewLimiter(rate.Limit(float64(limit)/60), limit))
					}
					return l.(*rate.Limiter).Allow(), nil
				}, nil
			}),
			library("throttled", "throttled", func(_ *bench, limit int) (allower, error) {
				store, err := memstore.NewCtx(4 * manyKeys)
				if err != nil {
					return nil, err
				}
				allow, err := throttle(store, limit)
				return func(ctx context.Context, user string) (allowed bool, err error) {
					for range 1000 { // it gives up when other goroutines have changed a user ten times
						if allowed, err = allow(ctx, user); err == nil {
							break
						}
					}
					return allowed, err
				}, err
			}),
			library("ulule", "ulule/limiter", func(_ *bench, limit int) (allower, error) { return ulule(memory.NewStore(), limit), nil }),
			library("go-limiter", "sethvargo/go-limiter", func(b *bench, limit int) (allower, error) {
				store, err := memorystore.New(&memorystore.Config{Tokens: uint64(limit), Interval: time.Minute})
				return take(b, store), err
			}),
		},
	}
}

func throttle(store throttled.GCRAStoreCtx, limit int) (allower, error) {
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(limit), MaxBurst: limit - 1})
	return func(ctx context.Context, user string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, user, 1)
		return !limited, err
	}, err
}

func ulule(store limiter.Store, limit int) allower {
	l := limiter.New(store, limiter.Rate{Period: time.Minute, Limit: int64(limit)})
	return func(ctx context.Context, user string) (bool, error) {
		c, err := l.Get(ctx, user)
		return !c.Reached, err
	}
}

func take(b *bench, store golimiter.Store) allower {
	b.Cleanup(func() { must.Report(b, store.Close(context.Background())) })
	return func(ctx context.Context, user string) (bool, error) {
		_, _, _, ok, err := store.Take(ctx, user)
		return ok, err
	}
}

// library measures a new limiter.
func (b *bench) library(ctx context.Context, open func() (allower, error)) (values []float64, err error) {
	users := users(b.keys)
	var before, after runtime.MemStats
	heap := func(m *runtime.MemStats) {
		for range 3 { // what has a finalizer takes two, and what is pooled
			runtime.GC()
		}
		runtime.ReadMemStats(m)
	}
	heap(&before)
	allow, err := open()
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		// A program has a user's name from a request, which a limiter that keeps it keeps.
		if _, err := allow(ctx, strings.Clone(u)); err != nil {
			return nil, err
		}
	}
	heap(&after)
	size := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(b.keys)
	allocations, n := 0.0, b.requests*50
	for _, goroutines := range []int{1, 8} {
		for _, keys := range []int{1, b.keys} {
			runtime.ReadMemStats(&before)
			begin := time.Now()
			if err := decide(ctx, allow, goroutines, n, users[:keys]); err != nil {
				return nil, err
			}
			values = append(values, float64(time.Since(begin).Nanoseconds())/float64(n))
			runtime.ReadMemStats(&after)
			allocations = max(allocations, float64((after.Mallocs-before.Mallocs)/uint64(n)))
		}
	}
	runtime.KeepAlive(allow)
	return append(values, allocations, size), nil
}

// decide makes decisions of users, all of which have to pass, evenly, in goroutines. Neighbours in the list do not follow each other.
func decide(ctx context.Context, allow allower, goroutines, n int, users []string) error {
	var g errgroup.Group
	for part := range goroutines {
		g.Go(func() error {
			const prime = 7919
			for i := range n / goroutines {
				allowed, err := allow(ctx, users[(part*n/goroutines+i)*prime%len(users)])
				if err != nil || !allowed {
					return fmt.Errorf("allowed: %t, %w", allowed, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func users(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = user(i)
	}
	return all
}
