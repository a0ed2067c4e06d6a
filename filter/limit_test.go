package filter_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
)

// limitRule is a rule of so many tokens, with further fields of its reservation, and of the rule.
const limitRule = `{"prices": {"m": {"of": {"*": {"input": 2, "output": 10}}}}, "rules": [{"name": "tokens", "limit_tokens": true,
	"limits": [{"limit": %d, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": "auto",
	"reserve": {"request_json": ["max_completion_tokens", "max_tokens", "max_output_tokens", "generationConfig.maxOutputTokens",
	"inferenceConfig.maxTokens"], "default": 500, "most": 8192%s}%s}]}`

// A request that asks for more than is left asks for what is left, and takes it. Nothing else changes.
func TestLimitsTokens(t *testing.T) {
	const long = 40_000
	for _, c := range []struct {
		name, reserve, rule, path, body string
		limit                           int
		passed                          string // if it is changed
		left                            string // empty if it is refused
		size                            int    // of pieces
	}{
		{name: "it fits", body: `{"max_tokens":300}`, limit: 300, left: "0"},
		{name: "lowered", body: `{ "max_tokens" : 8000 , "n":2}`, limit: 300, passed: `{ "max_tokens" : 300 , "n":2}`, left: "0"},
		{name: "in digits", body: `{"max_tokens":"8e3"}`, limit: 300, passed: `{"max_tokens":300}`, left: "0"},
		{name: "two names", body: `{"max_tokens":8000,"max_completion_tokens":200}`, limit: 100, passed: `{"max_tokens":100,"max_completion_tokens":100}`, left: "0"},
		{name: "the larger of two names", body: `{"max_tokens":8000,"max_completion_tokens":200}`, limit: 300, passed: `{"max_tokens":300,"max_completion_tokens":200}`, left: "0"},
		{name: "absent", body: `{"model":"m"}`, limit: 300, passed: `{"model":"m","max_completion_tokens":300}`, left: "0"},
		{name: "absent, and it fits", body: `{"model":"m"}`, limit: 500, left: "0"},
		{name: "null", path: "/v1/completions", body: `{"max_tokens":null}`, limit: 300, passed: `{"max_tokens":300}`, left: "0"},
		{name: "an empty body", path: "/v1/completions", body: `{}`, limit: 300, passed: `{"max_tokens":300}`, left: "0"},
		{name: "responses", path: "/v1/responses?x=/messages", body: `{"a":1}`, limit: 300, passed: `{"a":1,"max_output_tokens":300}`, left: "0"},
		{name: "anthropic", path: "/v1/messages", body: `{"a":1}`, limit: 300, passed: `{"a":1,"max_tokens":300}`, left: "0"},
		{name: "gemini", path: "/v1beta/models/x:streamGenerateContent", body: `{"generationConfig":{"topK":1}}`, limit: 300, passed: `{"generationConfig":{"maxOutputTokens":300,"topK":1}}`, left: "0"},
		{name: "gemini lowered", path: "/v1beta/models/x:generateContent", body: `{"generationConfig":{"maxOutputTokens":999}}`, limit: 300, passed: `{"generationConfig":{"maxOutputTokens":300}}`, left: "0"},
		{name: "bedrock", path: "/model/x/converse", body: `{"messages":[]}`, limit: 300, passed: `{"messages":[],"inferenceConfig":{"maxTokens":300}}`, left: "0"},
		{name: "an unknown API", path: "/x", body: `{}`, limit: 300},
		{name: "in pieces", body: `{"x":"` + strings.Repeat("x", 90) + `","max_tokens":8000}`, limit: 300, passed: `{"x":"` + strings.Repeat("x", 90) + `","max_tokens":300}`, left: "0", size: 60},
		{name: "in an earlier piece", body: `{"max_tokens":8000,"x":"` + strings.Repeat("x", 90) + `"}`, limit: 300, size: 60},
		{name: "nothing left", body: `{"max_tokens":8000}`, limit: 0},
		{name: "one left", body: `{"max_tokens":8000}`, limit: 1, passed: `{"max_tokens":1}`, left: "0"},
		{name: "twice", body: `{"max_tokens":8000,"max_tokens":1}`, limit: 300},
		{name: "in capitals", body: `{"max_tokens":8000,"Max_Tokens":1}`, limit: 300},
		{name: "too long", body: `{"max_tokens":800,"x":"` + strings.Repeat("x", long) + `"}`, limit: 300},
		{name: "too long, refused", reserve: `, "unread": "refuse"`, body: `{"max_tokens":1,"x":"` + strings.Repeat("x", long) + `"}`, limit: 3000},
		{name: "no JSON", body: `max_tokens=8000`, limit: 300},
		{name: "several answers", reserve: `, "times": "n"`, body: `{"max_tokens":8000,"n":3}`, limit: 301, passed: `{"max_tokens":100,"n":3}`, left: "1"},
		{name: "a prompt", reserve: `, "prompt": {"bytes_per_token": 1}`, body: `{"max_tokens":8000}`, limit: 300, passed: `{"max_tokens":281}`, left: "0"},
		{name: "a prompt that does not fit", reserve: `, "prompt": {"bytes_per_token": 1}`, body: `{"max_tokens":8000}`, limit: 19},
		{name: "least", reserve: `, "least": 16`, body: `{"max_tokens":8000}`, limit: 16, passed: `{"max_tokens":16}`, left: "0"},
		{name: "below least", reserve: `, "least": 16`, body: `{"max_tokens":8000}`, limit: 15},
		{name: "money", reserve: `, "prompt": {"bytes_per_token": 1}`, rule: `, "price": "m"`, body: `{"max_tokens":8000}`, limit: 305, passed: `{"max_tokens":26}`, left: "7"},
		{name: "too large", rule: `, "most_per_request": 5000`, body: `{"max_tokens":8000}`, limit: 300},
		{name: "it asks, too", body: `{"stream":true,"max_tokens":8000}`, limit: 300, passed: `{"stream":true,"max_tokens":300,"stream_options":{"include_usage":true}}`, left: "0"},
		{name: "both are written", body: `{"stream":true}`, limit: 300, passed: `{"stream":true,"max_completion_tokens":300,"stream_options":{"include_usage":true}}`, left: "0"},
		{name: "of two rules, the less", rule: `}, {"name": "two", "limit_tokens": true, "limits": [{"limit": 200, "window": "1h"}], "cost_on_response": "openai", "reserve": {"request_json": "max_tokens", "default": 5}`,
			body: `{"max_tokens":8000}`, limit: 300, passed: `{"max_tokens":200}`, left: "0"},
		{name: "one path, in any API", rule: `}, {"name": "two", "limit_tokens": true, "limits": [{"limit": 200, "window": "1h"}], "cost_on_response": "openai", "reserve": {"request_json": "o.max", "default": 500}`,
			path: "/v1/messages", body: `{"x":1}`, limit: 600, passed: `{"x":1,"o":{"max":200},"max_tokens":200}`, left: "0"},
		{name: "two members of one absent object", rule: `}, {"name": "two", "limit_tokens": true, "limits": [{"limit": 200, "window": "1h"}], "cost_on_response": "openai", "reserve": {"request_json": "Stream_options.max", "default": 500}`,
			body: `{"stream":true}`, limit: 600, passed: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "a rule beside refuses", rule: `}, {"name": "two", "limits": [{"limit": 0, "window": "1h"}]`, body: `{"max_tokens":800}`, limit: 300, passed: `{"max_tokens":300}`},
		{name: "a shadow rule", rule: `, "mode": "shadow"}, {"name": "two", "limits": [{"limit": 5, "window": "1h"}]`, body: `{"max_tokens":8000}`, limit: 300, left: "4"},
		{name: "not its path", rule: `, "match": {"path": {"prefix": "/other"}}}, {"name": "two", "limits": [{"limit": 5, "window": "1h"}]`, body: `{"max_tokens":8000}`, limit: 300, left: "4"},
		{name: "an override", rule: `, "key": ["host"], "overrides": {"keys": [{"key": ["shop.example"], "limits": [{"limit": 70, "window": "1h", "algorithm": "fixed_window"}]}]}`, body: `{"max_tokens":8000}`, limit: 300, passed: `{"max_tokens":70}`, left: "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path == "" {
				c.path = chatPath
			}
			if c.passed == "" {
				c.passed = c.body
			}
			v := newProxy(t).start(fmt.Sprintf(limitRule, c.limit, c.reserve, c.rule))
			v.headersOnly = true
			s, passed, length := v.forward(c.path, c.body, c.size)
			must.Equal(t, passed, c.passed, "passed")
			must.Equal(t, length, strconv.Itoa(len(c.passed)), "length")
			if c.left == "" {
				if v.reply == nil {
					t.Error("it passed")
				}
			} else if v.reply != nil {
				t.Errorf("reply %+v", v.reply)
			} else if left := v.leaves(s); left != c.left {
				t.Errorf("%s left, want %s", left, c.left)
			}
		})
	}
}

