package filter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/internal/must"
)

// cutRule has a budget of 1000, of which each request reserves 100.
func cutRule(cost, algorithm string) string {
	return fmt.Sprintf(`{"headers": ["x-ratelimit"], "rules": [{"name": "tokens", "key": [{"header": "x-key"}], "reserve": 100, "cut": true,
		"limits": [{"limit": 1000, "window": "1h", "algorithm": "%s"}], "cost_on_response": "%s"}]}`, algorithm, cost)
}

// spend has other requests cost so many.
func (v *fakeVM) spend(hits int) {
	v.t.Helper()
	s := v.open("x-key", "ann")
	v.answers(s, fmt.Sprintf(`{"usage":{"total_tokens":%d,"totalTokenCount":%d},"usageMetadata":{"totalTokenCount":%d}}`, hits, hits, hits))
}

// pass brings a piece, and returns what the client gets of it.
func (v *fakeVM) pass(s *stream, end bool, piece string) string {
	v.bring(s, end, piece)
	return string(v.piece)
}

const (
	chat       = `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n"
	chatEnding = `data: {"id":"","object":"chat.completion.chunk","created":0,"model":"","choices":[{"index":0,"delta":{},"text":"","logprobs":null,"finish_reason":"length"}]}` +
		"\n\ndata: [DONE]\n\n"
)

// A stream that costs more than it has reserved, and more than is left, ends behind an event,
// whatever pieces it comes in. Further events of the upstream are charged and dropped.
func TestCut(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "sliding_window", "token_bucket"} {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 1))
			v := newProxy(t).start(cutRule("openai", algorithm))
			v.spend(850)
			s := v.open("x-key", "ann") // which leaves 50
			v.respond(s, false, "content-type", "text/event-stream")
			upstream := ": hello\n\n" + strings.Repeat(chat, 200)
			if seed%2 == 1 {
				upstream = strings.ReplaceAll(upstream, "\n", "\r\n")
			}
			whole := upstream
			got, size := "", 1
			for len(upstream) > 0 {
				if random.IntN(2) == 0 {
					size = 1 + random.IntN(2*len(chat)) // twice the same now and then
				}
				size = min(size, len(upstream))
				got += v.pass(s, false, upstream[:size])
				upstream = upstream[size:]
			}
			sent, ended := strings.CutSuffix(got, chatEnding)
			if !ended || !strings.HasPrefix(whole, sent) || !strings.HasSuffix(strings.ReplaceAll(sent, "\r", ""), "}\n\n") {
				t.Fatalf("%s, seed %d: the client gets %q", algorithm, seed, got[max(0, len(got)-400):])
			}
			// A piece has two events and a part of a third at most.
			must.Between(t, strings.Count(sent, "data"), 151, 153, "%s, seed %d: events that have come", algorithm, seed)
			rest := v.pass(s, false, `data: {"choices":[],"usage":{"total_tokens":140}}`+"\n\n") + v.pass(s, true, "data: [DONE]\n\n")
			must.Equal(t, rest, "", "%s: behind its end come", algorithm)
			v.reset(s)
			must.Equal(t, v.open("x-key", "ann") != nil, false, "%s: a request passes with 10 left", algorithm)
			must.Equal(t, v.count("cut_streams_total"), 1, "%s: streams were cut", algorithm)
		}
	}
}

// The end of a stream that is cut is free of the usage that the client has not asked for, too, and lacks nothing else, wherever
// its pieces end.
func TestCutOfUnasked(t *testing.T) {
	for _, c := range []struct{ events, least, most int }{{55, 55, 55}, {200, 61, 63}} {
		for size := 1; size <= 2*len(chat); size++ {
			v := newProxy(t).start(fmt.Sprintf(askRule, `, "cut": true`))
			s, _, _ := v.forward(chatPath, `{}`, 0)
			v.answers(s, `{"usage":{"total_tokens":940}}`)
			s, _, _ = v.forward(chatPath, `{"stream":true}`, 0) // which leaves 10 beside its 50
			v.respond(s, false, "content-type", "text/event-stream")
			got, upstream := "", strings.Repeat(chat, c.events)+usageChunk
			for start := 0; start < len(upstream); start += size {
				got += v.pass(s, false, upstream[start:min(start+size, len(upstream))])
			}
			v.reset(s)
			n := strings.Count(got, chat)
			must.Equal(t, strings.ReplaceAll(got, chat, "+"), strings.Repeat("+", n)+chatEnding, "pieces of %d: the client gets", size)
			must.Between(t, n, c.least, c.most, "pieces of %d: events of %d that have come", size, c.events)
		}
	}
}

// A stream is not cut that has a right to go on, or can't be.
func TestNotCut(t *testing.T) {
	const sse = "text/event-stream"
	events := strings.Repeat(chat, 200)
	for name, c := range map[string]struct {
		configuration string
		spent         int
		headers       []string
		body          string
	}{
		"as there is room":             {cutRule("openai", "fixed_window"), 700, []string{"content-type", sse}, events},
		"as it has reserved it":        {cutRule("openai", "fixed_window"), 900, []string{"content-type", sse}, strings.Repeat(chat, 99)},
		"of a known length":            {cutRule("openai", "fixed_window"), 900, []string{"content-type", sse, "content-length", fmt.Sprint(len(events))}, events},
		"which is compressed":          {cutRule("openai", "fixed_window"), 900, []string{"content-type", sse, "content-encoding", "gzip"}, events},
		"of another form":              {cutRule("openai", "fixed_window"), 900, []string{"content-type", "application/x-ndjson"}, strings.Repeat(`{"usage":{"total_tokens":5000}}`+"\n", 3)},
		"as the rule does not say so":  {strings.Replace(cutRule("openai", "fixed_window"), `"cut": true`, `"cut": false`, 1), 900, []string{"content-type", sse}, events},
		"as the rule is a shadow rule": {strings.Replace(cutRule("openai", "fixed_window"), `"cut"`, `"mode": "shadow", "cut"`, 1), 900, []string{"content-type", sse}, events},
	} {
		v := newProxy(t).start(c.configuration)
		v.spend(c.spent)
		s := v.open("x-key", "ann")
		v.respond(s, false, c.headers...)
		must.Equal(t, v.pass(s, false, c.body)+v.pass(s, false, "data: {}\n\n"), c.body+"data: {}\n\n", "%s: what the client gets", name)
	}
	// A stream whose budget others have used goes on until it has used its own reservation.
	v := newProxy(t).start(cutRule("openai", "fixed_window"))
	s := v.open("x-key", "ann")
	v.respond(s, false, "content-type", "text/event-stream")
	v.spend(5000)
	for i := range 101 {
		must.EqualOrEnd(t, v.pass(s, false, chat) == chat, i < 100, "event %d goes on as it is", i)
	}
	// The last piece of a response has no need of an end.
	v = newProxy(t).start(cutRule("openai", "fixed_window"))
	v.spend(890)
	s = v.open("x-key", "ann")
	v.respond(s, false, "content-type", "text/event-stream")
	must.Equal(t, v.pass(s, true, events), events, "the last piece is cut")
}

// Each provider's streams have an end of their own, and numbers that they tell on the way.
func TestCutByProvider(t *testing.T) {
	named := func(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }
	for _, c := range []struct {
		preset string
		events []string
		want   string // in place of the last event
	}{
		{"openai", []string{named("response.created", `{"response":{}}`), named("response.output_text.delta", `{"delta":"x"}`)}, ""},
		{"anthropic", []string{
			named("message_start", `{"message":{"usage":{"input_tokens":98,"output_tokens":1}}}`), named("content_block_delta", `{"delta":{"text":"x"}}`),
			named("content_block_delta", `{"delta":{"text":"x"}}`) + named("message_delta", `{"usage":{"output_tokens":40}}`),
		}, named("message_delta", `{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":40}}`) +
			named("message_stop", `{"type":"message_stop"}`)},
		{"gemini", []string{
			`data: {"usageMetadata":{"totalTokenCount":90}}` + "\n\n", `data: {"usageMetadata":{"totalTokenCount":101}}` + "\n\n",
		}, `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}]}` + "\n\n"},
		{"auto", []string{
			`data: {"usageMetadata":{"totalTokenCount":90}}` + "\n\n", `data: {"usageMetadata":{"totalTokenCount":101}}` + "\n\n",
		}, `data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"MAX_TOKENS","index":0}]}` + "\n\n"},
	} {
		v := newProxy(t).start(cutRule(c.preset, "fixed_window"))
		s := v.open("x-key", "ann", ":path", "/v1beta/models/m:streamGenerateContent?alt=sse") // which auto goes by
		for range 9 {
			v.open("x-key", "ann") // reserves what is left
		}
		v.respond(s, false, "content-type", "text/event-stream")
		if c.preset == "openai" {
			for range 98 {
				c.events = append(c.events[:1:1], c.events...)
			}
			c.events = append(c.events, c.events[len(c.events)-1])
			c.want = named("response.incomplete", `{"type":"response.incomplete","response":{"id":"","object":"response","status":"incomplete",`+
				`"incomplete_details":{"reason":"max_output_tokens"},"error":null,"output":[],"usage":null}}`)
		}
		for i, event := range c.events {
			got, want := v.pass(s, false, event), event
			if i == len(c.events)-1 {
				want += c.want
			}
			must.Equal(t, got, want, "%s, event %d", c.preset, i)
		}
	}
}

