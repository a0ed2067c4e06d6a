package main

import (
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weir/internal/must"
)

// Two calls of a user pass, and the third is refused. Another user has two more.
func TestServer(t *testing.T) {
	namespace := must.Get(newNamespace())(t)
	server := must.Get(limited(namespace))(t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		must.Report(t, <-ended)
	})
	conn := must.Get(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = conn.Close() })
	client := grpc_health_v1.NewHealthClient(conn)
	for i, call := range []struct {
		user string
		want codes.Code
	}{{"ann", codes.OK}, {"ann", codes.OK}, {"ann", codes.ResourceExhausted}, {"bob", codes.OK}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", call.user)
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		must.Equal(t, status.Code(err), call.want, "call %d of %s: %v", i+1, call.user, err)
	}
}
