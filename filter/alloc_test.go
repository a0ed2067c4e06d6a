package filter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/must"
	"weir/internal/proxywasm"
	"weir/internal/wire"
)

// Requests allocate nothing once there were some, whatever rules make of them, with a backend or without.
func TestNothingIsAllocated(t *testing.T) {
	const (
		long    = `"limits": [{"limit": 1000000, "window": "1h"}]`
		backend = `"backend": {"cluster": "b"}, "sync_rate": 1, `
		several = `"rules": [
			{"name": "user", "key": [{"header": "x-user"}, "client_ip"], "limits": [{"limit": 1000000, "window": "1h"}, {"limit": 1000000, "window": "1d", "algorithm": "fixed_window"}]},
			{"name": "all", "key": ["method", "path"], "match": {"path": {"prefix": "/"}, "methods": ["GET"]}, "limits": [{"limit": 1000000, "window": "1h", "algorithm": "fixed_window", "start": "first_hit"}]}]`
	)
	rule := func(options string) string { return `"rules": [{"name": "user", ` + options + `}]` }
	overridden := []wire.Override{
		{Rule: "all", Values: []string{"GET", "/x"}, Limits: []wire.OverrideLimit{{Max: 2_000_000, WidthMillis: 3_600_000}}, Until: uint64(monday+1e18) / 1e6},
		{Rule: "user", Values: []string{"ann", "2001:db8::1"}, Limits: []wire.OverrideLimit{
			{Max: 2_000_000, WidthMillis: 3_600_000}, {Max: 2_000_000, WidthMillis: 86_400_000},
		}},
	}
	for name, c := range map[string]struct {
		configuration string
		set           []wire.Override
		metric        string  // that counts it
		replies       float64 // of a request, for each of which the fake allocates
	}{
		"allowed": {configuration: several},
		"costs": {configuration: rule(`"key": [{"header": "x-user"}], "cost": {"header": "x-cost"}, "cost_on_response": {"header": "x-cost"}, "limits": [
			{"limit": 1000000, "window": "1m", "precision": "20s"}, {"limit": 400, "window": "1ms", "algorithm": "sliding_log"},
			{"limit": 1000000, "window": "1m", "algorithm": "token_bucket"}]`)},
		"rejected": {configuration: rule(`"key": [{"header": "x-user"}], "limits": [{"limit": 0, "window": "1h"}]`), metric: "rejected", replies: 1},
		// A refusal that is not remembered is read each time.
		"read and rejected": {configuration: rule(`"cost": 1, "cost_on_response": {"header": "x-cost"}, "limits": [{"limit": 1, "window": "1h"}]`), metric: "rejected", replies: 1},
		"synced":            {configuration: backend + several},
		"overridden":        {configuration: backend + several, set: overridden},
		"off":               {configuration: backend + rule(long), set: []wire.Override{moves(wire.Off)}, metric: "off"},
		"moved to shadow":   {configuration: backend + rule(long), set: []wire.Override{moves(wire.Shadow)}, metric: "shadow_allowed"},
		"moved":             {configuration: backend + rule(long), set: []wire.Override{moves(wire.Configured, 2_000_000)}},
		"told by the body":  {configuration: rule(`"reserve": {"request_json": "x", "default": 1}, "cost_on_response": "openai", ` + long)},
		"priced": {configuration: `"prices": {"p": {"by": {"request_json": "n.x"}, "of": {"1": {"input": 0.5}, "2*": {"input": 2}}}}, ` +
			rule(`"reserve": {"request_json": "x", "default": 1, "prompt": {"bytes_per_token": 4}}, "cost_on_response": "auto", "price": "p", "limits": [{"limit": 100000000, "window": "1h"}]`)},
		"warned of": {configuration: backend + rule(`"warn_at": 0.001, "reveal": "plain", "key": ["client_ip"], "reserve": {"header": "x-cost"}, "cost_on_response": "openai",
			"limits": [{"limit": 1000000, "window": "1h"}, {"limit": 1000000, "window": "1d", "algorithm": "token_bucket"}]`)},
		"classed":              {configuration: rule(`"classes": {"by": {"header": "x-user"}, "of": {"ann": {"guaranteed": 0.5, "most": 0.8}}}, ` + long)},
		"classed, of the pool": {configuration: rule(`"classes": {"by": {"header": "x-user"}, "of": {"ann": {"most": 0.8}}}, ` + long)},
		"shadow":               {configuration: rule(`"mode": "shadow", "limits": [{"limit": 3, "window": "1d"}]`), metric: "shadow_rejected"},
		"of a plan":            {configuration: rule(`"overrides": {"by": {"header": "x-plan"}, "values": {"gold": [{"limit": 1500000, "window": "1h"}]}}, ` + long)},
		"of its own limit":     {configuration: rule(`"limits": [{"limit": 1000000, "window": "1h", "limit_from": {"header": "x-limit", "max": 2000000}}]`)},
		"logged":               {configuration: `"access_log": true, ` + rule(`"cost": 0, `+long)},
	} {
		t.Run(name, func(t *testing.T) {
			w := joined(t, 1, 1, `{`+c.configuration+`}`)
			if c.set != nil {
				w.override(c.set...)
			}
			v := w.vms[0]
			v.headersOnly, v.piece = name == "told by the body" || name == "priced", []byte(`{"n":{"x":1},"x":2}`)
			v.receive("GET", "/x?y", []string{"x-user", "ann", "x-cost", "2", "content-length", "2000", "x-plan", "gold", "x-limit", "1234567"})
			v.response, v.calls = nil, nil
			v.source = []byte("[2001:db8::1]:443")
			run := func() {
				v.now += 1000
				v.reply = nil
				v.stream()
			}
			for range 20 { // so that it has a lease that lasts
				for range 100 {
					run()
				}
				w.advance(time.Second / 10)
			}
			allocated := testing.AllocsPerRun(200, run)
			must.Equal(t, allocated, c.replies, "allocations for each request")
			applied, _ := v.plugin.Node().Overrides()
			must.Equal(t, applied, len(c.set), "overrides that are applied")
			if c.metric != "" && v.outcome("user", c.metric) < 1000 {
				t.Errorf("%d requests are counted as %s", v.outcome("user", c.metric), c.metric)
			}
			defer proxywasm.Use(v)()
			if name == "warned of" && v.plugin.Node().Warnings(0) < 1000 {
				t.Errorf("warned %d times", v.plugin.Node().Warnings(0))
			}
		})
	}
}

