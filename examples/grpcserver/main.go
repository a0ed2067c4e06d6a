// Command grpcserver is a gRPC server whose calls the library limits: two calls a minute for each
// user, counted together in all processes that use the same store.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"weir/ratelimit"
	"weir/ratelimit/limitgrpc"
)

// limited returns a server whose calls namespace limits by the user in their metadata.
func limited(namespace *ratelimit.Namespace) (*grpc.Server, error) {
	perUser, err := namespace.Limiter("per-user")
	if err != nil {
		return nil, err
	}
	demands := func(ctx context.Context, _ string) []ratelimit.Demand {
		var user string
		if md, ok := metadata.FromIncomingContext(ctx); ok && len(md["x-user"]) > 0 {
			user = md["x-user"][0]
		}
		return []ratelimit.Demand{perUser.Demand(ratelimit.Key{user}, 1)}
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limitgrpc.UnaryServerInterceptor(demands, limitgrpc.Options{})),
		grpc.StreamInterceptor(limitgrpc.StreamServerInterceptor(demands, limitgrpc.Options{})),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer()) // your service in its place
	return server, nil
}

func newNamespace() (*ratelimit.Namespace, error) {
	return ratelimit.NewNamespace(ratelimit.Options{Name: "shop", Rules: []ratelimit.Rule{
		{Name: "per-user", Limits: []ratelimit.Limit{ratelimit.SlidingLog(2, time.Minute)}},
	}})
}

func main() {
	address := flag.String("listen", "127.0.0.1:50051", "`address` to listen on")
	flag.Parse()
	if err := run(*address); err != nil {
		log.Fatal(err)
	}
}

func run(address string) error {
	namespace, err := newNamespace()
	if err != nil {
		return err
	}
	server, err := limited(namespace)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listens on", listener.Addr())
	return server.Serve(listener)
}
