package e2e

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/commandtest"
	"weir/internal/must"
	"weir/internal/nightly"
)

var clients = flag.String("clients", nightly.Or("../dist/clients/bin/python", ""), "`file` of a python with e2e/clients/requirements.txt, whose clients meet refusals; none do if empty")

// meet has the clients meet a proxy, as a program of theirs says, whose lines are wanted. tell makes
// such a line of what the program prints: what has happened, and a number. They meet it by what in has made of its URL.
func meet(t *testing.T, name string, upstream http.HandlerFunc, in func(t *testing.T, url string) string, want string, tell func(t *testing.T, what, number string) string) {
	t.Helper()
	if *clients == "" {
		return
	}
	configuration := must.Get(os.ReadFile("clients/" + name + ".json"))(t)
	onEvery(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{configuration: string(configuration), upstream: upstream})
		out := commandtest.Run(t, exec.CommandContext(t.Context(), *clients, "clients/"+name+".py", in(t, proxy.url())))
		t.Logf("%s", out)
		var got strings.Builder
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, `["`) { // other lines are output of the client itself
				last := strings.LastIndex(line, ", ")
				fmt.Fprintln(&got, tell(t, line[:last], line[last+len(", "):]))
			}
		}
		must.Equal(t, got.String(), want, "")
	})
}

// answered has providers' answers, by a part of the path.
var answered = map[string]string{
	"/chat/completions": `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",` +
		`"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`,
	"/messages": `{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn",` +
		`"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":2}}`,
	"enerateContent": `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2,"totalTokenCount":3}}`,
	"/converse": `{"output":{"message":{"role":"assistant","content":[{"text":"hi"}]}},"stopReason":"end_turn",` +
		`"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3},"metrics":{"latencyMs":1}}`,
}

func answerAsProvider(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("content-type", "application/json")
	for part, answer := range answered {
		if strings.Contains(r.URL.Path, part) {
			fmt.Fprint(w, answer)
		}
	}
}

// The providers' own clients raise their own errors for a refusal, with its code. They retry when
// there is room, and give up at once if a limit has none for long. docs/tokens.md has this as a
// table.
func TestClients(t *testing.T) {
	const want = `["openai", "seconds", "passes"
["openai", "hour", "RateLimitError, requests, rate_limit_exceeded"
["openai", "month", "RateLimitError, insufficient_quota, insufficient_quota"
["anthropic", "seconds", "passes"
["anthropic", "hour", "RateLimitError, rate_limit_error"
["anthropic", "month", "RateLimitError, rate_limit_error"
["gemini", "seconds", "ClientError, RESOURCE_EXHAUSTED"
["gemini", "hour", "ClientError, RESOURCE_EXHAUSTED"
["gemini", "month", "ClientError, RESOURCE_EXHAUSTED"
["bedrock", "seconds", "ThrottlingException, ThrottlingException"
["bedrock", "hour", "ThrottlingException, ThrottlingException"
["bedrock", "month", "ServiceQuotaExceededException, ServiceQuotaExceededException"
["langchain", "seconds", "passes"
["langchain", "hour", "OpenAIRateLimitError, requests, rate_limit_exceeded"
["langchain", "month", "OpenAIRateLimitError, insufficient_quota, insufficient_quota"
["litellm", "seconds", "passes"
["litellm", "hour", "RateLimitError, throttling_error, 429"
["litellm", "month", "RateLimitError, throttling_error, 429"
`
	meet(t, "refusals", answerAsProvider, attempted, want, func(t *testing.T, what, requests string) string {
		if retried := strings.TrimSpace(requests) != "1]"; retried && !strings.Contains(what, "seconds") && !strings.Contains(what, "bedrock") {
			t.Errorf("%s after more than one request: %s", what, requests)
		}
		return what
	})
}

// attempted returns a URL whose requests go to another. Its /attempts tells how many there were since it was last asked.
func attempted(t *testing.T, to string) string {
	var requests atomic.Int64
	forward := httputil.NewSingleHostReverseProxy(must.Get(url.Parse(to))(t))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/attempts" {
			fmt.Fprint(w, requests.Swap(0))
			return
		}
		requests.Add(1)
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// streamed has the events of providers' streams, by a part of the path: those at the beginning, and
// the event of each token.
var streamed = map[string]struct{ begin, token string }{
	"/chat/completions": {"", `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"x"},"finish_reason":null}]}` + "\n\n"},
	"/responses": {
		"event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"1","object":"response","created_at":1,"model":"m","status":"in_progress","output":[],"parallel_tool_calls":false,"tool_choice":"auto","tools":[]}}` + "\n\n",
		"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"1","output_index":0,"content_index":0,"delta":"x","logprobs":[]}` + "\n\n",
	},
	"/messages": {
		"event: message_start\n" + `data: {"type":"message_start","message":{"id":"1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n" +
			"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n",
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}` + "\n\n",
	},
	"enerateContent": {"", `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"x"}]},"index":0}]}` + "\n\n"},
}

// streamAsProvider streams for eight seconds, or until its client leaves.
func streamAsProvider(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("content-type", "text/event-stream")
	for part, events := range streamed {
		if !strings.Contains(r.URL.Path, part) {
			continue
		}
		fmt.Fprint(w, events.begin)
		for ticker, n := time.NewTicker(40*time.Millisecond), 0; n < 200; n++ {
			if _, err := fmt.Fprint(w, events.token); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// Clients end where their streams are cut. With an error event they end at once, otherwise some end
// only with the upstream. docs/tokens.md has this as a table.
func TestClientsOfStreams(t *testing.T) {
	const want = `openai_create, end, ends, length, at once
openai_create, error, APIError, at once
openai_helper, end, LengthFinishReasonError, at once
openai_helper, error, APIError, at once
openai_responses, end, ends, response.incomplete, with the upstream
openai_responses, error, APIError, at once
anthropic_create, end, ends, max_tokens, with the upstream
anthropic_create, error, APIStatusError, at once
anthropic_helper, end, ends, max_tokens, with the upstream
anthropic_helper, error, APIStatusError, at once
gemini, end, ends, MAX_TOKENS, with the upstream
gemini, error, ClientError, at once
langchain_openai, end, ends, length, at once
langchain_openai, error, APIError, at once
langchain_anthropic, end, ends, max_tokens, with the upstream
langchain_anthropic, error, APIStatusError, at once
litellm_openai, end, ends, length, at once
litellm_openai, error, MidStreamFallbackError, at once
`
	meet(t, "streams", streamAsProvider, func(_ *testing.T, url string) string { return url }, want, func(_ *testing.T, what, seconds string) string {
		at := "at once"
		if n, err := strconv.ParseFloat(strings.Trim(seconds, "]\n"), 64); err != nil || n > 6 {
			at = "with the upstream"
		}
		return strings.NewReplacer("[", "", "\"", "").Replace(what) + ", " + at
	})
}