// lean is a fake whose bodies and response headers allocate nothing.
type lean struct {
	*fakeVM
	upstream map[string][]byte
}

func (v lean) ReplaceRequestBody(_ int, piece []byte) { v.piece = append(v.piece[:0], piece...) }

func (v lean) ReplaceResponseBody(_ int, piece []byte) { v.piece = append(v.piece[:0], piece...) }

func (v lean) ResponseHeader(name string) ([]byte, bool) {
	value, ok := v.upstream[name]
	return value, ok
}

// Bodies that are read or rewritten, and responses that are read, allocate nothing once there were some.
func TestBodiesAllocateNothing(t *testing.T) {
	unlimited := func(rule string) string { return fmt.Sprintf(rule, 999_999_999) }
	asks := unlimited(`{"headers": [], "rules": [{"name": "r", "cost_on_response": "openai", "reserve": {"request_json": "max_tokens", "default": 50, "unread": "refuse"}, "limits": [{"limit": %d, "window": "1h"}]}]}`)
	const usage = `,"stream_options":{"include_usage":true}`
	events := map[string][]byte{"content-type": []byte("text/event-stream")}
	for name, c := range map[string]struct {
		configuration, path, body string
		upstream                  map[string][]byte
		grows                     int  // bytes of the request
		holds                     bool // until the upstream's time has come
	}{
		"made to ask": {configuration: asks, path: chatPath, body: `{"stream":true,"max_tokens":0}`, upstream: events, grows: len(usage)},
		"asks":        {configuration: asks, path: chatPath, body: `{"stream":true,"max_tokens":0` + usage + `}`, upstream: events},
		"no stream":   {configuration: asks, path: chatPath, body: `{"max_tokens":0}`, upstream: events},
		"another API": {configuration: asks, path: "/v1/messages", body: `{"max_tokens":0}`, upstream: events},
		"lowered": {configuration: fmt.Sprintf(limitRule, 300, "", `, "headers": []`), path: chatPath, body: `{"stream":true,"x":1}`,
			upstream: map[string][]byte{":status": []byte("500")}, grows: len(usage) + len(`,"max_completion_tokens":300`)},
		"texts": {configuration: unlimited(`{"headers": [], "rules": [{"name": "r", "match": {"request_json": {"stream": {"exact": "true"}}}, "key": [{"request_json": "model"}, {"request_json": "n"}],
			"limits": [{"limit": %d, "window": "1h"}]}]}`), path: "/", body: `{"model":"gpt-5","n":7.00,"stream":true}`},
		"told to wait": {configuration: unlimited(`{"headers": [], "rules": [{"name": "r", "key": [{"header": "x-key"}], "upstream": true, "limits": [{"limit": %d, "window": "1h"}]}]}`), path: "/",
			upstream: map[string][]byte{":status": []byte("429"), "retry-after": []byte("0.000000001")}, holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := newProxy(t).start(c.configuration)
			v.properties = map[string][]byte{"response\x00code_details": []byte("via_upstream")}
			v.receive("POST", c.path, nil)
			v.calls = nil
			restore := proxywasm.Use(lean{v, c.upstream})
			request, answer := v.request, []byte(helloChunk+usageChunk+doneEvent)
			s, grown := v.plugin.NewHttpContext(1).(*stream), 0
			allocated := testing.AllocsPerRun(100, func() {
				v.request, v.piece = request, append(v.piece[:0], c.body...)
				if waits := s.OnHttpRequestHeaders(1, c.body == "") != types.ActionContinue; waits != (c.body != "") || waits && s.OnHttpRequestBody(len(v.piece), true) != types.ActionContinue {
					t.Fatalf("it waits for more than its body, or is refused: %+v", v.reply)
				}
				grown = max(grown, len(v.piece)-len(c.body))
				v.request, v.piece = nil, append(v.piece[:0], answer...)
				s.OnHttpResponseHeaders(1, false)
				s.OnHttpResponseBody(len(v.piece), true)
				s.OnHttpStreamDone()
				v.now += second
			})
			restore()
			must.Equal(t, allocated, 0, "allocations for each request")
			must.Equal(t, grown, c.grows, "bytes that requests have grown by")
			must.Equal(t, v.count("upstream_holds_total") > 0, c.holds, "the upstream's word was heeded")
		})
	}
}
