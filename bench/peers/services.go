package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/commandtest"
	"weir/internal/store/redis/redistest"
)

// batches are how many descriptors a request has.
var batches = []int{1, 8, 100}

// services decide for Envoys, or other clients, that ask them by gRPC. Each has a Redis of its own if it counts in one.
func services() group {
	var metrics []metric
	for _, n := range batches {
		metrics = append(metrics, metric{fmt.Sprintf("CPU of a decision, %d at a time", n), "µs", 1, "vr"})
	}
	for _, n := range batches {
		metrics = append(metrics, metric{fmt.Sprintf("p99 of an answer of %d", n), "ms", 1, "vr"})
	}
	service := func(name, title, more string, command func(o *options) []string) contender {
		return contender{name: name, title: title, than: "ratelimit", start: func(ctx context.Context, b *bench, limit int) (*subject, error) {
			redis := redistest.Start(b)
			s := site.RateLimit(b, redis.Addr, fmt.Sprintf("{key: user, rate_limit: {unit: minute, requests_per_unit: %d%s}}", limit, more), command(b.options)...)
			return b.service(s.Port, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", []int{s.PID, redis.PID()}, envoyAsks, envoyAllows)
		}}
	}
	weir := func(o *options) []string { return []string{o.Weir, "ratelimit"} }
	return group{
		name: "services", title: "a service's decision", reference: "of ratelimit's", outside: true, metrics: metrics,
		versions: func(o *options) []string {
			return []string{digest(o.Weir), built("ratelimit", o.RateLimit), built("gubernator", o.gubernator()), versionOf("redis-server", "--version")}
		},
		quotes: []quotes{
			{"weir", 0, 'r', []string{"ratelimit", "gubernator"}}, {"weir", 2, 'r', []string{"ratelimit", "gubernator"}},
			{"weir-exact", 0, 'r', []string{"ratelimit"}}, {"weir-exact", 1, 'r', []string{"ratelimit"}}, {"weir-exact", 2, 'r', []string{"ratelimit"}}, {"weir-exact", 5, 'r', []string{"ratelimit"}},
		},
		contenders: []contender{
			service("ratelimit", "ratelimit, on Redis", "", func(o *options) []string { return []string{o.RateLimit} }),
			{name: "gubernator", title: "gubernator, in its memory", than: "ratelimit", start: gubernator},
			service("weir", "`weir ratelimit`, on Redis", "", weir),
			service("weir-exact", "`weir ratelimit`, `sync_rate: 0`, on Redis", ", sync_rate: 0", weir),
		},
	}
}

func (o *options) gubernator() string {
	return filepath.Join(o.Dir, "..", "dist", "peers", "gubernator")
}

// gubernator is one node, which knows itself alone.
func gubernator(ctx context.Context, b *bench, limit int) (*subject, error) {
	addresses := commandtest.FreeAddresses(b, 3)
	pid := page.Start(b, "http://"+addresses[1]+"/v1/HealthCheck", []string{
		"GUBER_GRPC_ADDRESS=" + addresses[0], "GUBER_HTTP_ADDRESS=" + addresses[1], "GUBER_ADVERTISE_ADDRESS=" + addresses[0],
		"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_ADDRESS=" + addresses[2], "GUBER_MEMBERLIST_BIND_ADDRESS=" + addresses[2], "GUBER_MEMBERLIST_KNOWN_NODES=" + addresses[2],
		"GUBER_CACHE_SIZE=" + strconv.Itoa(4*manyKeys), "GUBER_LOG_LEVEL=error", "OTEL_TRACES_EXPORTER=none",
	}, b.gubernator())
	asks := func(users []string) (message []byte) {
		for _, u := range users {
			one := field(field(nil, 1, []byte("bench")), 2, []byte(u))
			for i, n := range []uint64{1, uint64(limit), 60_000} { // hits, limit, milliseconds
				one = protowire.AppendVarint(protowire.AppendTag(one, protowire.Number(3+i), protowire.VarintType), n)
			}
			message = field(message, 1, one)
		}
		return message
	}
	allows := func(answer []byte) (bool, error) {
		for _, one := range fields(answer, 1) {
			if message := fields(one, 5); len(message) > 0 {
				return false, fmt.Errorf("gubernator: %s", message[0])
			}
			if slices.Equal(one[:2], []byte{1 << 3, 1}) { // status: OVER_LIMIT
				return false, nil
			}
		}
		return true, nil
	}
	return b.service(site.PortOf(addresses[0]), "/pb.gubernator.V1/GetRateLimits", []int{pid}, asks, allows)
}

// envoyAsks is Envoy's RateLimitRequest of a user in each descriptor.
func envoyAsks(users []string) []byte {
	message := field(nil, 1, []byte(site.Namespace))
	for _, u := range users {
		entry := field(field(nil, 1, []byte("user")), 2, []byte(u))
		message = field(message, 2, field(nil, 1, entry))
	}
	return message
}

// envoyAllows reports whether a RateLimitResponse begins with the overall code OK.
func envoyAllows(answer []byte) (bool, error) {
	const overallCode, ok, overLimit = 1 << 3, 1, 2
	if len(answer) < 2 || answer[0] != overallCode || answer[1] != ok && answer[1] != overLimit {
		return false, fmt.Errorf("want an overall code, got %x", answer)
	}
	return answer[1] == ok, nil
}

func field(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}

// fields returns the values of a field of a message.
func fields(message []byte, number protowire.Number) (values [][]byte) {
	for len(message) > 0 {
		n, kind, length := protowire.ConsumeField(message)
		if length < 0 {
			return nil
		}
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[protowire.SizeTag(n):])
			values = append(values, value)
		}
		message = message[length:]
	}
	return values
}

