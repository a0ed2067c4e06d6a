package filter_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/must"
	"weir/internal/proxywasm"
)

const askRule = `{"rules": [{"name": "tokens", "limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}],
	"cost_on_response": "openai", "reserve": {"request_json": "max_tokens", "default": 50, "unread": "refuse"}%s}]}`

const chatPath = "/v1/chat/completions"

// forward brings a body in pieces of a size, 0 for the whole, and returns what goes on to the upstream
// with its content-length.
func (v *fakeVM) forward(path, body string, size int) (s *stream, passed, length string) {
	v.t.Helper()
	v.receive("POST", path, []string{"content-length", strconv.Itoa(len(body))})
	s, action := v.begin(false)
	if size == 0 {
		size = len(body)
	}
	for start := 0; start < len(body); start += size {
		end := min(start+size, len(body))
		action = v.upload(s, end == len(body), body[start:end])
		passed += string(v.piece)
	}
	if action != types.ActionContinue && v.reply == nil {
		v.t.Fatal("the request waits still")
	}
	return s, passed, string(v.request["content-length"])
}

// A request for a stream is made to ask for its usage, and keeps everything else.
func TestAsksForUsage(t *testing.T) {
	for _, c := range []struct{ name, path, body, passed string }{
		{name: "absent", body: `{"stream":true,"model":"m"}`, passed: `{"stream":true,"model":"m","stream_options":{"include_usage":true}}`},
		{name: "spaces", body: " { \"stream\" : true }\r\n", passed: " { \"stream\" : true ,\"stream_options\":{\"include_usage\":true}}\r\n"},
		{name: "braces in strings", body: `{"stream":true,"a":["}","\"}"],"b":{"stream":{}}}`, passed: `{"stream":true,"a":["}","\"}"],"b":{"stream":{}},"stream_options":{"include_usage":true}}`},
		{name: "in a nested object", body: `{"x":{"stream_options":{"include_usage":true}},"stream":true}`, passed: `{"x":{"stream_options":{"include_usage":true}},"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "empty options", body: `{"stream_options":{ },"stream":true}`, passed: `{"stream_options":{"include_usage":true },"stream":true}`},
		{name: "other options", body: `{"stream_options":{"include_obfuscation":false},"stream":true}`, passed: `{"stream_options":{"include_usage":true,"include_obfuscation":false},"stream":true}`},
		{name: "false", body: `{"stream":true,"stream_options":{"include_usage": false , "x":1}}`, passed: `{"stream":true,"stream_options":{"include_usage": true , "x":1}}`},
		{name: "false at the end", body: `{"stream":true,"stream_options":{"include_usage":false}}`, passed: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "text", body: `{"stream":true,"stream_options":{"include_usage":"f\"e"}}`, passed: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "null", body: `{"stream":true,"stream_options":{"include_usage":null}}`, passed: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "no options", body: `{"stream_options":null,"stream":true}`, passed: `{"stream_options":{"include_usage":true},"stream":true}`},
		{name: "escapes", body: `{"str\u0065am":true,"stream\u005foptions":{}}`, passed: `{"str\u0065am":true,"stream\u005foptions":{"include_usage":true}}`},
		{name: "a number for true", body: `{"stream":1}`, passed: `{"stream":1,"stream_options":{"include_usage":true}}`},
		{name: "twice", body: `{"stream":false,"stream":true}`, passed: `{"stream":false,"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "completions", path: "/v1/completions?x=/y", body: `{"stream":true}`, passed: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "another spelling", path: "/v1/chat/completion%73/", body: `{"stream":true}`, passed: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "it asks", body: `{"stream":true,"stream_options":{"include_usage":true}}`},
		{name: "no stream", body: `{"model":"m"}`},
		{name: "not streamed", body: `{"stream":false}`},
		{name: "null stream", body: `{"stream":null}`},
		{name: "responses", path: "/v1/responses", body: `{"stream":true}`},
		{name: "messages", path: "/v1/messages", body: `{"stream":true}`},
		{name: "an array", body: `[{"stream":true}]`},
	} {
		if c.path == "" {
			c.path = chatPath
		}
		if c.passed == "" {
			c.passed = c.body
		}
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{0, 1, 5} {
				if size > 0 && c.passed != c.body && strings.Contains(c.body, "options\":") {
					continue // an earlier piece would have to change
				}
				v := newProxy(t).start(fmt.Sprintf(askRule, ""))
				_, passed, length := v.forward(c.path, c.body, size)
				must.Equal(t, passed, c.passed, "pieces of %d: passed", size)
				must.Equal(t, length, strconv.Itoa(len(c.passed)), "pieces of %d: length", size)
			}
		})
	}
}

