package limitgrpc_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"weir/internal/must"
	"weir/ratelimit"
	"weir/ratelimit/limitgrpc"
)

// day is the beginning of a day.
var day = time.Unix(1_767_571_200, 0)

// health is a service with a call and a stream.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	served atomic.Int64
	fails  atomic.Int64 // so many calls fail before they answer
	early  atomic.Bool  // whether the header is sent first, past the stream that the handler has
}

// begin returns the error of a call that fails.
func (h *health) begin(ctx context.Context) error {
	h.served.Add(1)
	if h.early.Load() {
		return grpc.SendHeader(ctx, metadata.Pairs("x-early", "1"))
	}
	if h.fails.Add(-1) >= 0 {
		return status.Error(codes.Unavailable, "try again")
	}
	return nil
}

func (h *health) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func (h *health) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if err := h.begin(stream.Context()); err != nil {
		return err
	}
	for range 3 {
		if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
			return err
		}
	}
	return nil
}

// world is a server with limits, and a client of it.
type world struct {
	namespace *ratelimit.Namespace
	health
	client  grpc_health_v1.HealthClient
	seconds atomic.Int64 // of the day
}

// newWorld starts a server with a limit of two calls a minute for a method, and no limit for
// others.
func newWorld(t *testing.T, o limitgrpc.Options, dial ...grpc.DialOption) *world {
	t.Helper()
	w := &world{}
	w.seconds.Store(15)
	now := func() time.Time { return day.Add(time.Duration(w.seconds.Load()) * time.Second) }
	w.namespace = must.Get(ratelimit.NewNamespace(ratelimit.Options{Name: "shop", Now: now, Rules: []ratelimit.Rule{
		{Name: "per-method", Limits: []ratelimit.Limit{ratelimit.FixedWindow(2, time.Minute)}},
		{Name: "closed", Limits: []ratelimit.Limit{ratelimit.FixedWindow(0, time.Minute)}},
	}}))(t)
	limiter := func(rule string) *ratelimit.Limiter {
		return must.Get(w.namespace.Limiter(rule))(t)
	}
	perMethod, closed := limiter("per-method"), limiter("closed")
	demands := func(ctx context.Context, method string) []ratelimit.Demand {
		md, _ := metadata.FromIncomingContext(ctx)
		switch {
		case len(md.Get("x-free")) > 0:
			return nil
		case len(md.Get("x-never")) > 0:
			return []ratelimit.Demand{closed.Demand(nil, 1)}
		}
		return []ratelimit.Demand{perMethod.Demand(ratelimit.Key{method}, 1)}
	}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limitgrpc.UnaryServerInterceptor(demands, o)),
		grpc.StreamInterceptor(limitgrpc.StreamServerInterceptor(demands, o)),
	)
	grpc_health_v1.RegisterHealthServer(server, &w.health)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		must.Report(t, <-served)
	})
	conn := must.Get(grpc.NewClient(listener.Addr().String(), append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...))(t)
	t.Cleanup(func() { conn.Close() })
	w.client = grpc_health_v1.NewHealthClient(conn)
	return w
}

// check makes a call, with metadata. It returns the header's, or the trailer's if the call fails.
func (w *world) check(t *testing.T, kv ...string) (metadata.MD, error) {
	t.Helper()
	var header, trailer metadata.MD
	_, err := w.client.Check(metadata.AppendToOutgoingContext(t.Context(), kv...), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		must.Equal(t, len(header), 0, "a call that fails has the header %v", header)
		return trailer, err
	}
	return header, nil
}

// watch makes a stream, with metadata, and reads it to its end.
func (w *world) watch(t *testing.T, kv ...string) (metadata.MD, error) {
	t.Helper()
	stream := must.Get(w.client.Watch(metadata.AppendToOutgoingContext(t.Context(), kv...), &grpc_health_v1.HealthCheckRequest{}))(t)
	for received := 0; ; received++ {
		if _, err := stream.Recv(); err != nil {
			header, _ := stream.Header()
			if received == 3 {
				return header, nil
			}
			must.Equal(t, len(header), 0, "a stream that fails has the header %v", header)
			return stream.Trailer(), err
		}
	}
}

