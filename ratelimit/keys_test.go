package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// away is a backend that nobody reaches.
type away struct{}

func (away) Push(context.Context, []byte) ([]byte, error) { return nil, errors.New("nobody is there") }

// far is a backend beyond a network: no two of its answers are of the same millisecond, for one node
// after the other.
type far struct{ ratelimit.Backend }

func (f far) Push(ctx context.Context, push []byte) ([]byte, error) {
	<-time.After(2 * time.Millisecond)
	return f.Backend.Push(ctx, push)
}

// open opens a store, and closes it when the test ends.
func open(t *testing.T, name string) ratelimit.Backend {
	t.Helper()
	store := must.Get(stores.Open(name))(t)
	t.Cleanup(func() { must.Report(t, store.Close()) })
	return store
}

// start makes a namespace, and closes it when the test ends.
func start(t *testing.T, o ratelimit.Options) *ratelimit.Namespace {
	t.Helper()
	n := must.Get(ratelimit.NewNamespace(o))(t)
	t.Cleanup(func() { must.Report(t, n.Close(context.Background())) })
	return n
}

// limiter is a namespace's of a rule.
func limiter(t *testing.T, n *ratelimit.Namespace, rule string) *ratelimit.Limiter {
	t.Helper()
	return must.Get(n.Limiter(rule))(t)
}

// Requests have room as the keys of their rule do, however many of its keys they take from and
// whoever decides.
func TestManyKeysOfARule(t *testing.T) {
	t.Parallel()
	const passes = 2
	always := []bool{true, true, true}
	for _, backend := range []struct {
		name  string
		of    ratelimit.Backend
		fails []ratelimit.FailureMode
		want  []bool
	}{
		{"none", nil, []ratelimit.FailureMode{ratelimit.FailLocal}, []bool{true, true, false}},
		{"memory", open(t, "memory"), []ratelimit.FailureMode{ratelimit.FailLocal, ratelimit.FailAllow, ratelimit.FailDeny}, []bool{true, true, false}},
		{"redis", open(t, redistest.Start(t).URL()), []ratelimit.FailureMode{ratelimit.FailLocal, ratelimit.FailAllow, ratelimit.FailDeny}, []bool{true, true, false}},
		{"away", away{}, []ratelimit.FailureMode{ratelimit.FailLocal}, []bool{true, true, false}},
		{"away", away{}, []ratelimit.FailureMode{ratelimit.FailAllow}, always},
		{"away", away{}, []ratelimit.FailureMode{ratelimit.FailDeny}, []bool{false, false, false}},
	} {
		for _, mode := range backend.fails {
			for _, exact := range []bool{false, true} {
				if exact && backend.of == nil {
					continue
				}
				name := fmt.Sprintf("%s,mode=%d,exact=%v", backend.name, mode, exact)
				t.Run(name, func(t *testing.T) {
					o := ratelimit.Options{Name: fmt.Sprint(backend.name, ".", uint8(mode), ".", exact), Exact: exact, Rules: []ratelimit.Rule{
						{Name: "bucket", Limits: []ratelimit.Limit{ratelimit.TokenBucket(passes, 300*24*time.Hour, passes)}},
						{Name: "window", Limits: []ratelimit.Limit{ratelimit.FirstHitWindow(passes, time.Hour)}},
						{Name: "flight", Limits: []ratelimit.Limit{ratelimit.InFlight(passes)}},
					}}
					if backend.of != nil {
						o.Backend, o.OnBackendFailure, o.Timeout = backend.of, mode, time.Minute
					}
					n := must.Get(ratelimit.NewNamespace(o))(t)
					for _, rule := range o.Rules {
						l := limiter(t, n, rule.Name)
						for _, keys := range []int{1, 2, 3, 4, 7, 8, 9, 100, 1000} {
							if exact && rule.Name == "flight" {
								keys = min(keys, 800) // more do not fit a question: see TestExactFitsOneQuestion
							}
							var demands []ratelimit.Demand
							for i := range keys {
								demands = append(demands, l.Demand(ratelimit.Key{fmt.Sprint(keys), fmt.Sprint(i)}, 1))
							}
							ask := func(of ...ratelimit.Demand) bool {
								t.Helper()
								_, d, err := ratelimit.Acquire(t.Context(), of...)
								must.OKf(t, err, "%d keys of %s", keys, rule.Name)
								must.Equal(t, len(d.Standings), len(of), "%d keys of %s: standings", keys, rule.Name)
								return d.Allowed
							}
							var got []bool
							for range len(backend.want) {
								got = append(got, ask(demands...))
							}
							must.Same(t, got, backend.want, "%d keys of %s: allowed", keys, rule.Name)
							if backend.want[2] || !backend.want[0] {
								continue
							}
							// A request that one key refuses takes nothing from the others, before it or after it.
							other := l.Demand(ratelimit.Key{fmt.Sprint(keys), "other"}, 1)
							last := demands[keys-1]
							if ask(other, last) || ask(last, other) || !ask(other) || !ask(other) || ask(other) {
								t.Errorf("%d keys of %s: another key does not have its %d hits beside a spent key", keys, rule.Name, passes)
							}
						}
					}
					ctx, cancel := context.WithCancel(context.Background())
					if backend.name == "away" {
						cancel() // it waits for nobody
					}
					if err := n.Close(ctx); err != nil && backend.name != "away" {
						t.Error(err)
					}
					cancel()
				})
			}
		}
	}
}

