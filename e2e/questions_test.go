package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/internal/must"
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
	if !soon(func() bool {
		if !request(1, 0) { // asks at a proxy that has no costs
			return true
		}
		if request(0, tokens) {
			spent += tokens
		}
		return false
	}) {
		t.Fatalf("%d tokens are spent of %d, and a proxy that has charged none of them lets requests pass", spent, limit)
	}
	must.AtLeast(t, spent, limit+1, "tokens spent when a request is refused")
	must.Equal(t, request(0, 0), false, "the proxy that has charged all lets a request pass")
	all[1].wantSome(t, metricName("waited_requests_total")) // questions asked the backend
}
