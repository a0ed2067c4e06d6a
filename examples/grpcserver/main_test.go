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
)

// Two calls of a user pass, and the third is refused. Another user has two more.
func TestServer(t *testing.T) {
	namespace, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	server, err := limited(namespace)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := grpc_health_v1.NewHealthClient(conn)
	for i, call := range []struct {
		user string
		want codes.Code
	}{{"ann", codes.OK}, {"ann", codes.OK}, {"ann", codes.ResourceExhausted}, {"bob", codes.OK}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", call.user)
		if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != call.want {
			t.Errorf("call %d of %s: %v, want %v", i+1, call.user, err, call.want)
		}
	}
}
