package filter_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/must"
	"weir/internal/proxywasm"
)

// open begins a request, whose stream stays open if it passes.
func (v *fakeVM) open(headers ...string) *stream {
	v.t.Helper()
	v.receive("POST", "/v1/chat", headers)
	v.state = nil
	return v.next()
}

// next begins the current request in a filter, behind others of the same proxy.
func (v *fakeVM) next() *stream {
	if s, action := v.begin(true); action == types.ActionContinue {
		return s
	}
	return nil
}

// opened is open for a request that may wait for the backend.
func (v *fakeVM) opened(headers ...string) (s *stream) {
	v.t.Helper()
	v.resumed = false
	s = v.open(headers...)
	for rounds := 0; s == nil && v.reply == nil && v.settle != nil && rounds < 100; rounds++ {
		if v.settle(v); v.resumed {
			s = v.last
		}
	}
	return s
}

// respond begins a response.
func (v *fakeVM) respond(s *stream, end bool, headers ...string) {
	v.upstream = map[string]string{":status": "200"}
	for i := 0; i < len(headers); i += 2 {
		v.upstream[headers[i]] = headers[i+1]
	}
	defer v.responds()()
	s.OnHttpResponseHeaders(len(v.upstream), end)
}

// fail answers with a 504 for which Envoy has a reason, and knows of its connection to the upstream.
func (v *fakeVM) fail(s *stream, details string, connected bool, attempts uint64) {
	v.properties = map[string][]byte{
		"response\x00code_details": []byte(details), "upstream\x00request_attempt_count": binary.LittleEndian.AppendUint64(nil, attempts),
	}
	if connected {
		v.properties["upstream\x00local_address"] = []byte("10.0.0.1:4321")
	}
	v.respond(s, true, ":status", "504")
	v.properties = nil
}

// responds begins the response phase, in which no request headers can be read.
func (v *fakeVM) responds() (end func()) {
	request, use := v.request, proxywasm.Use(v)
	v.request = nil
	return func() {
		v.request = request
		use()
	}
}

// body brings a piece of the response's body.
func (v *fakeVM) bring(s *stream, end bool, piece string) {
	v.piece = []byte(piece)
	defer v.responds()()
	s.OnHttpResponseBody(len(piece), end)
}

// finish brings a response without a body, and ends the stream.
func (v *fakeVM) finish(s *stream, headers ...string) {
	v.respond(s, true, headers...)
	v.reset(s)
}

// answers brings a response of JSON, and ends the stream.
func (v *fakeVM) answers(s *stream, json string) {
	v.respond(s, false, "content-type", "application/json")
	v.bring(s, true, json)
	v.reset(s)
}

// trail ends a response with trailers.
func (v *fakeVM) trail(s *stream) {
	defer v.responds()()
	s.OnHttpResponseTrailers(1)
}

const tokensRule = `{"headers": ["x-ratelimit"], "rules": [{"name": "tokens", "key": [{"header": "x-key"}],
	"limits": [{"limit": 1000, "window": "1h", "algorithm": "fixed_window"}], "cost_on_response": %s%s}]}`

// remaining returns how much a key has left of the limit of tokensRule.
func (v *fakeVM) remaining(key string) string {
	v.t.Helper()
	s := v.open("x-key", key, "x-reserve", "0")
	if s == nil {
		return "none"
	}
	v.respond(s, true, ":status", "503") // a failure costs nothing
	v.reset(s)
	return v.response["x-ratelimit-remaining"]
}

// A number counts wherever the plugin ends its reads of a long piece: in the event that has the
// number, at its ends, or in an event that is longer than what is read twice.
func TestLongPiece(t *testing.T) {
	const number, ends = `data: {"choices":[],"usage":{"total_tokens":70}}` + "\n\n", `data: {"choices":[],"usage":null}` + "\n\n"
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `"openai"`, `, "reserve": {"header": "x-reserve", "least": 0}`))
	for _, filler := range []string{`data: {"choices":[1],"usage":null}` + "\n\n", ": " + strings.Repeat("x", 5000) + "\n\n", "data: {}\r\n\r\n", "\n", `data: {"finish_reason":"\u005f"}` + "\n\n"} {
		for shift := -2; shift <= len(number)+2; shift++ {
			before := filter.BodyPiece - shift
			stream := strings.Repeat(filler, before/len(filler))
			stream += ":" + strings.Repeat("x", (before-len(stream)+len(filler))%len(filler)) + "\n\n"
			stream += number + strings.Repeat(filler, 2*filter.BodyPiece/len(filler)) + ends
			key := fmt.Sprintf("%d from the end of a read, after %.30q", shift, filler)
			s := v.open("x-key", key, "x-reserve", "100")
			v.respond(s, false, "content-type", "text/event-stream")
			v.bring(s, true, stream)
			must.EqualOrEnd(t, v.remaining(key), "930", "%s: left", key)
			v.reset(s)
		}
	}
}

