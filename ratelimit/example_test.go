package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/ratelimit"
	"weir/ratelimit/stores"
	"weir/window"
)

// clock is a time that stands still until it is moved.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

// A program limits its users, by itself.
func Example() {
	ctx, clock := context.Background(), newClock() // a program leaves Now out
	shop, err := ratelimit.New(ratelimit.Options{Now: clock.now}).NewNamespace(ratelimit.NamespaceOptions{
		Name: "shop",
		Rules: []ratelimit.Rule{{
			Name:   "per-user",
			Limits: []window.Limit{ratelimit.SlidingWindow(100, time.Minute), ratelimit.FixedWindow(2, time.Second)},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	perUser, err := shop.Limiter("per-user")
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d, err := perUser.Decide(ctx, 1, "ann")
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter, err)
	}
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 1s <nil>
}

// Programs, and proxies with the plugin, keep one limit together. They have one namespace and one
// rule, and count in one place: here in a store in memory, else in a database, or in weir serve.
func ExampleInstance_NewNamespace_together() {
	ctx := context.Background()
	store, err := stores.Open("memory") // or redis://127.0.0.1:6379; or ratelimit.Dial
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	passed := 0
	for range 3 {
		program, err := ratelimit.New(ratelimit.Options{}).NewNamespace(ratelimit.NamespaceOptions{
			Name:    "shop",
			Backend: store,
			Exact:   true, // the backend decides every request; without it, nodes lease hits
			Timeout: time.Minute,
			Rules:   []ratelimit.Rule{{Name: "sign-up", Limits: []window.Limit{ratelimit.SlidingLog(10, 24*time.Hour)}}},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer program.Close(ctx)
		signUp, err := program.Limiter("sign-up")
		if err != nil {
			fmt.Println(err)
			return
		}
		for range 5 {
			if d, err := signUp.Decide(ctx, 1, "192.0.2.7"); err == nil && d.Allowed {
				passed++
			}
		}
	}
	fmt.Println(passed, "of 15 passed")
	// Output: 10 of 15 passed
}

// A program that has no access to the database asks the counter backend, as proxies do. If the
// backend can't be reached, this one goes on by itself.
func ExampleDial() {
	backend, err := ratelimit.Dial("http://127.0.0.1:9", ratelimit.DialOptions{Token: "secret"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backend.Close()
	shop, err := ratelimit.New(ratelimit.Options{}).NewNamespace(ratelimit.NamespaceOptions{
		Name: "shop", Backend: backend, OnBackendFailure: ratelimit.FailLocal,
		Rules: []ratelimit.Rule{{Name: "all", Limits: []window.Limit{ratelimit.TokenBucket(1, time.Hour, 5)}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := shop.Limiter("all")
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := all.Decide(context.Background(), 4)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 1 <nil>
}

// A request that several rules apply to passes if all of them have room, and takes from all.
func ExampleNamespace_Decide() {
	ctx := context.Background()
	shop, err := ratelimit.New(ratelimit.Options{Now: newClock().now}).NewNamespace(ratelimit.NamespaceOptions{
		Name: "shop",
		Rules: []ratelimit.Rule{
			{Name: "per-user", Limits: []window.Limit{ratelimit.SlidingWindow(5, time.Minute)}},
			{Name: "all", Limits: []window.Limit{ratelimit.TokenBucket(100, time.Second, 8)}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	perUser, errUser := shop.Limiter("per-user")
	all, errAll := shop.Limiter("all")
	if err := errors.Join(errUser, errAll); err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"ann", "bob"} {
		d, err := shop.Decide(ctx,
			ratelimit.Demand{Limiter: perUser, Cost: 4, Key: []string{user}},
			ratelimit.Demand{Limiter: all, Cost: 5})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(user, d.Allowed, d.RetryAfter)
		for _, s := range d.Limits {
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
	n, err := ratelimit.New(ratelimit.Options{Now: clock.now}).NewNamespace(ratelimit.NamespaceOptions{
		Name:        "shop",
		WindowSizes: []time.Duration{time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Increment(ctx, "ann", time.Minute, 40))
	clock.advance(90 * time.Second)
	fmt.Println(n.Increment(ctx, "ann", time.Minute, 10))
	fmt.Println(n.SlidingWindow(ctx, "ann", time.Minute))
	fmt.Println(n.SlidingWindowWith(ctx, "ann", time.Minute, 25))
	// Output:
	// 40 <nil>
	// 30 <nil>
	// 30 <nil>
	// 45 <nil>
}
