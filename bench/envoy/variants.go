package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"weir/internal/envoytest"
)

type object = envoytest.Object

// variant is a measured configuration of Envoy.
type variant struct {
	name, title string
	// base is the name of the variant with which this variant is compared; empty for a base.
	base string
	// status is the status of all answers.
	status int
	// decorated means that answers have headers with the rest of the limit.
	decorated bool
	// filters returns the filters before the router.
	filters func(*site) []object
	// wasm returns the file of the module of a filter.
	wasm func(*site) string
	// headers are additional headers of requests.
	headers [][2]string
	// streams means that an answer is a megabyte of events.
	streams bool
	// route is merged into the route that all requests take.
	route object
	// services are processes that work for Envoy. Their time is reported beside Envoy's.
	services []string
	// counted is a counter of every request, except one at most. called is a counter that must not
	// be 0 at the end.
	counted, called string
}

// The names of the bases.
const (
	none   = "none"
	direct = "direct"
	events = "events"
)

// Names of services.
const (
	weirServe        = "weir serve"
	weirServeOnRedis = "weir serve on Redis"
	rateLimitService = "ratelimit"
	weirRateLimit    = "weir ratelimit"
	redisServer      = "redis-server"
)

const (
	namespace = "bench"
	ruleName  = "per-user"
	// never is a limit a minute that is never reached.
	never = 1_000_000
)

