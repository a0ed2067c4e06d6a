package ratelimitservice

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/internal/must"
)

// xdsServer is one of go-control-plane's.
type xdsServer struct {
	t       *testing.T
	cache   cache.SnapshotCache
	address string
	grpc    *grpc.Server
	// asked has the first request of each stream, and refused the reasons of what a client refuses.
	asked   chan *core.Node
	refused chan string
	header  chan string
}

func startXDS(t *testing.T) *xdsServer {
	s := &xdsServer{t: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil), asked: make(chan *core.Node, 10), refused: make(chan string, 10), header: make(chan string, 10)}
	s.address = "127.0.0.1:0"
	s.serve()
	t.Cleanup(func() { s.grpc.Stop() })
	return s
}

func (s *xdsServer) serve() {
	s.t.Helper()
	l := must.Get((&net.ListenConfig{}).Listen(s.t.Context(), "tcp", s.address))(s.t)
	s.address, s.grpc = l.Addr().String(), grpc.NewServer()
	callbacks := xds.CallbackFuncs{
		StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
			said, _ := grpcmeta.FromIncomingContext(ctx)
			s.header <- strings.Join(said.Get("x-tenant"), ",")
			return nil
		},
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			if r.ErrorDetail != nil {
				s.refused <- r.ErrorDetail.Message
			} else if r.ResponseNonce == "" {
				s.asked <- r.Node
			}
			return nil
		},
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, xds.NewServer(context.WithoutCancel(s.t.Context()), s.cache, callbacks))
	go func(g *grpc.Server) { _ = g.Serve(l) }(s.grpc) // it ends when it is stopped
}

func (s *xdsServer) set(version string, configurations ...types.Resource) {
	s.t.Helper()
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: configurations})
	if err == nil {
		err = s.cache.SetSnapshot(s.t.Context(), "me", snapshot)
	}
	must.OK(s.t, err)
}

// perMinute is a domain whose key k has a limit.
func perMinute(domain string, limit uint32) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: "of " + domain, Domain: domain, Descriptors: []*rlsconf.RateLimitDescriptor{{
		Key: "k", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_MINUTE, RequestsPerUnit: limit},
	}}}
}

func TestXDS(t *testing.T) {
	t.Parallel()
	server := startXDS(t)
	s := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{Now: newClock().now}), Metadata: true})
	var log bytes.Buffer
	source := &XDS{
		Address: server.address, Node: "me", Metadata: map[string]string{"zone": "a"}, Headers: map[string]string{"x-tenant": "t"},
		FirstPause: time.Millisecond, LastPause: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	must.OK(t, source.Load(s))
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan bool, 10), make(chan bool)
	go func() {
		source.Watch(ctx, s, func() { changed <- true })
		close(ended)
	}()
	ask := func(domain, want string) {
		t.Helper()
		must.Equal(t, told(t, s, request(domain, "k=1")), want, "")
	}
	if node := <-server.asked; node.Id != "me" || node.Metadata.Fields["zone"].GetStringValue() != "a" || <-server.header != "t" {
		t.Errorf("the node is %v", node)
	}
	ask("a", "error: no rate limit configuration loaded")
	server.set("1", perMinute("a", 10), perMinute("b", 5))
	<-changed
	ask("a", "OK | OK 9/10 MINUTE 45s")
	ask("b", "OK | OK 4/5 MINUTE 45s")

	// All fields come across.
	full := perMinute("a", 20)
	full.Descriptors[0].QuotaMode = true
	full.Descriptors[0].RateLimit.Name = `say "k"`
	full.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"plan": structpb.NewStringValue("gold: \u0001 é 😀")}}
	full.Descriptors = append(full.Descriptors, &rlsconf.RateLimitDescriptor{
		Key: "user", ShadowMode: true, DetailedMetric: true,
		RateLimit: &rlsconf.RateLimitPolicy{Unlimited: true, Replaces: []*rlsconf.RateLimitReplace{{Name: `say "k"`}}},
		Descriptors: []*rlsconf.RateLimitDescriptor{{
			Key: "path", Value: "/a*", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_DAY, RequestsPerUnit: 1},
		}},
	})
	server.set("2", full)
	<-changed
	ask("a", `OK | OK 18/20 MINUTE 45s say "k"`)
	ask("b", "OK | OK")
	must.Equal(t, told(t, s, request("a", "k=1", "user=1", "user=1,path=/ab")), "OK | OK | OK 4294967295 | OK 0/1 DAY 43185s", "all fields")
	answer := must.Get(s.ShouldRateLimit(t.Context(), request("a", "k=2")))(t)
	must.Equal(t, answer.DynamicMetadata.Fields["metadata"].GetStructValue().Fields["plan"].GetStringValue(), "gold: \u0001 é 😀", "the plan of %v", answer)

	// A broken one leaves what was, and the server is told why.
	broken := perMinute("a", 30)
	broken.Descriptors[0].RateLimit.Unit = rlsconf.RateLimitUnit_UNKNOWN
	server.set("3", broken)
	must.Contains(t, <-server.refused, "of a:1: descriptors[0].rate_limit.unit: want second, minute", "the server is told")
	ask("a", `OK | OK 17/20 MINUTE 45s say "k"`)

	// The server goes, and what it has said stays. It comes back with something else.
	server.grpc.Stop()
	ask("a", `OK | OK 16/20 MINUTE 45s say "k"`)
	server.set("4", perMinute("a", 40))
	server.serve()
	<-changed
	ask("a", "OK | OK 35/40 MINUTE 45s")
	server.set("5")
	<-changed
	ask("a", "OK | OK")

	// It goes, and comes back with nothing: then there are no limits, and those that come later find their counters.
	server.set("6", perMinute("a", 40))
	<-changed
	ask("a", "OK | OK 34/40 MINUTE 45s")
	server.grpc.Stop()
	server.set("7")
	server.serve()
	<-changed
	if ask("a", "OK | OK"); !s.Configured() || s.Domains() != 0 {
		t.Errorf("it has a configuration: %v, with %d domains", s.Configured(), s.Domains())
	}
	server.set("8", perMinute("a", 40))
	<-changed
	ask("a", "OK | OK 33/40 MINUTE 45s")
	cancel()
	<-ended
	for _, want := range []string{"descriptors can't be used", "does not answer"} {
		if strings.Count(log.String(), want) != 1 && want != "does not answer" || !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q, or has it twice:\n%s", want, log.String())
		}
	}
}

