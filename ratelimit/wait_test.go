package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
	"weir/ratelimit"
)

// A client of another company's API sends ten requests a second, however many its goroutines want
// to send.
func ExampleLimiter_Wait() {
	requests, err := ratelimit.NewLimiter(ratelimit.TokenBucket(10, time.Second, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	for range 3 {
		if err := requests.Wait(ctx, "api.example"); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(time.Since(start) >= 200*time.Millisecond)
	// Output: true
}

// waitAll lets calls wait one after the other, and returns when each had room, or its error.
func waitAll(t *testing.T, l *ratelimit.Limiter, calls int, ctx context.Context, key ...string) (after []time.Duration, failed []error) {
	t.Helper()
	start := time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	order := make([]int, 0, calls)
	failed = make([]error, calls)
	for i := range calls {
		group.Go(func() {
			err := l.Wait(ctx, key...)
			mu.Lock()
			defer mu.Unlock()
			if failed[i] = err; err == nil {
				order, after = append(order, i), append(after, time.Since(start))
			}
		})
		synctest.Wait()
	}
	group.Wait()
	must.Equal(t, slices.IsSorted(order), true, "calls had room in the order %v", order)
	return after, failed
}

// Calls get room one after the other, at the limit's pace, and in their order.
func TestWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind string
		pace time.Duration
	}{
		{"alone", 100 * time.Millisecond}, {"backend", 100 * time.Millisecond}, {"exact", 100 * time.Millisecond},
		{"alone", 10 * time.Millisecond}, {"backend", 10 * time.Millisecond}, {"exact", 10 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(test.kind, " ", test.pace), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := ratelimit.Options{Name: "n", Rules: []ratelimit.Rule{{
					Name: "r", Limits: []ratelimit.Limit{ratelimit.TokenBucket(uint64(time.Second/test.pace), time.Second, 1)},
				}}}
				if test.kind != "alone" {
					o.Backend, o.Exact = open(t, "memory"), test.kind == "exact"
				}
				l := limiter(t, start(t, o), "r")
				done := make(chan struct{})
				go func() {
					defer close(done)
					<-time.After(test.pace / 2)
					for range 35 {
						if allowed, err := l.Allow(t.Context(), "ann"); allowed || err != nil {
							t.Errorf("a call that does not wait overtakes: %v, %v", allowed, err)
						}
						<-time.After(test.pace / 2)
					}
				}()
				after, failed := waitAll(t, l, 20, t.Context(), "ann")
				<-done
				must.OK(t, errors.Join(failed...))
				for i, at := range after {
					// A tick is at most a millisecond late.
					want := time.Duration(i) * test.pace
					must.Between(t, at, want, want+time.Duration(i+1)*2*time.Millisecond, "call %d had room after", i)
				}
				must.Equal(t, must.Get(l.Allow(t.Context(), "bob"))(t), true, "another key")
			})
		})
	}
}

// No call waits longer than ctx and the rule allow, or behind more calls than the rule allows.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := start(t, ratelimit.Options{Name: "n", Rules: []ratelimit.Rule{
			{Name: "short", Limits: []ratelimit.Limit{ratelimit.TokenBucket(10, time.Second, 1)}, Delay: 250 * time.Millisecond},
			{Name: "few", Limits: []ratelimit.Limit{ratelimit.TokenBucket(10, time.Second, 1)}, Queue: 2},
			{Name: "usual", Limits: []ratelimit.Limit{ratelimit.TokenBucket(10, time.Second, 1)}},
		}})
		for _, rule := range []string{"short", "few", "usual"} {
			l, _ := n.Limiter(rule)
			ctx, cancel := t.Context(), func() {}
			if rule == "usual" {
				ctx, cancel = context.WithTimeout(ctx, 250*time.Millisecond)
			}
			start := time.Now()
			after, failed := waitAll(t, l, 5, ctx)
			cancel()
			for i, err := range failed {
				must.Equal(t, errors.Is(err, ratelimit.ErrNoRoom), i >= 3, "%s: call %d: %v", rule, i, err)
			}
			must.AtMost(t, time.Since(start), 210*time.Millisecond, "%s: the calls took", rule)
			must.Equal(t, len(after), 3, "%s: calls that had room", rule)
		}
		l, _ := n.Limiter("usual")
		if err := l.WaitN(t.Context(), nil, 2); !errors.Is(err, ratelimit.ErrNoRoom) || !strings.Contains(err.Error(), `rule "usual"`) {
			t.Errorf("more than ever has room: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		must.Is(t, l.Wait(gone, "new"), context.Canceled, "ctx has ended")
	})
}

// A call that gives up takes nothing, and the calls behind it move up. Close ends all waiting.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	for _, backend := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := ratelimit.Options{Name: "n", Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{ratelimit.TokenBucket(1, time.Second, 1)}}}}
			if backend {
				o.Backend = open(t, "memory")
			}
			n := start(t, o)
			l := limiter(t, n, "r")
			must.OK(t, l.Wait(t.Context()))
			start := time.Now()
			leaver, leave := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				must.Is(t, l.Wait(leaver), context.Canceled, "who leaves")
			})
			synctest.Wait()
			group.Go(func() {
				must.Report(t, l.Wait(t.Context()))
				must.AtMost(t, time.Since(start), 1010*time.Millisecond, "who is next waits for")
			})
			synctest.Wait()
			leave()
			group.Wait()
			for range 3 {
				group.Go(func() {
					must.Is(t, l.Wait(t.Context()), ratelimit.ErrClosed, "after Close")
				})
			}
			synctest.Wait()
			start = time.Now()
			must.Report(t, n.Close(t.Context()))
			group.Wait()
			must.AtMost(t, time.Since(start), 500*time.Millisecond, "Close took")
			must.Is(t, l.Wait(t.Context()), ratelimit.ErrClosed, "after Close")
		})
	}
}

// Many goroutines that wait, give up and do not wait never get more than the limit, and all end.
func TestWait_hammer(t *testing.T) {
	t.Parallel()
	for _, backend := range []ratelimit.Backend{nil, open(t, "memory")} {
		l := limiter(t, start(t, ratelimit.Options{Name: "n", Backend: backend, Rules: []ratelimit.Rule{
			{Name: "r", Limits: []ratelimit.Limit{ratelimit.TokenBucket(2000, time.Second, 5)}},
		}}), "r")
		start := time.Now()
		var passed atomic.Int64
		var group sync.WaitGroup
		for i := range 16 {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			group.Go(func() {
				for range 40 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(20))*time.Millisecond)
					switch random.IntN(4) {
					case 0:
						allowed, err := l.Allow(ctx)
						if allowed {
							passed.Add(1)
						} else if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					default:
						if err := l.Wait(ctx); err == nil {
							passed.Add(1)
						} else if !errors.Is(err, ratelimit.ErrNoRoom) && ctx.Err() == nil {
							t.Error(err)
						}
					}
					cancel()
				}
			})
		}
		group.Wait()
		if most := 5 + int64(time.Since(start).Seconds()*2000) + 1; passed.Load() > most || passed.Load() == 0 {
			t.Errorf("%d passed, where %d may", passed.Load(), most)
		}
	}
}
