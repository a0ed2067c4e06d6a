package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"golang.org/x/time/rate"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
)

// Other rate limiters run beside Weir's library: the same requests at the same times have the same answers. Each peer is
// told the time.

// begin is when runs begin. It is no beginning of a window.
var begin = time.Date(2026, 1, 2, 15, 4, 5, 678_901_000, time.UTC)

// ask is a request at a time after begin, in whole microseconds, as peers with floating point keep no more.
type ask struct {
	Micros int64  `json:"at"`
	Cost   uint64 `json:"cost"`
}

func (a ask) at() time.Time { return begin.Add(time.Duration(a.Micros) * time.Microsecond) }

// asks are requests of one run: bursts, pauses of about a window, and a stream near the limit.
func asks(random *rand.Rand, steps int, limit uint64, window time.Duration, most uint64) []ask {
	all := make([]ask, steps)
	now := int64(0)
	even := window.Microseconds() / int64(limit)
	for i := range all {
		switch random.IntN(20) {
		case 0:
			now += random.Int64N(2 * window.Microseconds())
		case 1, 2, 3, 4, 5:
		default:
			now += random.Int64N(2 * even)
		}
		all[i] = ask{now, 1 + random.Uint64N(most)}
	}
	return all
}

// weir returns the answers of the library.
func weir(t *testing.T, limit ratelimit.Limit, all []ask) []bool {
	t.Helper()
	now := begin
	n := must.Get(ratelimit.NewNamespace(ratelimit.Options{Name: "peers", Now: func() time.Time { return now }, Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{limit}}}}))(t)
	defer n.Close(context.Background())
	l := must.Get(n.Limiter("r"))(t)
	answers := make([]bool, len(all))
	for i, a := range all {
		now = a.at()
		answers[i] = must.Get(l.AllowN(t.Context(), nil, a.Cost))(t)
	}
	return answers
}

// shape is a limit's numbers. The time for each hit is a whole number of microseconds.
type shape struct {
	limit  uint64
	window time.Duration
	burst  uint64
}

func shapes(random *rand.Rand) shape {
	limit := 1 + random.Uint64N(20)
	window := time.Duration(limit) * time.Duration(1+random.IntN(2000)) * time.Millisecond
	return shape{limit, max(window, time.Second).Round(time.Duration(limit) * time.Millisecond), 1 + random.Uint64N(30)}
}

// runs compares runs by their seeds. peer returns the answers that a peer gives, and reports by sure whether a rounding
// may not have decided an answer.
func runs(t *testing.T, n int, most uint64, limit func(shape) ratelimit.Limit, peer func(shape, []ask) (answers, unsure []bool)) {
	t.Helper()
	refused, compared := 0, 0
	for seed := range uint64(n) {
		random := rand.New(rand.NewPCG(seed, 7))
		s := shapes(random)
		all := asks(random, nightly.Or(5000, 1000), s.limit, s.window, min(most, s.limit, s.burst))
		want, unsure := peer(s, all)
		for i, got := range weir(t, limit(s), all) {
			if unsure != nil && unsure[i] {
				break // from here on the two may have counted another hit
			}
			if got != want[i] {
				t.Fatalf("seed %d, %+v, request %d at %v of %d hits: %t, the peer says %t", seed, s, i, time.Duration(all[i].Micros)*time.Microsecond, all[i].Cost, got, want[i])
			}
			if compared++; !got {
				refused++
			}
		}
	}
	if t.Logf("%d answers, %d of them refusals", compared, refused); refused < compared/10 || refused > compared*9/10 || compared < n*100 {
		t.Errorf("%d of %d are refused: such runs show little", refused, compared)
	}
}

func bucket(s shape) ratelimit.Limit { return ratelimit.TokenBucket(s.limit, s.window, s.burst) }

