package main

import (
	"encoding/json"
	"net/http"
	"slices"

	"weir/internal/envoytest"
)

type object = envoytest.Object

// variant is a measured configuration of Envoy.
type variant struct {
	name, title string
	// base is the name of the variant with which this variant is compared; empty for a base.
	base string
	// bare means that answers have no headers with the rest of the limit, though a module could send them.
	bare bool
	// module is the filter's, with its configuration. filter is one of Envoy's own.
	module, text string
	filter       object
	// route is merged into the route that all requests take.
	route object
	// services are processes that work for Envoy. Their time is reported beside Envoy's.
	services []string
	// counted is a counter of every request, except one at most.
	counted string
}

// The names of the bases.
const (
	none   = "none"
	direct = "direct"
)

// Names of services.
const (
	weirServe        = "weir serve"
	weirServeOnRedis = "weir serve on Redis"
	rateLimitService = "ratelimit"
	weirRateLimit    = "weir ratelimit"
	redisServer      = "redis-server"
)

// Modules of filters: Weir's two forms, and those with which they are compared.
const (
	plugin   = "weir.wasm"
	native   = "libweir.so"
	nothing  = "nothing.wasm"
	floor    = "floor.wasm"
	moduleSO = "module.so"
)

const (
	namespace = "bench"
	ruleName  = "per-user"
	// never is a limit a minute that is never reached.
	never = 1_000_000
	// globalOK counts the requests that Envoy's rate limit service allows.
	globalOK = "cluster.app.ratelimit.ok"
	// Clusters besides the upstream's.
	backendCluster   = "weir_backend"
	rateLimitCluster = "ratelimit"
)

// Parts of the plugin's configuration.
var (
	synced  = object{"sync_rate": 1, "backend": object{"cluster": backendCluster}}
	central = object{"sync_rate": 0, "backend": object{"cluster": backendCluster, "timeout": "5s"}, "on_backend_failure": "deny"}
	mute    = object{"headers": []string{}}
	daily   = object{"limits": []object{{"limit": 1, "window": "1d"}}}
)

var variants = []*variant{
	{name: none, title: "no filter"},
	{name: "nothing", title: "a Wasm filter that does nothing", base: none, module: nothing, bare: true},
	{name: "native-nothing", title: "a dynamic module that does nothing", base: none, module: moduleSO, bare: true},
	{name: "floor", title: "the floor: Weir's host calls alone", base: none, module: floor},
	{name: "floor-bare", title: "the floor, no response headers", base: none, module: floor, text: "bare", bare: true},
	{name: "native-floor", title: "the native floor: a dynamic module's host calls alone", base: none, module: moduleSO, text: "floor"},
	{name: "native-floor-bare", title: "the native floor, no response headers", base: none, module: moduleSO, text: "bare", bare: true},
	weir("weir", "", nil),
	weir("weir-bare", ", `headers: []`", mute),
	weir("weir-sync", ", `sync_rate: 1`", synced, weirServe),
	weir("weir-central", ", `sync_rate: 0`, on Redis", central, weirServeOnRedis, redisServer),
	weir("weir-no-match", ", no rule matches", object{"rules": []object{rule(never, object{"match": object{"path": object{"prefix": "/admin/"}}})}}).unmatched(),
	// The same plugin, compiled ahead of time.
	ahead("native", "", nil),
	ahead("native-bare", ", `headers: []`", mute),
	ahead("native-central", ", `sync_rate: 0`, on Redis", central, weirServeOnRedis, redisServer),
	ahead("native-sync", ", `sync_rate: 1`", synced, weirServe),
	{name: "local", title: "Envoy's local rate limit", base: none, filter: local(never, "60s"), counted: "local.http_local_rate_limit.ok"},
	{name: "global", title: "Envoy's global rate limit, on Redis", base: none, filter: global, services: []string{rateLimitService, redisServer}, counted: globalOK, route: globalRoute},
	{name: "global-weir", title: "Envoy's global rate limit, by `weir ratelimit` on Redis", base: none, filter: global, services: []string{weirRateLimit, redisServer}, counted: globalOK, route: globalRoute},
	{name: direct, title: "a route that answers 429 itself",
		route: object{"direct_response": object{"status": http.StatusTooManyRequests, "body": object{"inline_string": `{"title":"Rate limit exceeded","status":429}` + "\n"}}}},
	weir("weir-refuses", " refuses", object{"rules": []object{rule(1, daily)}}).of(direct).counts("rejected"),
	ahead("native-refuses", ", refuses", object{"rules": []object{rule(1, daily)}}).of(direct).counts("rejected"),
	{name: "local-refuses", title: "Envoy's local rate limit refuses", base: direct, filter: local(1, "86400s"), counted: "local.http_local_rate_limit.rate_limited"},
}

