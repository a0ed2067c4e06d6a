package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A rule matches, counts and has limits by values in a request's JSON. A body that can't be read
// falls to a rule for that case.
func TestTextsOfBody(t *testing.T) {
	onEveryByNight(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{
			configuration: `{"rules": [
				{"name": "model", "match": {"request_json": {"model": {"present": true}}}, "key": [{"header": "x-key"}, {"request_json": "model"}],
					"limits": [{"limit": 100, "window": "366d", "algorithm": "fixed_window"}],
					"overrides": {"by": {"request_json": "model"}, "values": {"gpt-5": [{"limit": 10, "window": "366d", "algorithm": "fixed_window"}]}}},
				{"name": "unread", "match": {"methods": ["POST"], "request_json": {"model": {"present": false}}}, "limits": [{"limit": 0, "window": "1s"}],
					"response": {"status": 422}}]}`,
			workers: 1, upstream: tokens(t), stopsHeadersOnly: true,
		})
		padding := strings.Repeat("x", 100_000)
		for _, http2 := range []bool{false, true} {
			client := clientOf(t, http2)
			for i, c := range []struct {
				body   string
				status int
				left   string
			}{
				{`{"model":"gpt-5"}`, http.StatusOK, "9"},
				{`{"x":{"model":"other"},"model":"gpt\u002d5"}`, http.StatusOK, "8"},
				{`{"model":"gpt-4"}`, http.StatusOK, "99"},
				{`{"model":4}`, http.StatusOK, "99"},
				{`{"model":"gpt-4","model":"gpt-5"}`, http.StatusUnprocessableEntity, "0"},
				{`{"model":"gpt-5","x":"` + padding + `"}`, http.StatusUnprocessableEntity, "0"},
				{`{}`, http.StatusUnprocessableEntity, "0"},
				{`model=gpt-5`, http.StatusUnprocessableEntity, "0"},
				{`{"model":"gpt-5"}`, http.StatusOK, "7"},
			} {
				r := ask(t, client, proxy.url(), ":method", http.MethodPost, ":body", c.body, "x-key", fmt.Sprint(http2))
				if left := r.header.Get("x-ratelimit-remaining"); r.status != c.status || left != c.left {
					t.Errorf("%d, %.40s: status %d, %s are left, want %d and %s", i, c.body, r.status, left, c.status, c.left)
				}
				if want := fmt.Sprintf(`"got":%d,`, len(c.body)); c.status == http.StatusOK && !strings.Contains(r.body, want) {
					t.Errorf("%d: the upstream says %s", i, r.body)
				}
			}
			if r := ask(t, client, proxy.url(), "x-key", "get"); r.status != http.StatusOK || r.header.Get("x-ratelimit-limit") != "" {
				t.Errorf("a request without a body gets %d, %v", r.status, r.header)
			}
		}
	})
}