// A body that can't be made to ask is one that can't be read, and passes as it came if it passes.
func TestUnasked(t *testing.T) {
	for _, c := range []struct {
		name, body string
		size       int
		passes     bool
	}{
		{name: "in an earlier piece", body: `{"stream_options":{"include_usage":false},"stream":true}`, size: 10},
		{name: "twice", body: `{"stream_options":{"include_usage":true},"stream_options":{},"stream":true}`},
		{name: "the flag twice", body: `{"stream_options":{"include_usage":true,"include_usage":false},"stream":true}`},
		{name: "a list", body: `{"stream_options":[],"stream":true}`},
		{name: "an object", body: `{"stream_options":{"include_usage":{}},"stream":true}`},
		{name: "in capitals", body: `{"Stream_Options":{},"stream":true}`},
		{name: "too long", body: `{"stream":true,"x":"` + strings.Repeat("x", 40_000) + `"}`},
		{name: "twice without a stream", body: `{"stream_options":{},"stream_options":{}}`, passes: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newProxy(t).start(fmt.Sprintf(askRule, ""))
			_, passed, _ := v.forward(chatPath, c.body, c.size)
			must.Equal(t, v.reply == nil, c.passes, "it passes: %+v", v.reply)
			must.Equal(t, passed, c.body, "passed")
		})
	}
}

// Who asks: by default a rule that reads the body anyway.
func TestWhoAsks(t *testing.T) {
	const limits = `"name": "r", "limits": [{"limit": 1000, "window": "1h"}], `
	const read = `"reserve": {"request_json": "max_tokens", "default": 50}`
	for _, c := range []struct {
		rule string
		asks bool
	}{
		{`"cost_on_response": "openai", ` + read, true},
		{`"cost_on_response": "auto", ` + read, true},
		{`"cost_on_response": "auto", "key": [{"request_json": "model"}]`, true},
		{`"cost_on_response": "anthropic", ` + read, false},
		{`"cost_on_response": {"response_json": "usage.total_tokens"}, ` + read, false},
		{`"cost_on_response": "openai", "ask_for_usage": false, ` + read, false},
		{`"cost_on_response": "openai", "mode": "shadow", ` + read, false},
		{`"cost_on_response": "openai", "mode": "shadow", "ask_for_usage": true, ` + read, true},
		{`"cost_on_response": "openai"`, false},
		{`"cost_on_response": "openai", "ask_for_usage": true`, true},
		{`"cost_on_response": "openai", "ask_for_usage": "pass"`, true},
	} {
		v := newProxy(t).start(`{"rules": [{` + limits + c.rule + `}]}`)
		v.headersOnly = true
		const body = `{"stream":true}`
		v.receive("POST", chatPath, nil)
		s, action := v.begin(false)
		if v.piece = []byte(body); action == types.ActionPause {
			action = v.upload(s, true, body)
		}
		must.Equal(t, action, types.ActionContinue, "%s: it waits", c.rule)
		must.Equal(t, string(v.piece) != body, c.asks, "%s: asks", c.rule)
		_, sized := v.request["content-length"]
		must.Equal(t, sized, false, "%s: it has got a length", c.rule)
	}
}

