package ratelimitservice

import (
	"slices"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// All instances have the rules of the units in one order: a backend would take another order for another configuration.
func TestUnitsHaveAnOrder(t *testing.T) {
	t.Parallel()
	of, _ := shapeOf(pb.RateLimitResponse_RateLimit_HOUR, pace{})
	for range 20 {
		if got, again := of.ofUnits(), of.ofUnits(); len(got) != len(units) || !slices.Equal(got, again) {
			t.Fatalf("%v and then %v", got, again)
		}
	}
}
