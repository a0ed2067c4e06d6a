package limitgrpc_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"weir/ratelimit"
	"weir/ratelimit/limitgrpc"
	"weir/window"
)

// A server lets each client's address make ten calls of a method at once, and two a second in the
// long run.
func Example() {
	shop, err := ratelimit.New(ratelimit.Options{}).NewNamespace(ratelimit.NamespaceOptions{
		Name:  "shop",
		Rules: []ratelimit.Rule{{Name: "per-method", Limits: []window.Limit{ratelimit.TokenBucket(2, time.Second, 10)}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	perMethod, err := shop.Limiter("per-method")
	if err != nil {
		fmt.Println(err)
		return
	}
	demands := func(ctx context.Context, method string) []ratelimit.Demand {
		key := []string{method, limitgrpc.ClientIP(ctx, 32, 64)}
		return []ratelimit.Demand{{Limiter: perMethod, Cost: 1, Key: key}}
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limitgrpc.UnaryServerInterceptor(shop, demands, limitgrpc.Options{})),
		grpc.ChainStreamInterceptor(limitgrpc.StreamServerInterceptor(shop, demands, limitgrpc.Options{})),
	)
	defer server.Stop()
	// Services are registered here, and server.Serve is called.

	// Output:
}
