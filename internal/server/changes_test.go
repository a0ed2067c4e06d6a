package server_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/store/memory"
)

const oneOverride = `{"overrides": [{"rule": "per-user", "key": ["ann"], "limits": [{"limit": 5, "width_ms": 60000}]}]}`

// changesOf are the records of shop that a server tells.
func changesOf(t *testing.T, s *httptest.Server, query, token string) server.Changes {
	t.Helper()
	return readJSON[server.Changes](t, s, routed(t, s.URL, "GET", server.ChangesPath+query, "", "shop", token))
}

// A change is recorded with who has made it, from where and why, and has one line in the log, whatever
// the reason has.
func TestChanges(t *testing.T) {
	var log bytes.Buffer
	s := start(t, memory.New(memory.Options{}), server.Options{Tokens: tokensOf(t, tokensOfVerbs), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const hostile = "why\nlevel=INFO msg=\"forged\" name=bob\r\n\x1b[2J\u202e<script>alert(1)</script>\x00"
	send := func(method, path, body, reason, token string, headers ...string) int {
		t.Helper()
		r := routed(t, s.URL, method, path+"&reason="+url.QueryEscape(reason), body, "shop", token)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		answer, _ := do(t, s.Client(), r)
		return answer.StatusCode
	}
	reset := `{"id": "` + annID + `", "rule": "per-user", "key": ["ann"], "reset": true}`
	for _, step := range []struct{ method, path, body string }{
		{"PUT", "/v1/overrides?x", oneOverride}, {"PUT", "/v1/overrides?force", oneOverride}, {"DELETE", "/v1/overrides?rule=per-user&key=ann", ""},
		{"DELETE", "/v1/overrides?rule=per-user&key=ann", ""}, {"PUT", "/v1/prices?x", `{"list": "l", "models": {"m": {"input": 1}}}`},
		{"DELETE", "/v1/prices?list=l", ""}, {"POST", "/v1/counter?x", reset},
	} {
		must.Equal(t, send(step.method, step.path, step.body, hostile, "shop-change"), 200, "%s %s: status", step.method, step.path)
	}
	found := changesOf(t, s, "", "shop-read")
	var whats []string
	for _, r := range found.Changes {
		whats = append(whats, r.What)
		if r.Name != "ann" || r.By != "token" || r.Address != "127.0.0.1" || r.Reason != hostile || !r.Made || len(r.Of) != 1 {
			t.Errorf("got %+v", r)
		}
	}
	must.Same(t, whats, []string{"set override", "remove override", "set price", "remove price", "reset counter"}, "the records are of")
	if lines := strings.Count(log.String(), "\n"); lines != 5 || strings.Count(log.String(), "name=ann") != 5 || strings.ContainsAny(log.String(), "\x1b\x00\r\u202e") {
		t.Errorf("%d lines in the log: %q", lines, log.String())
	}
	must.Equal(t, len(changesOf(t, s, "?since=2999-01-01T00:00:00Z", "shop-read").Changes), 0, "changes since then")
	raw, body := do(t, s.Client(), routed(t, s.URL, "GET", server.ChangesPath, "", "shop", "all-none"))
	if raw.Header.Get("Content-Type") != "application/json" || strings.ContainsAny(body, "<>\x1b\x00\r") {
		t.Errorf("the answer has markup or control characters: %q", body)
	}
	for reason, want := range map[string]int{strings.Repeat("x", 256): 200, strings.Repeat("x", 257): 400, "\xff": 400, strings.Repeat("x", 1<<19): 400} {
		must.Equal(t, send("PUT", "/v1/overrides?x", strings.ReplaceAll(oneOverride, "5", "6"), reason, "shop-change"), want, "a reason of %d bytes: status", len(reason))
	}
	for _, key := range []string{strings.Repeat("k", 65), "a b", "ä"} {
		must.Equal(t, send("POST", "/v1/counter?x", reset, "", "shop-change", "Idempotency-Key", key), 400, "an Idempotency-Key of %.5q: status", key)
	}
	before := len(changesOf(t, s, "", "shop-read").Changes)
	for range 3 {
		must.Equal(t, send("POST", "/v1/counter?x", reset, "", "shop-change", "Idempotency-Key", "k-1"), 200, "status")
	}
	must.Equal(t, len(changesOf(t, s, "", "shop-read").Changes), before+1, "records with those of a call that comes again")
	wantStatus(t, s, routed(t, s.URL, "GET", server.ChangesPath+"?since=yesterday", "", "shop", "shop-read"), 400)
}

// A change that can't be recorded is refused, and is not made.
func TestChangesThatCannotBeRecorded(t *testing.T) {
	counters := memory.New(memory.Options{})
	s := start(t, &brokenStore{Store: counters, notes: map[store.Topic]error{store.Changes: errors.New("away")}}, server.Options{})
	for _, route := range routes {
		if !route.call.Changes() || route.method == "DELETE" {
			continue // there is nothing to remove
		}
		answer, body := do(t, s.Client(), routed(t, s.URL, route.method, route.path, route.body, "shop", ""))
		must.Equal(t, answer.StatusCode, 503, "%s %s: status: %s", route.method, route.path, body)
		wantProblem(t, answer, body, "the change can't be recorded, and was not made")
	}
	if _, version, err := counters.Overrides(t.Context(), "shop", 0); version != 0 || err != nil {
		t.Errorf("the list has version %d, error %v", version, err)
	}
}

// A region's log says who has asked the parent for a change. Which namespaces there are is for who may read them all.
func TestChangesOfARegion(t *testing.T) {
	var log bytes.Buffer
	relayed := 0
	parent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { relayed++ })
	s := start(t, open(), server.Options{Tokens: tokensOf(t, tokensOfVerbs), Parent: parent, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for token, want := range map[string]int{"shop-change": 200, "shop-read": 403} {
		wantStatus(t, s, routed(t, s.URL, "PUT", "/v1/overrides?reason=why", oneOverride, "shop", token), want)
	}
	for token, want := range map[string]int{"all-read": 200, "shop-read": 403} {
		r := request(t, "GET", s.URL+server.NamespacesPath, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		wantStatus(t, s, r, want)
	}
	must.Equal(t, relayed, 2, "calls relayed")
	must.Contains(t, log.String(), `call="PUT /v1/overrides" name=ann by=token address=127.0.0.1 reason=why`, "log")
}