func TestTimeRate(t *testing.T) {
	t.Parallel()
	runs(t, nightly.Or(500, 50), 5, bucket, func(s shape, all []ask) (answers, unsure []bool) {
		l := rate.NewLimiter(rate.Limit(float64(s.limit)/s.window.Seconds()), int(s.burst))
		for _, a := range all {
			tokens := l.TokensAt(a.at())
			unsure = append(unsure, math.Abs(tokens-float64(a.Cost)) < 1e-6)
			answers = append(answers, l.AllowN(a.at(), int(a.Cost)))
		}
		return answers, unsure
	})
}

// cell is a store of throttled with one key, and a time.
type cell struct {
	value int64
	now   time.Time
}

func (c *cell) GetWithTime(context.Context, string) (int64, time.Time, error) {
	return c.value, c.now, nil
}

func (c *cell) SetIfNotExistsWithTTL(_ context.Context, _ string, value int64, _ time.Duration) (bool, error) {
	return c.CompareAndSwapWithTTL(context.Background(), "", -1, value, 0)
}

func (c *cell) CompareAndSwapWithTTL(_ context.Context, _ string, old, value int64, _ time.Duration) (bool, error) {
	if c.value != old {
		return false, nil
	}
	c.value = value
	return true, nil
}

func TestThrottled(t *testing.T) {
	t.Parallel()
	runs(t, nightly.Or(500, 50), 5, bucket, func(s shape, all []ask) (answers, _ []bool) {
		store := &cell{value: -1}
		l := must.Get(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(int(s.limit), s.window), MaxBurst: int(s.burst) - 1}))(t)
		for _, a := range all {
			store.now = a.at()
			limited, _, err := l.RateLimitCtx(t.Context(), "k", int(a.Cost))
			must.OK(t, err)
			answers = append(answers, !limited)
		}
		return answers, nil
	})
}

// scripts are the algorithms that articles about rate limits with Redis have, in whole microseconds. Arguments are the
// time, the hits, the limit, the window, and the burst. No key lives on: the time of Redis is not the run's.
var scripts = map[string]struct {
	limit func(shape) ratelimit.Limit
	most  uint64
	lua   string
}{
	// INCR also counts what is refused: of single hits that changes nothing.
	"fixed window": {func(s shape) ratelimit.Limit { return ratelimit.FixedWindow(s.limit, s.window) }, 1, `
		local n = redis.call('INCRBY', KEYS[1] .. ':' .. math.floor(now / window), cost)
		return n <= limit and 1 or 0`},
	"sliding log": {func(s shape) ratelimit.Limit { return ratelimit.SlidingLog(s.limit, s.window) }, 1, `
		redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
		if redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
		redis.call('ZADD', KEYS[1], string.format('%.0f', now), redis.call('INCR', KEYS[1] .. ':n'))
		return 1`},
	"sliding window": {func(s shape) ratelimit.Limit { return ratelimit.SlidingWindow(s.limit, s.window) }, 5, `
		local number = math.floor(now / window)
		local current = tonumber(redis.call('GET', KEYS[1] .. ':' .. number) or 0)
		local previous = tonumber(redis.call('GET', KEYS[1] .. ':' .. (number - 1)) or 0)
		if (current + cost) * window + previous * (window - now % window) > limit * window then return 0 end
		redis.call('INCRBY', KEYS[1] .. ':' .. number, cost)
		return 1`},
	"token bucket": {bucket, 5, `
		local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
		local most = burst * window
		local tokens = math.min(most, (tonumber(state[1]) or most) + (now - (tonumber(state[2]) or now)) * limit)
		local passes = tokens >= cost * window
		if passes then tokens = tokens - cost * window end
		redis.call('HSET', KEYS[1], 'tokens', string.format('%.0f', tokens), 'at', string.format('%.0f', now))
		return passes and 1 or 0`},
	"leaky bucket": {bucket, 5, `
		local state = redis.call('HMGET', KEYS[1], 'level', 'at')
		local level = math.max(0, (tonumber(state[1]) or 0) - (now - (tonumber(state[2]) or now)) * limit)
		local passes = level + cost * window <= burst * window
		if passes then level = level + cost * window end
		redis.call('HSET', KEYS[1], 'level', string.format('%.0f', level), 'at', string.format('%.0f', now))
		return passes and 1 or 0`},
}

