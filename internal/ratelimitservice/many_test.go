package ratelimitservice

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/panics"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"
	"weir/ratelimit"

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
	inRedis := must.Get(redis.Open(redistest.Start(t).URL(), redis.Options{}))(t)
	t.Cleanup(func() { inRedis.Close() })
	for name, kept := range map[string]store.Store{"memory": memory.New(memory.Options{}), "redis": inRedis} {
		for _, charge := range charges {
			for _, rate := range []string{"", ", sync_rate: 0"} {
				o := CounterOptions{Backend: Local{Backend: backend.New(kept)}, Timeout: time.Minute, Namespace: fmt.Sprint(charge, len(rate))}
				s := serviceOn(t, o, "domain: d\ngive_back: true\ncharge: "+charge+"\ndescriptors:\n"+
					"  - {key: user, rate_limit: {unit: year, requests_per_unit: 2"+rate+"}}\n"+
					"  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2"+rate+"}}\n"+
					"  - {key: quota, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2"+rate+"}}\n", ServiceOptions{Stats: NewStats()})
				on := serveService(t, s)
				ask := func(r *pb.RateLimitRequest) pb.RateLimitResponse_Code {
					t.Helper()
					answer, err := on.client.ShouldRateLimit(t.Context(), r)
					must.OKf(t, err, "%s, charge %s%s: %d descriptors", name, charge, rate, len(r.Descriptors))
					must.Equal(t, len(answer.Statuses), len(r.Descriptors), "%s, charge %s%s: statuses of %d descriptors", name, charge, rate, len(r.Descriptors))
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
					must.Equal(t, fmt.Sprint(ask(r), ask(r), ask(r)), "OK OK OVER_LIMIT", "%s, charge %s%s: %d descriptors", name, charge, rate, n)
					ask(mixed)
				}
				on.end()
				must.Report(t, s.options.Counters.Close(t.Context()))
			}
		}
	}
}

// pushed counts the pushes to a backend.
type pushed struct {
	ratelimit.Backend
	n atomic.Int32
}

func (p *pushed) Push(ctx context.Context, push []byte) ([]byte, error) {
	p.n.Add(1)
	return p.Backend.Push(ctx, push)
}

// The descriptors of a request ask the backend by one push. Those with the same counter come one after
// the other: what the first one's refusal takes, the next one finds no more, and other counters lose
// nothing.
func TestDescriptorsAskTogether(t *testing.T) {
	t.Parallel()
	for _, rate := range []string{"0", "1"} {
		way := &pushed{Backend: Local{Backend: backend.New(memory.New(memory.Options{}))}}
		s := serviceOn(t, CounterOptions{Backend: way, Timeout: time.Minute}, "domain: d\ndescriptors:\n"+
			"  - {key: k, rate_limit: {unit: year, requests_per_unit: 8, sync_rate: "+rate+"}}\n"+
			"  - {key: other, rate_limit: {unit: year, requests_per_unit: 8, sync_rate: 5}}\n", ServiceOptions{})
		r := &pb.RateLimitRequest{Domain: "d"}
		for i := range 100 {
			for j := range 1 + i%2*3 { // every second counter has four descriptors
				d := descriptorOf(fmt.Sprintf("%s=%d", []string{"k", "other"}[i/50], i))
				d.HitsAddend = wrapperspb.UInt64([]uint64{5, 5, 2, 0}[j])
				r.Descriptors = append(r.Descriptors, d)
			}
		}
		answer := must.Get(s.ShouldRateLimit(t.Context(), r))(t)
		at := 0
		for i := range 100 {
			for j := range 1 + i%2*3 {
				got := answer.Statuses[at]
				code, left := pb.RateLimitResponse_OK, uint32(3)
				if j > 0 {
					code, left = pb.RateLimitResponse_OVER_LIMIT, 0
				}
				must.Equal(t, got.GetCode(), code, "sync_rate %s, descriptor %d of counter %d", rate, j, i)
				must.Equal(t, got.GetLimitRemaining(), left, "sync_rate %s, descriptor %d of counter %d: left", rate, j, i)
				at++
			}
		}
		// Two namespaces ask at once; then the second descriptors do, what they leave is taken, and so on.
		if n := way.n.Load(); n == 0 || n > 12 {
			t.Errorf("sync_rate %s: %d pushes", rate, n)
		}
		t.Logf("sync_rate %s: %d pushes", rate, way.n.Load())
		must.Report(t, s.options.Counters.Close(t.Context()))
	}
}

// A panic is the error of its call, and other calls go on.
func TestPanicOfACall(t *testing.T) {
	t.Parallel()
	s := start(t, newClock(), messaging, ServiceOptions{})
	on := serveService(t, s)
	caught, counters := panics.Caught(), s.options.Counters
	for _, faulty := range []bool{true, false, true, false} {
		want := codes.OK
		if s.options.Counters = counters; faulty {
			s.options.Counters, want = nil, codes.Internal
		}
		_, err := on.client.ShouldRateLimit(t.Context(), request("messaging", "to_number=1", "to_number=2"))
		must.Equal(t, status.Code(err), want, "faulty %v: %v", faulty, err)
	}
	must.AtLeast(t, panics.Caught(), caught+2, "panics that were counted")
}
