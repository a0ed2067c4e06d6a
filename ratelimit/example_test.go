package ratelimit_test

import (
	"context"
	"fmt"
	"time"

	"weir/internal/store/memory"
	"weir/ratelimit"
	"weir/window"
)

// clock is a time that stands still until it is moved.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func Example() {
	clock := newClock() // a program leaves Now out
	instance := ratelimit.New(ratelimit.Options{Now: clock.now})
	shop, err := instance.NewNamespace(ratelimit.NamespaceOptions{
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
		d := perUser.Decide(1, "ann")
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1s
}

func ExampleNamespace_Increment() {
	clock := newClock()
	n, err := ratelimit.New(ratelimit.Options{Now: clock.now}).NewNamespace(ratelimit.NamespaceOptions{
		Name:        "shop",
		WindowSizes: []time.Duration{time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(n.Increment("ann", time.Minute, 40))
	clock.advance(90 * time.Second)
	fmt.Println(n.Increment("ann", time.Minute, 10))
	fmt.Println(n.SlidingWindow("ann", time.Minute))
	fmt.Println(n.SlidingWindowWith("ann", time.Minute, 25))
	// Output:
	// 40 <nil>
	// 30 <nil>
	// 30 <nil>
	// 45 <nil>
}

// Two processes keep one limit through a store: here one in memory, else what [ratelimit.Dial] or package stores gives.
func ExampleNamespace_Sync() {
	ctx, clock := context.Background(), newClock()
	store := memory.New(memory.Options{Now: clock.now})
	process := func() *ratelimit.Namespace {
		n, err := ratelimit.New(ratelimit.Options{Now: clock.now}).NewNamespace(ratelimit.NamespaceOptions{
			Name:        "shop",
			WindowSizes: []time.Duration{time.Minute},
			Store:       store,
		})
		if err != nil {
			fmt.Println(err)
		}
		return n
	}
	one, two := process(), process()
	fmt.Println(one.Increment("ann", time.Minute, 3))
	fmt.Println(two.Increment("ann", time.Minute, 4))
	// A program calls Run in a goroutine instead.
	fmt.Println(one.Sync(ctx), two.Sync(ctx), one.Sync(ctx))
	fmt.Println(one.SlidingWindow("ann", time.Minute))
	fmt.Println(two.SlidingWindow("ann", time.Minute))

	// A third one, just started, fetches what the others have counted.
	three := process()
	fmt.Println(three.Fetch(ctx))
	fmt.Println(three.Increment("ann", time.Minute, 1))
	// Output:
	// 3 <nil>
	// 4 <nil>
	// <nil> <nil> <nil>
	// 7 <nil>
	// 7 <nil>
	// <nil>
	// 8 <nil>
}

// A program that has no access to the database asks the counter backend, as proxies do.
func ExampleDial() {
	backend, err := ratelimit.Dial("http://weir:9180", ratelimit.DialOptions{Token: "secret"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backend.Close()
	_, err = ratelimit.New(ratelimit.Options{}).NewNamespace(ratelimit.NamespaceOptions{
		Name: "shop", Store: backend, WindowSizes: []time.Duration{time.Minute},
	})
	fmt.Println(err)
	// Output: <nil>
}
