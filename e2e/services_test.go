package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

// caller asks a weir ratelimit about single descriptors.
type caller struct {
	*instance
	client pb.RateLimitServiceClient
}

// callers starts so many weir ratelimit on a store.
func callers(t *testing.T, n int, descriptors, store string) (all []caller) {
	t.Helper()
	for range n {
		i := rateLimits(t, descriptors, "WEIR_STORE="+store)
		client := must.Get(grpc.NewClient(i.address, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
		t.Cleanup(func() { _ = client.Close() })
		all = append(all, caller{i, pb.NewRateLimitServiceClient(client)})
	}
	return all
}

// ask takes hits of a descriptor. remaining is what its limit has left.
func (c caller) ask(t *testing.T, domain, key, value string, hits uint64) (passes bool, remaining uint32) {
	t.Helper()
	answer := must.Get(c.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}, HitsAddend: wrapperspb.UInt64(hits),
	}}}))(t)
	return answer.GetOverallCode() == pb.RateLimitResponse_OK, answer.GetStatuses()[0].GetLimitRemaining()
}

// Ten weir ratelimit share a Redis. Once each has a part of the limits, descriptors of keys that it has never
// seen do not wait, though their limits differ.
func TestFarKeysOfServices(t *testing.T) {
	t.Parallel()
	all := callers(t, 10, "domain: far\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 100000}}, "+
		"{key: guest, rate_limit: {unit: hour, requests_per_unit: 5000}}]", redistest.Start(t).URL())
	sum := func(name string) (n float64) {
		for _, c := range all {
			for _, line := range regexp.MustCompile(`(?m)^`+name+`\{.*\} (\S+)$`).FindAllStringSubmatch(fetch(t, "http://"+c.metrics), -1) {
				value := must.Get(strconv.ParseFloat(line[1], 64))(t)
				n += value
			}
		}
		return n
	}
	asked, waits, advanced := 0, 0.0, 0.0
	if !soon(func() bool {
		before, waited := asked, sum("weir_waited_requests_total")
		for range 10 {
			for _, c := range all {
				for _, key := range []string{"user", "guest"} {
					asked++
					if passes, _ := c.ask(t, "far", key, fmt.Sprint(asked), 1); !passes {
						t.Fatal("a key that is far from its limit was refused")
					}
				}
			}
		}
		waits = (sum("weir_waited_requests_total") - waited) * 1000 / float64(asked-before)
		advanced = sum("weir_advanced_hits_total")
		return waits <= 20 && advanced > 0
	}) {
		t.Fatalf("of 1,000 descriptors %.0f wait, want at most 20; %.0f hits advanced", waits, advanced)
	}
	t.Logf("of 1,000 descriptors %.0f wait; %.0f hits advanced", waits, advanced)
}

// Two weir ratelimit on one Redis share a budget: the first is asked with 0 hits, and the second charges.
func TestQuestionsOfTwoServices(t *testing.T) {
	t.Parallel()
	const budget, cost = 20, 5
	url, decidedAlone := redistest.Start(t).URL(), regexp.MustCompile(`(?m)^weir_decided_alone_total\{.*`)
	for _, rate := range []string{"0", "1"} {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			t.Parallel()
			domain := "of-" + rate
			all := callers(t, 2, fmt.Sprintf("domain: %s\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d, sync_rate: %s}}]", domain, budget, rate), url)
			if passes, remaining := all[0].ask(t, domain, "k", "v", 0); !passes || remaining != budget {
				t.Fatalf("an unused budget: passes: %t, %d remain", passes, remaining)
			}
			for left := uint32(budget); left > 0; {
				left -= cost
				if passes, remaining := all[1].ask(t, domain, "k", "v", cost); !passes || remaining != left {
					t.Fatalf("a charge that leaves %d: passes: %t, %d remain", left, passes, remaining)
				}
				if rate != "0" {
					continue
				}
				var remaining uint32
				heard := soon(func() bool { // or else it has decided alone
					before := decidedAlone.FindString(fetch(t, "http://"+all[0].metrics))
					_, remaining = all[0].ask(t, domain, "k", "v", 0)
					return before != "" && decidedAlone.FindString(fetch(t, "http://"+all[0].metrics)) == before
				})
				must.Equal(t, heard, true, "the charge that leaves %d is heard of in time", left)
				must.Equal(t, remaining, left, "remaining after the charge")
			}
			// It hears of the other instance within a second.
			must.EqualOrEnd(t, soon(func() bool { passes, remaining := all[0].ask(t, domain, "k", "v", 0); return !passes && remaining == 0 }), true, "the instance that charged nothing refuses a question after all is spent")
		})
	}
}
