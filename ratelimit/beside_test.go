package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// besides are rules of which a call can take without the namespace's lock.
func besides(most uint64) []Rule {
	return []Rule{
		{Name: "fixed", Limits: []Limit{FixedWindow(most, time.Hour)}},
		{Name: "first", Limits: []Limit{FirstHitWindow(most, time.Hour)}},
		{Name: "sliding", Limits: []Limit{SlidingWindow(most, time.Hour)}},
		{Name: "bucket", Limits: []Limit{TokenBucket(1, 24*time.Hour, most)}},
		{Name: "sub-buckets", Limits: []Limit{SlidingBuckets(most, time.Hour, 10*time.Minute)}},
		{Name: "several", Limits: []Limit{SlidingBuckets(most+5, 2*time.Hour, time.Hour), FixedWindow(most, time.Hour), TokenBucket(1, 24*time.Hour, most+1)}},
	}
}

// A call takes hits of a known key while another holds the lock, and never once the namespace is closed.
func TestTakesWithoutTheLock(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	n := define(t, clock, Options{Rules: besides(10)})
	long := string(make([]byte, shortKey))
	for name, l := range n.limiters {
		decide(t, l, 1, "ann")
		n.mu.Lock()
		must.Equal(t, must.Get(l.Allow(t.Context(), "ann"))(t), true, name)
		must.Equal(t, decide(t, l, 2, "ann").Remaining, 6, name)
		must.Equal(t, must.Get(l.AllowN(t.Context(), Key{"ann"}, 7))(t), false, "%s: too many", name)
		must.Equal(t, decide(t, l, 1, "ann").Remaining, 5, name)
		n.mu.Unlock()
		for i := range 11 {
			must.Equal(t, decide(t, l, 1, long).Allowed, i < 10, "a key too long for that")
		}
	}
	must.OK(t, n.Close(t.Context()))
	_, err := n.limiters["fixed"].Allow(t.Context(), "ann")
	must.Is(t, err, ErrClosed, "after Close")
}

// Calls without the lock get the same answers as those with it.
func TestBesideAsWithTheLock(t *testing.T) {
	t.Parallel()
	clock, refused := newFakeClock(), map[string]int{}
	rules := append(besides(6), Rule{Name: "counts-refused", Limits: []Limit{FixedWindow(6, time.Hour)}, CountRejected: true})
	a, b := define(t, clock, Options{Rules: rules}), define(t, clock, Options{Name: "other", Rules: rules})
	random := rand.New(rand.NewPCG(5, 2))
	for step := range 40_000 {
		clock.advance(time.Duration(random.Int64N(int64(time.Minute)) - int64(5*time.Second)))
		rule, key, cost := rules[random.IntN(len(rules))].Name, Key{fmt.Sprint(random.IntN(5))}, random.Uint64N(4)
		want := must.Get(Decide(t.Context(), limiter(t, b, rule).Demand(key, cost)))(t)
		if !want.Allowed {
			refused[rule]++
		}
		if random.IntN(3) == 0 {
			must.Equal(t, must.Get(limiter(t, a, rule).AllowN(t.Context(), key, cost))(t), want.Allowed, "step %d, %s: %d hits", step, rule, cost)
			continue
		}
		got := must.Get(limiter(t, a, rule).Decide(t.Context(), key, cost))(t)
		want.Standings, want.Limiter = nil, got.Limiter
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("step %d, %s: %d hits:\n%+v, and with the lock\n%+v", step, rule, cost, got, want)
		}
	}
	for _, r := range rules {
		must.Between(t, refused[r.Name], 500, 5500, "%s: refusals, without which a run shows little", r.Name)
	}
}

// A call without the lock that a short limit refuses leaves nothing undone: the hits that the long one has of a clock that
// was wrong become hits of now, as with the lock, once the clock has gone back by more than the long window.
func TestBesideMovesHitsOfAWrongClock(t *testing.T) {
	t.Parallel()
	clock := newFakeClock()
	rules := []Rule{{Name: "r", Limits: []Limit{FixedWindow(3, 10*time.Minute), FixedWindow(3, 2*time.Hour)}}}
	a, b := limiter(t, define(t, clock, Options{Rules: rules}), "r"), limiter(t, define(t, clock, Options{Rules: rules}), "r")
	ahead := 2*time.Hour - 5*time.Second
	for step, by := range []time.Duration{time.Hour, ahead, -ahead, 0, -8 * time.Second, time.Hour + time.Minute} {
		clock.advance(by)
		want := must.Get(Decide(t.Context(), b.Demand(Key{"ann"}, 1)))(t)
		must.Equal(t, must.Get(a.Allow(t.Context(), "ann"))(t), want.Allowed, "step %d", step)
	}
}

// However goroutines take from a key, also several at once and all that is left, exactly its limit passes. What they give
// back passes again.
func TestExactBesideEachOther(t *testing.T) {
	t.Parallel()
	const most, keys, goroutines = 3000, 2, 8
	n := node(t, Options{Capacity: 100, Rules: besides(most)})
	must.EqualOrEnd(t, n.beside.Load() != nil, true, "calls take without the lock")
	for name, l := range n.limiters {
		var passed, back [keys]atomic.Uint64
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 1))
				for range 2 * most {
					k, cost, allowed, err := random.IntN(keys), 1+random.Uint64N(2), false, error(nil)
					key, ctx := Key{fmt.Sprint("user-", k)}, context.Background()
					switch random.IntN(10) {
					case 0:
						var d Decision
						d, err = Decide(ctx, l.Demand(key, cost))
						allowed = d.Allowed
					case 1:
						var d Decision
						d, err = l.Decide(ctx, key, cost)
						allowed = d.Allowed
					case 2:
						if random.IntN(20) > 0 {
							continue
						}
						if allowed, err = l.AllowN(ctx, key, cost); allowed && err == nil {
							if err = l.GiveBack(ctx, key, cost); err == nil {
								back[k].Add(cost)
							}
						}
					default:
						allowed, err = l.AllowN(ctx, key, cost)
					}
					if err != nil {
						t.Error(err)
					}
					if allowed {
						passed[k].Add(cost)
					}
				}
			})
		}
		all.Wait()
		for k := range keys {
			key := fmt.Sprint("user-", k)
			for must.Get(l.Allow(t.Context(), key))(t) {
				passed[k].Add(1)
			}
			must.Equal(t, passed[k].Load()-back[k].Load(), uint64(most), "%s: %s: passed", name, key)
		}
	}
}

// While a call waits for room, no other takes without the lock.
func TestNobodyTakesBesideWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := must.Get(NewLimiter(FixedWindow(2, time.Minute)))(t)
		n := l.Namespace()
		for range 2 {
			decide(t, l, 1, "ann")
		}
		done := make(chan error)
		go func() { done <- l.WaitN(t.Context(), Key{"ann"}, 2) }()
		synctest.Wait()
		must.Equal(t, n.beside.Load() != nil, false, "others may take the place of a call that waits")
		must.OK(t, <-done)
		must.Equal(t, n.beside.Load() != nil, true, "nobody waits, and calls take without the lock")
	})
}
