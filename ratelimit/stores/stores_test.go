package stores_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// Two processes share their totals in a Redis.
func TestOpen(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	start := func() *ratelimit.Namespace {
		store := must.Get(stores.Open(url))(t)
		n := must.Get(ratelimit.NewNamespace(ratelimit.Options{
			Name: "shop", Backend: store, Timeout: time.Minute, Windows: []time.Duration{24 * time.Hour},
		}))(t)
		t.Cleanup(func() { must.Report(t, errors.Join(n.Close(context.Background()), store.Close())) })
		return n
	}
	one, two := start(), start()
	must.Get(one.Increment(t.Context(), ratelimit.Key{"ann"}, 24*time.Hour, 3))(t)
	must.OK(t, one.Sync(t.Context()))
	rate := must.Get(two.Increment(t.Context(), ratelimit.Key{"ann"}, 24*time.Hour, 4))(t)
	must.Between(t, rate, 6, 7, "a rate, which is less than 7 if a day has ended meanwhile")
}

// A program's counts in a file survive its restart.
func TestOpenFile(t *testing.T) {
	t.Parallel()
	path := "file:" + filepath.Join(t.TempDir(), "weir.db")
	for want := 3.0; want < 10; want += 3 {
		store := must.Get(stores.Open(path))(t)
		_, err := stores.Open(path)
		must.Fails(t, err, "a file that is opened twice")
		n := must.Get(ratelimit.NewNamespace(ratelimit.Options{
			Name: "shop", Backend: store, Timeout: time.Minute, Windows: []time.Duration{300 * 24 * time.Hour},
		}))(t)
		must.Get(n.Increment(t.Context(), ratelimit.Key{"ann"}, 300*24*time.Hour, 3))(t)
		must.OK(t, n.Sync(t.Context()))
		must.Between(t, must.Get(n.Rate(t.Context(), ratelimit.Key{"ann"}, 300*24*time.Hour))(t), want-0.1, want, "the rate")
		must.OK(t, errors.Join(n.Close(context.Background()), store.Close()))
	}
}

// An invalid push is refused.
func TestPushRefused(t *testing.T) {
	t.Parallel()
	store := must.Get(stores.Open("memory"))(t)
	defer store.Close()
	_, err := store.Push(t.Context(), []byte("?"))
	must.Is(t, err, ratelimit.ErrPushRefused, "")
}

// An invalid name is refused without repeating a part that may be a password.
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
	ctx := context.Background()
	store, err := stores.Open("memory") // or redis://127.0.0.1:6379, postgres://…
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Backend: store, Timeout: time.Minute,
		Rules: []ratelimit.Rule{{Name: "per-user", Limits: []ratelimit.Limit{ratelimit.SlidingWindow(100, 24*time.Hour)}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer shop.Close(ctx)
	perUser, err := shop.Limiter("per-user")
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := perUser.Decide(ctx, ratelimit.Key{"ann"}, 1)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 99 <nil>
}