var variants = []*variant{
	{name: none, title: "no filter", status: http.StatusOK},
	{name: "nothing", title: "a Wasm filter that does nothing", base: none, status: http.StatusOK,
		wasm: nothingFile, filters: func(s *site) []object { return wasm(nothingFile(s), nil) }},
	{name: "native-nothing", title: "a dynamic module that does nothing", base: none, status: http.StatusOK,
		wasm: moduleFile, filters: func(s *site) []object { return module(moduleFile(s), "") }},
	{name: "floor", title: "the floor: Weir's host calls alone", base: none, status: http.StatusOK,
		decorated: true, wasm: floorFile, filters: func(s *site) []object { return wasm(floorFile(s), nil) }},
	{name: "floor-bare", title: "the floor, no response headers", base: none, status: http.StatusOK,
		wasm: floorFile, filters: func(s *site) []object {
			return wasm(floorFile(s), envoytest.Typed("google.protobuf.StringValue", object{"value": "bare"}))
		}},
	{name: "native-floor", title: "the native floor: a dynamic module's host calls alone", base: none, status: http.StatusOK,
		decorated: true, wasm: moduleFile, filters: func(s *site) []object { return module(moduleFile(s), "floor") }},
	{name: "native-floor-bare", title: "the native floor, no response headers", base: none, status: http.StatusOK,
		wasm: moduleFile, filters: func(s *site) []object { return module(moduleFile(s), "bare") }},
	{name: "weir", title: "Weir", base: none, status: http.StatusOK, decorated: true,
		wasm: pluginFile, filters: weir(nil), counted: allowed},
	{name: "weir-bare", title: "Weir, `headers: []`", base: none, status: http.StatusOK,
		wasm: pluginFile, filters: weir(object{"headers": []string{}}), counted: allowed},
	{name: "weir-sync", title: "Weir, `sync_rate: 1`", base: none, status: http.StatusOK, decorated: true,
		wasm: pluginFile, filters: weir(object{"sync_rate": 1, "backend": object{"cluster": backendCluster}}),
		services: []string{weirServe}, counted: allowed, called: "cluster." + backendCluster + ".upstream_rq_200"},
	{name: "weir-central", title: "Weir, `sync_rate: 0`, on Redis", base: none, status: http.StatusOK, decorated: true,
		wasm: pluginFile, filters: weir(object{"sync_rate": 0, "backend": object{"cluster": backendCluster, "timeout": "5s"}, "on_backend_failure": "deny"}),
		services: []string{weirServeOnRedis, redisServer}, counted: allowed, called: "cluster." + backendCluster + ".upstream_rq_200"},
	{name: "weir-no-match", title: "Weir, no rule matches", base: none, status: http.StatusOK,
		wasm: pluginFile, filters: weir(object{"rules": []object{rule(never, object{"match": object{"path": object{"prefix": "/admin/"}}})}})},
	// The same plugin, compiled ahead of time.
	{name: "native", title: "Weir, native", base: none, status: http.StatusOK, decorated: true,
		wasm: nativeFile, filters: native(nil), counted: nativeMetric("allowed")},
	{name: "native-bare", title: "Weir, native, `headers: []`", base: none, status: http.StatusOK,
		wasm: nativeFile, filters: native(object{"headers": []string{}}), counted: nativeMetric("allowed")},
	{name: "native-central", title: "Weir, native, `sync_rate: 0`, on Redis", base: none, status: http.StatusOK, decorated: true,
		wasm: nativeFile, filters: native(object{"sync_rate": 0, "backend": object{"cluster": backendCluster, "timeout": "5s"}, "on_backend_failure": "deny"}),
		services: []string{weirServeOnRedis, redisServer}, counted: nativeMetric("allowed"), called: "cluster." + backendCluster + ".upstream_rq_200"},
	{name: "native-sync", title: "Weir, native, `sync_rate: 1`", base: none, status: http.StatusOK, decorated: true,
		wasm: nativeFile, filters: native(object{"sync_rate": 1, "backend": object{"cluster": backendCluster}}),
		services: []string{weirServe}, counted: nativeMetric("allowed"), called: "cluster." + backendCluster + ".upstream_rq_200"},
	// Further features of a rule, each instead of the header in the key or in addition to it.
	with("selects-host", "key `host`", object{"key": []any{"host"}}),
	with("selects-path", "key `path_segment`", object{"key": []object{{"path_segment": 1}}}),
	with("selects-query", "key `query`", object{"key": []object{{"query": "page"}}}),
	with("selects-cookie", "key `cookie`", object{"key": []object{{"cookie": "sid"}}}, "cookie", "theme=dark; sid=3f0e5b1c"),
	with("selects-claim", "key `jwt_claim`", object{"key": []object{{"jwt_claim": "sub"}}}, "authorization", "Bearer "+token),
	with("selects-property", "key `property`", object{"key": []object{{"property": []string{"route_name"}}}}),
	with("selects-client-ip", "key `client_ip`", object{"key": []any{"client_ip"}}),
	with("selects-network", "key `in_cidr`", object{"key": []object{{"in_cidr": []string{"10.0.0.0/8", "127.0.0.0/8"}}}}),
	with("selects-literal", "key `literal`", object{"key": []object{{"literal": "x"}}}),
	with("matches-regex", "match `path` by `regex`", object{"match": object{"path": object{"regex": "/(api|v[0-9]+)/.*"}}}),
	with("matches-headers", "match `host` and a header", object{"match": object{"host": object{"prefix": "127."}, "headers": object{"accept": object{"present": true}}}}),
	with("excepts-networks", "`except` a network", object{"except": []object{{"client_ip": []string{"10.0.0.0/8"}}}}),
	with("overrides", "`overrides` by a header", object{"overrides": object{
		"by": object{"header": "x-plan"}, "values": object{"gold": []object{{"limit": never + 1, "window": "1m"}}},
		"keys": []object{{"key": []string{"ann"}, "limits": []object{{"limit": never + 2, "window": "1m"}}}}}}, "x-plan", "gold"),
	with("limit-from", "`limit_from` a header", object{"limits": []object{{"limit": never, "window": "1m", "limit_from": object{"header": "x-limit", "max": 10 * never}}}}, "x-limit", "2000000"),
	with("in-flight", "`in_flight`", object{"limits": []object{{"limit": never, "algorithm": "in_flight"}}}),
	with("delays", "`delay`, with room", object{"delay": object{"most": "2s", "queue": 100}}),
	with("blocks", "`block`, with room", object{"block": "10m"}),
	with("charges", "`charge_when`", object{"charge_when": object{"status": []string{"401", "403"}}}),
	{name: "marks", title: "Weir, `on_full: \"mark\"`, without room", base: none, status: http.StatusOK, decorated: true, wasm: pluginFile,
		filters: weir(object{"rules": []object{rule(1, object{"limits": []object{{"limit": 1, "window": "1d"}}, "on_full": "mark"})}}), counted: metric("marked")},
	{name: "shadow", title: "Weir, one more rule, a shadow", base: none, status: http.StatusOK, decorated: true, wasm: pluginFile,
		filters: weir(object{"rules": []object{rule(never, nil), rule(never, object{"name": "new", "mode": "shadow"})}}), counted: allowed},
	{name: "local", title: "Envoy's local rate limit", base: none, status: http.StatusOK,
		filters: local(never, "60s"), counted: "local.http_local_rate_limit.ok"},
	{name: "global", title: "Envoy's global rate limit, on Redis", base: none, status: http.StatusOK,
		filters: global, services: []string{rateLimitService, redisServer}, counted: globalOK, route: globalRoute},
	{name: "global-weir", title: "Envoy's global rate limit, by `weir ratelimit` on Redis", base: none, status: http.StatusOK,
		filters: global, services: []string{weirRateLimit, redisServer}, counted: globalOK, route: globalRoute},
	{name: direct, title: "a route that answers 429 itself", status: http.StatusTooManyRequests,
		route: object{"direct_response": object{"status": http.StatusTooManyRequests, "body": object{"inline_string": `{"title":"Rate limit exceeded","status":429}` + "\n"}}}},
	{name: "weir-refuses", title: "Weir refuses", base: direct, status: http.StatusTooManyRequests, decorated: true,
		wasm: pluginFile, filters: weir(object{"rules": []object{rule(1, object{"limits": []object{{"limit": 1, "window": "1d"}}})}}),
		counted: metric("rejected")},
	{name: "native-refuses", title: "Weir, native, refuses", base: direct, status: http.StatusTooManyRequests, decorated: true,
		wasm: nativeFile, filters: native(object{"rules": []object{rule(1, object{"limits": []object{{"limit": 1, "window": "1d"}}})}}),
		counted: nativeMetric("rejected")},
	{name: "local-refuses", title: "Envoy's local rate limit refuses", base: direct, status: http.StatusTooManyRequests,
		filters: local(1, "86400s"), counted: "local.http_local_rate_limit.rate_limited"},
	{name: events, title: "no filter, a megabyte of events", status: http.StatusOK, streams: true},
	{name: "events-nothing", title: "a Wasm filter that does nothing", base: events, status: http.StatusOK, streams: true,
		wasm: nothingFile, filters: func(s *site) []object { return wasm(nothingFile(s), nil) }},
	{name: "events-weir", title: "Weir", base: events, status: http.StatusOK, streams: true, decorated: true,
		wasm: pluginFile, filters: weir(nil), counted: allowed},
	{name: "events-tokens", title: "Weir, `cost_on_response: \"openai\"`", base: events, status: http.StatusOK, streams: true, decorated: true,
		wasm: pluginFile, filters: weir(object{"rules": []object{rule(never*never, object{"reserve": 500, "cost_on_response": "openai"})}}), counted: allowed},
	{name: "events-native", title: "Weir, native", base: events, status: http.StatusOK, streams: true, decorated: true,
		wasm: nativeFile, filters: native(nil), counted: nativeMetric("allowed")},
	{name: "events-native-tokens", title: "Weir, native, `cost_on_response: \"openai\"`", base: events, status: http.StatusOK, streams: true, decorated: true,
		wasm: nativeFile, filters: native(object{"rules": []object{rule(never*never, object{"reserve": 500, "cost_on_response": "openai"})}}),
		counted: nativeMetric("allowed")},
}

