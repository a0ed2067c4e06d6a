package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/store/redis/redistest"
	"weir/ratelimit"
	"weir/ratelimit/stores"
)

// away is a backend that nobody reaches.
type away struct{}

func (away) Push(context.Context, []byte) ([]byte, error) { return nil, errors.New("nobody is there") }

// Requests have room as the keys of their rule do, however many of its keys they take from and
// whoever decides.
func TestManyKeysOfARule(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	open := func(name string) ratelimit.Backend {
		store, err := stores.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return store
	}
	const passes = 2
	always := []bool{true, true, true}
	for _, backend := range []struct {
		name  string
		of    ratelimit.Backend
		fails []ratelimit.FailureMode
		want  []bool
	}{
		{"none", nil, []ratelimit.FailureMode{ratelimit.FailLocal}, []bool{true, true, false}},
		{"memory", open("memory"), []ratelimit.FailureMode{ratelimit.FailLocal, ratelimit.FailAllow, ratelimit.FailDeny}, []bool{true, true, false}},
		{"redis", open(url), []ratelimit.FailureMode{ratelimit.FailLocal, ratelimit.FailAllow, ratelimit.FailDeny}, []bool{true, true, false}},
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
					n, err := ratelimit.NewNamespace(o)
					if err != nil {
						t.Fatal(err)
					}
					for _, rule := range o.Rules {
						l, err := n.Limiter(rule.Name)
						if err != nil {
							t.Fatal(err)
						}
						for _, keys := range []int{1, 2, 3, 4, 7, 8, 9, 100, 1000} {
							if exact && rule.Name == "flight" {
								keys = min(keys, 800) // as many fit a question: see TestExactFitsOneQuestion
							}
							var demands []ratelimit.Demand
							for i := range keys {
								demands = append(demands, l.Demand(ratelimit.Key{fmt.Sprint(keys), fmt.Sprint(i)}, 1))
							}
							ask := func(of ...ratelimit.Demand) bool {
								t.Helper()
								_, d, err := ratelimit.Acquire(t.Context(), of...)
								if err != nil {
									t.Fatalf("%d keys of %s: %v", keys, rule.Name, err)
								}
								if len(d.Standings) != len(of) {
									t.Errorf("%d keys of %s: %d standings", keys, rule.Name, len(d.Standings))
								}
								return d.Allowed
							}
							var got []bool
							for range len(backend.want) {
								got = append(got, ask(demands...))
							}
							if !slices.Equal(got, backend.want) {
								t.Errorf("%d keys of %s: allowed %v, want %v", keys, rule.Name, got, backend.want)
							}
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
