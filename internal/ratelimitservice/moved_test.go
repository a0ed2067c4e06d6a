package ratelimitservice

import (
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store/memory"
	"weir/internal/wire"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The limits of a unit are a rule: switched off or in shadow mode they refuse nothing, however descriptors
// are charged, and other units go on. A question is answered accordingly.
func TestMovedRules(t *testing.T) {
	t.Parallel()
	for _, charge := range charges {
		kept := backend.New(memory.New(memory.Options{}))
		s := serviceOn(t, CounterOptions{Backend: Local{Backend: kept}, Timeout: time.Minute}, "domain: d\ncharge: "+charge+"\ndescriptors:\n"+
			"  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n"+
			"  - {key: day, rate_limit: {unit: day, requests_per_unit: 2}}\n", ServiceOptions{})
		on := serveService(t, s)
		want := func(when, descriptor string, hits uint64, want pb.RateLimitResponse_Code) {
			t.Helper()
			must.Equal(t, must.Get(on.client.ShouldRateLimit(t.Context(), costing(hits, descriptor)))(t).GetOverallCode(), want, "charge %s, %s", charge, when)
		}
		const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT
		want("as configured", "user=a", 1, ok)
		want("as configured", "user=a", 1, over)
		for _, mode := range []wire.Mode{wire.Off, wire.Shadow} {
			version := must.Get(kept.By(nil).SetOverrides(t.Context(), DefaultNamespace, wire.Override{Rule: "year", Mode: mode}))(t)
			for deadline := time.Now().Add(time.Minute); ; {
				if known, err := kept.Overrides(t.Context(), DefaultNamespace); err != nil || time.Now().After(deadline) {
					t.Fatalf("version %d: %+v, %v", version, known, err)
				} else if known.Knowing > 0 && known.Knowing == known.Nodes {
					break
				}
				<-time.After(10 * time.Millisecond)
			}
			for range 3 {
				want(wire.ModeNames[mode], "user=a", 1, ok)
			}
			want(wire.ModeNames[mode], "user=a", 5, ok)
		}
		want("another unit", "day=a", 1, ok)
		want("another unit", "day=a", 2, over)
	}
}