// scriptedXDS tells of each request, and answers it as the test says.
type scriptedXDS struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	asked   chan *discovery.DiscoveryRequest
	answers chan *rlsconf.RateLimitConfig
}

func (s *scriptedXDS) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		s.asked <- r
		resource, err := anypb.New(<-s.answers)
		if err != nil {
			return err
		}
		if err := stream.Send(&discovery.DiscoveryResponse{TypeUrl: xdsType, Nonce: "n", Resources: []*anypb.Any{resource}}); err != nil {
			return err
		}
	}
}

// A server that answers each refusal with what was refused is refused at once, and from then on after pauses,
// which begin anew when it says something that can be used.
func TestRefusalsPause(t *testing.T) {
	t.Parallel()
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	script := &scriptedXDS{asked: make(chan *discovery.DiscoveryRequest, 1), answers: make(chan *rlsconf.RateLimitConfig)}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, script)
	go func() { _ = server.Serve(l) }() // it ends when it is stopped
	pauses, over := make(chan time.Duration, 1), make(chan time.Time)
	source := &XDS{
		Address: l.Addr().String(), FirstPause: time.Second, LastPause: 3 * time.Second, Log: slog.New(slog.DiscardHandler),
		after: func(d time.Duration) <-chan time.Time {
			pauses <- d
			return over
		},
	}
	s := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{Now: newClock().now})})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		source.Watch(ctx, s, func() {})
		close(ended)
	}()
	broken := perMinute("a", 30)
	broken.Descriptors[0].RateLimit.Unit = rlsconf.RateLimitUnit_UNKNOWN
	asked := func(refused bool) {
		t.Helper()
		select {
		case r := <-script.asked:
			must.EqualOrEnd(t, r.GetErrorDetail() != nil, refused, "it asks %v", r)
		case d := <-pauses:
			t.Fatalf("it waits for %v", d)
		}
	}
	waits := func(most time.Duration) {
		t.Helper()
		select {
		case r := <-script.asked:
			t.Fatalf("without a pause, it asks %v", r)
		case d := <-pauses:
			if d < most/2 || d > most {
				t.Errorf("a pause of %v, want %v to %v", d, most/2, most)
			}
		}
	}
	asked(false)
	for range 2 {
		script.answers <- broken
		asked(true)
		for _, most := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			script.answers <- broken
			waits(most)
			over <- time.Time{}
			asked(true)
		}
		script.answers <- perMinute("a", 10)
		asked(false)
	}
	// It ends while it waits.
	script.answers <- broken
	asked(true)
	script.answers <- broken
	waits(time.Second)
	cancel()
	<-ended
	server.Stop()
}

// muted is a connection whose writes are lost once it is.
type muted struct {
	net.Conn
	is atomic.Bool
}

func (m *muted) Write(b []byte) (int, error) {
	if m.is.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// TestXDSPings has a server of package grpc without settings, as Envoy Gateway's is: it closes connections with more pings than one in
// five minutes. An idle stream stays, and ends once the server is gone.
func TestXDSPings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener, server := bufconn.Listen(1<<16), grpc.NewServer()
		states := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
		discovery.RegisterAggregatedDiscoveryServiceServer(server, xds.NewServer(t.Context(), states, nil))
		go func() { _ = server.Serve(listener) }() // it ends when it is stopped
		defer server.Stop()
		must.OK(t, states.SetSnapshot(t.Context(), "me", must.Get(cache.NewSnapshot("1", map[resource.Type][]types.Resource{resource.RateLimitConfigType: {perMinute("a", 10)}}))(t)))
		connection := &muted{}
		source := &XDS{Address: "passthrough:server", Node: "me", Log: slog.New(slog.DiscardHandler)}
		client := must.Get(source.dial(grpc.WithContextDialer(func(ctx context.Context, _ string) (_ net.Conn, err error) {
			connection.Conn, err = listener.DialContext(ctx)
			return connection, err
		})))(t)
		defer func() { must.OK(t, client.Close()) }()
		s := NewService(ServiceOptions{Counters: NewCounters(CounterOptions{Now: newClock().now})})
		changed, ended := make(chan bool, 1), make(chan error, 1)
		go func() { ended <- source.follow(t.Context(), client, s, func() { changed <- true }) }()
		<-changed
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(24 * time.Hour):
		}
		began := time.Now()
		connection.is.Store(true)
		err := <-ended
		if took := time.Since(began); took < time.Second || took > 2*pingEvery || !strings.Contains(err.Error(), "keepalive ping failed") {
			t.Errorf("a server that is gone is noticed after %v: %v", took, err)
		}
	})
}