// Hits that were given back are there for the next request at once, also after a refusal, of every
// algorithm and whoever decides. No more come back than were taken.
func TestGiveBackAfterRefusal(t *testing.T) {
	t.Parallel()
	for name, backend := range map[string]ratelimit.Backend{"none": nil, "memory": open(t, "memory"), "redis": open(t, redistest.Start(t).URL())} {
		for _, exact := range []bool{false, true} {
			if exact && backend == nil {
				continue
			}
			for _, limit := range []uint64{30, 440} {
				// None of them gets hits back by itself while the test lasts.
				for kind, l := range map[string]ratelimit.Limit{
					"fixed": ratelimit.FixedWindow(limit, 300*24*time.Hour), "first-hit": ratelimit.FirstHitWindow(limit, time.Hour), "sliding": ratelimit.SlidingWindow(limit, 300*24*time.Hour),
					"buckets": ratelimit.SlidingBuckets(limit, time.Hour, time.Minute), "log": ratelimit.SlidingLog(limit, time.Hour), "tokens": ratelimit.TokenBucket(1, 300*24*time.Hour, limit),
				} {
					t.Run(fmt.Sprintf("%s,exact=%v,%s,%d", name, exact, kind, limit), func(t *testing.T) {
						o := ratelimit.Options{Name: fmt.Sprint(name, ".", exact, ".", kind, ".", limit), Rules: []ratelimit.Rule{{Name: "r", Limits: []ratelimit.Limit{l}}}}
						if backend != nil {
							o.Backend, o.Exact, o.Timeout = far{backend}, exact, time.Minute
						}
						r := limiter(t, start(t, o), "r")
						steps := []struct {
							take, back uint64
							allowed    bool
							left       uint64
						}{
							{limit / 2, 0, true, limit - limit/2},
							{limit - limit/2, 0, true, 0},
							{1, 0, false, 0},
							{1, 0, false, 0},
							{0, 20, true, 20},
							{1, 0, true, 19},
							{19, 0, true, 0},
							{1, 0, false, 0},
							{0, 1, true, 1},
							{2, 0, false, 1},
							{1, 0, true, 0},
							// More than were taken.
							{0, 10 * limit, true, limit},
							{limit, 0, true, 0},
							{1, 0, false, 0},
						}
						for i, step := range steps {
							if step.back > 0 {
								must.OK(t, r.GiveBack(t.Context(), ratelimit.Key{"k"}, step.back))
							}
							d, err := r.Decide(t.Context(), ratelimit.Key{"k"}, step.take)
							// Hits on their way back may not remain yet, though requests get them.
							less := backend != nil && (exact || step.back == 0)
							if err != nil || d.Allowed != step.allowed || d.Remaining != step.left && (!less || d.Remaining > step.left) {
								t.Fatalf("step %d, %+v: allowed %v, %d left, %v", i, step, d.Allowed, d.Remaining, err)
							}
						}
					})
				}
			}
		}
	}
}