var allowed = metric("allowed")

// nativeMetric returns Envoy's name of the same counter in a dynamic module.
func nativeMetric(outcome string) string {
	return "dynamicmodulescustom.weir.requests_total.weir_namespace." + namespace + ".weir_rule." + ruleName + ".weir_outcome." + outcome
}

// metric returns Envoy's name for the counter of requests with an outcome.
func metric(outcome string) string {
	return "wasmcustom.weir.weir_namespace=.=" + namespace + ";.;weir_rule=.=" + ruleName + ";.;weir_outcome=.=" + outcome + ";.;requests_total"
}

// The modules of variants.
func pluginFile(s *site) string  { return s.plugin }
func nothingFile(s *site) string { return s.nothing }
func floorFile(s *site) string   { return s.floor }
func nativeFile(s *site) string  { return s.native }
func moduleFile(s *site) string  { return s.module }

// rule returns a rule that counts by x-user. The fields of more are merged into it.
func rule(limit int, more object) object {
	return merged(object{
		"name": ruleName, "key": []object{{"header": "x-user"}}, "limits": []object{{"limit": limit, "window": "1m"}},
	}, more)
}

// weirConfiguration returns the plugin's configuration, with more merged into it.
func weirConfiguration(more object) object {
	return merged(object{"namespace": namespace, "rules": []object{rule(never, nil)}}, more)
}

func weir(more object) func(*site) []object {
	return func(s *site) []object {
		text, err := json.Marshal(weirConfiguration(more))
		if err != nil {
			return nil // strings and numbers can always be encoded
		}
		return wasm(s.plugin, envoytest.Typed("google.protobuf.StringValue", object{"value": string(text)}))
	}
}

// native returns Weir as a dynamic module.
func native(more object) func(*site) []object {
	return func(s *site) []object {
		text, err := json.Marshal(weirConfiguration(more))
		if err != nil {
			return nil // strings and numbers can always be encoded
		}
		return module(s.native, string(text))
	}
}

func module(file, configuration string) []object {
	return []object{{"name": "native", "typed_config": envoytest.Typed("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", object{
		"dynamic_module_config": object{"module": object{"local": object{"filename": file}}, "do_not_close": true},
		"filter_name":           "bench",
		"filter_config":         envoytest.Typed("google.protobuf.StringValue", object{"value": configuration}),
	})}}
}

