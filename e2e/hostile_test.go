package e2e

import (
	"net/http"
	"strings"
	"testing"

	"weir/internal/must"
)

// No request that a proxy accepts makes a worker trap: each worker continues to limit requests.
func TestHostileRequests(t *testing.T) {
	const length = 50_000 // near Envoy's limit for all headers
	fill := func(text string) string { return strings.Repeat(text, length/len(text)) }
	onEveryByNight(t, 1, func(t *testing.T, d driver) {
		n := d.node(t, nodeConfig{
			clock: newClock(), upstream: http.HandlerFunc(answerAsAsked),
			configuration: `{"rules": [
				{"name": "hostile", "match": {"headers": {"x-hostile": {"present": true}}}, "limits": [{"limit": 100000, "window": "1h"}],
					"except": [{"path": {"regex": "(a|b|ab)*c"}}, {"headers": {"cookie": {"regex": "((.*;)*sid=){3}.*"}}}],
					"key": ["host", "path", {"query": "user"}, {"cookie": "sid"}, {"path_segment": 900}, {"jwt_claim": "a.b.0"},
						{"jwt_claim": "sub", "header": "x-token"}, {"property": ["request", "headers", "cookie"]}, "client_ip", {"in_cidr": ["10.0.0.0/8"]}]},
				{"name": "all", "match": {"headers": {"x-hostile": {"present": false}}}, "key": ["path"], "limits": [{"limit": 1, "window": "1h"}],
					"overrides": {"by": {"query": "plan"}, "values": {"gold": [{"limit": 2, "window": "1h"}]}}}
			]}`,
		})
		clients := []*http.Client{client(t), client(t)} // of two workers
		sent := 0
		for _, headers := range [][]string{
			{":path", "/?" + fill("&=%")}, {":path", "/?user=" + fill("%41+%zz")}, {":path", "/?" + fill("user")}, {":path", fill("/")}, {":path", "/" + fill("ab")},
			{"cookie", fill("sid=\"; ")}, {"cookie", fill(";")}, {"cookie", fill("=")}, {"cookie", "sid=" + fill("\"")},
			{"authorization", "Bearer " + token(fill(`{"a":[`)[:length/2])}, {"authorization", "Bearer " + token(fill(`[`)[:length/2])},
			{"authorization", "Bearer " + token(`{"a":{"b":["`+fill(`\u0041`)[:length/2]+`"]}}`)}, {"authorization", fill("Bearer ")},
			{"authorization", fill(".")}, {"authorization", "a." + fill("!") + ".c"}, {"x-token", token(`{"sub":"` + fill("\xff")[:length/2] + `"}`)},
			{"x-token", token(fill(`{"sub":`)[:length/2])}, {"x-forwarded-for", fill("1.2.3.4,")}, {"host", fill("A.")[:200] + ":80"},
		} {
			for range 4 {
				if got := ask(t, clients[sent%2], n.url(), append(headers, "x-hostile", "1")...); got.status != http.StatusOK && got.status != http.StatusBadRequest {
					t.Errorf("%.80q: status %d", headers, got.status)
				}
				sent++
			}
		}
		for i, want := range []int{200, 429, 200, 429, 429} {
			path := []string{"/a", "/a", "/a?plan=gold", "/a", "/a?plan=gold"}[i]
			must.Equal(t, ask(t, clients[i%2], n.url(), ":path", path).status, want, "then %s: status", path)
		}
	})
}
