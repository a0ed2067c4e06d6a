package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/internal/store/redis/redistest"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// A proxy whose requests only ask whether a budget has room hears of what the requests of another proxy have
// cost. It never charges the key itself, so that nothing else makes it hear.
func TestQuestionsHearOfOtherProxies(t *testing.T) {
	for _, rate := range []string{"0", "0.2", "1"} {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			onEach(t, 2, func(t *testing.T, d driver) { questionsHearOfOtherProxies(t, d, rate) })
		})
	}
}

func questionsHearOfOtherProxies(t *testing.T, d driver, rate string) {
	const limit, tokens = 10_000, 3000
	configuration := strings.Replace(fmt.Sprintf(budget, limit), `"sync_rate": 0.2`, `"sync_rate": `+rate, 1)
	configuration = strings.Replace(configuration, `, "reserve": {"header": "x-reserve", "most": 5000}`, `, "cost": 0`, 1)
	configuration = strings.Replace(configuration, `"namespace": "budget", `, "", 1)
	backend := serve(t, "memory")
	all, addresses := nodes(t, d, 2, nodeConfig{configuration: configuration, backend: backend, workers: 2, upstream: http.HandlerFunc(model)})
	request := func(node int, tokens int) (passed bool) {
		t.Helper()
		status, err := stream(addresses[node], "ann", endsWhole, 0, tokens)
		if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Fatal(status, err)
		}
		return status == http.StatusOK
	}
	spent := 0
	for deadline := time.Now().Add(hang); request(1, 0); { // asks at a proxy that has no costs
		if time.Now().After(deadline) {
			t.Fatalf("%d tokens are spent of %d, and a proxy that has charged none of them lets requests pass", spent, limit)
		}
		if request(0, tokens) {
			spent += tokens
		}
	}
	if spent <= limit {
		t.Errorf("a request is refused when %d tokens are spent of %d", spent, limit)
	}
	if request(0, 0) {
		t.Error("the proxy that has charged all lets a request pass")
	}
	all[1].wantSome(t, metricName("waited_requests_total")) // questions asked the backend
}

// Two weir ratelimit on one Redis share a budget: the first is asked with 0 hits, and the second charges.
func TestQuestionsOfTwoServices(t *testing.T) {
	t.Parallel()
	const budget, cost = 20, 5
	url := redistest.Start(t).URL()
	for _, rate := range []string{"0", "1"} {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			t.Parallel()
			descriptors := fmt.Sprintf("domain: of-%s\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d, sync_rate: %[1]s}}]", rate, budget)
			var services [2]pb.RateLimitServiceClient
			for i := range services {
				client, err := grpc.NewClient(rateLimits(t, descriptors, "WEIR_STORE="+url).address, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				services[i] = pb.NewRateLimitServiceClient(client)
			}
			ask := func(service int, hits uint64) (ok bool, remaining uint32) {
				t.Helper()
				answer, err := services[service].ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "of-" + rate, Descriptors: []*common.RateLimitDescriptor{{
					Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}, HitsAddend: wrapperspb.UInt64(hits),
				}}})
				if err != nil {
					t.Fatal(err)
				}
				return answer.GetOverallCode() == pb.RateLimitResponse_OK, answer.GetStatuses()[0].GetLimitRemaining()
			}
			ok, remaining := ask(0, 0)
			if !ok || remaining != budget {
				t.Fatalf("an unused budget: passes: %t, %d remain", ok, remaining)
			}
			for i := range budget / cost {
				if ok, remaining := ask(1, cost); !ok || remaining != uint32(budget-(i+1)*cost) {
					t.Fatalf("charge %d: passes: %t, %d remain", i, ok, remaining)
				}
				if ok, remaining := ask(0, 0); rate == "0" && remaining != uint32(budget-(i+1)*cost) {
					t.Errorf("after charge %d: passes: %t, %d remain", i, ok, remaining)
				}
			}
			for deadline := time.Now().Add(hang); ; {
				if ok, remaining = ask(0, 0); !ok && remaining == 0 {
					break
				}
				if time.Now().After(deadline) { // it hears of the other instance within a second
					t.Fatalf("the instance that charged nothing lets a question pass after all is spent, and says that %d remain", remaining)
				}
			}
		})
	}
}
