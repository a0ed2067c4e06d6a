package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/ratelimit"
	"weir/ratelimit/limithttp"
)

// Each user may have two exports running at a time.
func ExampleLimiter_Acquire() {
	ctx := context.Background()
	exports, err := ratelimit.NewLimiter(ratelimit.InFlight(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		release, acquired, err := exports.Acquire(ctx, "ann")
		defer release()
		fmt.Println(acquired, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

// A place is held until it is released, but no longer than Hold.
func TestAcquire(t *testing.T) {
	t.Parallel()
	clock := newClock()
	n := start(t, ratelimit.Options{Name: "n", Now: clock.now, Rules: []ratelimit.Rule{
		{Name: "flight", Limits: []ratelimit.Limit{ratelimit.InFlight(1)}, Hold: time.Hour},
		{Name: "window", Limits: []ratelimit.Limit{ratelimit.FixedWindow(3, 24*time.Hour)}},
	}})
	flight, window := limiter(t, n, "flight"), limiter(t, n, "window")
	try := func(want bool, left uint64) func() {
		t.Helper()
		release, d, err := ratelimit.Acquire(t.Context(), flight.Demand(nil, 1), window.Demand(nil, 1))
		if err != nil || d.Allowed != want || d.Standings[1].Remaining != left {
			t.Fatalf("got %+v, %v, want %v with %d left", d, err, want, left)
		}
		return release
	}
	release := try(true, 2)
	for range 59 {
		clock.advance(time.Minute)
		try(false, 2)()
	}
	release()
	release()
	again := try(true, 1)
	release()
	try(false, 1)
	clock.advance(time.Hour)
	try(true, 0)()
	again()
	if d, err := flight.Decide(t.Context(), nil, 0); err != nil || d.Remaining != 1 || !d.Allowed {
		t.Errorf("nobody holds anything, and got %+v, %v", d, err)
	}
	_, alone := flight.Decide(t.Context(), nil, 1)
	_, together := ratelimit.Decide(t.Context(), flight.Demand(nil, 1))
	for _, err := range []error{alone, together, flight.GiveBack(t.Context(), nil, 1), flight.Wait(t.Context())} {
		must.Contains(t, fmt.Sprint(err), "want Acquire", "a place that nobody gives back, or that somebody may hold")
	}
	must.OK(t, n.Close(t.Context()))
	again()
	if release, _, err := flight.Acquire(t.Context()); !errors.Is(err, ratelimit.ErrClosed) {
		t.Errorf("after Close: %v", err)
	} else {
		release()
	}
}

// Programs with the same backend never hold more than the limit, and can use all of it after others
// have released their places.
func TestAcquireOfPrograms(t *testing.T) {
	t.Parallel()
	for _, rate := range []time.Duration{0, 20 * time.Millisecond} {
		const limit = 4
		store := open(t, "memory")
		var limiters []*ratelimit.Limiter
		for range 3 {
			limiters = append(limiters, limiter(t, start(t, ratelimit.Options{
				Name: "n", Backend: store, SyncRate: rate, Timeout: time.Minute, OnBackendFailure: ratelimit.FailDeny,
				Rules: []ratelimit.Rule{{Name: "flight", Limits: []ratelimit.Limit{ratelimit.InFlight(limit)}}},
			}), "flight"))
		}
		var held, most, passed atomic.Int64
		var group sync.WaitGroup
		for i := range 12 {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			group.Go(func() {
				for range 100 {
					ctx, cancel := context.WithCancel(t.Context())
					if random.IntN(10) == 0 {
						cancel()
					}
					release, acquired, err := limiters[random.IntN(3)].Acquire(ctx, "ann")
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					if acquired {
						passed.Add(1)
						now := held.Add(1)
						for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
						}
						held.Add(-1)
					}
					release()
					cancel()
				}
			})
		}
		group.Wait()
		must.AtMost(t, most.Load(), limit, "sync rate %v: places that were held", rate)
		must.AtLeast(t, passed.Load(), 1, "sync rate %v: requests that passed", rate)
	}
}

// The middleware gives a place back when the handler has returned.
func TestMiddlewareHolds(t *testing.T) {
	t.Parallel()
	l := must.Get(ratelimit.NewLimiter(ratelimit.InFlight(1)))(t)
	entered, finish := make(chan struct{}), make(chan struct{})
	handler := limithttp.Middleware(func(*http.Request) []ratelimit.Demand { return []ratelimit.Demand{l.Demand(nil, 1)} }, limithttp.Options{})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-finish
		}))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w
	}
	for range 3 {
		var group sync.WaitGroup
		group.Go(func() {
			must.Equal(t, ask().Code, http.StatusOK, "")
		})
		<-entered
		if w := ask(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
		finish <- struct{}{}
		group.Wait()
	}
}
