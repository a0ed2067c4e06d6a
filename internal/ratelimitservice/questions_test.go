package ratelimitservice

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store/memory"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Several instances on one store share a budget: the first is asked with 0 hits, and another charges. No more
// requests pass than at a single instance, except those within a sync_rate.
func TestQuestionsOfSeveralInstances(t *testing.T) {
	t.Parallel()
	const cost, every = 5, 400 * time.Millisecond
	for _, instances := range []int{1, 2, 3} {
		for name, of := range map[string]struct {
			text   string
			budget int
			lag    time.Duration // until a charge is known
		}{
			"minute":     {"{unit: minute, requests_per_unit: 20}", 20, time.Second},
			"day":        {"{unit: day, requests_per_unit: 23}", 23, time.Second},
			"exact":      {"{unit: hour, requests_per_unit: 20, sync_rate: 0}", 20, 0},
			"large":      {"{unit: hour, requests_per_unit: 200}", 200, time.Second},
			"sliding":    {"{unit: hour, requests_per_unit: 20, algorithm: sliding_window}", 20, time.Second},
			"tokens":     {"{unit: day, requests_per_unit: 20, algorithm: token_bucket}", 20, time.Second},
			"log":        {"{unit: hour, requests_per_unit: 20, algorithm: sliding_log}", 20, time.Second},
			"half":       {"{unit: hour, requests_per_unit: 20, sync_rate: 0.5}", 20, time.Second / 2},
			"first hits": {"{unit: hour, requests_per_unit: 20, algorithm: fixed_window, start: first_hit}", 20, time.Second},
		} {
			for _, charge := range charges {
				if charge != "all" && name != "minute" && name != "day" {
					continue // these have to be windows of units
				}
				t.Run(fmt.Sprint(instances, name, charge), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						store := Local{Backend: backend.New(memory.New(memory.Options{}))}
						all := make([]*Service, instances)
						for i := range all {
							all[i] = serviceOn(t, CounterOptions{Backend: store}, "domain: d\ncharge: "+charge+"\ndescriptors: [{key: k, rate_limit: "+of.text+"}]", ServiceOptions{})
							defer func() { _ = all[i].options.Counters.Close(t.Context()) }()
						}
						ask := func(s *Service, hits uint64) bool {
							answer := must.Get(s.ShouldRateLimit(t.Context(), costing(hits, "k=v")))(t)
							return answer.GetOverallCode() == pb.RateLimitResponse_OK
						}
						passed, last := 0, false
						for range 2*of.budget/cost + 10 {
							if last = ask(all[0], 0); last {
								passed++
								ask(all[instances-1], cost)
							}
							<-time.After(every)
						}
						if charge == "all_or_none" && of.budget%cost > 0 {
							return // a refused request leaves the rest, so that questions go on to pass
						}
						// A limit that is just used up has a request pass at a single instance.
						least, most := (of.budget+cost-1)/cost, of.budget/cost+1+int(of.lag/every)
						if instances == 1 {
							most = of.budget/cost + 1
						}
						if passed < least || passed > most || last {
							t.Errorf("%d requests pass of %d, want %d to %d, and no more in the end", passed, of.budget/cost, least, most)
						}
					})
				})
			}
		}
	}
}

// A refused request leaves nothing of a limit, also where it asks for more than the whole limit, and
// another instance has taken hits of which this one has not heard.
func TestRefusalTakesTheRest(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{
		"unit: hour", "unit: hour, sync_rate: 0", "window: 2h, algorithm: token_bucket", "window: 3h, algorithm: sliding_window, sync_rate: 0", "window: 3h, algorithm: sliding_log",
	} {
		for _, test := range []struct {
			before string
			first  uint64
		}{{"b5", 25}, {"a1 b5", 25}, {"a1 b5", 18}} {
			synctest.Test(t, func(t *testing.T) {
				all := twoInstances(t, limit, ServiceOptions{})
				ask := func(of byte, hits uint64) pb.RateLimitResponse_Code {
					answer := must.Get(all[of].ShouldRateLimit(t.Context(), costing(hits, "k=v")))(t)
					return answer.GetOverallCode()
				}
				for _, of := range strings.Fields(test.before) {
					must.Equal(t, ask(of[0], uint64(of[1]-'0')), pb.RateLimitResponse_OK, "%s, %s", limit, test.before)
					<-time.After(50 * time.Millisecond) // of the bubble
				}
				for _, hits := range []uint64{test.first, 7, 1} {
					must.Equal(t, ask('a', hits), pb.RateLimitResponse_OVER_LIMIT, "%s: after %s, %d hits", limit, test.before, hits)
				}
			})
		}
	}
}

// A question learns of all hits that another instance has given back, though nothing of them is left in
// the store, whatever the limit counts.
func TestQuestionAfterAllIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{
		"unit: day", "unit: hour, sync_rate: 0", "window: 20h, algorithm: token_bucket", "window: 20h, algorithm: token_bucket, sync_rate: 0",
		"window: 3h, algorithm: sliding_window, sync_rate: 0", "window: 3h, precision: 1h, algorithm: sliding_window", "window: 3h, algorithm: sliding_log",
		"window: 3h, start: first_hit", "window: 3h, start: first_hit, sync_rate: 0", "window: month",
	} {
		synctest.Test(t, func(t *testing.T) {
			all := twoInstances(t, limit, ServiceOptions{GiveBack: true})
			ask := func(of byte, hits uint64, back bool) uint32 {
				r := costing(hits, "k=v")
				r.Descriptors[0].IsNegativeHits = back
				answer := must.Get(all[of].ShouldRateLimit(t.Context(), r))(t)
				<-time.After(3 * time.Second) // of the bubble
				return answer.GetStatuses()[0].GetLimitRemaining()
			}
			must.Same(t, []uint32{ask('a', 20, false), ask('b', 0, false), ask('b', 30, true), ask('a', 0, false), ask('a', 5, false), ask('b', 5, true), ask('a', 0, false)}, []uint32{0, 0, 20, 20, 15, 20, 20}, "%s: remain", limit)
		})
	}
}

// twoInstances are the services a and b on one store, with a limit of 20 and more of its fields.
func twoInstances(t *testing.T, limit string, o ServiceOptions) map[byte]*Service {
	t.Helper()
	store := Local{Backend: backend.New(memory.New(memory.Options{}))}
	all := map[byte]*Service{}
	for _, name := range "ab" {
		s := serviceOn(t, CounterOptions{Backend: store}, "domain: d\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 20, "+limit+"}}]", o)
		t.Cleanup(func() { _ = s.options.Counters.Close(context.Background()) })
		all[byte(name)] = s
	}
	return all
}
