package e2e

import "time"

// warnings are the parts of the reference by which rules warn before a limit is reached.
var warnings = []reference{
	{
		name: "warn_at: a header, and a metric",
		configuration: `{"rules": [
			{"name": "near", "key": [{"header": "x-key"}], "warn_at": 0.8, "limits": [
				{"limit": 5, "window": "1m", "algorithm": "fixed_window"}, {"limit": 6, "window": "1h", "algorithm": "fixed_window"}]},
			{"name": "silent", "headers": [], "warn_at": 0.001, "limits": [{"limit": 1000, "window": "1h"}]},
			{"name": "shadow", "mode": "shadow", "warn_at": 0.5, "limits": [{"limit": 10, "window": "1h", "algorithm": "token_bucket"}]}]}`,
		steps: []step{
			{send: "GET / x-key:ann", times: 3, status: 200, want: "x-ratelimit-remaining: 2\nx-ratelimit-warning:"},
			{send: "GET / x-key:ann", status: 200, want: `x-ratelimit-warning: "near"`},
			{send: "GET / x-key:bob", status: 200, want: "x-ratelimit-warning:"},
			{send: "GET / x-key:ann", status: 200, want: `x-ratelimit-warning: "near", "near.2"`},
			{send: "GET / x-key:ann", status: 429, want: `x-ratelimit-warning: "near", "near.2"` + "\nretry-after: 60"},
			{at: time.Minute, send: "GET / x-key:ann", status: 200, want: `x-ratelimit-warning: "near.2"`},
		},
		metrics: map[string]int64{
			metricName("warnings_total", "near"):   4,
			metricName("warnings_total", "silent"): 8,
			metricName("warnings_total", "shadow"): 3,
		},
	},
	{
		name: "warn_at: what responses cost",
		configuration: `{"rules": [{"name": "settles", "warn_at": 0.5, "reserve": 10, "cost_on_response": "openai",
			"limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: `GET / answer-content-type:application/json x-body:{"usage":{"total_tokens":50}}`, status: 200, want: "x-ratelimit-warning:"},
			{send: "GET /", status: 200, want: `x-ratelimit-warning: "settles"`},
		},
		metrics: map[string]int64{metricName("warnings_total", "settles"): 2},
	},
}
