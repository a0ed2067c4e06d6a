package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"weir/bench/site"
	"weir/internal/envoytest"
)

type object = envoytest.Object

// variant is a measured configuration of Envoy.
type variant struct {
	site.Envoy
	name, title string
	// base is the name of the variant with which this variant is compared; empty for a base.
	base string
	// bare means that answers have no headers with the rest of the limit, though a module could send them.
	bare bool
	// counted is a counter of every request, except one at most.
	counted string
	// path is that of requests, if it is not that of others, and body is theirs; without one they have none. Of all requests
	// of others one in fewer is sent, if that is not 0.
	path, body string
	fewer      int
}

// The names of the bases.
const (
	none   = "none"
	direct = "direct"
	posts  = "posts"
	events = "events"
)

// completion is a request for a stream that does not ask for its usage.
var completion = `{"model":"gpt-5","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("Tell me more. ", 70) + `"}]}`

const (
	namespace = site.Namespace
	ruleName  = "per-user"
	// never is a limit a minute that is never reached.
	never = site.Never
	// globalOK counts the requests that Envoy's rate limit service allows.
	globalOK = "cluster.app.ratelimit.ok"
)

// Parts of the plugin's configuration.
var (
	synced  = object{"sync_rate": 1, "backend": object{"cluster": site.BackendCluster}}
	central = object{"sync_rate": 0, "backend": object{"cluster": site.BackendCluster, "timeout": "5s"}, "on_backend_failure": "deny"}
	mute    = object{"headers": []string{}}
	daily   = object{"limits": []object{{"limit": 1, "window": "1d"}}}
)

var variants = []*variant{
	{name: none, title: "no filter"},
	{name: "nothing", title: "a Wasm filter that does nothing", base: none, Envoy: site.Envoy{Module: site.Nothing}, bare: true},
	{name: "native-nothing", title: "a dynamic module that does nothing", base: none, Envoy: site.Envoy{Module: site.ModuleSO}, bare: true},
	{name: "floor", title: "the floor: Weir's host calls alone", base: none, Envoy: site.Envoy{Module: site.Floor}},
	{name: "floor-bare", title: "the floor, no response headers", base: none, Envoy: site.Envoy{Module: site.Floor, Text: "bare"}, bare: true},
	{name: "native-floor", title: "the native floor: a dynamic module's host calls alone", base: none, Envoy: site.Envoy{Module: site.ModuleSO, Text: "floor"}},
	{name: "native-floor-bare", title: "the native floor, no response headers", base: none, Envoy: site.Envoy{Module: site.ModuleSO, Text: "bare"}, bare: true},
	weir("weir", "", nil),
	weir("weir-bare", ", `headers: []`", mute),
	weir("weir-sync", ", `sync_rate: 1`", synced, site.WeirServe),
	weir("weir-central", ", `sync_rate: 0`, on Redis", central, site.WeirServeOnRedis, site.RedisServer),
	weir("weir-no-match", ", no rule matches", object{"rules": []object{rule(never, object{"match": object{"path": object{"prefix": "/admin/"}}})}}).unmatched(),
	// The same plugin, compiled ahead of time.
	ahead("native", "", nil),
	ahead("native-bare", ", `headers: []`", mute),
	ahead("native-central", ", `sync_rate: 0`, on Redis", central, site.WeirServeOnRedis, site.RedisServer),
	ahead("native-sync", ", `sync_rate: 1`", synced, site.WeirServe),
	{name: "local", title: "Envoy's local rate limit", base: none, Envoy: site.Envoy{Filter: local(never, "60s")}, counted: "local.http_local_rate_limit.ok"},
	{name: "global", title: "Envoy's global rate limit, on Redis", base: none, Envoy: site.Envoy{Filter: global, Services: []string{site.RateLimitService, site.RedisServer}, Route: globalRoute}, counted: globalOK},
	{name: "global-weir", title: "Envoy's global rate limit, by `weir ratelimit` on Redis", base: none, Envoy: site.Envoy{Filter: global, Services: []string{site.WeirRateLimit, site.RedisServer}, Route: globalRoute}, counted: globalOK},
	{name: posts, title: "no filter, a request with a body of 1 KiB", path: completionsPath, body: completion},
	weir("weir-asks", " adds `stream_options` to the body", object{"rules": []object{rule(never, object{"cost_on_response": "openai", "ask_for_usage": true})}}).like(posts),
	{name: events, title: "no filter, an answer with a megabyte of events", path: site.EventsPath, fewer: 100},
	weir("weir-events", " reads a megabyte of events", object{"rules": []object{rule(never, object{"cost_on_response": "openai"})}}).like(events),
	{name: direct, title: "a route that answers 429 itself",
		Envoy: site.Envoy{Route: object{"direct_response": object{"status": http.StatusTooManyRequests, "body": object{"inline_string": `{"title":"Rate limit exceeded","status":429}` + "\n"}}}}},
	weir("weir-refuses", " refuses", object{"rules": []object{rule(1, daily)}}).of(direct).counts("rejected"),
	ahead("native-refuses", ", refuses", object{"rules": []object{rule(1, daily)}}).of(direct).counts("rejected"),
	{name: "local-refuses", title: "Envoy's local rate limit refuses", base: direct, Envoy: site.Envoy{Filter: local(1, "86400s")}, counted: "local.http_local_rate_limit.rate_limited"},
}

