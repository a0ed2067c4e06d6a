package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/redis/redistest"
)

// budget has a rule with a number of tokens for each key. Requests reserve the tokens that they ask
// for.
const budget = `{"namespace": "budget", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0.2, "headers": ["x-ratelimit"], "rules": [
	{"name": "tokens", "key": [{"header": "x-key"}], "limits": [{"limit": %d, "window": "366d", "algorithm": "fixed_window"}],
		"cost_on_response": {"response_json": "usage.total_tokens"}, "reserve": {"header": "x-reserve", "most": 5000}}]}`

// costs are the parts of the reference on costs from a response's body.
var costs = []reference{
	{
		name: "cost_on_response: of the body, and reserve",
		configuration: `{"rules": [{"name": "r", "reserve": 30, "cost_on_response": {"response_json": "usage.total_tokens"}, "limits": [
			{"limit": 100, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"usage":{"total_tokens":12}}`, status: 200, want: "x-ratelimit-remaining: 70"},
			{send: "GET / answer-content-type:text/event-stream x-body:data:{\"usage\":{\"total_tokens\":40}}", status: 200, want: "x-ratelimit-remaining: 58"},
			// 12 and 40 are gone, and 30 reserved. A response without a number costs the reserved
			// tokens.
			{send: `GET / answer-content-type:application/json x-body:{"usage":{"total_tokens":-1}}`, status: 200, want: "x-ratelimit-remaining: 18"},
			{send: "GET /", status: 429, want: "x-ratelimit-remaining: 18\nretry-after: 60"},
		},
	},
	{
		name: "cost_on_response: weights; on_failure",
		configuration: `{"rules": [{"name": "r", "reserve": 10, "on_failure": "keep", "limits": [{"limit": 100, "window": "1m", "algorithm": "fixed_window"}],
			"cost_on_response": {"sum": [{"response_json": "prompt", "weight": 1}, {"response_json": "completion", "weight": 4}]}}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"prompt":6,"completion":5}`, status: 200, want: "x-ratelimit-remaining: 90"},
			{send: "GET /", status: 200, want: "x-ratelimit-remaining: 64"},
		},
	},
	{
		name: "cost_on_response: what a provider's answers tell",
		configuration: `{"rules": [{"name": "r", "reserve": {"header": "x-most", "least": 20, "most": 60}, "cost_on_response": "openai", "limits": [
			{"limit": 100, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"usage":{"total_tokens":90}}`, status: 200, want: "x-ratelimit-remaining: 80"},
			{send: "GET / x-most:60", status: 429, want: "x-ratelimit-remaining: 10"},
		},
	},
	{
		name: "most_per_request and preset: a request that would reserve more, in the form of a provider",
		configuration: `{"response": {"preset": "openai"}, "rules": [{"name": "r", "reserve": {"header": "x-most", "least": 20}, "most_per_request": 60,
			"cost_on_response": "openai", "limits": [{"limit": 100, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-most:61", status: 400, want: "retry-after:", body: `{"error":{"message":"Request too large: more than rule r allows a request.",` +
				`"type":"invalid_request_error","param":null,"code":"request_too_large"}}`},
			{send: "GET / x-most:60", status: 200, want: "x-ratelimit-remaining: 40"},
		},
	},
	{
		name: "prices: tokens cost money, by model and kind",
		configuration: `{"prices": {"models": {"unit": "micro-dollars", "of": {
			"m": {"input": 1, "cached": 0.5, "cache_write": 2, "output": 10, "reasoning": 12, "audio": 3, "audio_output": 20}, "*": {"input": 1, "output": 10}}}},
			"rules": [{"name": "r", "key": [{"request_json": "user", "longest": 64}], "cost_on_response": "openai", "price": "models",
			"reserve": {"request_json": "max_tokens", "times": "n", "default": 10, "most": 100, "prompt": {"bytes_per_token": 4}},
			"limits": [{"limit": 1000, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			// 10 tokens of an answer at 10 are reserved; 10 of a prompt at 1 and 4 of the answer at
			// 10 are spent.
			{send: `GET / answer-content-type:application/json x-body:{"model":"m","usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}}`, status: 200, want: "x-ratelimit-remaining: 900"},
			{send: "GET /", status: 200, want: "x-ratelimit-remaining: 850"},
		},
	},
	{
		name: "charge_when: failed logins only",
		configuration: `{"rules": [{"name": "logins", "charge_when": {"status": ["401", "403", "5xx"]}, "limits": [
			{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /login", times: 5, status: 200, want: "x-ratelimit-remaining: 1"},
			{send: "GET /login x-status:401", status: 401, want: "x-ratelimit-remaining: 1"},
			{send: "GET /login x-status:404", status: 404, want: "x-ratelimit-remaining: 0"},
			{send: "GET /login x-status:503", status: 503, want: "x-ratelimit-remaining: 0"},
			{send: "GET /login", status: 429, want: "x-ratelimit-remaining: 0"},
		},
		metrics: map[string]int64{metricName("unread_costs_total"): 0},
	},
	{
		name: "usage_path: a client is told of its own limits",
		configuration: `{"usage_path": "/.weir/usage", "rules": [
			{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "chat", "match": {"path": {"exact": "/v1/chat"}, "methods": ["POST"]}, "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1h"}]}]}`,
		steps: []step{
			{send: "POST /v1/chat x-user:ann", status: 200, want: "x-ratelimit-remaining: 0"},
			{send: "GET /.weir/usage?a=b x-user:ann", times: 9, status: 200, want: "content-type: application/json\ncache-control: no-store\nratelimit:",
				body: `{"at":"2026-01-05T00:00:00Z","rules":[{"name":"user","unit":"requests","on_full":"refuse","source":"proxy","as_of":"2026-01-05T00:00:00Z",` +
					`"blocked_seconds":0,"limits":[{"name":"user","algorithm":"fixed_window","limit":5,"burst":5,"window_ms":60000,"used":1,"remaining":4,` +
					`"next_seconds":60,"reset_seconds":60}]}]}` + "\n"},
			{send: "GET /.weir/usage?path=/v1/chat&method=POST x-user:bob", status: 200,
				body: `{"at":"2026-01-05T00:00:00Z","rules":[{"name":"user","unit":"requests","on_full":"refuse","source":"proxy","as_of":"2026-01-05T00:00:00Z",` +
					`"blocked_seconds":0,"limits":[{"name":"user","algorithm":"fixed_window","limit":5,"burst":5,"window_ms":60000,"used":0,"remaining":5,` +
					`"next_seconds":0,"reset_seconds":60}]},{"name":"chat","unit":"requests","on_full":"refuse","source":"proxy","as_of":"2026-01-05T00:00:00Z",` +
					`"blocked_seconds":0,"limits":[{"name":"chat","algorithm":"sliding_window","limit":1,"burst":1,"window_ms":3600000,"used":0,"remaining":1,` +
					`"next_seconds":0,"reset_seconds":3600}]}]}` + "\n"},
			{send: "POST /.weir/usage x-user:ann", status: 405, want: "allow: GET, HEAD"},
			{send: "HEAD /.weir/usage x-user:ann", status: 200, want: "content-type: application/json"},
			{send: "GET / x-user:ann", status: 200, want: "x-ratelimit-remaining: 3"},
		},
	},
	{
		name:          "access_log: requests are decided as without it",
		configuration: `{"access_log": true, ` + hourly("r", 1)[1:],
		steps:         []step{{send: "GET /", status: 200, want: `ratelimit: "r";r=0;t=3600`}, {send: "GET /", status: 429}},
	},
	{
		name:          "trust_marks: those of a gateway stay",
		configuration: `{"trust_marks": true, "rules": [{"name": "fast", "on_full": "mark", "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-weir-over:gateway", status: 200, want: "was-over: gateway"},
			{send: "GET / x-weir-over:gateway", status: 200, want: "was-over: gateway, fast"},
			{send: "GET /", status: 200, want: "was-over: fast"},
		},
	},
	{
		name: "on_full: a mark in the place of a refusal",
		configuration: `{"rules": [{"name": "fast", "on_full": "mark", "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "dear", "on_full": "mark", "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "all", "limits": [{"limit": 3, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-weir-over:mine", status: 200, want: "was-over:\nx-ratelimit-remaining: 0\nretry-after:"},
			{send: "GET / x-weir-over:mine", status: 200, want: "was-over: fast\nx-envoy-ratelimited:"},
			{send: "GET /", status: 200, want: "was-over: fast, dear\nx-ratelimit-remaining: 0"},
			{send: "GET /", status: 429, want: `ratelimit: "fast";r=0;t=60, "dear";r=0;t=60, "all";r=0;t=60`},
			{at: time.Minute, send: "GET /", status: 200, want: "was-over:\nx-ratelimit-remaining: 0"},
		},
		metrics: map[string]int64{
			metricName("requests_total", "fast", "allowed"): 2, metricName("requests_total", "fast", "marked"): 2,
			metricName("requests_total", "all", "rejected"): 1, metricName("requests_total", "fast", "rejected"): 0,
			metricName("requests_total", "fast", "rejected_by_other"): 1, metricName("requests_total", "dear", "marked"): 1,
		},
	},
	{
		name: "in_flight: a place comes back with the response",
		configuration: `{"rules": [{"name": "r", "limits": [{"limit": 1, "algorithm": "in_flight", "hold": "1m"}]},
			{"name": "none", "match": {"path": {"exact": "/none"}}, "limits": [{"limit": 0, "algorithm": "in_flight"}]}]}`,
		steps: []step{
			{send: "GET /", times: 5, status: 200, want: "ratelimit-policy: \"r\";q=1;qu=\"concurrent-requests\"\nratelimit: \"r\";r=0;t=1\nx-ratelimit-reset: 1\nretry-after:"},
			{send: "GET / x-status:503", times: 3, status: 503, want: "x-ratelimit-remaining: 0"},
			{send: "GET /none", times: 2, status: 429, want: "x-ratelimit-limit: 0\nretry-after:\nx-envoy-ratelimited: true"},
			{send: "GET /", status: 200, want: "x-ratelimit-remaining: 0"},
		},
	},
	{
		name:          "block: whatever room comes back",
		configuration: `{"rules": [{"name": "r", "block": {"for": "10m", "extend": false}, "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /", status: 200, want: "x-ratelimit-remaining: 0"},
			{send: "GET /", times: 3, status: 429, want: "ratelimit-policy: \"r\";q=1;w=1\nretry-after: 619"},
			{at: 5 * time.Minute, send: "GET /", times: 3, status: 429, want: "retry-after: 319\nratelimit: \"r\";r=0;t=319\nx-ratelimit-remaining: 0"},
			{at: 10*time.Minute + 19*time.Second, send: "GET /", status: 200, want: "retry-after:"},
		},
		metrics: map[string]int64{metricName("blocked_keys_total"): 1},
	},
	{
		name:          "upstream: a key waits as long as the upstream says",
		configuration: `{"rules": [{"name": "r", "key": ["path"], "upstream": true, "limits": [{"limit": 9, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-status:429 answer-retry-after:7", status: 429, want: "x-ratelimit-remaining: 8\nx-envoy-ratelimited:"},
			{send: "GET /", times: 3, status: 429, want: "retry-after: 7\nx-ratelimit-remaining: 8\nx-envoy-ratelimited: true"},
			{send: "GET /other", status: 200, want: "retry-after:"},
			{at: 7 * time.Second, send: "GET / answer-x-ratelimit-remaining-requests:0 answer-x-ratelimit-reset-requests:1m30s", status: 200, want: "x-ratelimit-remaining: 7"},
			{at: 8 * time.Second, send: "GET /", status: 429, want: "retry-after: 59"},
		},
		metrics: map[string]int64{metricName("upstream_holds_total"): 2},
	},
	{
		name:          "delay: a wait that would be too long is refused at once",
		configuration: `{"rules": [{"name": "r", "delay": {"most": "10s", "queue": 5}, "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /", status: 200, want: "x-ratelimit-delayed:"},
			{send: "GET /", status: 429, want: "retry-after: 60"},
		},
		metrics: map[string]int64{metricName("delayed_requests_total"): 0},
	},
	{
		name: "header_names and retry_after_jitter",
		configuration: `{"header_names": {"x-ratelimit-limit": "x-quota-limit", "Retry-After": "x-wait"}, "retry_after_jitter": 0.001,
			"rules": [{"name": "r", "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / answer-x-quota-limit:7", status: 200, want: "x-quota-limit: 1\nx-ratelimit-limit:\nx-ratelimit-remaining: 0"},
			{send: "GET /", status: 429, want: "x-quota-limit: 1\nretry-after:\nx-ratelimit-limit:\nx-ratelimit-reset: 1"},
		},
	},
	{
		name: "cut: an answer that is no event stream comes whole",
		configuration: `{"rules": [{"name": "r", "reserve": 30, "cost_on_response": "openai", "cut": true, "limits": [
			{"limit": 100, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"usage":{"total_tokens":200}}`, status: 200, body: `{"usage":{"total_tokens":200}}`},
			{send: "GET /", status: 429, want: "x-ratelimit-remaining: 0"},
		},
	},
	{
		name: "ask_for_usage: an answer that is no event stream passes as it came",
		configuration: `{"rules": [{"name": "r", "reserve": 30, "cost_on_response": "openai", "ask_for_usage": "pass", "limits": [
			{"limit": 100, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"choices":[],"usage":{"total_tokens":100}}`, status: 200, body: `{"choices":[],"usage":{"total_tokens":100}}`},
			{send: "GET /", status: 429, want: "x-ratelimit-remaining: 0"},
		},
	},
	{
		name: "limit_tokens: a request without a body has no number to lower",
		configuration: `{"rules": [{"name": "tokens", "limit_tokens": true, "limits": [{"limit": 100, "window": "1m", "algorithm": "fixed_window"}],
			"reserve": {"request_json": "max_tokens", "default": 70}, "cost_on_response": {"response_json": "n"}}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"n":60}`, status: 200, want: "x-ratelimit-remaining: 30"},
			{send: "GET /", status: 429, want: "x-ratelimit-remaining: 40"},
		},
	},
	{
		name: "reserve: of a request without a body, the default",
		configuration: `{"rules": [{"name": "tokens", "limits": [{"limit": 100, "window": "1m", "algorithm": "fixed_window"}],
			"reserve": {"request_json": "max_tokens", "default": 30, "most": 50, "unread": "refuse"}, "cost_on_response": {"response_json": "n"}}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"n":20}`, status: 200, want: "x-ratelimit-remaining: 70"},
			{send: `GET / answer-content-type:application/json x-body:{"n":20}`, status: 200, want: "x-ratelimit-remaining: 50"},
			{send: `GET / answer-content-type:application/json x-body:{"n":-1}`, status: 200, want: "x-ratelimit-remaining: 30"},
		},
		metrics: map[string]int64{metricName("unread_bodies_total"): 0, metricName("unread_costs_total"): 1},
	},
}

// The ways in which a stream ends.
const (
	endsWhole    = "whole"
	endsByClient = "client leaves"
	endsFailed   = "upstream fails"
)

// model replaces a model that streams. It sends events with the number of tokens so far, and ends
// in the way that the request names.
func model(w http.ResponseWriter, r *http.Request) {
	tokens, _ := strconv.Atoi(r.Header.Get("x-tokens"))
	ends := r.Header.Get("x-ends")
	if ends == endsFailed {
		http.Error(w, `{"error":"overloaded"}`, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("content-type", "text/event-stream")
	const events = 20
	for i := range events {
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word %d\"}}],\"usage\":{\"total_tokens\":%d}}\n\n", i, tokens*(i+1)/events)
		_ = http.NewResponseController(w).Flush()
	}
	switch ends {
	case endsByClient:
		<-r.Context().Done()
	default:
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// stream requests a stream, reads all of it, and returns the status.
func stream(address, key, ends string, reserve, tokens int) (status int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", nil)
	if err != nil {
		return 0, err
	}
	for name, value := range map[string]string{"x-key": key, "x-reserve": strconv.Itoa(reserve), "x-tokens": strconv.Itoa(tokens), "x-ends": ends} {
		request.Header.Set(name, value)
	}
	response, err := anew.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || ends == endsWhole {
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	last := fmt.Sprintf(`"total_tokens":%d}`, tokens)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), last) {
			break // leave early
		}
	}
	return response.StatusCode, nil
}

// 200 streams of any length run at once through two nodes. Clients leave, the upstream fails, and
// the backend is killed and comes back. At the end the store has the tokens that were streamed.
func TestBudgets(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		const streams, rounds = 200, 3
		url := redistest.Start(t).URL()
		process, backend := serveAt(t, steadyAddress(t), url)
		_, addresses := nodes(t, d, 2, nodeConfig{configuration: fmt.Sprintf(budget, 100_000_000), backend: backend, workers: 2, upstream: http.HandlerFunc(model)})
		random := rand.New(rand.NewPCG(7, 8))
		want := int64(0)
		for round := range rounds {
			var group sync.WaitGroup
			var begun atomic.Int64
			for range streams {
				ends := []string{endsWhole, endsWhole, endsByClient, endsFailed}[random.IntN(4)]
				reserve, tokens := 1+random.IntN(2000), 20+random.IntN(3000)
				key, address := fmt.Sprint("key", random.IntN(5)), addresses[random.IntN(2)]
				switch ends {
				case endsWhole:
					want += int64(tokens)
				case endsByClient:
					want += int64(max(reserve, tokens))
				}
				group.Go(func() {
					begun.Add(1)
					status, err := stream(address, key, ends, reserve, tokens)
					if err != nil || status != http.StatusOK && (status != http.StatusServiceUnavailable || ends != endsFailed) {
						t.Errorf("%s: status %d, %v", ends, status, err)
					}
				})
			}
			if round == 1 {
				process.Kill(t)
			}
			group.Wait()
			if round == 1 {
				process, _ = serveAt(t, backend, url)
			}
		}
		settle(t, backend, "budget", want)
	})
}

// Requests alternate between two nodes, one after the other, and each costs twenty times its
// reserved tokens. If the backend decides, the first request without room is refused. Otherwise the
// overshoot bound covers the excess, once the backend has the hits.
func TestBudgetsOfRequestsInTurn(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		t.Run("sync_rate "+rate, func(t *testing.T) {
			onEachByNight(t, 2, func(t *testing.T, d driver) { budgetsOfRequestsInTurn(t, d, rate) })
		})
	}
}

func budgetsOfRequestsInTurn(t *testing.T, d driver, rate string) {
	const limit, tokens = 50_000, 1000
	configuration := strings.Replace(fmt.Sprintf(budget, limit), `"sync_rate": 0.2`, `"sync_rate": `+rate, 1)
	backend := serve(t, "memory")
	all, addresses := nodes(t, d, 2, nodeConfig{configuration: configuration, backend: backend, workers: 2, upstream: http.HandlerFunc(model)})
	spent := int64(0)
	for i := range 100 {
		switch status, err := stream(addresses[i%2], "ann", endsWhole, 50, tokens); {
		case err != nil:
			t.Fatal(err)
		case status == http.StatusOK:
			spent += tokens
		}
	}
	// A stream that is charged while it runs may still have a push under way at its end.
	if rate == "0" && spent > limit+tokens || spent < limit {
		t.Errorf("%d tokens are spent, of %d", spent, limit)
	}
	// The largest bound of all nodes holds.
	name := "weir.weir_namespace=.=budget;.;weir_rule=.=tokens;.;overshoot_bound"
	bound := int64(-1)
	if !soon(func() bool {
		for _, n := range all {
			bound = max(bound, n.metric(t, name))
		}
		return bound >= spent-limit
	}) {
		t.Errorf("%d tokens are spent, of %d, and the overshoot bound is %d", spent, limit, bound)
	}
}

// If requests reserve the most that they can cost, no more tokens are streamed than the budget has,
// and all of the budget can be used.
func TestBudgetIsNeverExceeded(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		const tokens, most = 20_000, 500
		backend := serve(t, "memory")
		_, addresses := nodes(t, d, 2, nodeConfig{configuration: fmt.Sprintf(budget, tokens), backend: backend, workers: 2, upstream: http.HandlerFunc(model)})
		var group sync.WaitGroup
		var streamed, refused atomic.Int64
		for worker := range 20 {
			random := rand.New(rand.NewPCG(9, uint64(worker)))
			group.Go(func() {
				for range 30 {
					cost := 20 + random.IntN(most-20)
					switch status, err := stream(addresses[random.IntN(2)], "ann", endsWhole, most, cost); {
					case err != nil:
						t.Error(err)
					case status == http.StatusTooManyRequests:
						refused.Add(1)
					case streamed.Add(int64(cost)) > tokens:
						t.Errorf("%d tokens were streamed, of %d", streamed.Load(), tokens)
					}
				}
			})
		}
		group.Wait()
		settle(t, backend, "budget", streamed.Load())
		must.AtLeast(t, streamed.Load(), tokens-2*most+1, "streamed tokens")
		must.AtLeast(t, refused.Load(), 1, "refused requests")
	})
}

// The configuration that reserved for streams also settles them, even if another has replaced it
// before they end.
func TestBudgetsOutliveConfigurations(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		const streams, tokens = 8, 900
		backend := serve(t, "memory")
		var begun sync.WaitGroup
		begun.Add(streams)
		release := make(chan struct{})
		upstream := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("content-type", "text/event-stream")
			event := func(so int) {
				fmt.Fprintf(w, "data: {\"usage\":{\"total_tokens\":%d}}\n\n", so)
				_ = http.NewResponseController(w).Flush()
			}
			event(tokens / 2)
			begun.Done()
			select {
			case <-release:
			case <-r.Context().Done():
			}
			event(tokens)
		}
		all, addresses := nodes(t, d, 1, nodeConfig{configuration: fmt.Sprintf(budget, 100_000), backend: backend, workers: 2, upstream: http.HandlerFunc(upstream)})
		var group sync.WaitGroup
		for i := range streams {
			group.Go(func() {
				// Half of the streams reserve more than they cost.
				if status, err := stream(addresses[0], "ann", endsWhole, 200+1000*(i%2), tokens); err != nil || status != http.StatusOK {
					t.Errorf("status %d, %v", status, err)
				}
			})
		}
		begun.Wait()
		must.Report(t, all[0].configure(fmt.Sprintf(budget, 200_000)))
		close(release)
		group.Wait()
		settle(t, backend, "budget", streams*tokens)
	})
}

// A response reaches the client byte by byte as the upstream sends it, however its events are
// split. The upstream sends a piece only after the client got the last.
func TestStreamsPassAsTheyCome(t *testing.T) {
	onEach(t, 3, func(t *testing.T, d driver) {
		pieces := []string{
			": a comment\r\n", "data: {\"choices\":[{\"index\":0,\"delta\":{\"cont", "ent\":\"a\"}}],\"us", "age\":null}\r", "\n\r\n", "\xff\x00\n",
			"data: " + strings.Repeat("long ", 20_000), "\n\ndata: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n", "\n", "data: [DO", "NE]\n\n", "after the end",
		}
		for _, c := range []struct{ rule, contentType string }{
			{`"cost_on_response": "openai"`, "text/event-stream"},
			{`"cost_on_response": "openai", "cut": true`, "text/event-stream"},
			{`"cost_on_response": {"response_json": "usage.total_tokens"}`, "application/json"},
		} {
			received := make(chan struct{})
			upstream := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("content-type", c.contentType)
				for _, piece := range pieces {
					_, _ = io.WriteString(w, piece)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-received:
					case <-r.Context().Done():
					}
				}
			}
			configuration := `{"rules": [{"name": "tokens", "limits": [{"limit": 1000, "window": "1h"}], "reserve": 100, ` + c.rule + `}]}`
			_, addresses := nodes(t, d, 1, nodeConfig{configuration: configuration, workers: 1, upstream: http.HandlerFunc(upstream)})
			response := must.Get(client(t).Do(request(t, addresses[0], nil, ":method", "POST")))(t)
			defer response.Body.Close()
			for i, want := range pieces {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != want {
					t.Fatalf("%s: piece %d is %.80q, %v", c.rule, i, got, err)
				}
				received <- struct{}{}
			}
			must.Equal(t, string(must.Get(io.ReadAll(response.Body))(t)), "", "%s: after the last piece", c.rule)
		}
	})
}

// A shadow rule counts the costs of responses, for requests in turn, as if it enforced.
func TestShadowBudgetOfRequestsInTurn(t *testing.T) {
	onEach(t, 2, func(t *testing.T, d driver) {
		const configuration = `{"namespace": "shadow-budget", "backend": {"cluster": "weir", "timeout": "5s"}, "sync_rate": 0, "rules": [
			{"name": "r", "mode": "shadow", "limits": [{"limit": 30000, "window": "366d", "algorithm": "fixed_window"}], "reserve": 50, "cost_on_response": {"response_header": "x-tokens"}},
			{"name": "e", "limits": [{"limit": 50000, "window": "366d", "algorithm": "fixed_window"}], "reserve": 50, "cost_on_response": {"response_header": "x-tokens"}}]}`
		all, addresses := nodes(t, d, 2, nodeConfig{
			configuration: configuration, backend: serve(t, "memory"), workers: 2,
			upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("x-tokens", "1000") }),
		})
		client := client(t)
		for i := range 50 {
			must.Equal(t, ask(t, client, addresses[i%2]).status, http.StatusOK, "request %d: status", i)
		}
		allowed, name := int64(0), "weir.weir_namespace=.=shadow-budget;.;weir_rule=.=r;.;weir_outcome=.=shadow_"
		if !soon(func() bool {
			rejected := int64(0)
			allowed = 0
			for _, n := range all {
				allowed += n.metric(t, name+"allowed;.;requests_total")
				rejected += n.metric(t, name+"rejected;.;requests_total")
			}
			return allowed+rejected == 50
		}) {
			t.Fatal("not all requests are in the metrics")
		}
		// No request waits for a shadow rule, so a charge may be under way when the next request
		// comes.
		must.AtLeast(t, allowed, 30, "would pass of 50")
		must.AtMost(t, allowed, 35, "would pass of 50")
	})
}
