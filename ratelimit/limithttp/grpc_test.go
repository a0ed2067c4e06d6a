package limithttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"weir/internal/must"
	"weir/ratelimit"
	"weir/ratelimit/limithttp"
)

// TestGRPC has a gRPC server behind the middleware. A refused call fails there as it does behind the plugin.
func TestGRPC(t *testing.T) {
	limiter := must.Get(ratelimit.NewLimiter(ratelimit.FirstHitWindow(1, time.Hour)))(t)
	calls := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(calls, health.NewServer())
	server := httptest.NewUnstartedServer(limithttp.Middleware(func(*http.Request) []ratelimit.Demand {
		return []ratelimit.Demand{limiter.Demand(nil, 1)}
	}, limithttp.Options{})(calls))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	conn := must.Get(grpc.NewClient(server.Listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	must.Get(client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}))(t)
	_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() != "Rate limit exceeded" {
		t.Errorf("got %v", err)
	}
	stream := must.Get(client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}))(t)
	_, err = stream.Recv()
	must.Equal(t, status.Code(err), codes.ResourceExhausted, "a stream: %v", err)
	header, err := stream.Header()
	must.Equal(t, len(header), 0, "a refused stream has the header %v, %v", header, err)
	must.Equal(t, len(stream.Trailer().Get("retry-after")), 1, "the trailer has %v", stream.Trailer())
}