// weir returns a variant with the plugin.
func weir(name, title string, more object, services ...string) *variant {
	// Strings and numbers can always be encoded.
	text, _ := json.Marshal(site.Merged(object{"namespace": namespace, "rules": []object{rule(never, nil)}}, more))
	v := &variant{name: name, title: "Weir" + title, base: none, Envoy: site.Envoy{Module: site.Plugin, Text: string(text), Services: services}, bare: more["headers"] != nil}
	return v.counts("allowed")
}

// ahead returns a variant with the plugin as a dynamic module.
func ahead(name, title string, more object, services ...string) *variant {
	v := weir(name, ", native"+title, more, services...)
	v.Module = site.Native
	return v.counts("allowed")
}

// completionsPath ends as that of OpenAI's API does.
const completionsPath = "/v1/chat/completions"

// like has a variant get the requests of another, which it is compared with.
func (v *variant) like(base string) *variant {
	switch v.base, v.Waits = base, true; base {
	case posts:
		v.path, v.body = completionsPath, completion
	case events:
		v.path, v.fewer = site.EventsPath, 100
	}
	return v
}

func (v *variant) of(base string) *variant {
	v.base = base
	return v
}

// counts has Envoy's counter of requests with an outcome count them.
func (v *variant) counts(outcome string) *variant {
	v.counted = "wasmcustom.weir.weir_namespace=.=" + namespace + ";.;weir_rule=.=" + ruleName + ";.;weir_outcome=.=" + outcome + ";.;requests_total"
	if v.Module == site.Native {
		v.counted = "dynamicmodulescustom.weir.requests_total.weir_namespace." + namespace + ".weir_rule." + ruleName + ".weir_outcome." + outcome
	}
	return v
}

// unmatched says that no rule decides any request.
func (v *variant) unmatched() *variant {
	v.counted, v.bare = "", true
	return v
}

// status is the status of all answers.
func (v *variant) status() int {
	if v.name == direct || v.base == direct {
		return http.StatusTooManyRequests
	}
	return http.StatusOK
}

// called is a counter that must not be 0 at the end.
func (v *variant) called() string {
	if slices.Contains(v.Services, site.WeirServe) || slices.Contains(v.Services, site.WeirServeOnRedis) {
		return "cluster." + site.BackendCluster + ".upstream_rq_200"
	}
	return ""
}

// rule returns a rule that counts by x-user. The fields of more are merged into it.
func rule(limit int, more object) object {
	return site.Merged(object{"name": ruleName, "key": []object{{"header": "x-user"}}, "limits": []object{{"limit": limit, "window": "1m"}}}, more)
}

func local(tokens int, fill string) object {
	always := object{"default_value": object{"numerator": 100, "denominator": "HUNDRED"}}
	return envoytest.Typed("envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", object{
		"stat_prefix": "local", "filter_enabled": always, "filter_enforced": always,
		"token_bucket": object{"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": fill},
	})
}

// globalRoute makes Envoy ask the service about each x-user. global fails requests that the service does not answer, so
// that none counts as a decision.
var (
	globalRoute = object{"rate_limits": []object{{"actions": []object{{"request_headers": object{"header_name": "x-user", "descriptor_key": "user"}}}}}}
	global      = envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", object{
		"domain": namespace, "timeout": "5s", "failure_mode_deny": true,
		"rate_limit_service": object{"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": site.RateLimitCluster}}},
	})
)
