package stores_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/postgres/postgrestest"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// asProgram makes the test's binary a program with the library, with a store at this URL.
const asProgram = "WEIR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if url := os.Getenv(asProgram); url != "" {
		if err := program(url); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(postgrestest.Main(m))
}

// program makes decisions while the store fails, and some more.
func program(url string) error {
	store, err := stores.Open(url)
	if err != nil {
		return err
	}
	var told atomic.Int64
	shop, err := ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Backend: store, Exact: true, Timeout: 20 * time.Second,
		Rules:       []ratelimit.Rule{{Name: "all", Limits: []ratelimit.Limit{ratelimit.FixedWindow(1000, time.Hour)}}},
		OnPushError: func(error) { told.Add(1) },
	})
	if err != nil {
		return err
	}
	all, err := shop.Limiter("all")
	if err != nil {
		return err
	}
	for range 20 {
		if _, err := all.Decide(context.Background(), nil, 1); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := shop.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	fmt.Println("told of", told.Load(), "errors")
	return store.Close()
}

// A program whose database is away gets the error by OnPushError, and nothing is written to its
// standard error.
func TestSilent(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Stop()
	postgres := postgrestest.Start(t)
	postgres.Stop(t)
	for name, url := range map[string]string{
		"redis":         redis.URL(),
		"redis by TLS":  strings.Replace(redis.URL(), "redis://", "rediss://", 1),
		"redis cluster": strings.Replace(redis.URL(), "redis://", "redis+cluster://", 1),
		"sentinel":      strings.Replace(redis.URL(), "redis://", "redis+sentinel://", 1) + "/mymaster",
		"postgres":      postgres.URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0])
			command.Env = append(os.Environ(), asProgram+"="+url)
			var stdout, stderr bytes.Buffer
			command.Stdout, command.Stderr = &stdout, &stderr
			must.OKf(t, command.Run(), "%s%s", &stdout, &stderr)
			must.Equal(t, stderr.String(), "", "standard error")
			if out := stdout.String(); !strings.HasPrefix(out, "told of ") || strings.HasPrefix(out, "told of 0 ") {
				t.Errorf("%swant errors by OnPushError", out)
			}
		})
	}
}
