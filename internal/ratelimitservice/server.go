package ratelimitservice

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"weir/internal/listen"
	"weir/internal/panics"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// healthName is the name under which the rate limit service reports its health.
const healthName = "ratelimit"

// drainTimeout is how long requests under way may take when a server ends.
const drainTimeout = 10 * time.Second

// maxMessage bounds a request, in bytes. It is the default of package grpc. Envoy lets a request pass
// whose question is larger, so it is above what headers may have.
const maxMessage = 4 << 20

// streamWorkers is the number of goroutines that answer requests one after another. A new goroutine
// for each request would first have to grow its stack. If all wait for the store, more are started.
const streamWorkers = 64

// ServerOptions configure a [Server].
type ServerOptions struct {
	// TLS is nil for a server without TLS.
	TLS *tls.Config
	// MaxConnectionAge makes clients reconnect now and then, so that they find new instances.
	// MaxConnectionAgeGrace is how long requests under way may then take. 0 is no bound.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// More are further options.
	More []grpc.ServerOption
}

// Server is a service over gRPC, with its health and reflection.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
}

// NewServer returns a server for a service. It reports itself unhealthy until [Server.Healthy].
func NewServer(s *Service, o ServerOptions) *Server {
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	options := listen.GRPC(secure, keepalive.ServerParameters{MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAgeGrace})
	options = append(options, o.More...)
	options = append(options, grpc.NumStreamWorkers(streamWorkers), grpc.ChainUnaryInterceptor(caughtUnary), grpc.ChainStreamInterceptor(caughtStream), grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}), grpc.MaxRecvMsgSize(maxMessage))
	server := &Server{grpc: grpc.NewServer(options...), health: health.NewServer()}
	server.Healthy(false)
	pb.RegisterRateLimitServiceServer(server.grpc, s)
	healthpb.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server
}

// caughtUnary and caughtStream answer a call whose handler panics with an error.
func caughtUnary(ctx context.Context, r any, i *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer panics.Catch(i.FullMethod, func(caught error) { answer, err = nil, statusOf(caught) })
	return handle(ctx, r)
}

func caughtStream(server any, s grpc.ServerStream, i *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer panics.Catch(i.FullMethod, func(caught error) { err = statusOf(caught) })
	return handle(server, s)
}

// Healthy sets the health that the server reports under the name ratelimit.
func (s *Server) Healthy(is bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if is {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(healthName, status)
}

// Leave makes the server report that it serves nothing, whatever its health is then, while it goes
// on to answer requests.
func (s *Server) Leave() { s.health.Shutdown() }

// Serve serves until ctx ends, then finishes the requests under way, for at most ten seconds. It
// closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.Leave()
		late := time.AfterFunc(drainTimeout, s.grpc.Stop)
		s.grpc.GracefulStop()
		late.Stop()
	})
	err := s.grpc.Serve(l)
	if !stop() {
		<-ended
	}
	return err
}
