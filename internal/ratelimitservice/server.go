package ratelimitservice

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// healthName is the name under which the rate limit service tells its health.
const healthName = "ratelimit"

// drainTimeout is how long requests under way may take when a server ends.
const drainTimeout = 10 * time.Second

// connectTimeout is how long a client may take to say that it speaks HTTP/2, over TLS where that is wanted.
const connectTimeout = 10 * time.Second

// streamWorkers is how many goroutines answer requests one after the other. Each new one would first have to
// make its stack larger. If all wait for the store, there are more.
const streamWorkers = 64

// ServerOptions say how a service is served.
type ServerOptions struct {
	// TLS is nil for none.
	TLS *tls.Config
	// MaxConnectionAge has clients connect again now and then, so that they find instances that are
	// new, and MaxConnectionAgeGrace is how long requests under way may take then; 0 for ever.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
}

// Server is a service over gRPC, with its health and reflection.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
}

// NewServer makes a server of a service, which is not healthy yet.
func NewServer(s *Service, o ServerOptions) *Server {
	options := []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{
		MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAgeGrace,
	}), grpc.NumStreamWorkers(streamWorkers), grpc.ConnectionTimeout(connectTimeout)}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	server := &Server{grpc: grpc.NewServer(options...), health: health.NewServer()}
	server.Healthy(false)
	pb.RegisterRateLimitServiceServer(server.grpc, s)
	healthpb.RegisterHealthServer(server.grpc, server.health)
	reflection.Register(server.grpc)
	return server
}

// Healthy sets the health, under the name ratelimit.
func (s *Server) Healthy(is bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if is {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(healthName, status)
}

// Serve serves until ctx ends, and then finishes the requests under way, for ten seconds at most. It
// closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.health.Shutdown()
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
