package e2e

import (
	"time"
)

// tokenHeaders are the parts of the reference on headers that only limits of tokens have.
var tokenHeaders = []reference{
	{
		name: "headers: tokens, beside a limit of requests",
		configuration: `{"rules": [
			{"name": "requests", "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "tokens", "reserve": 30, "cost_on_response": "openai", "limits": [{"limit": 100, "window": "1h30m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			// The upstream's own headers are replaced.
			{send: `GET / answer-x-ratelimit-limit-tokens:9 answer-content-type:application/json x-body:{"usage":{"total_tokens":12}}`, status: 200, want: `
				ratelimit-policy: "requests";q=5;w=60, "tokens";q=100;qu="tokens";w=5400
				ratelimit: "requests";r=4;t=60, "tokens";r=70;t=5400
				x-ratelimit-limit: 5
				x-ratelimit-remaining: 4
				x-ratelimit-reset: 60
				x-ratelimit-limit-tokens: 100
				x-ratelimit-remaining-tokens: 70
				x-ratelimit-reset-tokens: 1h30m0s
				anthropic-ratelimit-tokens-limit:`},
			{send: "GET /", times: 2, status: 200, want: "x-ratelimit-remaining-tokens: 28"},
			{at: 31 * time.Second, send: "GET /", status: 429, want: `
				retry-after: 5369
				x-ratelimit-remaining-tokens: 28
				x-ratelimit-reset-tokens: 1h29m29s`},
		},
	},
	{
		name: "headers: tokens of several rules, as Anthropic has them",
		configuration: `{"rules": [
			{"name": "minute", "reserve": 30, "cost_on_response": "anthropic", "limits": [{"limit": 100, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "hour", "reserve": 30, "cost_on_response": "anthropic", "limits": [{"limit": 90, "window": "1h", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /", status: 200, want: `
				anthropic-ratelimit-tokens-limit: 90
				anthropic-ratelimit-tokens-remaining: 60
				anthropic-ratelimit-tokens-reset: 2026-01-05T01:00:00Z
				x-ratelimit-limit-tokens:`},
		},
	},
	{
		name: "headers: no tokens where they are not asked for, or not counted",
		configuration: `{"headers": ["ratelimit"], "rules": [
			{"name": "tokens", "cost_on_response": "openai", "limits": [{"limit": 100, "window": "1h", "algorithm": "fixed_window"}]},
			{"name": "hits", "headers": ["x-ratelimit"], "cost_on_response": {"response_header": "x-hits"}, "limits": [{"limit": 9, "window": "1h"}]}]}`,
		steps: []step{
			{send: "GET / answer-x-ratelimit-limit-tokens:7", status: 200, want: `
				x-ratelimit-limit-tokens: 7
				x-ratelimit-remaining-tokens:
				x-ratelimit-limit: 9`},
		},
	},
}
