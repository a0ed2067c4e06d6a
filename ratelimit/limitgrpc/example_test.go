package limitgrpc_test

import (
	"context"
	"log"
	"time"

	"google.golang.org/grpc"

	"weir/ratelimit"
	"weir/ratelimit/limitgrpc"
)

// A server allows each client address a burst of ten calls of a method, and two a second in the
// long run.
func Example() {
	perMethod, err := ratelimit.NewLimiter(ratelimit.TokenBucket(2, time.Second, 10))
	if err != nil {
		log.Fatal(err)
	}
	demands := func(ctx context.Context, method string) []ratelimit.Demand {
		key := []string{method, limitgrpc.ClientIP(ctx, 32, 64)}
		return []ratelimit.Demand{perMethod.Demand(key, 1)}
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limitgrpc.UnaryServerInterceptor(demands, limitgrpc.Options{})),
		grpc.ChainStreamInterceptor(limitgrpc.StreamServerInterceptor(demands, limitgrpc.Options{})),
	)
	defer server.Stop()
	// Services are registered here, and server.Serve is called.

	// Output:
}
