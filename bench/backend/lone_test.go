package backend

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/internal/wire"
	"weir/ratelimit"
	open "weir/ratelimit/stores"
	"weir/window"
)

// lone decides a request by a question to its own Redis.
type lone struct {
	name   string
	server *redistest.Server
	decide func(ctx context.Context, key string) error
}

// loneLimit is never reached.
const loneLimit = 1_000_000_000

// lones are limiters that others have in Redis, the store alone, and the library with it.
func lones(b *testing.B) (all []lone) {
	add := func(name string, start func(s *redistest.Server) func(ctx context.Context, key string) error) {
		server := redistest.Start(b)
		all = append(all, lone{name, server, start(server)})
	}
	client := func(s *redistest.Server) *goredis.Client {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr})
		closed(b, c.Close)
		return c
	}
	add("redis_rate", func(s *redistest.Server) func(ctx context.Context, key string) error {
		l := redis_rate.NewLimiter(client(s))
		return func(ctx context.Context, key string) error {
			r, err := l.Allow(ctx, key, redis_rate.PerMinute(loneLimit))
			if err == nil && r.Allowed != 1 {
				err = fmt.Errorf("refused: %+v", r)
			}
			return err
		}
	})
	add("ulule", func(s *redistest.Server) func(ctx context.Context, key string) error {
		kept, err := ulule.NewStoreWithOptions(client(s), limiter.StoreOptions{Prefix: "limiter"})
		if err != nil {
			b.Fatal(err)
		}
		l := limiter.New(kept, limiter.Rate{Period: time.Minute, Limit: loneLimit})
		return func(ctx context.Context, key string) error {
			r, err := l.Get(ctx, key)
			if err == nil && r.Reached {
				err = fmt.Errorf("refused: %+v", r)
			}
			return err
		}
	})
	for _, kind := range []struct {
		name  string
		limit ratelimit.Limit
		kind  window.Kind
	}{
		{"fixed window", ratelimit.FixedWindow(loneLimit, time.Minute), window.FixedWindow},
		{"sliding window", ratelimit.SlidingWindow(loneLimit, time.Minute), window.SlidingWindow},
		{"token bucket", ratelimit.TokenBucket(loneLimit, time.Minute, loneLimit), window.TokenBucket},
	} {
		add("store, "+kind.name, func(s *redistest.Server) func(ctx context.Context, key string) error {
			kept, err := redis.Open(s.URL(), redis.Options{})
			if err != nil {
				b.Fatal(err)
			}
			closed(b, kept.Close)
			sequence, sender := uint64(0), rand.Uint64()
			return func(ctx context.Context, key string) error {
				sequence++
				id := wire.ID{}
				n, _ := strconv.Atoi(key)
				binary.LittleEndian.PutUint64(id[:], uint64(n)*0x9e3779b97f4a7c15)
				p := &wire.Push{Namespace: namespace, Sender: sender, Sequence: sequence, Floor: sequence, Node: 1, Takes: []wire.Take{{Least: 1, Most: 1, Rooms: []wire.Room{{
					LimitCounter: wire.LimitCounter{ID: id, Kind: uint8(kind.kind), WidthMillis: 60_000}, Limit: loneLimit, Burst: loneLimit, Cost: 1,
				}}}}}
				out, err := kept.Push(ctx, p, 1)
				if err == nil && out.Answer.Grants[0].Units != 1 {
					err = fmt.Errorf("refused: %+v", out)
				}
				return err
			}
		})
		add("library, "+kind.name, func(s *redistest.Server) func(ctx context.Context, key string) error {
			kept, err := open.Open(s.URL())
			if err != nil {
				b.Fatal(err)
			}
			n, err := ratelimit.NewNamespace(ratelimit.Options{Name: namespace, Backend: kept, Exact: true, Timeout: 20 * time.Second,
				Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{kind.limit}}}})
			if err != nil {
				b.Fatal(err)
			}
			closed(b, kept.Close)
			closed(b, func() error { return n.Close(context.Background()) })
			l, err := n.Limiter("r")
			if err != nil {
				b.Fatal(err)
			}
			return func(ctx context.Context, key string) error {
				passes, err := l.Allow(ctx, key)
				if err == nil && !passes {
					err = fmt.Errorf("refused")
				}
				return err
			}
		})
	}
	return all
}

// running is the time that a process has run.
func running(b *testing.B, pid int) (used time.Duration) {
	b.Helper()
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	if err != nil || len(threads) == 0 {
		b.Fatal(threads, err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		nanos, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		used += time.Duration(n)
	}
	return used
}

// BenchmarkLone has one request at a time decided by Redis, exactly. It measures all in turns, and prints medians of rounds in
// microseconds for a request: of the time that Redis runs, and that this process runs, and until the answer.
func BenchmarkLone(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			all := lones(b)
			const each = 2000
			names := make([]string, keys)
			for i := range names {
				names[i] = strconv.Itoa(i)
			}
			redisTimes, ownTimes, waits := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
			round := func(n int) {
				for i, l := range all {
					server, own, began := running(b, l.server.PID()), ownCPU(), time.Now()
					for j := range each {
						if err := l.decide(b.Context(), names[(n*each+j)*7919%keys]); err != nil {
							b.Fatal(l.name, err)
						}
					}
					per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / each }
					if n > 0 {
						redisTimes[i], ownTimes[i], waits[i] = append(redisTimes[i], per(running(b, l.server.PID())-server)), append(ownTimes[i], per(ownCPU()-own)), append(waits[i], per(time.Since(began)))
					}
				}
			}
			n := 0 // which is not counted
			for round(n); b.Loop(); {
				n++
				round(n)
			}
			fmt.Printf("\n| %d keys | Redis µs | own µs | wait µs |\n| --- | --: | --: | --: |\n", keys)
			median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
			for i, l := range all {
				fmt.Printf("| %s | %.1f | %.1f | %.1f |\n", l.name, median(redisTimes[i]), median(ownTimes[i]), median(waits[i]))
			}
		})
	}
}
