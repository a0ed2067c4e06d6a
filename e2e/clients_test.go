package e2e

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var clients = flag.String("clients", "", "`file` of a python with e2e/clients/requirements.txt, whose clients meet refusals; none do if empty")

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

// The providers' own clients raise their own errors of a refusal, with its code. They come again when there
// is room, and at once leave alone a limit that has none for long: that is the table in docs/tokens.md.
func TestClients(t *testing.T) {
	if *clients == "" {
		return
	}
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
`
	configuration, err := os.ReadFile("clients/refusals.json")
	if err != nil {
		t.Fatal(err)
	}
	onEach(t, 1, func(t *testing.T, d driver) {
		proxy := d.node(t, nodeConfig{configuration: string(configuration), upstream: http.HandlerFunc(answerAsProvider)})
		out, err := exec.CommandContext(t.Context(), *clients, "clients/refusals.py", proxy.url()).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		var got strings.Builder
		for line := range strings.Lines(string(out)) {
			what, seconds, _ := cutLast(line, ", ")
			fmt.Fprintln(&got, what)
			if waited := !strings.HasPrefix(seconds, "0."); waited && !strings.Contains(what, "seconds") && !strings.Contains(what, "bedrock") {
				t.Errorf("%s took %s", what, seconds)
			}
		}
		if got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	})
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