// Whatever JSON is changed, other parsers find the same in it but for the number, which is what is left.
func FuzzLimitTokens(f *testing.F) {
	for _, body := range []string{
		`{"max_tokens":8000}`, `{"stream":true,"max_tokens":"8000","messages":[{"content":"}"}]}`, `{"max_tokens":null,"x":{"max_tokens":1}}`, `{"x":1}`, `{}`,
		`{"max_tokens":1,"max_tokens":2}`, `{"a":{"b":"\u0022}"},"max_tokens":1e9} `, `{"max_tokens":8000}}`,
	} {
		f.Add(body, 0)
		f.Add(body, 3)
	}
	proxy := newProxy(f)
	configuration := strings.Replace(fmt.Sprintf(limitRule, 300, "", `, "ask_for_usage": false`), `"max_completion_tokens", `, "", 1)
	f.Fuzz(func(t *testing.T, body string, size int) {
		if len(body) == 0 || len(body) > 4096 {
			return
		}
		proxy.t = t
		v := proxy.start(configuration)
		s, passed, length := v.forward("/v1/messages", body, min(max(size, 0), len(body)))
		if v.reply == nil {
			v.reset(s)
		}
		must.EqualOrEnd(t, length, strconv.Itoa(len(passed)), "%q: length of %q", body, passed)
		if passed == body || !json.Valid([]byte(body)) {
			return
		}
		before, after := valueOf(t, body), valueOf(t, passed)
		most := after["max_tokens"]
		for _, value := range []map[string]any{before, after} {
			for _, name := range []string{"max_tokens", "max_output_tokens"} {
				if value[name] == most {
					delete(value, name)
				}
			}
		}
		delete(before, "max_tokens")
		must.Same(t, after, before, "%q: the values of %q besides", body, passed)
	})
}
