package e2e

import (
	"net/http"
	"testing"

	"weir/internal/must"
)

// What the upstream tells one proxy holds its key back at the other too, and nobody else. weir counter get
// shows it, and weir counter reset ends it.
func TestUpstreamHoldsBack(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		for _, syncRate := range []string{"0", "0.05"} {
			t.Run("sync_rate "+syncRate, func(t *testing.T) {
				backend := serve(t, "memory")
				all, addresses := nodes(t, d, 2, nodeConfig{backend: backend, workers: 2, upstream: http.HandlerFunc(answerAsAsked),
					configuration: `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": ` + syncRate + `, "headers": ["retry-after"],
					"rules": [{"name": "r", "key": [{"header": "x-user"}], "upstream": true, "limits": [{"limit": 100000, "window": "366d", "algorithm": "fixed_window"}]}]}`})
				passes := func(address, user string, headers ...string) bool {
					return ask(t, anew, address, append(headers, "x-user", user)...).header.Get("x-envoy-ratelimited") == ""
				}
				for _, address := range addresses {
					if !passes(address, "ann") || !passes(address, "ann", "x-status", "429") || !passes(address, "ann", "answer-x-ratelimit-remaining", "0") {
						t.Fatal("refused before the upstream told anything")
					}
				}
				if !passes(addresses[0], "ann", "answer-x-ratelimit-remaining-tokens", "0", "answer-x-ratelimit-reset-tokens", "50s") {
					t.Fatal("the response was not the upstream's")
				}
				for _, address := range addresses {
					must.Equal(t, pushed.until(t, func() bool { return !passes(address, "ann") }), true, "%s refuses it", address)
					must.Equal(t, passes(address, "bob"), true, "%s refuses somebody else", address)
				}
				all[0].wantMetric(t, metricName("upstream_holds_total"), 1)
				must.Contains(t, weir(t, backend, "counter", "get", "default", "r", "ann"), "refused whatever room there is", "")
				weir(t, backend, "counter", "reset", "default", "r", "ann", "--wait", "60s")
				for _, address := range addresses {
					must.Equal(t, passes(address, "ann"), true, "%s refuses after the reset", address)
				}
			})
		}
	})
}

// A limit of a minute is no higher than the upstream's once that has told its own to the worker that a connection is at.
func TestLimitFollowsUpstream(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		_, addresses := nodes(t, d, 1, nodeConfig{upstream: http.HandlerFunc(answerAsAsked),
			configuration: `{"rules": [{"name": "r", "key": [{"header": "x-user"}], "upstream": true, "limits": [{"limit": 10, "window": "1m"}]}]}`})
		connection := client(t)
		for i, want := range []string{`"r";q=10;w=60`, `"r";q=3;w=60`} {
			r := ask(t, connection, addresses[0], "x-user", "ann", "answer-x-ratelimit-limit-requests", "3")
			must.Equal(t, r.header.Get("RateLimit-Policy"), want, "request %d", i+1)
		}
	})
}