func TestRedisScripts(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			lua := redis.NewScript("local now, cost, limit, window, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])\n" + script.lua)
			runs(t, nightly.Or(40, 2), script.most, script.limit, func(s shape, all []ask) (answers, _ []bool) {
				must.OK(t, client.FlushAll(t.Context()).Err())
				pipe := client.Pipeline()
				var results []*redis.Cmd
				must.OK(t, lua.Load(t.Context(), client).Err())
				for _, a := range all {
					results = append(results, lua.EvalSha(t.Context(), pipe, []string{"k"}, a.at().UnixMicro(), a.Cost, s.limit, s.window.Microseconds(), s.burst))
				}
				must.Get(pipe.Exec(t.Context()))(t)
				for _, r := range results {
					passed := must.Get(r.Bool())(t)
					answers = append(answers, passed)
				}
				return answers, nil
			})
		})
	}
}

// python asks PyPI's limits, whose clock is time.time.
const python = `
import json, sys, time
now = 0.0
time.time = lambda: now
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
for line in sys.stdin:
    run = json.loads(line)
    limiter = {"fixed": FixedWindowRateLimiter, "moving": MovingWindowRateLimiter}[run["strategy"]](MemoryStorage())
    item = RateLimitItemPerSecond(run["limit"], run["seconds"])
    answers = []
    for a in run["asks"]:
        now = run["begin"] + a["at"] / 1e6
        answers.append(limiter.hit(item, "k", cost=a["cost"]))
    print(json.dumps(answers), flush=True)
`

// TestLimits runs fixed windows, which begin with their first hit, and moving windows beside PyPI's limits. Its sliding
// window counter differs: it rounds the previous window down, and so passes up to a hit more.
func TestLimits(t *testing.T) {
	t.Parallel()
	if !nightly.On() {
		return // pip installs it
	}
	venv := t.TempDir()
	commandtest.Run(t, exec.Command("python3", "-m", "venv", venv))
	commandtest.Run(t, exec.Command(filepath.Join(venv, "bin", "pip"), "install", "--quiet", "limits"))
	for strategy, test := range map[string]struct {
		limit func(shape) ratelimit.Limit
		most  uint64
	}{
		"fixed":  {func(s shape) ratelimit.Limit { return ratelimit.FirstHitWindow(s.limit, s.seconds()) }, 1}, // refused hits count there
		"moving": {func(s shape) ratelimit.Limit { return ratelimit.SlidingLog(s.limit, s.seconds()) }, 5},
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			runs(t, 20, test.most, test.limit, func(s shape, all []ask) (answers, unsure []bool) {
				given := must.Get(json.Marshal(map[string]any{
					"strategy": strategy, "limit": s.limit, "seconds": s.seconds() / time.Second, "begin": float64(begin.UnixMicro()) / 1e6, "asks": all,
				}))(t)
				c := exec.Command(filepath.Join(venv, "bin", "python"), "-c", python)
				c.Stdin = bytes.NewReader(append(given, '\n'))
				var problems bytes.Buffer
				c.Stderr = &problems
				told, err := c.Output()
				must.OKf(t, err, "%s", problems.Bytes())
				must.OKf(t, json.Unmarshal(told, &answers), "%.100s", told)
				// Floating point decides what comes within two microseconds of a window after an earlier request.
				earlier := map[int64]bool{}
				for _, a := range all {
					near := false
					for d := int64(-2); d <= 2; d++ {
						near = near || earlier[a.Micros-s.seconds().Microseconds()+d]
					}
					unsure, earlier[a.Micros] = append(unsure, near), true
				}
				return answers, unsure
			})
		})
	}
}

// seconds is the window in whole seconds, as limits has it.
func (s shape) seconds() time.Duration { return max(s.window.Round(time.Second), time.Second) }