// want checks metadata. Keys with empty values must be absent.
func want(t *testing.T, what string, got metadata.MD, kv ...string) {
	t.Helper()
	for i := 0; i < len(kv); i += 2 {
		name, value := kv[i], kv[i+1]
		values := got.Get(name)
		if value == "" && len(values) == 0 || len(values) == 1 && values[0] == value {
			continue
		}
		t.Errorf("%s: %s: got %q, want %q", what, name, values, value)
	}
}

func TestCalls(t *testing.T) {
	for name, call := range map[string]func(*world, *testing.T, ...string) (metadata.MD, error){
		"unary": (*world).check, "stream": (*world).watch,
	} {
		w := newWorld(t, limitgrpc.Options{})
		policy := []string{"ratelimit-policy", `"per-method";q=2;w=60`, "x-ratelimit-limit", "2", "x-ratelimit-reset", "45"}
		for i, remaining := range []string{"1", "0"} {
			header, err := call(w, t)
			must.Is(t, err, nil, "%s %d", name, i)
			want(t, name, header, append(policy, "ratelimit", `"per-method";r=`+remaining+`;t=45`, "x-ratelimit-remaining", remaining,
				"retry-after", "", "x-envoy-ratelimited", "")...)
		}
		header, err := call(w, t)
		if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() != "Rate limit exceeded" {
			t.Errorf("%s: refused: %v", name, err)
		} else if details := s.Details(); len(details) != 1 || details[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration() != 45*time.Second {
			t.Errorf("%s: refused: %v", name, details)
		}
		want(t, name, header, append(policy, "ratelimit", `"per-method";r=0;t=45`, "x-ratelimit-remaining", "0",
			"retry-after", "45", "x-envoy-ratelimited", "true")...)

		header, err = call(w, t, "x-never", "1")
		if s := status.Convert(err); s.Code() != codes.ResourceExhausted || len(s.Details()) != 0 {
			t.Errorf("%s: never: %v, %v", name, err, s.Details())
		}
		want(t, name, header, "retry-after", "", "x-envoy-ratelimited", "true", "ratelimit-policy", `"closed";q=0`)

		header, err = call(w, t, "x-free", "1")
		must.Is(t, err, nil, "%s: no rule", name)
		want(t, name, header, "ratelimit", "", "ratelimit-policy", "", "x-ratelimit-limit", "")
		must.Equal(t, w.served.Load(), 3, "%s: served", name)
	}
}

// retryPolicy has clients retry refused calls, and calls that fail, without a pause worth the name.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.000001s", "maxBackoff": "0.000001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// TestRetryPolicy has a client retry what was refused until there is room, and what the handler has failed. A client
// retries only what has sent no header.
func TestRetryPolicy(t *testing.T) {
	for name, call := range map[string]func(*world, *testing.T, ...string) (metadata.MD, error){
		"unary": (*world).check, "stream": (*world).watch,
	} {
		for _, omit := range []limitgrpc.Headers{0, limitgrpc.RateLimit | limitgrpc.XRateLimit | limitgrpc.RetryAfter} {
			var attempts atomic.Int64
			var w *world
			w = newWorld(t, limitgrpc.Options{Omit: omit}, grpc.WithDefaultServiceConfig(retryPolicy), grpc.WithStatsHandler(stats(func() {
				if attempts.Add(1) == 5 {
					w.seconds.Store(60) // the next window, before the second retry of the third call
				}
			})))
			for i := range 3 {
				_, err := call(w, t)
				must.Is(t, err, nil, "%s, omitted %d: call %d", name, omit, i)
			}
			must.Equal(t, attempts.Load(), 5, "%s, omitted %d: attempts", name, omit)
			w.seconds.Store(120)
			w.fails.Store(1)
			if header, err := call(w, t); err != nil {
				t.Errorf("%s, omitted %d: the handler fails: %v", name, omit, err)
			} else if omit == 0 {
				want(t, name, header, "x-ratelimit-remaining", "0") // the attempt that failed took a hit
			}
		}
	}
}

// stats calls a function as each attempt of a call begins.
type stats func()

func (s stats) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context {
	s()
	return ctx
}
func (stats) HandleRPC(context.Context, grpcstats.RPCStats)                         {}
func (stats) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context { return ctx }
func (stats) HandleConn(context.Context, grpcstats.ConnStats)                       {}

// A handler that sends the header by its context has the fields in the trailer.
func TestHeaderIsSent(t *testing.T) {
	w := newWorld(t, limitgrpc.Options{})
	w.early.Store(true)
	var header, trailer metadata.MD
	must.Get(w.client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer)))(t)
	want(t, "unary, header", header, "x-early", "1", "x-ratelimit-remaining", "")
	want(t, "unary, trailer", trailer, "x-ratelimit-remaining", "1")
	stream, err := w.client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	header, _ = stream.Header()
	want(t, "stream, header", header, "x-early", "1", "x-ratelimit-remaining", "")
	want(t, "stream, trailer", stream.Trailer(), "x-ratelimit-remaining", "1")
}