// With cut: "error" a stream ends with an event that clients take for an error.
func TestCutWithAnError(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/chat/completions":               `"code":"rate_limit_exceeded"}}` + "\n\ndata: [DONE]\n\n",
		"/v1/messages":                       `"type":"rate_limit_error"`,
		"/v1/models/m:streamGenerateContent": `"status":"RESOURCE_EXHAUSTED"`,
		"/unknown":                           "", // nobody knows how
	} {
		v := newProxy(t).start(strings.Replace(cutRule("auto", "fixed_window"), `"cut": true`, `"cut": "error"`, 1))
		s := v.open("x-key", "ann", ":path", path)
		v.respond(s, false, "content-type", "text/event-stream")
		got := ""
		for range 1100 {
			got += v.pass(s, false, chat)
		}
		if n := strings.Count(got, `"delta"`); (n == 1100) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %d events, and in the end %q", path, n, got[max(0, len(got)-200):])
		}
	}
}

// A stream that was cut off costs what its events stand for, if it has told nothing.
func TestCutStreamIsSettled(t *testing.T) {
	v := newProxy(t).start(cutRule("openai", "fixed_window"))
	v.spend(300)
	s := v.open("x-key", "ann")
	v.respond(s, false, "content-type", "text/event-stream")
	v.pass(s, false, strings.Repeat(chat, 250))
	v.reset(s)
	must.Equal(t, v.remaining("ann"), "350", "are left")
	// A stream that ends without telling costs that, too.
	s = v.open("x-key", "ann")
	v.respond(s, false, "content-type", "text/event-stream")
	v.pass(s, false, strings.Repeat(chat, 150))
	v.pass(s, true, "data: [DONE]\n\n")
	v.reset(s)
	must.Equal(t, v.remaining("ann"), "200", "are left in the end")
	// So does a stream that comes in a single piece.
	s = v.open("x-key", "bob")
	v.respond(s, false, "content-type", "text/event-stream")
	v.pass(s, true, strings.Repeat(chat, 150))
	v.reset(s)
	must.Equal(t, v.remaining("bob"), "750", "are left after a single piece")
}
