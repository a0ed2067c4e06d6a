package ratelimitservice

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/ratelimit"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// parted is a store of several partitions, as a Redis Cluster has, some of which may be away.
type parted struct {
	store.Store
	away  atomic.Uint32 // a wire.PartitionSet
	named atomic.Uint32 // those of the last take
}

// Push implements store.Store.
func (s *parted) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	lacks := func(in wire.PartitionSet) bool { return in&wire.PartitionSet(s.away.Load()) != 0 }
	away, there := store.Divide(p, func(item *wire.Item) bool { return lacks(wire.PartitionOf(item.ID)) }, func(take *wire.Take) bool {
		in := wire.PartitionSet(0)
		for _, room := range take.Rooms {
			in |= wire.PartitionOf(room.ID)
		}
		s.named.Store(uint32(in))
		return lacks(in)
	})
	out, err := s.Store.Push(ctx, &there.Push, nodes)
	if err == nil {
		answer := out.Answer
		out.Answer.Totals, out.Answer.Grants = make([]wire.Total, len(p.Items)), make([]wire.Grant, len(p.Takes))
		there.Join(&out.Answer, &answer)
		away.Lack(&out.Answer, wire.NotApplied)
	}
	return out, err
}

// of returns a descriptor whose counter is in none of some partitions, and its partition.
func (s *parted) of(t *testing.T, by *Service, key string, not wire.PartitionSet) (descriptor string, in wire.PartitionSet) {
	for i := 0; ; i++ {
		descriptor := fmt.Sprintf("%s=%d", key, i)
		lookAt(t, by, descriptor)
		if in := wire.PartitionSet(s.named.Load()); in&not == 0 {
			return descriptor, in
		}
	}
}

// lookAt asks for no hits of a descriptor.
func lookAt(t *testing.T, s *Service, descriptor string) {
	must.Get(s.ShouldRateLimit(t.Context(), costing(0, descriptor)))(t)
}

// partedService is a service with limits of 2 on a store of several partitions, in a bubble.
func partedService(t *testing.T, charge, rate string, mode ratelimit.FailureMode) (*Service, *parted) {
	on := &parted{Store: memory.New(memory.Options{})}
	limit := "rate_limit: {unit: hour, requests_per_unit: 2, sync_rate: " + rate + "}}\n"
	s := serviceOn(t, CounterOptions{Backend: Local{Backend: backend.New(on)}, OnBackendFailure: mode}, "domain: d\ncharge: "+charge+"\ndescriptors:\n"+
		"  - {key: user, "+limit+"  - {key: quota, quota_mode: true, "+limit+"  - {key: shadow, shadow_mode: true, "+limit, ServiceOptions{})
	return s, on
}

// While the partition of a quota, a shadow or another limit is away, each limit has the fate of its own: those that are there hold.
func TestEachHasTheFateOfItsPartition(t *testing.T) {
	t.Parallel()
	for _, charge := range charges {
		for _, rate := range []string{"0", "1"} {
			for mode, want := range map[ratelimit.FailureMode][]string{
				ratelimit.FailLocal: {"OK OK OK OK OK", "OK OK OK OK OK", "OVER_LIMIT OVER_LIMIT"},
				ratelimit.FailAllow: {"OK OK OK OK OK", "OK OK OK OK OK", "OVER_LIMIT OVER_LIMIT"},
				ratelimit.FailDeny:  {"OK OK OVER_LIMIT OK OK", "OK OK OVER_LIMIT OK OK", "OVER_LIMIT OVER_LIMIT"},
			} {
				synctest.Test(t, func(t *testing.T) {
					s, on := partedService(t, charge, rate, mode)
					user, there := on.of(t, s, "user", 0)
					second, also := on.of(t, s, "quota", 0)
					first, away := on.of(t, s, "quota", there|also)
					shadow, more := on.of(t, s, "shadow", there|also)
					other, most := on.of(t, s, "user", there|also)
					on.away.Store(uint32(away | more | most))
					ask := func(descriptors ...string) (codes string) {
						answer := must.Get(s.ShouldRateLimit(t.Context(), request("d", descriptors...)))(t)
						<-time.After(100 * time.Millisecond)
						codes = answer.OverallCode.String()
						for _, status := range answer.Statuses {
							codes += " " + status.Code.String()
						}
						return codes
					}
					for _, descriptor := range []string{first, shadow, other} {
						<-time.After(10 * time.Second) // so that what is known of the key is old, also at sync_rate 1
						lookAt(t, s, descriptor)       // so that it is known which are away
					}
					for i, want := range want {
						must.Contains(t, ask(user, first, second, shadow), want, "charge %s, sync_rate %s, mode %d, request %d", charge, rate, mode, i)
					}
					overall := pb.RateLimitResponse_OVER_LIMIT.String()
					must.Contains(t, ask(other, user), overall, "charge %s, sync_rate %s, mode %d: beside a limit that is away", charge, rate, mode)
					on.away.Store(0)
					<-time.After(time.Minute)
					must.Report(t, s.options.Counters.Close(t.Context()))
				})
			}
		}
	}
}
