package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
)

// cutting has a budget of 1000 tokens for each key. A request reserves 100.
const cutting = `{"namespace": "budget", "headers": ["x-ratelimit"], "rules": [
	{"name": "tokens", "key": [{"header": "x-key"}], "limits": [{"limit": 1000, "window": "366d", "algorithm": "fixed_window"}],
		"reserve": 100, "cost_on_response": "openai", "cut": true}]}`

// chatter is a model that streams an event for each token and their number at the end. Asked for no
// tokens, it streams until its client leaves.
type chatter struct {
	left chan struct{} // gets a value for each client that has left
}

func (c *chatter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tokens, _ := strconv.Atoi(r.Header.Get("x-tokens"))
	w.Header().Set("content-type", "text/event-stream")
	for i := 0; i < tokens || tokens == 0; i++ {
		if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" %d\"},\"finish_reason\":null}],\"usage\":null}\n\n", i); err != nil || r.Context().Err() != nil {
			c.left <- struct{}{}
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", tokens)
}

// A stream that has used up its budget ends with an event that says so, as cleanly as the upstream
// ends it. The number from the upstream settles it.
func TestCut(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		model := &chatter{left: make(chan struct{}, 2)}
		proxy := d.node(t, nodeConfig{configuration: cutting, workers: 1, upstream: model})
		for _, http2 := range []bool{false, true} {
			for _, c := range []struct{ tokens, least, most int }{{100, 100, 100}, {5000, 901, 930}} {
				response := chat(t, proxy, http2, c.tokens)
				body, err := io.ReadAll(response.Body)
				must.Reportf(t, err, "http2 %v: %d tokens", http2, c.tokens)
				response.Body.Close()
				n := strings.Count(string(body), `"content"`)
				must.AtLeast(t, n, c.least, "http2 %v: events that come of %d", http2, c.tokens)
				must.AtMost(t, n, c.most, "http2 %v: events that come of %d", http2, c.tokens)
				if isCut := strings.HasSuffix(string(body), `"finish_reason":"length"}]}`+"\n\ndata: [DONE]\n\n"); isCut != (n < c.tokens) || strings.Count(string(body), "[DONE]") != 1 {
					t.Errorf("http2 %v: %d of %d events come, and in the end %q", http2, n, c.tokens, body[max(0, len(body)-300):])
				}
			}
			// The upstream's final 5000 are charged.
			ask(t, client(t), proxy.url(), "x-key", fmt.Sprint("http2 ", http2)).want(t, "x-ratelimit-remaining: 0")
		}
		proxy.wantMetric(t, strings.Replace(metricName("cut_streams_total"), "default", "budget", 1), 2)

		// A client that leaves at the last event ends the upstream's stream too.
		endless := d.node(t, nodeConfig{configuration: strings.Replace(cutting, "budget", "endless", 1), workers: 1, upstream: model})
		for _, http2 := range []bool{false, true} {
			response := chat(t, endless, http2, 0)
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				if lines.Text() == "data: [DONE]" {
					break
				}
			}
			response.Body.Close()
			<-model.left
		}
	})
}

// chat requests a stream. Each client has its own budget.
func chat(t *testing.T, proxy node, http2 bool, tokens int) *http.Response {
	t.Helper()
	response := must.Get(clientOf(t, http2).Do(request(t, proxy.url(), nil, ":method", "POST", ":path", "/v1/chat/completions",
		"x-key", fmt.Sprint("http2 ", http2), "x-tokens", strconv.Itoa(tokens))))(t)
	must.EqualOrEnd(t, response.StatusCode, http.StatusOK, "status")
	return response
}
