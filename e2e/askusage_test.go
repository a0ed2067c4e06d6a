package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
)

// budgetOfTwo has a budget of two streams of 500 tokens for each key.
const budgetOfTwo = `{"headers": ["x-ratelimit"], "rules": [{"name": "tokens", "key": [{"header": "x-key"}], %s
	"limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}],
	"reserve": {"request_json": "max_tokens", "default": 1, "unread": "refuse"}, "cost_on_response": "openai"}]}`

const (
	streamChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}`
	streamUsage = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":491,"total_tokens":500}}`
)

// streamer is a model that tells what a stream has cost only if the request asks. Its events end within
// its pieces.
func streamer(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must.Report(t, err)
		var asked struct {
			Stream  bool `json:"stream"`
			Options struct {
				Usage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		must.Reportf(t, json.Unmarshal(body, &asked), "the upstream gets %q", body)
		if length := r.Header.Get("content-length"); r.ContentLength >= 0 && int(r.ContentLength) != len(body) || length != "" && length != strconv.Itoa(len(body)) {
			t.Errorf("%d bytes come, of %d", len(body), r.ContentLength)
		}
		w.Header().Set("content-type", "text/event-stream")
		w.Header().Set("x-got", string(body))
		stream := strings.Repeat(streamChunk+"\n\n", 3)
		if asked.Options.Usage {
			stream += streamUsage + "\n\n"
		}
		stream += "data: [DONE]\n\n"
		if r.Header.Get("x-crlf") != "" {
			stream = strings.ReplaceAll(stream, "\n", "\r\n")
		}
		for size := 50; len(stream) > 0; stream = stream[min(size, len(stream)):] {
			_, _ = io.WriteString(w, stream[:min(size, len(stream))])
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// A client that does not ask for the usage of its streams can't escape its budget, and sees no
// difference. One that asks gets what it has asked for.
func TestAskForUsage(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		for _, c := range []struct {
			field   string
			passing int // of 20 streams
		}{{`"ask_for_usage": false,`, 20}, {``, 2}} {
			proxy := d.node(t, nodeConfig{configuration: fmt.Sprintf(budgetOfTwo, c.field), workers: 1, upstream: streamer(t), stopsHeadersOnly: true})
			for _, http2 := range []bool{false, true} {
				passed := 0
				for i := range 20 {
					response := streamOf(t, proxy, http2, `{"model":"m","stream":true,"messages":[{"content":"}"}]}`, i%2 == 1)
					if response.status == http.StatusOK {
						passed++
					} else if response.status != http.StatusTooManyRequests {
						t.Fatalf("status %d", response.status)
					}
				}
				must.Equal(t, passed, c.passing, "%s http2 %v: of 20 streams pass", c.field, http2)
			}
		}
	})
}

type streamedBody struct {
	status int
	body   string
	got    string // by the upstream
}

// streamOf requests a stream, whose body must be that of a client without a proxy.
func streamOf(t *testing.T, proxy node, http2 bool, body string, crlf bool) (s streamedBody) {
	t.Helper()
	headers := []string{":method", "POST", ":path", "/v1/chat/completions", ":body", body, "x-key", fmt.Sprint("http2 ", http2), "content-type", "application/json"}
	want := strings.Repeat(streamChunk+"\n\n", 3) + "data: [DONE]\n\n"
	if strings.Contains(body, `"include_usage":true`) {
		want = strings.Repeat(streamChunk+"\n\n", 3) + streamUsage + "\n\ndata: [DONE]\n\n"
	}
	if crlf {
		headers, want = append(headers, "x-crlf", "1"), strings.ReplaceAll(want, "\n", "\r\n")
	}
	response := ask(t, clientOf(t, http2), proxy.url(), headers...)
	s = streamedBody{status: response.status, body: response.body, got: response.header.Get("x-got")}
	if s.status == http.StatusOK && s.body != want {
		t.Errorf("http2 %v: the client gets\n%q, want\n%q", http2, s.body, want)
	}
	return s
}

// What a rewritten request says besides stays as it was, in one piece or in several.
func TestAskForUsageOf(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{
			configuration: strings.ReplaceAll(fmt.Sprintf(budgetOfTwo, ""), `1000,`, `100000,`), workers: 1, upstream: streamer(t), stopsHeadersOnly: true,
		})
		padding := strings.Repeat("x", 20_000)
		for _, http2 := range []bool{false, true} {
			for body, want := range map[string]string{
				`{ "stream" : true, "max_tokens": 5 }`:                          `{ "stream" : true, "max_tokens": 5 ,"stream_options":{"include_usage":true}}`,
				`{"stream":true,"stream_options":{"include_usage":false}}`:      `{"stream":true,"stream_options":{"include_usage":true}}`,
				`{"stream":true,"stream_options":{"include_usage":true},"x":1}`: `{"stream":true,"stream_options":{"include_usage":true},"x":1}`,
				`{"x":"` + padding + `","stream":true}`:                         `{"x":"` + padding + `","stream":true,"stream_options":{"include_usage":true}}`,
			} {
				if got := streamOf(t, proxy, http2, body, false); got.status != http.StatusOK || got.got != want {
					t.Errorf("http2 %v: status %d, the upstream gets %.200q, want %.200q", http2, got.status, got.got, want)
				}
			}
		}
	})
}

