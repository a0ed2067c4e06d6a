package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A small limit answers each request correctly, from the first second and at any node: requests
// pass one after the other up to the limit, and then none.
func TestSmallLimits(t *testing.T) {
	onEachByNight(t, 2, func(t *testing.T, d driver) {
		backend := serve(t, "memory")
		var rules []string
		limits := []int{1, 2, 3, 5, 10, 20, 100}
		for _, limit := range limits {
			rules = append(rules, fmt.Sprintf(`{"name": "of-%d", "key": [{"header": "x-user"}], "match": {"path": {"exact": "/%d"}},
			"limits": [{"limit": %d, "window": "366d"}]}`, limit, limit, limit))
		}
		_, addresses := nodes(t, d, 2, nodeConfig{backend: backend, configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "rules": [` +
			strings.Join(rules, ", ") + `]}`})
		client := client(t)
		for _, limit := range limits {
			for round := range 3 {
				for request := range limit + 8 {
					r := ask(t, client, addresses[(request+round)%2], ":path", fmt.Sprint("/", limit), "x-user", fmt.Sprint("ann", round))
					want := http.StatusOK
					if request >= limit {
						want = http.StatusTooManyRequests
					}
					if r.status != want {
						t.Errorf("request %d of a limit of %d: got status %d, want %d", request+1, limit, r.status, want)
					}
				}
			}
		}
	})
}
