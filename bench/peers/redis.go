package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"weir/bench/site"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// redises decide by a script on Redis, one decision after the other, each limiter on a Redis of its own.
func redises() group {
	own := func(name, title string, open func(b *bench, address string, limit int) (allower, error)) contender {
		return contender{name: name, title: title, than: "weir", start: func(ctx context.Context, b *bench, limit int) (*subject, error) {
			server := redistest.Start(b)
			allow, err := open(b, server.Addr, limit)
			return &subject{allow, func(ctx context.Context) ([]float64, error) {
				n, users := b.requests/4, users(b.keys)
				if err := decide(ctx, allow, 1, n/8, users); err != nil { // connects, and fills caches
					return nil, err
				}
				return site.Micros(n, []int{server.PID(), os.Getpid()}, func() error { return decide(ctx, allow, 1, n, users) })
			}}, err
		}}
	}
	goredis := func(name, title string, open func(client *redis.Client, limit int) (allower, error)) contender {
		return own(name, title, func(b *bench, address string, limit int) (allower, error) {
			client := redis.NewClient(&redis.Options{Addr: address})
			b.Cleanup(func() { _ = client.Close() }) // its server ends with it
			return open(client, limit)
		})
	}
	return group{
		name: "redis", title: "a lone decision on Redis", reference: "of Weir's", outside: true,
		versions: func(o *options) []string {
			python, _ := os.ReadFile(filepath.Join(o.python(), "installed")) // it has run
			return append(linked("throttled/v2", "ulule/limiter/v3", "redis_rate/v10"), versionOf("redis-server", "--version"), "Python's "+strings.TrimSpace(string(python)))
		},
		metrics: []metric{{"CPU of Redis", "µs", 1, "vr"}, {"CPU of the client", "µs", 1, "vr"}},
		quotes:  []quotes{{"weir", 0, 'r', []string{"redis_rate", "ulule", "limits-moving"}}, {"weir", 1, 'r', []string{"redis_rate", "ulule"}}},
		contenders: []contender{
			own("weir", "Weir, `sync_rate: 0`", func(b *bench, address string, limit int) (allower, error) {
				store, err := stores.Open("redis://" + address)
				if err != nil {
					return nil, err
				}
				n, err := ratelimit.NewNamespace(ratelimit.Options{
					Name: site.Namespace, Capacity: 4 * manyKeys, Backend: store, Exact: true, Timeout: time.Second, OnBackendFailure: ratelimit.FailDeny,
					Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{ratelimit.FixedWindow(uint64(limit), time.Minute)}}},
				})
				if err != nil {
					return nil, err
				}
				b.Cleanup(func() {
					_, _ = n.Close(context.Background()), store.Close() // nothing is kept
				})
				l, err := n.Limiter("r")
				return func(ctx context.Context, user string) (bool, error) { return l.Allow(ctx, user) }, err
			}),
			goredis("redis_rate", "redis_rate", func(client *redis.Client, limit int) (allower, error) {
				l := redis_rate.NewLimiter(client)
				return func(ctx context.Context, user string) (bool, error) {
					r, err := l.Allow(ctx, user, redis_rate.PerMinute(limit))
					return err == nil && r.Allowed > 0, err
				}, nil
			}),
			goredis("ulule", "ulule/limiter", func(client *redis.Client, limit int) (allower, error) {
				store, err := ululeredis.NewStore(client)
				return ulule(store, limit), err
			}),
			goredis("throttled", "throttled", func(client *redis.Client, limit int) (allower, error) {
				store, err := goredisstore.NewCtx(client, "throttled:")
				if err != nil {
					return nil, err
				}
				return throttle(store, limit)
			}),
			limits("limits-fixed", "Python's limits, a fixed window", "FixedWindowRateLimiter"),
			limits("limits-moving", "Python's limits, a moving window", "MovingWindowRateLimiter"),
		},
	}
}

// program answers lines in Python: a user, and for how many decisions of it. It answers how many passed.
const program = `
import sys
from limits import RateLimitItemPerMinute, storage, strategies
limiter = getattr(strategies, sys.argv[3])(storage.RedisStorage("redis://" + sys.argv[1]))
item = RateLimitItemPerMinute(int(sys.argv[2]))
for line in sys.stdin:
    print(sum(limiter.hit(item, user) for user in line.split()), flush=True)
`

func (o *options) python() string { return filepath.Join(o.Dir, "..", "dist", "peers", "python") }

// limits is PyPI's limits, by one of its strategies.
func limits(name, title, strategy string) contender {
	return contender{name: name, title: title, than: "weir", start: func(ctx context.Context, b *bench, limit int) (*subject, error) {
		server := redistest.Start(b)
		python := exec.Command(filepath.Join(b.python(), "bin", "python"), "-c", program, server.Addr, fmt.Sprint(limit), strategy)
		python.Stderr = os.Stderr
		in, err := python.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := python.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := python.Start(); err != nil {
			return nil, fmt.Errorf("%w: install it: scripts/test-dependencies bench", err)
		}
		b.Cleanup(func() {
			_, _ = in.Close(), python.Wait()
		})
		lines := bufio.NewReader(out)
		hit := func(users ...string) (passed int, err error) {
			if _, err := io.WriteString(in, strings.Join(users, " ")+"\n"); err != nil {
				return 0, err
			}
			_, err = fmt.Fscanln(lines, &passed)
			return passed, err
		}
		return &subject{
			allow: func(_ context.Context, user string) (bool, error) {
				passed, err := hit(user)
				return passed > 0, err
			},
			round: func(ctx context.Context) ([]float64, error) {
				n, all := b.requests/4, []string{}
				for i := range n {
					all = append(all, user(i*7919%b.keys))
				}
				if _, err := hit(all[:n/8]...); err != nil {
					return nil, err
				}
				return site.Micros(n, []int{server.PID(), python.Process.Pid}, func() error {
					if passed, err := hit(all...); err != nil || passed != n {
						return fmt.Errorf("%d of %d passed: %w", passed, n, err)
					}
					return nil
				})
			},
		}, nil
	}}
}