// raw is a codec of messages that are bytes already.
type raw struct{}

// Marshal implements [encoding.Codec].
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

// Unmarshal implements [encoding.Codec].
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

// Name implements [encoding.Codec].
func (raw) Name() string { return "proto" }

// service returns the subject of a service at a port, with the processes that work for it.
func (b *bench) service(port int, method string, pids []int, asks func(users []string) []byte, allows func(answer []byte) (bool, error)) (*subject, error) {
	client, err := grpc.NewClient(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = client.Close() }) // its server ends with it
	ask := func(ctx context.Context, users []string) (bool, error) {
		question, answer := asks(users), []byte(nil)
		if err := client.Invoke(ctx, method, &question, &answer, grpc.ForceCodec(raw{})); err != nil {
			return false, err
		}
		return allows(answer)
	}
	const inFlight, fewer = 4, 10 // users: most of them have been seen before
	load := func(ctx context.Context, n, batch int) (waits []float64, err error) {
		var mutex sync.Mutex
		g, ctx := errgroup.WithContext(ctx)
		for range inFlight {
			g.Go(func() error {
				for range n / inFlight {
					users := make([]string, batch)
					from := rand.IntN(b.keys / fewer)
					for i := range users {
						users[i] = user((from + i*7919) % (b.keys / fewer))
					}
					begin := time.Now()
					allowed, err := ask(ctx, users)
					if err != nil || !allowed {
						return fmt.Errorf("allowed: %t, %w", allowed, err)
					}
					mutex.Lock()
					waits = append(waits, float64(time.Since(begin).Microseconds())/1000)
					mutex.Unlock()
				}
				return nil
			})
		}
		return waits, g.Wait()
	}
	return &subject{
		allow: func(ctx context.Context, user string) (bool, error) { return ask(ctx, []string{user}) },
		round: func(ctx context.Context) (values []float64, err error) {
			var slowest []float64
			for _, batch := range batches {
				n := max(b.requests/4/batch, min(b.requests, 400))
				if _, err := load(ctx, n/8, batch); err != nil {
					return nil, err
				}
				var waits []float64
				took, err := site.Micros(n*batch, pids, func() (err error) {
					if waits, err = load(ctx, n, batch); err != nil {
						return err
					}
					return b.wait(ctx)
				})
				if err != nil {
					return nil, err
				}
				sum := 0.0
				for _, m := range took {
					sum += m
				}
				values, slowest = append(values, sum), append(slowest, page.Quantile(waits, 0.99))
			}
			return append(values, slowest...), nil
		},
	}, nil
}