// weir returns a variant with the plugin.
func weir(name, title string, more object, services ...string) *variant {
	// Strings and numbers can always be encoded.
	text, _ := json.Marshal(merged(object{"namespace": namespace, "rules": []object{rule(never, nil)}}, more))
	v := &variant{name: name, title: "Weir" + title, base: none, module: plugin, text: string(text), bare: more["headers"] != nil, services: services}
	return v.counts("allowed")
}

// ahead returns a variant with the plugin as a dynamic module.
func ahead(name, title string, more object, services ...string) *variant {
	v := weir(name, ", native"+title, more, services...)
	v.module = native
	return v.counts("allowed")
}

func (v *variant) of(base string) *variant {
	v.base = base
	return v
}

// counts has Envoy's counter of requests with an outcome count them.
func (v *variant) counts(outcome string) *variant {
	v.counted = "wasmcustom.weir.weir_namespace=.=" + namespace + ";.;weir_rule=.=" + ruleName + ";.;weir_outcome=.=" + outcome + ";.;requests_total"
	if v.module == native {
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
	if slices.Contains(v.services, weirServe) || slices.Contains(v.services, weirServeOnRedis) {
		return "cluster." + backendCluster + ".upstream_rq_200"
	}
	return ""
}

// rule returns a rule that counts by x-user. The fields of more are merged into it.
func rule(limit int, more object) object {
	return merged(object{"name": ruleName, "key": []object{{"header": "x-user"}}, "limits": []object{{"limit": limit, "window": "1m"}}}, more)
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
		"rate_limit_service": object{"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": rateLimitCluster}}},
	})
)

// filters returns the filters of the variant, whose module is in a file.
func (v *variant) filters(file string) []object {
	all := []object{{"name": "router", "typed_config": envoytest.Typed("envoy.extensions.filters.http.router.v3.Router", nil)}}
	text := envoytest.Typed("google.protobuf.StringValue", object{"value": v.text})
	own := v.filter
	switch v.module {
	case "":
		if own == nil {
			return all
		}
	case native, moduleSO:
		own = envoytest.Typed("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", object{
			"dynamic_module_config": object{"module": object{"local": object{"filename": file}}, "do_not_close": true},
			"filter_name":           "bench", "filter_config": text,
		})
	default:
		config := object{
			"name": "bench", "root_id": "bench", "failure_policy": "FAIL_CLOSED",
			"vm_config": object{"vm_id": "bench", "runtime": "envoy.wasm.runtime.v8", "code": object{"local": object{"filename": file}}},
		}
		if v.text != "" {
			config["configuration"] = text
		}
		own = envoytest.Typed("envoy.extensions.filters.http.wasm.v3.Wasm", object{"config": config})
	}
	return append([]object{{"name": "measured", "typed_config": own}}, all...)
}

// bootstrap returns Envoy's configuration: a listener, a route for all requests, and an upstream.
func (v *variant) bootstrap(s *site) ([]byte, error) {
	clusters := []object{cluster("app", s.upstream, nil)}
	for _, service := range v.services {
		switch service {
		case weirServe, weirServeOnRedis:
			clusters = append(clusters, cluster(backendCluster, s.services[service].port, nil))
		case rateLimitService, weirRateLimit:
			const options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
			clusters = append(clusters, cluster(rateLimitCluster, s.services[service].port, object{"typed_extension_protocol_options": object{
				options: envoytest.Typed(options, object{"explicit_http_config": object{"http2_protocol_options": object{}}})}}))
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
					"stat_prefix": "http", "http_filters": v.filters(s.files[v.module]),
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
