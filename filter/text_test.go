package filter_test

import (
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/counter"
	"weir/internal/must"
	"weir/internal/proxywasm"
)

// textKey is the key of rule r for a request whose body says a model.
func textKey(model string) string {
	return string(counter.AppendPart(counter.AppendPart(nil, []byte("r")), []byte(model)))
}

// A key has what the body says, if all parsers find that there.
func TestKeyOfBody(t *testing.T) {
	const rule = `{"rules": [{"name": "r", "key": [{"request_json": "model", "default": "none", "longest": 8}], "limits": [{"limit": 9, "window": "1h"}]}]}`
	for _, c := range []struct {
		name    string
		body    string
		headers []string
		size    int // of pieces; 0 for the whole
		want    string
		unread  uint64
	}{
		{name: "whole", body: `{"messages":[{"model":"x"}],"model":"gpt-5"}`, want: "gpt-5"},
		{name: "bytes", body: `{"model":"gpt-5","messages":[]}`, size: 1, want: "gpt-5"},
		{name: "escapes", body: `{"mod\u0065l":"gpt\u002d5"}`, want: "gpt-5"},
		{name: "number", body: `{"model":7.0}`, want: "7"},
		{name: "boolean", body: `{"model":true}`, want: "true"},
		{name: "empty", body: `{"model":""}`, want: ""},
		{name: "twice, the same", body: `{"model":"a","model":"a"}`, want: "a"},
		{name: "twice", body: `{"model":"a","model":"b"}`, want: "none", unread: 1},
		{name: "in capitals too", body: `{"model":"a","MODEL":"b"}`, want: "none", unread: 1},
		{name: "missing", body: `{"messages":[]}`, want: "none"},
		{name: "null", body: `{"model":null}`, want: "none"},
		{name: "no body", want: "none"},
		{name: "as long as it may be", body: `{"model":"12345678"}`, want: "12345678"},
		{name: "too long", body: `{"model":"123456789"}`, want: "none", unread: 1},
		{name: "object", body: `{"model":{}}`, want: "none", unread: 1},
		{name: "form", body: `model=gpt-5`, want: "none", unread: 1},
		{name: "cut off", body: `{"model":"gpt-5",`, want: "none", unread: 1},
		{name: "behind the bound", body: `{"model":"gpt-5","x":"` + strings.Repeat("x", filter.MaxRequestBody) + `"}`, size: 1000, want: "none", unread: 1},
		{name: "gzip", body: "\x1f\x8b", headers: []string{"content-encoding", "gzip"}, want: "none", unread: 1},
		{name: "gRPC", body: `{"model":"gpt-5"}`, headers: []string{"content-type", "application/grpc"}, want: "none", unread: 1},
		{name: "upgrade", body: `{"model":"gpt-5"}`, headers: []string{"upgrade", "websocket"}, want: "none", unread: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newProxy(t).start(rule)
			s, action := v.ask(c.headers...)
			v.uploadAll(s, action, c.body, c.size)
			must.Equal(t, string(v.plugin.First().Key), textKey(c.want), "the key is")
			must.Equal(t, v.count("unread_bodies_total"), c.unread, "bodies were not read")
			v.reset(s)
		})
	}
	v := newProxy(t).start(rule)
	v.open()
	must.Equal(t, string(v.plugin.First().Key), textKey("none"), "the key of a request without a body")
	must.Equal(t, v.count("unread_bodies_total"), 0, "bodies were not read")
	s, _ := v.ask()
	v.upload(s, false, `{"model":"b"}`)
	defer proxywasm.Use(v)()
	must.Equal(t, s.OnHttpRequestTrailers(1), types.ActionContinue, "a request with trailers: action")
	must.Equal(t, string(v.plugin.First().Key), textKey("b"), "the key of a request with trailers")
}

