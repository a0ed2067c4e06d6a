package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

// warnings are the parts of the reference on warnings near a limit.
var warnings = []reference{
	{
		name: "warn_at: a header, and a metric",
		configuration: `{"rules": [
			{"name": "near", "key": [{"header": "x-key"}], "warn_at": 0.8, "limits": [
				{"limit": 5, "window": "1m", "algorithm": "fixed_window"}, {"limit": 6, "window": "1h", "algorithm": "fixed_window"}]},
			{"name": "silent", "headers": [], "warn_at": 0.001, "limits": [{"limit": 1000, "window": "1h"}]},
			{"name": "shadow", "mode": "shadow", "warn_at": [0.5, 1], "limits": [{"limit": 10, "window": "1h", "algorithm": "token_bucket"}]}]}`,
		steps: []step{
			{send: "GET / x-key:ann", times: 3, status: 200, want: "x-ratelimit-remaining: 2\nx-ratelimit-warning:"},
			{send: "GET / x-key:ann", status: 200, want: `x-ratelimit-warning: "near"`},
			{send: "GET / x-key:bob", status: 200, want: "x-ratelimit-warning:"},
			{send: "GET / x-key:ann", status: 200, want: `x-ratelimit-warning: "near", "near.2"`},
			{send: "GET / x-key:ann", status: 429, want: `x-ratelimit-warning: "near", "near.2"` + "\nretry-after: 60"},
			{at: time.Minute, send: "GET / x-key:ann", status: 200, want: `x-ratelimit-warning: "near.2"`},
		},
		metrics: map[string]int64{
			metricName("warnings_total", "near"):   4,
			metricName("warnings_total", "silent"): 8,
			metricName("warnings_total", "shadow"): 3,
		},
	},
	{
		name: "warn_at: what responses cost",
		configuration: `{"rules": [{"name": "settles", "warn_at": 0.5, "reserve": 10, "cost_on_response": "openai",
			"limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"usage":{"total_tokens":50}}`, status: 200, want: "x-ratelimit-warning:"},
			{send: "GET /", status: 200, want: `x-ratelimit-warning: "settles"`},
		},
		metrics: map[string]int64{metricName("warnings_total", "settles"): 2},
	},
}

// nears is a rule of tokens that the backend decides, with warnings.
const nears = `{"namespace": "warned", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0, "rules": [
	{"name": "tokens", "warn_at": 0.8, "reveal": "plain", "key": [{"header": "x-key"}], "limits": [{"limit": 100, "window": "366d", "algorithm": "fixed_window"}],
		"cost_on_response": {"response_json": "usage.total_tokens"}, "reserve": {"header": "x-reserve"}}]}`

// A webhook gets a single warning of a key that two nodes see near its limit, although each node
// has its own backend. A stream whose final cost reaches the limit is enough.
func TestBackendWarnsOnce(t *testing.T) {
	onEachByNight(t, 2, func(t *testing.T, d driver) {
		type warning struct {
			Namespace, Rule, Limit string
			Values                 []string
			Used, Quota            int
		}
		posts := make(chan warning, 100)
		hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var w warning
			must.Report(t, json.NewDecoder(r.Body).Decode(&w))
			posts <- w
		}))
		t.Cleanup(hook.Close)
		url := redistest.Start(t).URL()
		var backends, addresses []string
		for range 2 {
			p := start(t, "serve", "--listen", "127.0.0.1:0", "--store", url, "--warn-webhook", hook.URL)
			backends = append(backends, p.Wait(t, `address=(\S+)`))
			_, added := nodes(t, d, 1, nodeConfig{configuration: nears, backend: backends[len(backends)-1], workers: 1, upstream: http.HandlerFunc(model)})
			addresses = append(addresses, added...)
		}
		spend := func(node int, key string, tokens int) {
			t.Helper()
			must.EqualOrEnd(t, must.Get(stream(addresses[node], key, endsWhole, 5, tokens))(t), http.StatusOK, "%s: status", key)
		}
		spend(0, "ann", 85)
		settle(t, backends[0], "warned", 85)
		spend(1, "ann", 5)
		// When a later warning has arrived, ann's must have.
		spend(0, "bob", 80)
		spend(1, "cid", 80)
		spend(1, "dan", 79)
		want := map[string]warning{
			"ann": {"warned", "tokens", "tokens", []string{"ann"}, 85, 100},
			"bob": {"warned", "tokens", "tokens", []string{"bob"}, 80, 100},
			"cid": {"warned", "tokens", "tokens", []string{"cid"}, 80, 100},
		}
		got := map[string]warning{}
		for len(got) < len(want) {
			w := <-posts
			key := w.Values[0]
			if _, twice := got[key]; twice {
				t.Fatalf("twice %+v", w)
			}
			if key == "ann" && w.Used == 90 {
				w.Used = 85 // as counted by the other node
			}
			got[key] = w
		}
		must.Same(t, got, want, "")
		told := 0
		for _, backend := range backends {
			n := must.Get(strconv.Atoi(regexp.MustCompile(`(?m)^weir_warned_keys_total (\d+)$`).FindStringSubmatch(fetch(t, "http://"+backend+"/metrics"))[1]))(t)
			told += n
		}
		must.Equal(t, told, len(want), "keys were told")
	})
}
