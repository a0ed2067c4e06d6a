package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// manyStreams is how many streams run, half of which ask for their usage themselves.
const manyStreams = 3000

// provider answers as OpenAI, Anthropic, Gemini and Bedrock do, with so many tokens as a request wants at most, and 9 in its prompt.
// It adds up what it has told or, to streams that did not ask, not told.
type provider struct{ tokens, silent atomic.Int64 }

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asked struct {
		Stream          bool
		MaxTokens       int `json:"max_tokens"`
		MaxOutputTokens int `json:"max_output_tokens"`
		StreamOptions   struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		GenerationConfig struct{ MaxOutputTokens int }
		InferenceConfig  struct{ MaxTokens int }
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	most := asked.MaxTokens + asked.MaxOutputTokens + asked.GenerationConfig.MaxOutputTokens + asked.InferenceConfig.MaxTokens
	p.tokens.Add(int64(9 + most))
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":9,"completion_tokens":%d,"total_tokens":%d}`, most, 9+most)
	path := r.URL.Path
	events := strings.Contains(path, "stream") || asked.Stream
	w.Header().Set("content-type", map[bool]string{true: "text/event-stream", false: "application/json"}[events])
	say := func(format string, args ...any) {
		fmt.Fprintf(w, format, args...)
		_ = http.NewResponseController(w).Flush()
	}
	event := func(kind, more string) { say("event: %s\ndata: {\"type\":\"%s\",%s}\n\n", kind, kind, more) }
	switch {
	case strings.Contains(path, "/chat/completions") && events:
		const chunk = `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","service_tier":"default","choices":[`
		for range 3 {
			say("%s", chunk+`{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":null}]}`+"\n\n")
		}
		say("%s", chunk+`{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
		if asked.StreamOptions.IncludeUsage {
			say("%s", chunk+"],"+usage+"}\n\n")
		} else {
			p.silent.Add(1)
		}
		say("data: [DONE]\n\n")
	case strings.Contains(path, "/chat/completions"):
		say(`{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],%s}`, usage)
	case strings.Contains(path, "/responses"):
		const response = `"response":{"id":"1","object":"response","created_at":1,"model":"m","output":[],"parallel_tool_calls":false,"tool_choice":"auto","tools":[],`
		event("response.created", `"sequence_number":0,`+response+`"status":"in_progress"}`)
		event("response.output_text.delta", `"sequence_number":1,"item_id":"1","output_index":0,"content_index":0,"delta":"x","logprobs":[]`)
		event("response.completed", `"sequence_number":2,`+response+fmt.Sprintf(`"status":"completed","usage":{"input_tokens":9,"output_tokens":%d,"total_tokens":%d}}`, most, 9+most))
	case strings.Contains(path, "/messages"):
		event("message_start", `"message":{"id":"1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}`)
		event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
		event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"x"}`)
		event("content_block_stop", `"index":0`)
		event("message_delta", fmt.Sprintf(`"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}`, most))
		event("message_stop", `"x":0`)
	case strings.Contains(path, "enerateContent"):
		for n := range 2 {
			say(`data: {"candidates":[{"content":{"role":"model","parts":[{"text":"x"}]},"index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":%d,"totalTokenCount":%d}}`+"\n\n", n*most, 9+n*most)
		}
	case strings.Contains(path, "/converse-stream"):
		w.Header().Set("content-type", "application/vnd.amazon.eventstream")
		for _, e := range [][2]string{
			{"messageStart", `{"role":"assistant"}`}, {"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"x"}}`}, {"messageStop", `{"stopReason":"end_turn"}`},
			{"metadata", fmt.Sprintf(`{"usage":{"inputTokens":9,"outputTokens":%d,"totalTokens":%d},"metrics":{"latencyMs":1}}`, most, 9+most)},
		} {
			_, _ = w.Write(amazonEvent(e[0], e[1]))
		}
	case strings.Contains(path, "/converse"):
		say(`{"output":{"message":{"role":"assistant","content":[{"text":"hi"}]}},"stopReason":"end_turn","usage":{"inputTokens":9,"outputTokens":%d,"totalTokens":%d},"metrics":{"latencyMs":1}}`, most, 9+most)
	default:
		http.NotFound(w, r)
	}
}

// amazonEvent returns a message of Amazon's event stream.
func amazonEvent(kind, payload string) []byte {
	var headers bytes.Buffer
	for _, h := range [][2]string{{":event-type", kind}, {":content-type", "application/json"}, {":message-type", "event"}} {
		headers.WriteByte(byte(len(h[0])))
		headers.WriteString(h[0] + "\x07" + string(binary.BigEndian.AppendUint16(nil, uint16(len(h[1])))) + h[1])
	}
	m := binary.BigEndian.AppendUint32(nil, uint32(16+headers.Len()+len(payload)))
	m = binary.BigEndian.AppendUint32(m, uint32(headers.Len()))
	m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
	m = append(append(m, headers.Bytes()...), payload...)
	return binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
}

// The providers' own clients see no difference behind two proxies that ask for the usage of streams, and everything is charged to
// the token, also where half of many streams do not ask.
func TestClientsAskForUsage(t *testing.T) {
	if *clients == "" {
		return
	}
	onEach(t, 2, func(t *testing.T, d driver) {
		through, direct := new(provider), httptest.NewServer(new(provider))
		t.Cleanup(direct.Close)
		backend := serve(t, "memory")
		_, addresses := nodes(t, d, 2, nodeConfig{backend: backend, workers: 2, upstream: through, stopsHeadersOnly: true, configuration: `{
			"backend": {"cluster": "weir", "timeout": "60s"}, "sync_rate": 0.1, "rules": [{"name": "tokens", "ask_for_usage": true, "cost_on_response": "auto",
			"limits": [{"limit": 100000000, "window": "366d", "algorithm": "fixed_window"}],
			"reserve": {"request_json": ["max_completion_tokens", "max_tokens", "max_output_tokens", "generationConfig.maxOutputTokens", "inferenceConfig.maxTokens"], "default": 1000, "unread": "refuse"}}]}`})
		streams := manyStreams
		if _, ok := d.(wazero); ok {
			streams /= 10
		}
		out := commandtest.Run(t, exec.CommandContext(t.Context(), *clients, "clients/usage.py", strconv.Itoa(streams), direct.URL, addresses[0], addresses[1]))
		for _, call := range strings.Fields("openai_chat openai_stream openai_asks openai_helper openai_responses anthropic_stream anthropic_helper gemini bedrock langchain_openai langchain_silent langchain_anthropic litellm_openai") {
			must.Contains(t, out, `["`+call+`", "the same"]`, "%s sees a difference", call)
		}
		if !strings.Contains(out, fmt.Sprintf(`["streams", %d]`, streams)) || t.Failed() {
			t.Errorf("want %d streams as without proxies, got\n%s", streams, out)
		}
		must.Equal(t, through.silent.Load(), 0, "streams that did not ask")
		want, got := fmt.Sprintf(" %d of 100000000 used", through.tokens.Load()), ""
		if !pushed.until(t, func() bool {
			got = weir(t, backend, "counter", "get", "default", "tokens")
			return strings.Contains(got, want)
		}) {
			t.Errorf("want%s, got %s", want, got)
		}
		t.Logf("%d streams; charged:%s", streams, want)
	})
}
