package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// A reference is a part of README's reference, as a client sees it. The expected numbers were
// computed by hand from the README.
type reference struct {
	name          string
	configuration string
	steps         []step
	// metrics are the plugin's metrics after the steps. The configuration then has the default
	// namespace.
	metrics map[string]int64
}

// A step is a request or a change of the configuration. If it has both, the change comes first.
type step struct {
	// at is the time since monday; 0 means the time of the last step.
	at time.Duration
	// configure replaces the configuration. If refused is set, the node must refuse it with these
	// texts in its complaint.
	configure string
	refused   []string
	// send is "METHOD /path name:value …". The upstream answers a header answer-name:value with
	// name:value, and a header x-status with that status.
	send string
	// times is how often the request is sent, each time with this status. Headers and body are
	// those of the last answer.
	times  int
	status int
	want   string
	body   string
}

const (
	noRateLimit  = "\nratelimit-policy:\nratelimit:"
	noXRateLimit = "\nx-ratelimit-limit:\nx-ratelimit-remaining:\nx-ratelimit-reset:"
	noRetryAfter = "\nretry-after:"
	isRefused    = "\nx-envoy-ratelimited: true"
	// nothing is the headers of an answer if no rule applies.
	nothing = noRateLimit + noXRateLimit + noRetryAfter + "\nx-envoy-ratelimited:"
)

// TestReference runs README's reference on every proxy, including the oldest Envoy.
func TestReference(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, d driver) {
		clock := newClock()
		n := d.node(t, nodeConfig{
			clock: clock, configuration: perUser(`{"limit": 1, "window": "1s"}`), upstream: http.HandlerFunc(answerAsAsked), trustedHops: 2,
		})
		for i, r := range slices.Concat(references, choices, costs, tokenHeaders, warnings) {
			if e, ok := d.(envoys); ok && e.native && strings.Contains(r.configuration, `"metadata"`) {
				continue // notNative has the reason
			}
			t.Run(r.name, func(t *testing.T) {
				clock.set(t, monday)
				r.run(t, n, clock, fmt.Sprint("reference-", i))
			})
		}
	})
}

// answerAsAsked is an upstream. Its body repeats the request line, or has the value of x-body.
func answerAsAsked(w http.ResponseWriter, r *http.Request) {
	for name, values := range r.Header {
		if name, ok := strings.CutPrefix(name, "Answer-"); ok {
			w.Header()[name] = values
		}
	}
	if over := r.Header.Get("x-weir-over"); over != "" {
		w.Header().Set("was-over", over)
	}
	if status, err := strconv.Atoi(r.Header.Get("x-status")); err == nil {
		w.WriteHeader(status)
	}
	if body := r.Header.Get("x-body"); body != "" {
		fmt.Fprint(w, body)
		return
	}
	fmt.Fprint(w, r.Method, " ", r.RequestURI)
}

func (r *reference) run(t *testing.T, n node, clock *fakeClock, namespace string) {
	t.Helper()
	configure := func(configuration string) error {
		if r.metrics == nil && !strings.Contains(configuration, `"namespace"`) {
			configuration = `{"namespace": "` + namespace + `", ` + configuration[1:]
		}
		return n.configure(configuration)
	}
	must.OK(t, configure(r.configuration))
	clients := []*http.Client{client(t), client(t)} // of two workers
	sent := 0
	for i, s := range r.steps {
		if s.at != 0 {
			clock.set(t, monday.Add(s.at))
		}
		if s.configure != "" {
			err := configure(s.configure)
			s.wantRefused(t, i, err)
			clients = []*http.Client{client(t), client(t)}
		}
		if s.send == "" {
			continue
		}
		var got reply
		for range max(s.times, 1) {
			got = ask(t, clients[sent%2], n.url(), headersOf(s.send)...)
			sent++
			must.Equal(t, got.status, s.status, "step %d, %s: status", i, s.send)
		}
		if s.body != "" && got.body != s.body {
			t.Errorf("step %d, %s: got body %q, want %q", i, s.send, got.body, s.body)
		}
		before := t.Failed()
		if got.want(t, s.want); t.Failed() && !before {
			t.Errorf("those were the headers of step %d, %s", i, s.send)
		}
	}
	for name, want := range r.metrics {
		n.wantMetric(t, name, want)
	}
}

func (s *step) wantRefused(t *testing.T, i int, err error) {
	t.Helper()
	switch {
	case len(s.refused) == 0 && err != nil:
		t.Fatalf("step %d: %v", i, err)
	case len(s.refused) > 0 && err == nil:
		t.Fatalf("step %d: the configuration was not refused", i)
	}
	for _, complaint := range s.refused {
		must.Contains(t, err.Error(), complaint, "step %d", i)
	}
}

// headersOf returns "METHOD /path name:value …" as arguments for ask. A ␠ in a value means a space.
func headersOf(text string) []string {
	words := strings.Fields(text)
	headers := []string{":method", words[0], ":path", words[1]}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, ":")
		headers = append(headers, name, strings.ReplaceAll(value, "␠", " "))
	}
	return headers
}

