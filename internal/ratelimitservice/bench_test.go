package ratelimitservice

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// BenchmarkDescriptors decides requests of several descriptors, whose keys are among 100,000. The
// times are those of a descriptor.
func BenchmarkDescriptors(b *testing.B) {
	inRedis := must.Get(redis.Open(redistest.Start(b).URL(), redis.Options{}))(b)
	b.Cleanup(func() { inRedis.Close() })
	for _, on := range []struct {
		name string
		kept store.Store
	}{{"none", nil}, {"memory", memory.New(memory.Options{})}, {"redis", inRedis}} {
		for _, rate := range []string{"0", "1"} {
			for _, n := range []int{1, 8, 100} {
				b.Run(fmt.Sprintf("%s/rate=%s/n=%d", on.name, rate, n), func(b *testing.B) {
					o := CounterOptions{Timeout: time.Second, Namespace: fmt.Sprint(rate, n)}
					if on.kept != nil {
						o.Backend = Local{Backend: backend.New(on.kept)}
					}
					s := serviceOn(b, o, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 100000, sync_rate: "+rate+"}}]", ServiceOptions{})
					r := &pb.RateLimitRequest{Domain: "d"}
					for range n {
						r.Descriptors = append(r.Descriptors, descriptorOf("k=v"))
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i = (i + 1) % n {
						if i == 0 {
							for _, d := range r.Descriptors {
								d.Entries[0].Value = fmt.Sprint("user-", rand.IntN(100_000))
							}
							must.Get(s.ShouldRateLimit(b.Context(), r))(b)
						}
					}
					b.StopTimer()
					must.Report(b, s.options.Counters.Close(b.Context()))
				})
			}
		}
	}
}