// Rules apply by what the body says, and requests that no such rule is for don't wait for theirs.
func TestMatchOfBody(t *testing.T) {
	const limits = `"limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}]`
	v := newProxy(t).start(`{"headers": ["ratelimit"], "rules": [
		{"name": "all", ` + limits + `, "cost": {"header": "x-cost"}},
		{"name": "big", "match": {"path": {"prefix": "/v1/"}, "request_json": {"model": {"prefix": "gpt-5"}, "stream": {"exact": "true"}}}, ` + limits + `},
		{"name": "unknown", "match": {"path": {"prefix": "/v1/"}, "request_json": {"model": {"present": false}}}, ` + limits + `},
		{"name": "paid", "match": {"path": {"prefix": "/v1/"}}, "except": [{"request_json": {"model": {"exact": "free"}}}], ` + limits + `},
		{"name": "shadow", "mode": "shadow", "match": {"request_json": {"model": {"regex": "gpt-[45]"}}}, ` + limits + `}]}`)
	for _, c := range []struct {
		path, body, want string
		shadow           uint64
	}{
		{"/v1/chat", `{"model":"gpt-5","stream":true}`, "all big paid", 1},
		{"/v1/chat", `{"model":"gpt-5-mini","stream":true}`, "all big paid", 0},
		{"/v1/chat", `{"model":"gpt-5","stream":false}`, "all paid", 1},
		{"/v1/chat", `{"model":"gpt-5"}`, "all paid", 1},
		{"/v1/chat", `{"model":"free"}`, "all", 0},
		{"/v1/chat", `{"model":"free","model":"gpt-5"}`, "all unknown paid", 0},
		{"/v1/chat", `{}`, "all unknown paid", 0},
		{"/v1/chat", `none`, "all unknown paid", 0},
		{"/v2/chat", `{"model":"gpt-4"}`, "all", 1},
	} {
		before := v.outcome("shadow", "shadow_allowed")
		bad := v.count("bad_costs_total")
		s, action := v.ask(":path", c.path, "x-cost", "none")
		must.EqualOrEnd(t, action, types.ActionPause, "%s: the headers' action", c.body)
		must.EqualOrEnd(t, v.upload(s, true, c.body), types.ActionContinue, "%s: action", c.body)
		v.respond(s, false)
		var got []string
		for _, item := range strings.Split(v.response["ratelimit"], ", ") {
			name, _, _ := strings.Cut(item, ";")
			got = append(got, strings.Trim(name, `"`))
		}
		must.Equal(t, strings.Join(got, " "), c.want, "%s: apply", c.body)
		v.reset(s)
		must.Equal(t, v.outcome("shadow", "shadow_allowed")-before, c.shadow, "%s: the shadow rule counts", c.body)
		must.Equal(t, v.count("bad_costs_total")-bad, 1, "%s: bad costs", c.body)
	}
	// A request for which no rule may apply goes on at once.
	w := newProxy(t).start(`{"rules": [{"name": "big", "match": {"methods": ["PUT"], "request_json": {"model": {"present": true}}}, ` + limits + `}]}`)
	_, action := w.ask()
	must.Equal(t, action, types.ActionContinue, "a request with a body that no rule wants: action")
	// One to which no rule applies in the end, too.
	s, action := w.ask(":method", "PUT")
	if action != types.ActionPause || w.upload(s, true, `{}`) != types.ActionContinue || w.reply != nil {
		t.Errorf("action %d, reply %+v", action, w.reply)
	}
}

// A request waits for its body if any and not leave open whether a rule applies, and only then. The outcome
// is that of the whole body.
func TestAnyAndNotOfBody(t *testing.T) {
	const big, header, limits = `{"request_json": {"model": {"exact": "big"}}}`, `{"headers": {"x-a": {"exact": "1"}}}`, `"limits": [{"limit": 0, "window": "1h"}]`
	for _, c := range []struct {
		match, x string
		waits    bool
		// refused is whether the rule applies to the model big, and to another.
		refused [2]bool
	}{
		{`"match": {"not": ` + big + `}`, "1", true, [2]bool{false, true}},
		{`"match": {"not": {"not": ` + big + `}}`, "1", true, [2]bool{true, false}},
		{`"match": {"any": [` + header + `, ` + big + `]}`, "1", true, [2]bool{true, true}},
		{`"match": {"any": [` + header + `, ` + big + `]}`, "2", true, [2]bool{true, false}},
		{`"match": {"not": {"any": [` + header + `, ` + big + `]}}`, "1", false, [2]bool{}},
		{`"match": {"not": {"any": [` + header + `, ` + big + `]}}`, "2", true, [2]bool{false, true}},
		{`"match": {"not": {"headers": {"x-a": {"exact": "1"}}, "any": [` + big + `]}}`, "1", true, [2]bool{false, true}},
		{`"match": {"any": [{"headers": {"x-a": {"exact": "1"}}, "request_json": {"model": {"in": ["big"]}}}]}`, "2", false, [2]bool{}},
		{`"except": [` + big + `]`, "1", true, [2]bool{false, true}},
		{`"except": [{"not": ` + big + `}]`, "1", true, [2]bool{true, false}},
		{`"except": [{"any": [` + header + `, {"not": ` + big + `}]}]`, "1", false, [2]bool{}},
		{`"except": [{"any": [` + header + `, {"not": ` + big + `}]}]`, "2", true, [2]bool{true, false}},
	} {
		for i, model := range []string{"big", "small"} {
			v := newProxy(t).start(`{"rules": [{"name": "r", ` + c.match + `, ` + limits + `}]}`)
			s, action := v.ask("x-a", c.x)
			if waits := action == types.ActionPause; waits != c.waits {
				t.Errorf("%s, x-a %s: waits for the body is %v", c.match, c.x, waits)
				continue
			}
			if c.waits {
				v.upload(s, true, `{"model": "`+model+`"}`)
			}
			must.Equal(t, v.reply != nil, c.refused[i], "%s, x-a %s, model %s: refused", c.match, c.x, model)
		}
	}
}

// The limits may be those of what the body says.
func TestOverridesOfBody(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "limits": [{"limit": 5, "window": "1h", "algorithm": "fixed_window"}],
		"overrides": {"by": {"request_json": "tier", "regex": "([0-9])x?"}, "values": {"3": [{"limit": 30, "window": "1h", "algorithm": "fixed_window"}], "": [{"limit": 0, "window": "1h", "algorithm": "fixed_window"}]}}}]}`)
	for body, want := range map[string]string{`{"tier":3}`: "29", `{"tier":"3"}`: "29", `{"tier":3.0}`: "29", `{"tier":"3x"}`: "29", `{"tier":4}`: "4"} {
		s, _ := v.ask("x-key", body)
		must.Equal(t, v.upload(s, true, body), types.ActionContinue, "%s: action", body)
		must.Equal(t, v.leaves(s), want, "%s leaves", body)
	}
	s, _ := v.ask("x-key", "none")
	if v.upload(s, true, `{}`) != types.ActionPause || v.reply == nil || v.reply.status != 429 {
		t.Errorf("a request that says nothing gets %+v", v.reply)
	}
}