const (
	helloChunk = `data: {"choices":[{"delta":{"content":"hello"}}],"usage":null}` + "\n\n"
	usageChunk = `data: {"choices":[],"usage":{"total_tokens":300}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

// The usage that the client has not asked for is charged, and does not reach it. A client that has
// asked gets it, and so does any with "pass".
func TestUsageIsTakenOut(t *testing.T) {
	for _, c := range []struct {
		name, rule, body string
		upstream         map[string]string
		gets             string
	}{
		{name: "unasked", body: `{"stream":true}`, gets: helloChunk + doneEvent},
		{name: "asked", body: `{"stream":true,"stream_options":{"include_usage":true}}`, gets: helloChunk + usageChunk + doneEvent},
		{name: "pass", rule: `, "ask_for_usage": "pass"`, body: `{"stream":true}`, gets: helloChunk + usageChunk + doneEvent},
		{name: "sized", body: `{"stream":true}`, upstream: map[string]string{"content-length": "500"}, gets: helloChunk + usageChunk + doneEvent},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 7, 1000} {
				v := newProxy(t).start(fmt.Sprintf(askRule, c.rule))
				s, _, _ := v.forward(chatPath, c.body, 0)
				v.upstream = map[string]string{":status": "200", "content-type": "text/event-stream"}
				for name, value := range c.upstream {
					v.upstream[name] = value
				}
				must.Equal(t, v.download(s, helloChunk+usageChunk+doneEvent, size), c.gets, "pieces of %d: the client gets", size)
				s, _, _ = v.forward(chatPath, `{"max_tokens":1}`, 0)
				must.Equal(t, v.leaves(s), "699", "pieces of %d: are left", size)
			}
		})
	}
}

// download brings a response in pieces of a size, and returns what the client gets.
func (v *fakeVM) download(s *stream, body string, size int) (gets string) {
	defer proxywasm.Use(v)()
	s.OnHttpResponseHeaders(1, false)
	for start := 0; start < len(body); start += size {
		end := min(start+size, len(body))
		v.piece = []byte(body[start:end])
		s.OnHttpResponseBody(len(v.piece), end == len(body))
		gets += string(v.piece)
	}
	s.OnHttpStreamDone()
	return gets
}

// Whatever JSON is rewritten, other parsers find the same in it but for what was asked.
func FuzzAskForUsage(f *testing.F) {
	for _, body := range []string{
		`{"stream":true}`, `{"stream":true,"stream_options":null,"messages":[{"content":"}"}]}`, `{"stream":true,"stream_options":{"include_usage":false,"x":1}}`,
		`{"stream":1,"stream_options":{"x":[]}} `, `{"stream":true,"stream":false}`, `{"a":{"b":"\u0022}"},"stream":"true"}`, `{"stream":true,"stream_options":{}}}`,
	} {
		f.Add(body, 0)
		f.Add(body, 3)
	}
	proxy := newProxy(f)
	f.Fuzz(func(t *testing.T, body string, size int) {
		if len(body) == 0 || len(body) > 4096 {
			return
		}
		proxy.t = t
		v := proxy.start(fmt.Sprintf(askRule, `, "ask_for_usage": "pass"`))
		_, passed, length := v.forward(chatPath, body, min(max(size, 0), len(body)))
		if passed == body {
			must.EqualOrEnd(t, length, strconv.Itoa(len(body)), "%q: length", body)
			return
		}
		must.EqualOrEnd(t, length, strconv.Itoa(len(passed)), "%q: length of %q", body, passed)
		if !json.Valid([]byte(body)) {
			return
		}
		before, after := valueOf(t, body), valueOf(t, passed)
		options, ok := after["stream_options"].(map[string]any)
		must.EqualOrEnd(t, ok && options["include_usage"] == true, true, "%q: %q asks", body, passed)
		was, _ := before["stream_options"].(map[string]any)
		delete(was, "include_usage")
		delete(options, "include_usage")
		if len(was) != len(options) || len(was) > 0 && !reflect.DeepEqual(was, options) {
			t.Fatalf("%q: other options in %q", body, passed)
		}
		delete(before, "stream_options")
		delete(after, "stream_options")
		must.Same(t, after, before, "%q: the values of %q besides", body, passed)
	})
}

func valueOf(t *testing.T, text string) (value map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	must.OKf(t, d.Decode(&value), "%q", text)
	return value
}
