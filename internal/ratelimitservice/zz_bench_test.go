package ratelimitservice

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/store/redis"
	"weir/internal/store/redis/redistest"

	goredis "github.com/redis/go-redis/v9"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func BenchmarkZZ(b *testing.B) {
	for _, keys := range []int{10000, 1 << 60} {
		for _, viaGRPC := range []bool{false, true} {
			b.Run(fmt.Sprint(keys, viaGRPC), func(b *testing.B) {
				server := redistest.Start(b)
				st, err := redis.Open(server.URL(), redis.Options{})
				if err != nil {
					b.Fatal(err)
				}
				counters := NewCounters(CounterOptions{Backend: Local{backend.New(st)}})
				s := NewService(ServiceOptions{Counters: counters, Stats: NewStats()})
				c, err := Read([]File{{"x", []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000000}}]")}}, Options{})
				if err != nil {
					b.Fatal(err)
				}
				s.Use(c)
				ask := func(r *pb.RateLimitRequest) error { _, err := s.ShouldRateLimit(b.Context(), r); return err }
				if viaGRPC {
					l, _ := net.Listen("tcp", "127.0.0.1:0")
					go NewServer(s, ServerOptions{}).Serve(b.Context(), l)
					conn, _ := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
					client := pb.NewRateLimitServiceClient(conn)
					ask = func(r *pb.RateLimitRequest) error { _, err := client.ShouldRateLimit(b.Context(), r); return err }
				}
				of := &its{pid: 0, redis: server.Addr}
				_, redis0 := of.cpuOf(b)
				var n atomic.Int64
				var g sync.WaitGroup
				b.ResetTimer()
				for range 64 {
					g.Go(func() {
						for i := int(n.Add(1)); i <= b.N; i = int(n.Add(1)) {
							if err := ask(request("d", fmt.Sprint("k=user-", i*7919%keys))); err != nil {
								b.Error(err)
							}
						}
					})
				}
				g.Wait()
				b.StopTimer()
				<-time.After(1500 * time.Millisecond)
				_, redis1 := of.cpuOf(b)
				b.ReportMetric(float64(redis1-redis0)/float64(b.N)/1000, "redis-µs/op")
				var pushed, waited uint64
				for _, ns := range counters.namespaces {
					st := ns.Stats()
					pushed += st.PushedHits
					waited += st.WaitedRequests
				}
				b.ReportMetric(float64(waited)/float64(b.N), "waited/op")
				counters.Close(b.Context())
			})
		}
	}
}

func (of *its) cpuOf(b *testing.B) (service, store time.Duration) {
	client := goredis.NewClient(&goredis.Options{Addr: of.redis})
	defer client.Close()
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && (name == "used_cpu_sys" || name == "used_cpu_user") {
			store += time.Duration(seconds * float64(time.Second))
		}
	}
	return 0, store
}