// A response's cost replaces the hits that its request has reserved, however it ends.
func TestReserve(t *testing.T) {
	const reserve = `, "reserve": {"header": "x-reserve", "least": 0}`
	const json, events = "application/json", "text/event-stream; charset=utf-8"
	sent := "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":70}}\n\ndata: [DONE]\n\n"
	large := `{"text":"` + strings.Repeat("x", 100<<10) + `","usage":{"total_tokens":70}}`
	started := `data: {"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}` + "\n\n" + `data: {"delta":{"text":"x"}}` + "\n\n"
	failure := "event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error"}}` + "\n\n"
	for _, c := range []struct {
		name, cost, more string
		run              func(v *fakeVM, s *stream)
		want             string // left of 1000, of which 100 were reserved
	}{
		{"json", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, true, large)
		}, "930"},
		{"pieces", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			for i := range sent {
				v.bring(s, i == len(sent)-1, sent[i:i+1])
			}
		}, "930"},
		{"trailing end", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, false, sent)
			v.bring(s, true, "")
		}, "930"},
		{"trailers", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, false, large)
			v.trail(s)
		}, "930"},
		{"trailers of a stream", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, false, sent)
			v.trail(s)
		}, "930"},
		{"trailers, and no body", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.trail(s)
		}, "900"},
		{"failed, with trailers", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, ":status", "500", "content-type", json)
			v.trail(s)
		}, "1000"},
		{"more than was reserved", `{"sum": [{"response_json": "usage.total_tokens", "weight": 5}]}`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, true, large)
		}, "650"},
		{"missing", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, true, `{}`)
		}, "900"},
		{"absurd", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, true, `{"usage":{"total_tokens":-1}}`)
		}, "900"},
		{"gzip", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json, "content-encoding", "gzip")
			v.bring(s, true, large)
		}, "900"},
		{"no body", `"openai"`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true) }, "900"},
		{"no response", `"openai"`, reserve, func(*fakeVM, *stream) {}, "900"},
		{"cut off", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, false, sent[:30])
		}, "900"},
		{"cut off when it had cost less", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, false, sent)
		}, "900"},
		{"cut off when it had cost more", `{"response_json": "n"}`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, false, "data: {\"n\":300}\n\ndata: {\"n\"")
		}, "700"},
		{"failed on its way", `"anthropic"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, true, started+failure)
		}, "900"},
		{"failed on its way, of a provider that is found out", `"auto"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, false, started)
			v.bring(s, false, failure)
			v.trail(s)
		}, "900"},
		{"failed on its way when it had cost more", `"anthropic"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, true, strings.Replace(started, "25", "250", 1)+failure)
		}, "749"},
		{"failed on its way, and nothing was reserved", `"anthropic"`, `, "cost": {"header": "x-reserve", "least": 0}`, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, true, started+failure)
		}, "874"},
		{"at its end", `"anthropic"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", events)
			v.bring(s, true, started+`data: {"type":"message_delta","usage":{"output_tokens":15}}`+"\n\n")
		}, "960"},
		{"of an answer in one, beside its message", `"auto"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, true, `{"message":{"usage":{"input_tokens":25,"output_tokens":1}}}`)
		}, "974"},
		{"failed", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, ":status", "502", "content-type", json)
			v.bring(s, true, `{"error":{}}`)
		}, "1000"},
		{"failed, and tells", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, ":status", "400", "content-type", json)
			v.bring(s, true, `{"usage":{"total_tokens":5}}`)
		}, "995"},
		{"failed, keeps", `"openai"`, reserve + `, "on_failure": "keep"`, func(v *fakeVM, s *stream) { v.respond(s, true, ":status", "503") }, "900"},
		{"failed by the upstream's time-out", `"openai"`, reserve, func(v *fakeVM, s *stream) { v.fail(s, "via_upstream", true, 1) }, "1000"},
		{"timed out", `"openai"`, reserve, func(v *fakeVM, s *stream) { v.fail(s, "upstream_response_timeout", true, 1) }, "900"},
		{"timed out, gives back", `"openai"`, reserve + `, "on_failure": "give_back"`, func(v *fakeVM, s *stream) { v.fail(s, "upstream_response_timeout", true, 1) }, "1000"},
		{"timed out, of a header", `{"response_header": "x-tokens"}`, reserve, func(v *fakeVM, s *stream) { v.fail(s, "upstream_response_timeout", true, 1) }, "900"},
		{"reset", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.fail(s, "upstream_reset_before_response_started{connection_termination}", true, 1)
		}, "900"},
		{"not connected", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.fail(s, "upstream_reset_before_response_started{connection_failure}", false, 1)
		}, "1000"},
		{"not connected again", `"openai"`, reserve, func(v *fakeVM, s *stream) {
			v.fail(s, "upstream_reset_before_response_started{connection_failure}", false, 2)
		}, "900"},
		{"refused by a filter", `"openai"`, reserve, func(v *fakeVM, s *stream) { v.fail(s, "rbac_access_denied", false, 0) }, "1000"},
		{"headers of bedrock", `"bedrock"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json, "x-amzn-bedrock-input-token-count", "30", "x-amzn-bedrock-output-token-count", "12")
			v.bring(s, true, `{"usage":{"totalTokens":700}}`)
		}, "958"},
		{"header", `{"response_header": "x-tokens"}`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true, "x-tokens", "7") }, "993"},
		{"absurd header", `{"response_header": "x-tokens"}`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true, "x-tokens", "1000000000000000") }, "900"},
		{"header of no number", `{"response_header": "x-tokens"}`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true, "x-tokens", "many") }, "900"},
		{"absurd header of bedrock", `"bedrock"`, reserve, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json, "x-amzn-bedrock-input-token-count", "30", "x-amzn-bedrock-output-token-count", "1000000000000000")
			v.bring(s, true, `{"usage":{"totalTokens":70}}`)
		}, "930"},
		{"what the request says", `{"header": "x-reserve"}`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true) }, "900"},
		{"what the request does not say", `{"header": "x-missing"}`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true) }, "900"},
		{"attribute", `{"property": ["metadata", "tokens"]}`, reserve, func(v *fakeVM, s *stream) {
			v.properties = map[string][]byte{"metadata\x00tokens": []byte("7")}
			v.respond(s, true)
			v.properties = nil
		}, "993"},
		{"attribute with a number, which a condition reads too", `{"property": ["metadata", "tokens"]}`, reserve + `, "match": {"property": {"metadata.tokens": {"present": false}}}`, func(v *fakeVM, s *stream) {
			v.properties = map[string][]byte{"metadata\x00tokens": []byte("\x00\x00\x00\x00\x00\x00\x1c@")}
			v.respond(s, true)
			v.properties = nil
		}, "993"},
		{"no header", `{"response_header": "x-tokens"}`, reserve, func(v *fakeVM, s *stream) { v.respond(s, true) }, "900"},
		{"besides", `"openai"`, `, "cost": {"header": "x-reserve", "least": 0}`, func(v *fakeVM, s *stream) {
			v.respond(s, false, "content-type", json)
			v.bring(s, true, large)
		}, "830"},
		{"besides, failed", `"openai"`, `, "cost": {"header": "x-reserve", "least": 0}`, func(v *fakeVM, s *stream) { v.respond(s, true, ":status", "500") }, "900"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newProxy(t).start(fmt.Sprintf(tokensRule, c.cost, c.more))
			s := v.open("x-key", "ann", "x-reserve", "100")
			must.EqualOrEnd(t, s != nil, true, "the request passes")
			must.Equal(t, v.remaining("ann"), "900", "while the stream is open are left")
			c.run(v, s)
			v.reset(s)
			must.Equal(t, v.remaining("ann"), c.want, "are left")
			must.Equal(t, [2]int{v.plugin.Open(), s.Charges()}, [2]int{0, 0}, "streams that are open, and charges")
		})
	}
}

// Streams that are under way take what they have told so far at each tick.
func TestOpenStreamsAreSettled(t *testing.T) {
	v := newProxy(t).start(fmt.Sprintf(tokensRule, `{"response_json": "n"}`, `, "reserve": 10`))
	var streams []*stream
	for range 20 {
		s := v.open("x-key", "ann")
		v.respond(s, false, "content-type", "text/event-stream")
		streams = append(streams, s)
	}
	for i, s := range streams {
		v.bring(s, false, fmt.Sprintf("data: {\"n\":%d}\n\n", i))
	}
	for range 2 {
		v.tick()
		v.now += second
	}
	// 11 streams have told at most 10, and 9 from 11 to 19.
	must.Equal(t, v.remaining("ann"), fmt.Sprint(1000-11*10-135-10), "are left beside what it reserves")
	for _, s := range streams[:15] {
		v.bring(s, true, "")
		v.reset(s)
	}
	for _, s := range streams[15:] {
		v.reset(s)
	}
	must.Equal(t, v.remaining("ann"), fmt.Sprint(1000-14*15/2-17*5-10), "are left in the end beside what it reserves")
	must.Equal(t, v.plugin.Open(), 0, "streams are open")
}

// While the backend is away and on_backend_failure is "allow", a request reserves nothing, so that nothing
// goes back: it costs what its response tells.
func TestReserveOfUncounted(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		for _, rate := range []string{"0", "1"} {
			w := joined(t, 1, 1, `{"backend": {"cluster": "b"}, "sync_rate": `+rate+`, "on_backend_failure": "allow", "rules": [{"name": "r", "mode": "`+mode+`",
				"limits": [{"limit": 5000, "window": "1d", "algorithm": "fixed_window"}], "cost_on_response": "openai", "reserve": 1000}]}`)
			v := w.vms[0]
			for i := range 4 {
				w.away = i%2 == 1
				s := v.open()
				for s == nil {
					s = v.last
					w.deliver(v)
					w.advance(time.Second)
				}
				w.advance(time.Second)
				v.answers(s, `{"usage":{"total_tokens":70}}`)
				w.advance(time.Second)
			}
			w.away = false
			w.quiet()
			w.wantSum(280, mode+", sync_rate "+rate)
		}
	}
}