func TestOptions(t *testing.T) {
	w := newWorld(t, limitgrpc.Options{Omit: limitgrpc.RateLimit, Reset: limitgrpc.Epoch})
	header, err := w.check(t)
	must.Report(t, err)
	want(t, "allowed", header, "ratelimit", "", "ratelimit-policy", "", "x-ratelimit-limit", "2", "x-ratelimit-reset", "1767571260")
}

// A call without a decision is not served.
func TestClosed(t *testing.T) {
	w := newWorld(t, limitgrpc.Options{})
	must.OK(t, w.namespace.Close(context.Background()))
	header, err := w.check(t)
	if status.Code(err) != codes.Unavailable || w.served.Load() != 0 {
		t.Errorf("got %v, served %d", err, w.served.Load())
	}
	want(t, "closed", header, "ratelimit", "", "x-envoy-ratelimited", "")
}

// silent is a backend that never answers.
type silent struct{}

func (silent) Push(ctx context.Context, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// If a call's context ends while it waits for the backend, the call ends with its error.
func TestCallEnds(t *testing.T) {
	n := must.Get(ratelimit.NewNamespace(ratelimit.Options{
		Name: "shop", Rules: []ratelimit.Rule{{Name: "all", Limits: []ratelimit.Limit{ratelimit.FixedWindow(2, time.Minute)}}},
		Backend: silent{}, Exact: true, Timeout: time.Hour,
	}))(t)
	all := must.Get(n.Limiter("all"))(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), day)
	defer cancelLate()
	// Hits without an answer can't be pushed any more, so there is nothing to wait for.
	t.Cleanup(func() { n.Close(canceled) })
	intercept := limitgrpc.UnaryServerInterceptor(func(context.Context, string) []ratelimit.Demand {
		return []ratelimit.Demand{all.Demand(nil, 1)}
	}, limitgrpc.Options{})
	for _, test := range []struct {
		ctx  context.Context
		want codes.Code
	}{{canceled, codes.Canceled}, {late, codes.DeadlineExceeded}} {
		_, err := intercept(test.ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			t.Error("served")
			return nil, nil
		})
		must.Equal(t, status.Code(err), test.want, "%v", err)
	}
}

func TestClientIP(t *testing.T) {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 77), Port: 1234}})
	must.Equal(t, limitgrpc.ClientIP(ctx, 24, 64), "\xc0\x00\x02\x00", "")
	must.Equal(t, limitgrpc.ClientIP(context.Background(), 32, 64), "", "no peer")
}