// token is an unsigned JSON Web Token of 300 bytes.
var token = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9." +
	base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://login.example","aud":"shop","exp":1798758000,"sub":"user-000000","scope":"read"}`)) +
	"." + strings.Repeat("c2lnbmF0", 16)

// with returns a variant of Weir with more in its rule, and a header of requests that the rule
// reads.
func with(name, title string, more object, header ...string) *variant {
	var headers [][2]string
	if len(header) > 0 {
		headers = [][2]string{{header[0], header[1]}}
	}
	return &variant{
		headers: headers, name: name, title: "Weir, " + title, base: none, status: http.StatusOK, decorated: true,
		wasm: pluginFile, filters: weir(object{"rules": []object{rule(never, more)}}), counted: allowed,
	}
}

func wasm(file string, configuration object) []object {
	plugin := object{
		"name": "bench", "root_id": "bench", "failure_policy": "FAIL_CLOSED",
		"vm_config": object{"vm_id": "bench", "runtime": "envoy.wasm.runtime.v8", "code": object{"local": object{"filename": file}}},
	}
	if configuration != nil {
		plugin["configuration"] = configuration
	}
	return []object{{"name": "wasm", "typed_config": envoytest.Typed("envoy.extensions.filters.http.wasm.v3.Wasm", object{"config": plugin})}}
}

func local(tokens int, fill string) func(*site) []object {
	always := object{"default_value": object{"numerator": 100, "denominator": "HUNDRED"}}
	return func(*site) []object {
		return []object{{"name": "local", "typed_config": envoytest.Typed("envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", object{
			"stat_prefix":    "local",
			"token_bucket":   object{"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": fill},
			"filter_enabled": always, "filter_enforced": always,
		})}}
	}
}

// globalOK counts the requests that the service allows. globalRoute makes Envoy ask it about each
// x-user.
const globalOK = "cluster.app.ratelimit.ok"

var globalRoute = object{"rate_limits": []object{{"actions": []object{{"request_headers": object{"header_name": "x-user", "descriptor_key": "user"}}}}}}

// global fails requests that the service does not answer, so that none counts as a decision.
func global(*site) []object {
	return []object{{"name": "global", "typed_config": envoytest.Typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", object{
		"domain": namespace, "timeout": "5s", "failure_mode_deny": true,
		"rate_limit_service": object{"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": rateLimitCluster}}},
	})}}
}

// Clusters besides the upstream's.
const (
	backendCluster   = "weir_backend"
	rateLimitCluster = "ratelimit"
)

// bootstrap returns Envoy's configuration: a listener, a route for all requests, and an upstream.
func (v *variant) bootstrap(s *site) ([]byte, error) {
	var filters []object
	if v.filters != nil {
		filters = v.filters(s)
	}
	filters = append(filters, object{"name": "router", "typed_config": envoytest.Typed("envoy.extensions.filters.http.router.v3.Router", nil)})
	clusters := []object{cluster("app", s.upstream, nil)}
	for _, service := range v.services {
		switch service {
		case weirServe, weirServeOnRedis:
			clusters = append(clusters, cluster(backendCluster, s.services[service].port, nil))
		case rateLimitService, weirRateLimit:
			clusters = append(clusters, cluster(rateLimitCluster, s.services[service].port, object{
				"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoytest.Typed(
					"envoy.extensions.upstreams.http.v3.HttpProtocolOptions", object{"explicit_http_config": object{"http2_protocol_options": object{}}})},
			}))
		}
	}
	route := object{"match": object{"prefix": "/"}}
	if v.route["direct_response"] != nil {
		route = merged(route, v.route)
	} else {
		route["route"] = merged(object{"cluster": "app"}, v.route)
	}
	return json.Marshal(object{
		"admin": object{"address": envoytest.Address(host, 0)},
		"static_resources": object{
			"clusters": clusters,
			"listeners": []object{{"name": "http", "address": envoytest.Address(host, 0), "filter_chains": []object{{"filters": []object{{
				"name": "http",
				"typed_config": envoytest.Typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", object{
					"stat_prefix": "http", "http_filters": filters,
					"route_config": object{"virtual_hosts": []object{{"name": "all", "domains": []string{"*"}, "routes": []object{route}}}},
				}),
			}}}}}},
		},
	})
}

func cluster(name string, port int, more object) object {
	return merged(object{"name": name, "type": "STATIC", "load_assignment": object{"cluster_name": name, "endpoints": []object{
		{"lb_endpoints": []object{{"endpoint": object{"address": envoytest.Address(host, port)}}}}}}}, more)
}

func merged(all, more object) object {
	for field, value := range more {
		all[field] = value
	}
	return all
}
