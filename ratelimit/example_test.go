package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// clock is a clock that stands still until it is advanced.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

// Each user has a hundred requests a minute.
func Example() {
	ctx := context.Background()
	perUser, err := ratelimit.NewLimiter(ratelimit.SlidingWindow(100, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	allowed, err := perUser.Allow(ctx, "ann")
	fmt.Println(allowed, err)
	// Output: true <nil>
}

// A decision has the state of the limits after it, and the time to retry.
func ExampleLimiter_Decide() {
	ctx, clock := context.Background(), newClock() // a program leaves Now out
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop",
		Now:  clock.now,
		Rules: []ratelimit.Rule{{
			Name:   "per-user",
			Limits: []ratelimit.Limit{ratelimit.SlidingWindow(100, time.Minute), ratelimit.FixedWindow(2, time.Second)},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	perUser, err := shop.Limiter("per-user")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := perUser.Decide(ctx, ratelimit.Key{"ann"}, 1)
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter, err)
	}
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 1s <nil>
}

// Programs, and proxies with the plugin, can share a limit. They use the same namespace and rule,
// and count in the same place: here a store in memory, otherwise a database or weir serve.
func ExampleNewNamespace_together() {
	ctx := context.Background()
	store, err := stores.Open("memory") // or redis://127.0.0.1:6379; or ratelimit.Dial
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	passed := 0
	for range 3 {
		program, err := ratelimit.NewNamespace(ratelimit.Options{
			Name:    "shop",
			Backend: store,
			Exact:   true, // the backend decides every request; without it, nodes lease hits
			Timeout: time.Minute,
			Rules:   []ratelimit.Rule{{Name: "sign-up", Limits: []ratelimit.Limit{ratelimit.SlidingLog(10, 24*time.Hour)}}},
		})
		if err != nil {
			log.Fatal(err)
		}
		defer program.Close(ctx)
		signUp, err := program.Limiter("sign-up")
		if err != nil {
			log.Fatal(err)
		}
		for range 5 {
			if allowed, err := signUp.Allow(ctx, "192.0.2.7"); err == nil && allowed {
				passed++
			}
		}
	}
	fmt.Println(passed, "of 15 passed")
	// Output: 10 of 15 passed
}

// A program without access to the database asks the counter backend, like proxies. If the backend
// can't be reached, this program decides alone.
func ExampleDial() {
	backend, err := ratelimit.Dial("http://127.0.0.1:9", ratelimit.DialOptions{Token: "secret"})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Backend: backend, OnBackendFailure: ratelimit.FailLocal,
		Rules: []ratelimit.Rule{{Name: "all", Limits: []ratelimit.Limit{ratelimit.TokenBucket(1, time.Hour, 5)}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	all, err := shop.Limiter("all")
	if err != nil {
		log.Fatal(err)
	}
	d, err := all.Decide(context.Background(), nil, 4)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 1 <nil>
}

// A request to which several rules apply passes if all of them have room, and takes hits from all.
func ExampleDecide() {
	ctx := context.Background()
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop",
		Now:  newClock().now,
		Rules: []ratelimit.Rule{
			{Name: "per-user", Limits: []ratelimit.Limit{ratelimit.SlidingWindow(5, time.Minute)}},
			{Name: "all", Limits: []ratelimit.Limit{ratelimit.TokenBucket(100, time.Second, 8)}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	perUser, errUser := shop.Limiter("per-user")
	all, errAll := shop.Limiter("all")
	if err := errors.Join(errUser, errAll); err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "bob"} {
		d, err := ratelimit.Decide(ctx, perUser.Demand(ratelimit.Key{user}, 4), all.Demand(nil, 5))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, d.Allowed, d.RetryAfter)
		for _, s := range d.Standings {
			fmt.Println(" ", s.Limiter.Name(), s.Remaining, "left")
		}
	}
	// Output:
	// ann true 0s
	//   per-user 1 left
	//   all 3 left
	// bob false 20ms
	//   per-user 5 left
	//   all 3 left
}

func ExampleNamespace_Increment() {
	ctx, clock := context.Background(), newClock()
	n, err := ratelimit.NewNamespace(ratelimit.Options{
		Name:    "shop",
		Now:     clock.now,
		Windows: []time.Duration{time.Minute},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Increment(ctx, ratelimit.Key{"ann"}, time.Minute, 40))
	clock.advance(90 * time.Second)
	fmt.Println(n.Increment(ctx, ratelimit.Key{"ann"}, time.Minute, 10))
	fmt.Println(n.Rate(ctx, ratelimit.Key{"ann"}, time.Minute))
	fmt.Println(n.RateWith(ctx, ratelimit.Key{"ann"}, time.Minute, 25))
	// Output:
	// 40 <nil>
	// 30 <nil>
	// 30 <nil>
	// 45 <nil>
}
