package ratelimitservice

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A request may have up to 1,000 descriptors, of one limit or of several, however they are charged and
// whoever decides.
func TestManyDescriptors(t *testing.T) {
	t.Parallel()
	inRedis, err := redis.Open(redistest.Start(t).URL(), redis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inRedis.Close() })
	for name, kept := range map[string]store.Store{"memory": memory.New(memory.Options{}), "redis": inRedis} {
		for _, charge := range charges {
			for _, rate := range []string{"", ", sync_rate: 0"} {
				counters := NewCounters(CounterOptions{Backend: Local{Backend: backend.New(kept)}, Timeout: time.Minute, Namespace: fmt.Sprint(charge, len(rate))})
				s := NewService(ServiceOptions{Counters: counters, Stats: NewStats()})
				use(t, s, "domain: d\ngive_back: true\ncharge: "+charge+"\ndescriptors:\n"+
					"  - {key: user, rate_limit: {unit: year, requests_per_unit: 2"+rate+"}}\n"+
					"  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2"+rate+"}}\n"+
					"  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2"+rate+"}}\n", Options{})
				on := serveService(t, s)
				client := pb.NewRateLimitServiceClient(on.connection)
				ask := func(r *pb.RateLimitRequest) pb.RateLimitResponse_Code {
					t.Helper()
					answer, err := client.ShouldRateLimit(t.Context(), r)
					if err != nil {
						t.Fatalf("%s, charge %s%s: %d descriptors: %v", name, charge, rate, len(r.Descriptors), err)
					}
					if len(answer.Statuses) != len(r.Descriptors) {
						t.Errorf("%s, charge %s%s: %d statuses of %d descriptors", name, charge, rate, len(answer.Statuses), len(r.Descriptors))
					}
					return answer.OverallCode
				}
				for _, n := range []int{1, 7, 8, 1000} {
					r := &pb.RateLimitRequest{Domain: "d"}
					mixed := &pb.RateLimitRequest{Domain: "d"}
					for i := range n {
						r.Descriptors = append(r.Descriptors, descriptorOf(fmt.Sprintf("user=%d-%d", n, i)))
						key := []string{"user", "shadow", "quota", "none", "user", "user"}[i%6]
						d := descriptorOf(fmt.Sprintf("%s=mixed-%d-%d", key, n, i))
						switch i % 6 {
						case 4:
							d.IsNegativeHits = true
						case 5:
							d.HitsAddend = wrapperspb.UInt64(0)
						case 0:
							if i%12 == 0 {
								d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 2, Unit: 4}
							}
						}
						mixed.Descriptors = append(mixed.Descriptors, d)
					}
					if got := []pb.RateLimitResponse_Code{ask(r), ask(r), ask(r)}; fmt.Sprint(got) != "[OK OK OVER_LIMIT]" {
						t.Errorf("%s, charge %s%s: %d descriptors got %v", name, charge, rate, n, got)
					}
					ask(mixed)
				}
				on.end()
				if err := counters.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A panic is the error of its call, and other calls go on.
func TestPanicOfACall(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), messaging, ServiceOptions{})
	on := serveService(t, s)
	client, caught := pb.NewRateLimitServiceClient(on.connection), panics.Caught()
	counters := s.options.Counters
	for _, faulty := range []bool{true, false, true, false} {
		want := codes.OK
		if s.options.Counters = counters; faulty {
			s.options.Counters, want = nil, codes.Internal
		}
		_, err := client.ShouldRateLimit(t.Context(), request("messaging", "to_number=1", "to_number=2"))
		if status.Code(err) != want {
			t.Errorf("faulty %v: got %v", faulty, err)
		}
	}
	if panics.Caught() < caught+2 {
		t.Error("the panics were not counted")
	}
}