// A request that asks for more tokens than its key has left asks for what is left, in the same change that
// makes it ask for its usage. The next one finds nothing left. Another proxy lowers to what it has heard.
func TestLimitTokens(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		configuration := `{"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0, "rules": [{"name": "tokens", "key": [{"header": "x-key"}], "limit_tokens": true,
			"limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}],
			"reserve": {"request_json": ["max_completion_tokens", "max_tokens"], "default": 700, "unread": "refuse"}, "cost_on_response": "openai"}]}`
		backend := serve(t, "memory")
		_, addresses := nodes(t, d, 2, nodeConfig{configuration: configuration, backend: backend, workers: 1, upstream: streamer(t), stopsHeadersOnly: true})
		const asks = `,"stream_options":{"include_usage":true}`
		for _, http2 := range []bool{false, true} {
			used := 0
			for i, step := range []struct {
				node      int
				body, got string // got is empty if the request is refused
			}{
				{0, `{"stream":true,"max_tokens":8000}`, `{"stream":true,"max_tokens":1000` + asks + `}`},
				{1, `{"stream":true,"max_tokens":8000}`, ``}, // it has not heard of the key
				{1, `{"stream":true}`, `{"stream":true` + `,"max_completion_tokens":500` + asks + `}`},
				{0, `{"stream":true,"max_tokens":8000}`, ``}, // the same
				{0, `{"stream":true,"max_tokens":1}`, ``},
				{1, `{"stream":true,"max_tokens":1}`, ``},
			} {
				response := ask(t, clientOf(t, http2), addresses[step.node], ":method", "POST", ":path", "/v1/chat/completions", ":body", step.body, "x-key", fmt.Sprint(http2), "content-type", "application/json")
				if passed := response.status == http.StatusOK; passed != (step.got != "") || response.header.Get("x-got") != step.got {
					t.Errorf("http2 %v, step %d: status %d, the upstream gets %s, want %s", http2, i, response.status, response.header.Get("x-got"), step.got)
				}
				if step.got != "" {
					used += 500
				}
				if got := ""; !pushed.until(t, func() bool {
					got = weir(t, backend, "counter", "get", "default", "tokens", fmt.Sprint(http2))
					return strings.Contains(got, fmt.Sprintf(" %d used", used)) || strings.Contains(got, fmt.Sprintf(" %d of 1000 used", used))
				}) {
					t.Fatalf("http2 %v, step %d: %s", http2, i, got)
				}
			}
		}
	})
}