var references = []reference{
	{
		name: "classes, which have parts of a limit and borrow what no class has",
		configuration: `{"rules": [{"name": "shared", "key": [{"header": "x-user"}], "limits": [{"limit": 10, "window": "1m", "algorithm": "fixed_window"}],
			"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1, "most": 0.2}}}}]}`,
		steps: []step{
			{send: "GET / x-user:ann x-class:batch", status: 200, want: `
				ratelimit-policy: "shared";q=2;w=60
				x-ratelimit-limit: 2
				x-ratelimit-remaining: 1`},
			{send: "GET / x-user:ann x-class:batch", status: 200, want: "x-ratelimit-remaining: 0"},
			{send: "GET / x-user:ann x-class:batch", times: 3, status: 429, want: "retry-after: 60"},
			{send: "GET / x-user:ann x-class:other", times: 2, status: 200, want: "x-ratelimit-remaining: 0"},
			{send: "GET / x-user:ann", times: 3, status: 429},
			{send: "GET / x-user:ann x-class:interactive", times: 6, status: 200, want: "x-ratelimit-limit: 9\nx-ratelimit-remaining: 0"},
			{send: "GET / x-user:ann x-class:interactive", status: 429},
			{send: "GET / x-user:bob", times: 3, status: 200, want: "x-ratelimit-limit: 3"},
			{at: time.Minute, send: "GET / x-user:ann x-class:interactive", times: 9, status: 200},
			{send: "GET / x-user:ann x-class:batch", status: 200},
			{send: "GET / x-user:ann x-class:batch", status: 429},
		},
	},
	{
		name: "keys that share evenly what their class has",
		configuration: `{"rules": [{"name": "shared", "key": [{"header": "x-team"}, {"header": "x-user"}], "limits": [{"limit": 10, "window": "1m", "algorithm": "fixed_window"}],
			"classes": {"by": {"header": "x-class"}, "of": {"interactive": {"guaranteed": 0.6}, "batch": {"guaranteed": 0.1}}, "fair": true}}]}`,
		steps: []step{
			{send: "GET / x-team:red x-user:ann x-class:interactive", times: 9, status: 200},
			{send: "GET / x-team:red x-user:ann x-class:interactive", status: 429},
			{send: "GET / x-team:red x-user:bob x-class:interactive", status: 429}, // he comes late, and is known now
			{at: time.Minute, send: "GET / x-team:red x-user:ann x-class:interactive", times: 4, status: 200},
			{send: "GET / x-team:red x-user:ann x-class:interactive", status: 429},
			{send: "GET / x-team:red x-user:bob x-class:interactive", times: 4, status: 200},
			{send: "GET / x-team:red x-user:bob x-class:interactive", status: 429},
			{send: "GET / x-team:blue x-user:cat x-class:interactive", times: 9, status: 200},
		},
	},
	{
		name:          "what is there without being asked for",
		configuration: perUser(`{"limit": 2, "window": "1m"}`),
		steps: []step{
			// A hit of two: two more have room after the next window, which weighs the first.
			{at: 30 * time.Second, send: "GET /a?b=c x-user:ann", status: 200, body: "GET /a?b=c", want: `
				ratelimit-policy: "per-user";q=2;w=60
				ratelimit: "per-user";r=1;t=90
				x-ratelimit-limit: 2
				x-ratelimit-remaining: 1
				x-ratelimit-reset: 30
				retry-after:
				x-envoy-ratelimited:`},
			// Two hits weigh one in the middle of the next window.
			{send: "GET / x-user:ann", status: 200, want: `
				ratelimit: "per-user";r=0;t=60
				x-ratelimit-remaining: 0
				retry-after:`},
			{send: "GET / x-user:ann", status: 429, body: `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429,"violated-policies":["per-user"]}`, want: `
				ratelimit-policy: "per-user";q=2;w=60
				ratelimit: "per-user";r=0;t=60
				x-ratelimit-limit: 2
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 30
				retry-after: 60
				x-envoy-ratelimited: true
				content-type: application/problem+json
				content-length: 149`},
			{send: "GET / x-user:bob", status: 200, want: `ratelimit: "per-user";r=1;t=90`},
			{at: 89 * time.Second, send: "GET / x-user:ann", status: 429, want: "retry-after: 1"},
			{at: 90 * time.Second, send: "GET / x-user:ann", status: 200, want: `ratelimit: "per-user";r=0;t=30`},
		},
	},

	// Keys.
	{
		name:          "key: a header, in any letters; an absent one is the empty value",
		configuration: once(`"key": [{"header": "X-User"}]`),
		steps: []step{
			{send: "GET / x-user:ann", status: 200},
			{send: "GET / X-USER:ann", status: 429},
			{send: "GET / x-user:Ann", status: 200},
			{send: "GET /", status: 200},
			{send: "GET / x-user:", status: 429},
			// The first of several values counts.
			{send: "GET / x-user:carl x-user:ann", status: 200},
			{send: "GET / x-user:carl", status: 429},
			{send: "GET / x-user:\xfe", status: 200},
			{send: "GET / x-user:\xff", status: 200},
			{send: "GET / x-user:\xff", status: 429},
		},
	},
	{
		name:          "key: several values, which can't be confused",
		configuration: once(`"key": [{"header": "x-a"}, {"header": "x-b"}]`),
		steps: []step{
			{send: "GET / x-a:a x-b:bc", status: 200},
			{send: "GET / x-a:ab x-b:c", status: 200},
			{send: "GET / x-a:abc", status: 200},
			{send: "GET / x-b:abc", status: 200},
			{send: "GET / x-b:bc x-a:a", status: 429},
		},
	},
	{
		name:          "key: method and path, without the query",
		configuration: once(`"key": ["method", "path"]`),
		steps: []step{
			{send: "GET /a?b=1", status: 200},
			{send: "GET /a?b=2", status: 429},
			{send: "GET /a", status: 429},
			{send: "POST /a", status: 200},
			{send: "GET /a/", status: 200},
			{send: "GET /A", status: 200},
		},
	},
	{
		name:          "key: client_ip, behind two hops",
		configuration: once(`"key": ["client_ip"]`),
		steps: []step{
			{send: "GET / x-forwarded-for:198.51.100.1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:198.51.100.2,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:192.0.2.66,198.51.100.1,10.0.0.10", status: 429}, // the first is forged
			{send: "GET / x-forwarded-for:192.0.2.66,198.51.100.1 x-forwarded-for:10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:::ffff:198.51.100.1,10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:2001:db8:0:1::1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:2001:db8:0:1:ffff::2,10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:2001:db8:0:2::1,10.0.0.9", status: 200},
			// With fewer than two, or if there is no address, the connection's address counts.
			{send: "GET /", status: 200},
			{send: "GET / x-forwarded-for:198.51.100.3", status: 429},
			{send: "GET / x-forwarded-for:unknown,10.0.0.9", status: 429},
		},
	},
	{
		name:          "key: client_ip with prefixes",
		configuration: once(`"key": [{"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 48}}]`),
		steps: []step{
			{send: "GET / x-forwarded-for:198.51.100.1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:198.51.100.255,10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:198.51.101.1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:2001:db8:1:1::1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:2001:db8:1:ffff::1,10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:2001:db8:2:1::1,10.0.0.9", status: 200},
		},
	},
	{
		name:          "no key: one counter for all",
		configuration: once(`"key": []`),
		steps: []step{
			{send: "GET / x-user:ann", status: 200},
			{send: "POST /a x-user:bob", status: 429},
		},
	},

	// Matches. The policy names the rules that apply.
	{
		name: "match: path and methods",
		configuration: `{"headers": ["ratelimit"], "rules": [
			{"name": "exact", "match": {"path": {"exact": "/a"}}, "limits": [{"limit": 9, "window": "1m"}]},
			{"name": "prefix", "match": {"path": {"prefix": "/api/"}}, "limits": [{"limit": 9, "window": "1m"}]},
			{"name": "suffix", "match": {"path": {"suffix": ".json"}}, "limits": [{"limit": 9, "window": "1m"}]},
			{"name": "none", "match": {"path": {"present": false}}, "limits": [{"limit": 9, "window": "1m"}]},
			{"name": "methods", "match": {"methods": ["POST", "PUT"]}, "limits": [{"limit": 9, "window": "1m"}]},
			{"name": "both", "match": {"path": {"prefix": "/api/"}, "methods": ["PUT"]}, "limits": [{"limit": 9, "window": "1m"}]}]}`,
		steps: []step{
			{send: "GET /a", status: 200, want: `ratelimit-policy: "exact";q=9;w=60`},
			{send: "GET /a?b=c", status: 200, want: `ratelimit-policy: "exact";q=9;w=60`},
			{send: "GET /a/", status: 200, want: nothing},
			{send: "GET /A", status: 200, want: nothing},
			{send: "GET /api", status: 200, want: nothing},
			{send: "GET /api/", status: 200, want: `ratelimit-policy: "prefix";q=9;w=60`},
			{send: "GET /api/b.json?c", status: 200, want: `ratelimit-policy: "prefix";q=9;w=60, "suffix";q=9;w=60`},
			{send: "GET /b?c.json", status: 200, want: nothing},
			{send: "POST /", status: 200, want: `ratelimit-policy: "methods";q=9;w=60`},
			{send: "POST /api/", status: 200, want: `ratelimit-policy: "prefix";q=9;w=60, "methods";q=9;w=60`},
			{send: "PUT /api/", status: 200, want: `ratelimit-policy: "prefix";q=9;w=60, "methods";q=9;w=60, "both";q=9;w=60`},
		},
	},
	{
		name:          "match: present; a request that no rule matches is left alone",
		configuration: once(`"match": {"path": {"present": true}, "methods": ["GET"]}`),
		steps: []step{
			{send: "GET /", status: 200, want: `ratelimit-policy: "once";q=1;w=60`},
			{send: "GET /a", status: 429},
			{send: "POST /a?b answer-x-other:1", times: 3, status: 200, body: "POST /a?b", want: nothing + `
				x-other: 1`},
			{
				send:   "POST / answer-ratelimit:a answer-ratelimit-policy:b answer-x-ratelimit-limit:c answer-x-ratelimit-limit:d answer-retry-after:5",
				status: 200, want: `
				ratelimit-policy: b
				ratelimit: a
				x-ratelimit-limit: c | d
				x-ratelimit-remaining:
				retry-after: 5`,
			},
		},
	},

	// Costs.
	{
		name:          "cost: a number",
		configuration: `{"rules": [{"name": "r", "cost": 3, "limits": [{"limit": 10, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /", status: 200, want: `ratelimit: "r";r=7;t=60`},
			{send: "GET /", times: 2, status: 200, want: `ratelimit: "r";r=1;t=60`},
			{send: "GET /", times: 2, status: 429, want: "ratelimit: \"r\";r=1;t=60\nretry-after: 60"},
		},
	},
	{
		name:          "cost: a header",
		configuration: `{"rules": [{"name": "r", "cost": {"header": "x-cost", "least": 0}, "limits": [{"limit": 10, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-cost:0", status: 200, want: `ratelimit: "r";r=10;t=0`},
			{send: "GET / x-cost:2", status: 200, want: `ratelimit: "r";r=8;t=60`},
			{send: "GET / x-cost:0", times: 2, status: 200, want: `ratelimit: "r";r=8;t=60`},
			// A value that is not a number costs 1, and is counted.
			{send: "GET /", status: 200, want: `ratelimit: "r";r=7;t=60`},
			{send: "GET / x-cost:", status: 200, want: `ratelimit: "r";r=6;t=60`},
			{send: "GET / x-cost:many", status: 200, want: `ratelimit: "r";r=5;t=60`},
			{send: "GET / x-cost:+2", status: 200, want: `ratelimit: "r";r=4;t=60`},
			{send: "GET / x-cost:-2", status: 200, want: `ratelimit: "r";r=3;t=60`},
			{send: "GET / x-cost:2.0", status: 200, want: `ratelimit: "r";r=2;t=60`},
			// A cost without room now passes later; a cost above the limit never does.
			{send: "GET / x-cost:3", status: 429, want: "ratelimit: \"r\";r=2;t=60\nretry-after: 60"},
			{send: "GET / x-cost:10", status: 429, want: "ratelimit: \"r\";r=2;t=60\nretry-after: 60"},
			{send: "GET / x-cost:11", status: 429, want: "ratelimit: \"r\";r=2;t=60\nretry-after:"},
			{send: "GET / x-cost:18446744073709551617", status: 429, want: "ratelimit: \"r\";r=2;t=60\nretry-after:"}, // 2⁶⁴+1
			{send: "GET / x-cost:002", status: 200, want: `ratelimit: "r";r=0;t=60`},
			{send: "GET / x-cost:0", status: 200, want: `ratelimit: "r";r=0;t=60`},
		},
		metrics: map[string]int64{
			metricName("bad_costs_total"): 5, metricName("absent_costs_total"): 1, metricName("requests_total", "r", "allowed"): 12, metricName("requests_total", "r", "rejected"): 4,
		},
	},
	{
		name:          "cost: a header, which is no free pass",
		configuration: `{"rules": [{"name": "r", "cost": {"header": "x-cost"}, "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-cost:0", times: 2, status: 200, want: `ratelimit: "r";r=0;t=60`},
			{send: "GET / x-cost:0", status: 429, want: "ratelimit: \"r\";r=0;t=60\nretry-after: 60"},
		},
	},
	{
		name: "cost: a header, with bounds",
		configuration: `{"rules": [{"name": "r", "cost": {"header": "x-cost", "least": 2, "most": 5},
			"limits": [{"limit": 20, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-cost:0", status: 200, want: `ratelimit: "r";r=18;t=60`},
			{send: "GET / x-cost:3", status: 200, want: `ratelimit: "r";r=15;t=60`},
			{send: "GET / x-cost:6", status: 200, want: `ratelimit: "r";r=10;t=60`},
			{send: "GET / x-cost:18446744073709551617", status: 200, want: `ratelimit: "r";r=5;t=60`},
			{send: "GET / x-cost:many", status: 200, want: `ratelimit: "r";r=3;t=60`},
			{send: "GET / x-cost:5", status: 429, want: "ratelimit: \"r\";r=3;t=60\nretry-after: 60"},
		},
	},
	{
		name: "windows of the calendar: a day that begins at six in Kathmandu, and a week on Tuesdays",
		configuration: `{"rules": [{"name": "r", "limits": [
			{"limit": 2, "window": "day", "algorithm": "fixed_window", "zone": "Asia/Kathmandu", "anchor": {"hour": 6}},
			{"limit": 3, "window": "week", "algorithm": "fixed_window", "anchor": {"day": 2}}]}]}`,
		steps: []step{
			// Kathmandu's clock is 5:45 ahead: a day ends at 0:15, and the week at midnight.
			{send: "GET /", times: 2, status: 200, want: "ratelimit-policy: \"r\";q=2, \"r.2\";q=3\nratelimit: \"r\";r=0;t=900, \"r.2\";r=1;t=86400\nx-ratelimit-reset: 900"},
			{send: "GET /", status: 429, want: "retry-after: 900"},
			{at: 15*time.Minute - 1, send: "GET /", status: 429, want: "retry-after: 1"},
			{at: 15 * time.Minute, send: "GET /", status: 200, want: "ratelimit: \"r\";r=1;t=86400, \"r.2\";r=0;t=85500"},
			{send: "GET /", status: 429, want: "retry-after: 85500"},
			{at: 24*time.Hour - 1, send: "GET /", status: 429},
			{at: 24 * time.Hour, send: "GET /", status: 200, want: "ratelimit: \"r\";r=0;t=900, \"r.2\";r=2;t=604800"},
		},
	},
	{
		name: "windows of the calendar: months, from the last day of shorter ones",
		configuration: `{"rules": [{"name": "r", "limits": [
			{"limit": 1, "window": "month", "algorithm": "fixed_window", "zone": "Europe/Berlin", "anchor": {"day": 31}}]}]}`,
		steps: []step{
			// The window ends on 31 January, 0:00 in Berlin, 25 days and 23 hours later, and the
			// next on 28 February.
			{send: "GET /", status: 200, want: "ratelimit: \"r\";r=0;t=2242800"},
			{at: 2242800*time.Second - 1, send: "GET /", status: 429, want: "retry-after: 1"},
			{at: 2242800 * time.Second, send: "GET /", status: 200, want: "ratelimit: \"r\";r=0;t=2419200"},
		},
	},
	{
		name: "cost_on_response: a header of the response",
		configuration: `{"response": {"headers": {"x-tokens": "9"}}, "rules": [
			{"name": "r", "cost_on_response": {"response_header": "X-Tokens"}, "limits": [{"limit": 10, "window": "1m"}]}]}`,
		steps: []step{
			// Headers describe the limit after the decision, which comes before the response.
			{send: "GET / answer-x-tokens:4", status: 200, want: "ratelimit: \"r\";r=9;t=120\nx-tokens: 4"},
			{send: "GET /", status: 200, want: "x-ratelimit-remaining: 4"},
			{send: "GET / answer-x-tokens:many", status: 200, want: "x-ratelimit-remaining: 3"},
			{send: "GET / answer-x-tokens:0", status: 200, want: "x-ratelimit-remaining: 2"},
			{send: "GET / answer-x-tokens:12", status: 200, want: "x-ratelimit-remaining: 1"},
			// 21 hits weigh 9 when 9/21 of the next window are left: 34.3 s into it. A rejection
			// costs nothing, whatever its headers.
			{send: "GET /", times: 3, status: 429, want: "x-ratelimit-remaining: 0\nretry-after: 95\nx-tokens: 9"},
			{at: 94 * time.Second, send: "GET /", status: 429, want: "retry-after: 1"},
			{at: 95 * time.Second, send: "GET /", status: 200},
		},
	},
	{
		name: "cost_on_response: a part of the request",
		configuration: `{"rules": [{"name": "r", "cost": 0, "cost_on_response": {"header": "x-tokens"}, "limits": [
			{"limit": 10, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-tokens:4", status: 200, want: `ratelimit: "r";r=10;t=0`},
			{send: "GET / x-tokens:many", status: 200, want: `ratelimit: "r";r=6;t=60`},
			{send: "GET / x-tokens:40", status: 200, want: `ratelimit: "r";r=6;t=60`},
			{send: "GET / x-tokens:1", status: 429, want: "ratelimit: \"r\";r=0;t=60\nretry-after: 60"},
		},
	},
	{
		name:          "count_rejected: rejections take their hits too",
		configuration: `{"rules": [{"name": "r", "count_rejected": true, "cost": {"header": "x-cost", "least": 0}, "limits": [{"limit": 2, "window": "1m"}]}]}`,
		steps: []step{
			{send: "GET / x-cost:1", times: 2, status: 200},
			// 3 hits weigh 1 when a third of the next window is left, 4 when a quarter is.
			{send: "GET / x-cost:1", status: 429, want: "x-ratelimit-remaining: 0\nretry-after: 100"},
			{send: "GET / x-cost:1", status: 429, want: "x-ratelimit-remaining: 0\nretry-after: 105"},
			// A cost that never passes counts nothing.
			{send: "GET / x-cost:3", status: 429, want: "retry-after:"},
			{at: 104 * time.Second, send: "GET / x-cost:0", status: 200, want: `x-ratelimit-remaining: 0`},
			{at: 105 * time.Second, send: "GET / x-cost:1", status: 200, want: `x-ratelimit-remaining: 0`},
		},
	},
	{
		name: "count_rejected: not where another rule has refused; a bucket stops at empty",
		configuration: `{"headers": ["ratelimit"], "rules": [
			{"name": "all", "count_rejected": true, "limits": [{"limit": 2, "window": "20s", "algorithm": "token_bucket"}]},
			{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-user:ann", status: 200, want: `ratelimit: "all";r=1;t=10, "user";r=0;t=60`},
			{send: "GET / x-user:ann", status: 429, want: `ratelimit: "all";r=1;t=10, "user";r=0;t=60`},
			{send: "GET / x-user:bob", status: 200, want: `ratelimit: "all";r=0;t=10, "user";r=0;t=60`},
			{send: "GET / x-user:carl", times: 5, status: 429, want: `ratelimit: "all";r=0;t=10, "user";r=1;t=0`},
			// The bucket is empty since 0 s, and a token returns after ten: there is no debt.
			{at: 10 * time.Second, send: "GET / x-user:carl", status: 200, want: `ratelimit: "all";r=0;t=10, "user";r=0;t=50`},
		},
	},

	// Several rules and limits.
	{
		name: "several rules take all or none, and headers list them all",
		configuration: `{"rules": [
			{"name": "all", "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "other", "match": {"path": {"prefix": "/other"}}, "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-user:ann", status: 200, want: `
				ratelimit-policy: "all";q=2;w=60, "user";q=1;w=3600
				ratelimit: "all";r=1;t=60, "user";r=0;t=3600
				x-ratelimit-limit: 1
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 3600`},
			{send: "GET / x-user:ann", times: 2, status: 429, want: `
				ratelimit-policy: "all";q=2;w=60, "user";q=1;w=3600
				ratelimit: "all";r=1;t=60, "user";r=0;t=3600
				x-ratelimit-limit: 1
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 3600
				retry-after: 3600`},
			// Both have the same rest, so the longer t is shown.
			{send: "GET / x-user:bob", status: 200, want: `
				ratelimit: "all";r=0;t=60, "user";r=0;t=3600
				x-ratelimit-limit: 1`},
			{send: "GET / x-user:carl", times: 2, status: 429, want: `
				ratelimit: "all";r=0;t=60, "user";r=1;t=0
				x-ratelimit-limit: 2
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 60
				retry-after: 60`},
			{at: time.Minute, send: "GET / x-user:carl", status: 200, want: `ratelimit: "all";r=1;t=60, "user";r=0;t=3540`},
			// Both refuse, so the longer wait is shown.
			{send: "GET / x-user:dora", status: 200},
			{send: "GET / x-user:dora", status: 429, want: "ratelimit: \"all\";r=0;t=60, \"user\";r=0;t=3540\nretry-after: 3540"},
		},
	},
	{
		name: "several limits, the tightest first among equals",
		configuration: `{"rules": [{"name": "r", "limits": [
			{"limit": 4, "window": "1m", "algorithm": "fixed_window"}, {"limit": 2, "window": "1s", "algorithm": "fixed_window"},
			{"limit": 3, "window": "60s", "algorithm": "fixed_window", "start": "first_hit"}]}]}`,
		steps: []step{
			{send: "GET /", status: 200, want: `
				ratelimit-policy: "r";q=4;w=60, "r.2";q=2;w=1, "r.3";q=3;w=60
				ratelimit: "r";r=3;t=60, "r.2";r=1;t=1, "r.3";r=2;t=60
				x-ratelimit-limit: 2
				x-ratelimit-remaining: 1
				x-ratelimit-reset: 1`},
			{send: "GET /", status: 200},
			{send: "GET /", times: 2, status: 429, want: `
				ratelimit: "r";r=2;t=60, "r.2";r=0;t=1, "r.3";r=1;t=60
				x-ratelimit-limit: 2
				retry-after: 1`},
			{at: time.Second, send: "GET /", status: 200, want: `
				ratelimit: "r";r=1;t=59, "r.2";r=1;t=1, "r.3";r=0;t=59
				x-ratelimit-limit: 3
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 59`},
			{send: "GET /", status: 429, want: `
				ratelimit: "r";r=1;t=59, "r.2";r=1;t=1, "r.3";r=0;t=59
				retry-after: 59`},
		},
	},

	// Answers.
	{
		name: "response: status, body, content_type and headers",
		configuration: `{"response": {"status": 503, "body": "Slow down\n", "content_type": "text/plain; charset=utf-8",
			"headers": {"X-Reason": "rate limit", "cache-control": "no-store"}}, "rules": [{"name": "r", "limits": [{"limit": 0, "window": "1m"}]}]}`,
		steps: []step{
			{send: "GET /", status: 503, body: "Slow down\n", want: `
				content-type: text/plain; charset=utf-8
				content-length: 10
				x-reason: rate limit
				cache-control: no-store
				x-envoy-ratelimited: true`},
			{
				configure: `{"response": {"body": ""}, "rules": [{"name": "r", "limits": [{"limit": 0, "window": "1m"}]}]}`,
				send:      "GET /", status: 429, want: "content-type:\ncontent-length: 0\nx-envoy-ratelimited: true",
			},
			{
				configure: `{"response": {"status": 503}, "rules": [{"name": "r", "limits": [{"limit": 0, "window": "1m"}]}]}`,
				send:      "GET /", status: 503, body: `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":503,"violated-policies":["r"]}`, want: "content-type: application/problem+json",
			},
		},
	},
	{
		name:          "headers: none, and each alone",
		configuration: oneHeader("a", ``),
		steps: []step{
			{send: "GET / answer-ratelimit:1 answer-x-ratelimit-limit:2", status: 200, want: `
				ratelimit-policy:
				ratelimit: 1
				x-ratelimit-limit: 2
				x-ratelimit-remaining:
				x-ratelimit-reset:`},
			{send: "GET /", status: 429, want: noRateLimit + noXRateLimit + noRetryAfter + isRefused},

			{configure: oneHeader("b", `"ratelimit"`), send: "GET /", status: 200, want: `
				ratelimit-policy: "r";q=1;w=60
				ratelimit: "r";r=0;t=60` + noXRateLimit},
			{send: "GET /", status: 429, want: `
				ratelimit-policy: "r";q=1;w=60
				ratelimit: "r";r=0;t=60` + noXRateLimit + noRetryAfter + isRefused},

			{configure: oneHeader("c", `"x-ratelimit"`), send: "GET /", status: 200, want: noRateLimit + `
				x-ratelimit-limit: 1
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 60`},
			{send: "GET /", status: 429, want: noRateLimit + `
				x-ratelimit-limit: 1
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 60` + noRetryAfter + isRefused},

			{configure: oneHeader("d", `"retry-after"`), send: "GET /", status: 200, want: nothing},
			{send: "GET /", status: 429, want: noRateLimit + noXRateLimit + "\nretry-after: 60" + isRefused},
		},
	},
	{
		name:          "x_ratelimit_reset: milliseconds, and the second of the epoch, both rounded up",
		configuration: `{"x_ratelimit_reset": "milliseconds", "rules": [{"name": "r", "limits": [{"limit": 9, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{at: 30*time.Second + 250*time.Millisecond, send: "GET /", status: 200, want: "x-ratelimit-reset: 29750\nratelimit: \"r\";r=8;t=30"},
			{at: 30*time.Second + 251500*time.Microsecond, send: "GET /", status: 200, want: "x-ratelimit-reset: 29749"},
			{
				configure: `{"x_ratelimit_reset": "epoch", "rules": [{"name": "r", "limits": [{"limit": 9, "window": "1m", "algorithm": "fixed_window"}]}]}`,
				send:      "GET /", status: 200, want: fmt.Sprint("x-ratelimit-reset: ", monday.Unix()+60),
			},
			// A log's newest hit leaves when it is a minute old. A log without hits resets now.
			{
				configure: `{"x_ratelimit_reset": "epoch", "rules": [{"name": "log", "cost": {"header": "x-cost", "least": 0}, "limits": [
					{"limit": 9, "window": "1m", "algorithm": "sliding_log"}]}]}`,
				send: "GET / x-cost:0", status: 200, want: fmt.Sprint("x-ratelimit-reset: ", monday.Unix()+31),
			},
			{send: "GET / x-cost:1", status: 200, want: fmt.Sprint("x-ratelimit-reset: ", monday.Unix()+91)},
		},
	},
	{
		name:          "the upstream's headers of these names are replaced, its others are kept",
		configuration: `{"rules": [{"name": "r", "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{
				send: "GET / answer-RateLimit:a answer-RateLimit-Policy:b answer-X-RateLimit-Limit:7 answer-X-RateLimit-Limit:8 " +
					"answer-X-RateLimit-Remaining:c answer-X-RateLimit-Reset:d answer-X-RateLimit-Used:5 answer-Retry-After:6 answer-Etag:e",
				status: 200, want: `
				ratelimit-policy: "r";q=2;w=60
				ratelimit: "r";r=1;t=60
				x-ratelimit-limit: 2
				x-ratelimit-remaining: 1
				x-ratelimit-reset: 60
				x-ratelimit-used: 5
				retry-after: 6
				etag: e`,
			},
		},
	},

	// Limits. TestVectors has what the algorithms decide.
	{
		name:          "limit 0 rejects everything, cost 0 too",
		configuration: `{"rules": [{"name": "r", "cost": {"header": "x-cost", "least": 0}, "limits": [{"limit": 0, "window": "1m"}]}]}`,
		steps: []step{
			{send: "GET / x-cost:0", status: 429},
			{send: "GET / x-cost:1", status: 429, want: `
				ratelimit-policy: "r";q=0
				ratelimit: "r";r=0;t=0
				x-ratelimit-limit: 0
				x-ratelimit-remaining: 0
				x-ratelimit-reset: 60
				retry-after:
				x-envoy-ratelimited: true`},
		},
	},
	{
		name: "window: w only where it is whole seconds",
		configuration: `{"rules": [{"name": "r", "limits": [{"limit": 3, "window": 1.5, "algorithm": "fixed_window"}, {"limit": 3, "window": "1h30m", "algorithm": "fixed_window"},
			{"limit": 3, "window": "1m", "precision": "10s"}]}]}`,
		steps: []step{
			{at: 250 * time.Millisecond, send: "GET /", status: 200, want: `
				ratelimit-policy: "r";q=3, "r.2";q=3;w=5400, "r.3";q=3;w=60
				ratelimit: "r";r=2;t=2, "r.2";r=2;t=5400, "r.3";r=2;t=60
				x-ratelimit-limit: 3
				x-ratelimit-remaining: 2
				x-ratelimit-reset: 5400`},
		},
	},
	{
		name: "token_bucket: w is the time in which it fills, if that is a whole number of seconds",
		configuration: `{"rules": [{"name": "r", "limits": [{"limit": 4, "window": "2s", "algorithm": "token_bucket", "burst": 5},
			{"limit": 3, "window": "1m", "algorithm": "token_bucket", "burst": 1000}]}]}`,
		steps: []step{
			{send: "GET /", times: 2, status: 200, want: "ratelimit-policy: \"r\";q=5, \"r.2\";q=1000;w=20000\nratelimit: \"r\";r=3;t=1, \"r.2\";r=998;t=20\nx-ratelimit-reset: 1"},
		},
	},

	// Configurations.
	{
		name:          "a configuration with mistakes is refused with all their paths, and the old one stays",
		configuration: `{"rules": [{"name": "old", "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /", status: 200, want: `ratelimit: "old";r=1;t=60`},
			{
				configure: `{"capacity": "many", "sync": 1, "rules": [
					{"name": "a b", "limits": [{"limit": 1, "window": "1 minute"}, {"limit": -1, "window": "1s", "burst": 2}]},
					{"name": "b", "key": ["user"], "cost": -1, "cost": 2, "limits": []}, {"name": "b", "limits": [{"limit": 1, "window": "1s"}]}],
					"response": {"status": 100}, "headers": ["x"], "x_ratelimit_reset": "minutes"}`,
				refused: []string{
					"capacity: want", "sync: unknown field", "rules[0].name: want", "rules[0].limits[0].window: want a duration", `got "1 minute"`,
					"rules[0].limits[1].limit: want", "rules[0].limits[1].burst: ", "rules[1].key[0]: want", "rules[1].cost: ", "rules[1].limits: ", "rules[2].name: ",
					"response.status: want", "headers[0]: want", "x_ratelimit_reset: want",
				},
				send: "GET /", status: 200, want: "ratelimit-policy: \"old\";q=2;w=60\nratelimit: \"old\";r=0;t=60",
			},
			{configure: `{"rules": [`, refused: []string{"not JSON at line 1, column"}, send: "GET /", status: 429},
			{configure: `{"rules": []}`, refused: []string{"rules: want"}, send: "GET /", status: 429},
			{
				configure: `{"rules": [{"name": "new", "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}]}`,
				send:      "GET /", status: 200, want: `ratelimit: "new";r=1;t=60`,
			},
		},
	},
	{
		name:          "replicas: each proxy has its part of a limit, and says so",
		configuration: `{"sync_rate": "share", "replicas": 3, ` + hourly("r", 10)[1:],
		steps: []step{
			{send: "GET /", times: 3, status: 200, want: "ratelimit-policy: \"r\";q=3;w=3600\nratelimit: \"r\";r=0;t=3600"},
			{send: "GET /", status: 429},
			{configure: `{"sync_rate": "share", "replicas": {"property": ["no", "such"]}, ` + hourly("r", 10)[1:],
				refused: []string{`replicas: want an integer from 1 to 10000 in the proxy's no.such, got ""`}, send: "GET /", status: 429},
			{configure: `{"sync_rate": "share", "replicas": 11, ` + hourly("r", 10)[1:],
				refused: []string{"rules[0].limits[0].limit: want 0, or at least one for each of the 11 replicas, got 10"}, send: "GET /", status: 429},
			{configure: `{"sync_rate": "share", "replicas": 2, ` + hourly("r", 10)[1:], send: "GET /", times: 2, status: 200, want: `ratelimit: "r";r=0;t=3600`},
		},
	},
	{
		name:          "a changed limit applies at once, and counters stay",
		configuration: hourly("r", 5),
		steps: []step{
			{send: "GET /", times: 3, status: 200, want: `ratelimit: "r";r=2;t=3600`},
			{configure: hourly("r", 2), send: "GET /", times: 2, status: 429, want: "ratelimit-policy: \"r\";q=2;w=3600\nratelimit: \"r\";r=0;t=3600"},
			{configure: hourly("r", 10), send: "GET /", status: 200, want: "ratelimit-policy: \"r\";q=10;w=3600\nratelimit: \"r\";r=6;t=3600"},
			// Another name has another counter. The old counter is still there when its name comes
			// back.
			{configure: hourly("s", 10), send: "GET /", status: 200, want: `ratelimit: "s";r=9;t=3600`},
			{configure: hourly("r", 10), send: "GET /", status: 200, want: `ratelimit: "r";r=5;t=3600`},
		},
	},
	{
		name:          "namespaces are apart",
		configuration: `{"namespace": "one", ` + hourly("r", 1)[1:],
		steps: []step{
			{send: "GET /", status: 200},
			{send: "GET /", status: 429},
			{configure: `{"namespace": "two", ` + hourly("r", 1)[1:], send: "GET /", status: 200},
			{configure: `{"namespace": "one", ` + hourly("r", 1)[1:], send: "GET /", status: 429},
		},
	},
}

// TestReferenceBackend covers the fields of the configuration that concern a backend, with a
// backend that fails or does not answer.
func TestReferenceBackend(t *testing.T) {
	onEach(t, 1, func(t *testing.T, d driver) {
		heard := make(chan string, 1000)
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			heard <- fmt.Sprint(r.Method, " ", r.Host, r.URL.Path, " ", r.Header["Authorization"])
			if r.Host == "silent" {
				if _, err := io.Copy(io.Discard, r.Body); err == nil { // otherwise the server would not notice that the proxy has closed the connection
					<-r.Context().Done()
				}
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(backend.Close)
		n := d.node(t, nodeConfig{clock: newClockNow(), backend: backend.Listener.Addr().String(), configuration: hourly("r", 1)})
		for i, test := range backendReferences {
			t.Run(test.name, func(t *testing.T) {
				test.run(t, n, newClockNow(), fmt.Sprint("backend-", i))
				// Pushes left by earlier configurations are sent again unchanged.
				for deadline, got := time.After(hang), ""; got != test.heard; {
					select {
					case got = <-heard:
					case <-deadline:
						t.Fatalf("the backend has not heard %q", test.heard)
					}
				}
			})
		}
	})
}

// backendReferences are references with a backend that fails or does not answer, and with a request
// that it gets.
var backendReferences = []struct {
	reference
	heard string
}{

	{heard: "POST weir/v1/push []", reference: reference{
		name: "local, which nobody has to ask for", configuration: asks(``, ``),
		steps: []step{
			{send: "GET /limited x-user:ann", status: 200, want: "x-ratelimit-remaining: 1"},
			{send: "GET /limited x-user:ann", status: 200, want: "x-ratelimit-remaining: 0"},
			{send: "GET /limited x-user:ann", times: 4, status: 429, want: "x-ratelimit-remaining: 0"},
		},
	}},
	{heard: "POST limits.example/v1/push [Bearer secret]", reference: reference{
		name: "authority and token", configuration: asks(`local`, `, "authority": "limits.example", "token": "secret"`),
		steps: []step{{send: "GET /limited", times: 2, status: 200, want: "x-ratelimit-remaining: 0"}, {send: "GET /limited", status: 429}},
	}},
	{heard: "POST weir/v1/push []", reference: reference{
		name: "allow counts nothing, and tells each key's own numbers", configuration: asks(`local`, ``),
		steps: []step{
			{send: "GET /limited x-user:ann", status: 200},
			{send: "GET /limited x-user:bob", times: 2, status: 200},
			{send: "GET /limited x-user:bob", times: 4, status: 429},
			// By now requests don't wait for the backend any more.
			{configure: asks(`allow`, ``), send: "GET /limited x-user:carl", times: 5, status: 200, want: "x-ratelimit-remaining: 2"},
			{send: "GET /limited x-user:ann", times: 5, status: 200, want: "x-ratelimit-remaining: 1"},
			{send: "GET /limited x-user:bob", times: 5, status: 200, want: "x-ratelimit-remaining: 0"},
			{send: "GET /limited x-user:carl", status: 200, want: "x-ratelimit-remaining: 2"},
		},
	}},
	{heard: "POST weir/v1/push []", reference: reference{
		name: "deny", configuration: asks(`deny`, ``),
		steps: []step{
			{send: "GET /limited", times: 5, status: 429, want: "x-ratelimit-remaining: 0\nx-envoy-ratelimited: true"},
			{send: "GET /free", status: 200, want: nothing},
		},
	}},
	{heard: "POST silent/v1/push []", reference: reference{
		name: "timeout", configuration: asks(`allow`, `, "authority": "silent", "timeout": "50ms"`),
		steps: []step{{send: "GET /limited", status: 200, want: "x-ratelimit-remaining: 2"}},
	}},
	{heard: "POST weir/v1/push []", reference: reference{
		name: "a local rule beside one that needs the backend",
		configuration: `{"backend": {"cluster": "weir"}, "on_backend_failure": "deny", "capacity": 1000, "rules": [
			{"name": "local", "sync_rate": -1, "limits": [{"limit": 1, "window": "1h", "algorithm": "fixed_window"}]},
			{"name": "r", "sync_rate": 0, "match": {"path": {"exact": "/limited"}}, "limits": [{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /limited", times: 3, status: 429},
			{send: "GET /free", status: 200, want: `ratelimit-policy: "local";q=1;w=3600`},
			{send: "GET /free", status: 429},
		},
	}},
}

// asks returns a configuration that asks the backend on each request, and the decision when that
// fails.
func asks(otherwise, more string) string {
	if otherwise != "" {
		otherwise = `"on_backend_failure": "` + otherwise + `", `
	}
	return `{"sync_rate": 0, ` + otherwise + `"backend": {"cluster": "weir"` + more + `}, "rules": [{"name": "r", "match": {"path": {"exact": "/limited"}},
		"key": [{"header": "x-user"}], "limits": [{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]}]}`
}

// once returns a rule that lets a request a minute of each key pass, with a further field.
func once(field string) string {
	return `{"rules": [{"name": "once", ` + field + `, "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`
}

// hourly returns a rule with the same window and any limit.
func hourly(name string, limit int) string {
	return fmt.Sprintf(`{"rules": [{"name": %q, "limits": [{"limit": %d, "window": "1h", "algorithm": "fixed_window"}]}]}`, name, limit)
}

// oneHeader returns a configuration that lets a request a minute pass, with some headers.
func oneHeader(namespace, headers string) string {
	return fmt.Sprintf(`{"namespace": "headers-%s", "headers": [%s], "rules": [{"name": "r", "limits": [
		{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`, namespace, headers)
}
