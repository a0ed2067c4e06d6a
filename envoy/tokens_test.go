package envoy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/check"
	"weir/internal/commandtest"
	"weir/internal/envoytest"
	"weir/internal/must"
)

// The example's own description of itself.
const (
	tokensFile  = "../examples/tokens.json"
	budget      = 100_000
	reservation = 1000
)

// The example has the same configuration for Envoy and for weir run.
func TestTokensAreOneExample(t *testing.T) {
	var documents []any
	for _, name := range []string{"tokens.yaml", tokensFile} {
		report := check.File(name, []byte(must.Text(t, name)))
		must.EqualOrEnd(t, len(report.Accepted), 1, "%s: configurations", name)
		must.EqualOrEnd(t, len(report.Findings), 0, "%s: findings %v", name, report.Findings)
		var document any
		must.OK(t, json.Unmarshal(report.Accepted[0].Document, &document))
		documents = append(documents, document)
	}
	must.Same(t, documents[0], documents[1], "tokens.yaml and %s", tokensFile)
}

// Two Envoys share a key's budget among 20 streams at a time.
func TestTokensRun(t *testing.T) {
	t.Parallel()
	model := startRun(t).upstream
	onEnvoy(t, func(t *testing.T, on envoytest.Binary) {
		around := surroundings{backend: &backend{own: startServeIn(t, nil), hosts: map[string]bool{}}, upstream: model}
		encoded := onFreePorts(t, must.Text(t, "tokens.yaml"), "dist/weir.wasm", pluginFile(t), around)
		var gateways []string
		for range 2 {
			gateways = slices.AppendSeq(gateways, maps.Values(around.run(t, on, encoded).listeners))
		}
		spendTokens(t, gateways, around.backend)
	})
}

// The proxies of weir run do the same.
func TestTokensRunWithoutEnvoy(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	spendTokens(t, r.proxies, &backend{own: r.backend})
}

// running is a weir run of the example.
type running struct {
	proxies           []string // addresses
	backend, upstream string
}

func startRun(t *testing.T) (r running) {
	t.Helper()
	p := commandtest.Start(t, exec.Command("../dist/weir", "run", "--config", tokensFile, "--listen", "127.0.0.1:0", "--ui", "none"))
	for range 2 {
		r.proxies = append(r.proxies, p.Wait(t, `^proxy .*http://([0-9.:]+)`))
	}
	r.backend = p.Wait(t, `^backend .*http://([0-9.:]+)`)
	r.upstream = p.Wait(t, `^upstream .*http://([0-9.:]+)`)
	return r
}

// completion is a model's answer to a client.
type completion struct {
	status int
	header http.Header
	text   string // the answer's text
	tokens int64  // the cost in the answer; 0 if there is none
}

// complete requests a stream of at most a number of tokens from a gateway.
func complete(gateway, key string, most int) (completion, error) {
	body := fmt.Sprintf(`{"model": "stand-in", "max_tokens": %d, "stream": true, "stream_options": {"include_usage": true},
		"messages": [{"role": "user", "content": "Tell me of weirs."}]}`, most)
	request, err := http.NewRequest(http.MethodPost, "http://"+gateway+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return completion{}, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := envoytest.Client.Do(request)
	if err != nil {
		return completion{}, err
	}
	defer response.Body.Close()
	got := completion{status: response.StatusCode, header: response.Header}
	if got.status != http.StatusOK {
		_, err := io.Copy(io.Discard, response.Body)
		return got, err
	}
	done := false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		if done = data == "[DONE]"; done {
			continue
		}
		var event struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   struct {
				Total int64 `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return got, fmt.Errorf("%s: %w", data, err)
		}
		got.tokens = event.Usage.Total
		for _, choice := range event.Choices {
			got.text += choice.Delta.Content
		}
	}
	if lines.Err() == nil && !done {
		return got, fmt.Errorf("the stream has no end, after %d words", strings.Count(got.text, " "))
	}
	return got, lines.Err()
}

// spendTokens lets 20 clients at a time spend a key's budget at two gateways. It tests that all of
// the budget can be used and no more, that the backend has counted each streamed token before it
// came, and that another key is not affected.
func spendTokens(t *testing.T, gateways []string, b *backend) {
	t.Helper()
	const streams = 20
	must.EqualOrEnd(t, len(gateways), 2, "gateways %q", gateways)
	var group sync.WaitGroup
	var mu sync.Mutex
	streamed, warned := int64(0), 0
	for i := range streams {
		group.Go(func() {
			for {
				// These answers cost no more than their reservation.
				got, err := complete(gateways[i%2], "ann", reservation-100)
				if err != nil {
					t.Error(err)
					return
				}
				if got.status == http.StatusTooManyRequests {
					if got.header.Get("Retry-After") == "" {
						t.Errorf("a refusal does not say when to come again: %s", got.header)
					}
					return
				}
				if got.status != http.StatusOK || got.tokens < int64(strings.Count(got.text, " ")) || got.tokens == 0 {
					t.Errorf("got %d, %d words for %d tokens", got.status, strings.Count(got.text, " "), got.tokens)
					return
				}
				must.Equal(t, got.header.Get("X-RateLimit-Limit-Tokens"), "100000", "the limit of tokens is not told: %s", got.header)
				mu.Lock()
				if streamed += got.tokens; got.header.Get("X-RateLimit-Warning") == `"tokens"` {
					warned++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// When a client is refused, the others have spent or reserved the rest.
	must.AtMost(t, streamed, budget, "streamed tokens")
	must.AtLeast(t, streamed, budget-streams*reservation+1, "streamed tokens")
	must.AtLeast(t, warned, 1, "warned before the budget was spent")
	// Gateways keep leases for later requests.
	if counted, err := b.counted("tokens", "first_hit_window", time.Hour); err != nil || counted < streamed || counted > budget {
		t.Errorf("the backend has counted %d tokens, and %d were streamed: %v", counted, streamed, err)
	}
	if got, err := complete(gateways[0], "bob", 10); err != nil || got.status != http.StatusOK {
		t.Errorf("another key: got %d, %v", got.status, err)
	} else if warning := got.header.Get("X-RateLimit-Warning"); warning != "" {
		t.Errorf("another key: got the warning %s", warning)
	}
	// A look at a response that is not ready yet takes nothing.
	look := must.Get(http.NewRequest(http.MethodGet, "http://"+gateways[0]+"/v1/responses/resp_1", nil))(t)
	look.Header.Set("Authorization", "Bearer eve")
	response := must.Get(envoytest.Client.Do(look))(t)
	must.OK(t, response.Body.Close())
	must.Equal(t, response.Header.Get("X-RateLimit-Limit-Tokens"), "", "a look: the limit that it takes from")
}
