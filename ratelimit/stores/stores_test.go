package stores_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// Two processes keep their totals in one Redis.
func TestOpen(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	start := func() *ratelimit.Namespace {
		store, err := stores.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		n, err := ratelimit.New(ratelimit.Options{}).NewNamespace(ratelimit.NamespaceOptions{
			Name: "shop", Store: store, WindowSizes: []time.Duration{24 * time.Hour},
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	one, two := start(), start()
	if _, err := one.Increment("ann", 24*time.Hour, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Increment("ann", 24*time.Hour, 4); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*ratelimit.Namespace{one, two, one} {
		if err := n.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if rate, err := one.SlidingWindow("ann", 24*time.Hour); err != nil || rate < 6 || rate > 7 {
		t.Errorf("got a rate of %v, %v, want 7, or less if a day has ended meanwhile", rate, err)
	}
}

// A name that is none is refused without what may be a password.
func TestOpenBadName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "hunter2", "mysql://weir:hunter2@host", "redis://:hunter2/@host", "postgres://weir:hunter2/@host"} {
		if _, err := stores.Open(name); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// A program opens the database itself; with ratelimit.Dial it asks weir serve.
func ExampleOpen() {
	store, err := stores.Open("memory") // or redis://127.0.0.1:6379, postgres://…
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	_, err = ratelimit.New(ratelimit.Options{}).NewNamespace(ratelimit.NamespaceOptions{
		Name: "shop", Store: store, WindowSizes: []time.Duration{time.Minute},
	})
	fmt.Println(err)
	// Output: <nil>
}
