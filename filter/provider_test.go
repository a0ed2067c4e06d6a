package filter_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A provider's clients understand the refusal: what each does with it is in docs/tokens.md.
func TestPresets(t *testing.T) {
	const minute, month, never = `{"limit": 1, "window": "1m", "algorithm": "fixed_window"}`, `{"limit": 1, "window": "month", "algorithm": "fixed_window"}`,
		`{"limit": 0, "window": "1m"}`
	const hour = `{"limit": 1, "window": "30m", "algorithm": "fixed_window"}`
	for _, c := range []struct {
		preset, limit, path string
		status              uint32
		header              string
		body                string
	}{
		{"openai", minute, "/", 429, "", `{"error":{"message":"Rate limit exceeded: rule r. Please try again in 60s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{"openai", hour, "/", 429, "x-should-retry: false", `{"error":{"message":"Rate limit exceeded: rule r. Please try again in 1800s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{"openai", month, "/", 429, "x-should-retry: false", `{"error":{"message":"Rate limit exceeded: rule r. Please try again in 2332800s.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
		{"openai", never, "/", 429, "x-should-retry: false", `{"error":{"message":"Rate limit exceeded: rule r. No waiting helps this request.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
		{"anthropic", minute, "/", 429, "", `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded: rule r. Please try again in 60s."}}`},
		{"anthropic", month, "/", 429, "x-should-retry: false", `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded: rule r. Please try again in 2332800s."}}`},
		{
			"gemini", minute, "/", 429, "", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded: rule r. Please try again in 60s.",` +
				`"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"60s"}]}}`,
		},
		{"gemini", never, "/", 429, "", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded: rule r. No waiting helps this request."}}`},
		{"bedrock", minute, "/", 429, "x-amzn-errortype: ThrottlingException", `{"message":"Rate limit exceeded: rule r. Please try again in 60s."}`},
		{"bedrock", month, "/", 400, "x-amzn-errortype: ServiceQuotaExceededException", `{"message":"Rate limit exceeded: rule r. Please try again in 2332800s."}`},
		{"auto", minute, "/openai/deployments/d/chat/completions?api-version=1", 429, "", `{"error":{"message":`},
		{"auto", minute, "/v1beta/openai/chat/completions", 429, "", `{"error":{"message":`},
		{"auto", minute, "/team/v1/messages", 429, "", `{"type":"error"`},
		{"auto", minute, "/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict", 429, "", `{"type":"error"`},
		{"auto", minute, "/v1beta/models/gemini-3:streamGenerateContent?alt=sse", 429, "", `{"error":{"code":429`},
		{"auto", minute, "/v1beta/models/e:batchEmbedContents", 429, "", `{"error":{"code":429`},
		{"auto", minute, "/model/m/converse-stream", 429, "x-amzn-errortype: ThrottlingException", `{"message":`},
		{"auto", minute, "/?/v1/messages", 429, "", `{"error":{"message":`},
		{"auto", minute, "/ anthropic-version", 429, "", `{"type":"error"`},
		{"auto", minute, "/ x-goog-api-key", 429, "", `{"error":{"code":429`},
	} {
		t.Run(fmt.Sprint(c.preset, " ", c.path, " ", c.header), func(t *testing.T) {
			v := newProxy(t).start(fmt.Sprintf(`{"response": {"preset": %q, "headers": {"x-own": "1"}}, "rules": [{"name": "r", "limits": [%s]}]}`, c.preset, c.limit))
			path, header, _ := strings.Cut(c.path, " ")
			pairs := []string{":path", path}
			if header != "" {
				pairs = append(pairs, header, "1")
			}
			for v.send(pairs...) {
				continue
			}
			if v.reply.status != c.status || !strings.HasPrefix(v.reply.body, c.body) || !json.Valid([]byte(v.reply.body)) {
				t.Errorf("got %d %s\nwant %d %s", v.reply.status, v.reply.body, c.status, c.body)
			}
			got := ""
			for _, name := range []string{"x-should-retry", "x-amzn-errortype"} {
				if value, ok := v.reply.headers[name]; ok {
					got += name + ": " + value
				}
			}
			if got != c.header || v.reply.headers["content-type"] != "application/json" || v.reply.headers["x-own"] != "1" {
				t.Errorf("got %q of %v, want %q", got, v.reply.headers, c.header)
			}
		})
	}
}

// A refused call of JSON-RPC is told so by its id, whenever that is decided.
func TestJSONRPC(t *testing.T) {
	const limited, invalid = `{"jsonrpc":"2.0","error":{"code":-32005,"message":"Rate limit exceeded: rule r. Please try again in 60s.","data":{"rule":"r","retry_after":60}},"id":`,
		`{"jsonrpc":"2.0","error":{"code":-32600,"message":"The request's body can't be read for what it costs, as rule r wants it.","data":{"rule":"r"}},"id":`
	const full = `"limits": [{"limit": 0, "window": "1m"}]`
	const once = `"limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]`
	const costs = `"limits": [{"limit": 9, "window": "1m"}], "cost": {"request_json": "params.n", "default": 1, "unread": "refuse"}`
	for _, c := range []struct {
		response, rule, body string
		status               uint32
		want                 string
	}{
		{`{"preset": "jsonrpc"}`, once, `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, 429, limited + `7}`},
		{`{"preset": "jsonrpc", "status": 200}`, once, `{"id":"a\"\u0007\\é","method":"x"}`, 200, limited + `"a\"\u0007\\é"}`},
		{`{"preset": "jsonrpc"}`, once, `{"params":{"id":3},"id":-1.5e3, "method"`, 429, limited + `-1.5e3}`},
		{`{"preset": "jsonrpc"}`, once, `{"method":"notifications/x"}`, 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, once, `{"id":{"a":1}}`, 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, once, `{"id":true}`, 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, once, `[{"id":1},{"id":2}]`, 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, once, "{\"id\":\"\xff\"}", 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, once, `{"id":"` + strings.Repeat("x", 300) + `"}`, 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, once, ``, 429, limited + `null}`},
		{`{"preset": "jsonrpc"}`, full, `{"id":1}`, 429, `{"jsonrpc":"2.0","error":{"code":-32005,"message":"Rate limit exceeded: rule r. No waiting helps this request.","data":{"rule":"r"}},"id":1}`},
		{`{"preset": "jsonrpc"}`, costs, `{"id":1,"params":{"n":"many"}}`, 400, invalid + `1}`},
		{`{"preset": "jsonrpc", "status": 200}`, costs, `{"id":1,"params":{"n":"many"}}`, 200, invalid + `1}`},
	} {
		v := newProxy(t).start(fmt.Sprintf(`{"response": %s, "rules": [{"name": "r", %s}]}`, c.response, c.rule))
		for range 2 {
			s, _ := v.ask(":path", "/mcp", "content-type", "application/json")
			v.upload(s, true, c.body)
		}
		if v.reply.status != c.status || v.reply.body != c.want || !json.Valid([]byte(v.reply.body)) {
			t.Errorf("%s: got %d %s\nwant %d %s", c.body, v.reply.status, v.reply.body, c.status, c.want)
		}
	}
}

// A request whose body is not read is refused as its client understands it, and one of gRPC as gRPC wants it.
func TestPresetsOfOtherRefusals(t *testing.T) {
	v := newProxy(t).start(`{"response": {"preset": "auto"}, "rules": [{"name": "r", "limits": [{"limit": 100, "window": "1h"}], "cost_on_response": "openai",
		"reserve": {"request_json": "max_tokens", "default": 1, "unread": "refuse"}}]}`)
	s, _ := v.ask(":path", "/v1/messages")
	if v.upload(s, true, "{"); v.reply.status != 400 || v.reply.body != `{"type":"error","error":{"type":"invalid_request_error","message":"The request's body can't be read for what it costs, as rule r wants it."}}` {
		t.Errorf("got %+v", v.reply)
	}
	v = newProxy(t).start(`{"response": {"preset": "openai"}, "rules": [{"name": "r", "limits": [{"limit": 0, "window": "1h"}]}]}`)
	if v.send("content-type", "application/grpc"); v.reply.grpc != 8 || v.reply.body != "Rate limit exceeded" {
		t.Errorf("got %+v", v.reply)
	}
}
