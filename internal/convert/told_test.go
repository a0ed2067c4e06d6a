package convert_test

import (
	"strings"
	"testing"

	"weir/internal/convert"
	"weir/internal/must"
)

const limitsOfTold = "domain: d\ndescriptors: [{key: generic_key, value: foo, rate_limit: {unit: year, requests_per_unit: 2}}]\n"

// vhostOfTold is a route configuration with a filter, whose marks the cases replace.
const vhostOfTold = `http_filters:
- name: envoy.filters.http.ratelimit
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: d FILTER}
route_config:
  virtual_hosts:
  - domains: ['*']
    rate_limits: [{actions: [{generic_key: {descriptor_value: foo ACTION}}] LIMIT}]
    routes: [{match: {prefix: / MATCH}, route: {cluster: a FORWARD} ROUTE}] HOST
`

const istioOfTold = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    patch: {operation: INSERT_BEFORE, value: {name: envoy.filters.http.ratelimit, typedConfig: {"@type": type.googleapis.com/udpa.type.v1.TypedStruct,
      typeUrl: type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, value: {domain: d, failureModeDeny: true, rateLimitedStatus: {code: ServiceUnavailable}}}}}
  - applyTo: KIND
    match: {context: GATEWAY, routeConfiguration: {MATCH}}
    patch: {operation: MERGE, value: VALUE}
`

// patchOfTold is another patch of limits for istioOfTold.
func patchOfTold(context, host string) string {
	return "  - applyTo: VIRTUAL_HOST\n    match: {context: " + context + ", routeConfiguration: {vhost: {name: '" + host + "'}}}\n" +
		"    patch: {operation: MERGE, value: {rate_limits: [{actions: [{generic_key: {descriptor_value: foo}}]}]}}\n"
}

const kongOfTold = `_format_version: "3.0" TOP
services:
- name: shop
  SERVICE: x
  routes: [{name: r, paths: [/] ROUTE}]
  plugins:
  - {name: rate-limiting, config: {minute: 5, limit_by: ip, policy: local CONFIG} PLUGIN}
OTHER
`

const apisixOfTold = `routes:
- {id: 1, uri: /* ROUTE, plugins: {limit-count: {count: 1, time_window: 60, rejected_code: 429 CONFIG} PLUGIN}}
OTHER
`

func filled(text string, marks ...string) string {
	for i := 0; i+1 < len(marks); i += 2 {
		text = strings.ReplaceAll(text, marks[i], marks[i+1])
	}
	for _, mark := range []string{" FILTER", " ACTION", " LIMIT", " MATCH", " FORWARD", " ROUTE", " HOST", " TOP", "  SERVICE: x\n", " CONFIG", " PLUGIN", "OTHER\n"} {
		text = strings.ReplaceAll(text, mark, "")
	}
	return text
}

// TestTold wants what no rule can say, and what is not known to be harmless where it stands, to be told at its place.
func TestTold(t *testing.T) {
	t.Parallel()
	envoy := func(marks ...string) string { return filled(vhostOfTold, marks...) }
	istio := func(kind, match, value string) string {
		return strings.NewReplacer("KIND", kind, "MATCH", match, "VALUE", value).Replace(istioOfTold)
	}
	kong := func(marks ...string) string { return filled(kongOfTold, marks...) }
	apisix := func(marks ...string) string { return filled(apisixOfTold, marks...) }
	// addresses are the limits of two addresses, which have more fields, and of a key.
	addresses := func(key, more string) string {
		limits := "domain: d\ndescriptors:\n- {key: " + key + ", rate_limit: {unit: year, requests_per_unit: 9}}\n"
		for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
			limits += "- {key: remote_address, value: " + address + ", rate_limit: {unit: year, requests_per_unit: 5" + more + "}}\n"
		}
		return limits
	}
	const noAddress = "4:3: a rule has no condition for a value of remote_address\n5:3: a rule has no condition for a value of remote_address"
	const foo = "{rate_limits: [{actions: [{generic_key: {descriptor_value: foo}}]}]}"
	const auth = "- name: key-auth\n"
	const together = "13:53: the limit of line 2 counts these requests together with others; two rules count separately"
	for _, test := range []struct {
		name, text string
		// lost has the losses, without the name of the file, and has what the configuration has.
		lost, has, lacks string
	}{
		{"ratelimit, nothing", envoy(), "", `"limit": 2`, ""},
		{"ratelimit, of the filter", envoy(" FILTER", ", x: 1"), "3:112: x: convert does not know what this does in the filter", `"limit": 2`, ""},
		{"ratelimit, of an action", envoy(" ACTION", ", x: 1"), "7:68: x: convert does not know what this does in this action", "", ""},
		{"ratelimit, of a limit", envoy(" LIMIT", ", disable_key: x"), "7:71: disable_key: a rule has nothing like it", `"limit": 2`, ""},
		{"ratelimit, of a match", envoy(" MATCH", ", tls_context: {}"), "8:34: a rule has no such condition as a route's tls_context", "", ""},
		{"ratelimit, of a route's action", envoy(" FORWARD", ", x: 1"), "8:55: x: convert does not know what this does in a route's action", `"limit": 2`, ""},
		{"ratelimit, of a route", envoy(" ROUTE", ", filter_action: {action: {}}"), "8:56: filter_action: convert does not know what this does in a route", `"limit": 2`, ""},
		{"ratelimit, of a virtual host", envoy(" HOST", "\n    matcher: {}"), "9:5: matcher: convert does not know what this does in a virtual host", `"limit": 2`, ""},
		{"ratelimit, harmless", envoy(" HOST", "\n    cors: {}\n    request_headers_to_add: []", " FORWARD", ", timeout: 1s, prefix_rewrite: /x"), "", `"limit": 2`, ""},
		{"ratelimit, a part of the requests", envoy(" FILTER", ", filter_enforced: {default_value: {numerator: 50}}"),
			"3:129: filter_enforced: a rule applies to all requests or to none, so the rules refuse nothing", `"shadow"`, ""},
		{"ratelimit, a limit elsewhere", envoy() + "---\nbackend: {rate_limit: {x: 1}}\n", "10:11: rate_limit: convert reads no rate limits here", `"limit": 2`, ""},
		{"ratelimit, a local limit stays", envoy("http_filters:", "http_filters:\n- {name: l, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, rate_limits: [{actions: [{generic_key: {descriptor_value: foo}}]}]}}"),
			"", `"limit": 2`, ""},
		{"ratelimit, another domain", envoy("route_config:", "- {name: b, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: e}}\nroute_config:"),
			"4:27: a filter of Weir has one domain, which is d: convert e by itself", `"limit": 2`, ""},
		{"ratelimit, no filter", strings.Replace(envoy(), "ratelimit.v3.RateLimit,", "cors.v3.Cors,", 1),
			"5:3: no filter of this connection manager asks the rate limit service, so that its routes have no limits", "", ""},
		{"ratelimit, another name of the filter", envoy(" ROUTE", `, typed_per_filter_config: {x: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: IGNORE}}`),
			"8:82: no filter has the name x", `"limit": 2`, ""},
		{"ratelimit, another domain of a route", envoy(" ROUTE", `, typed_per_filter_config: {envoy.filters.http.ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, domain: e}}`),
			"8:212: a filter of Weir has one domain, which is d: convert e by itself", "", ""},
		{"ratelimit, a ConfigMap", envoy() + "---\nkind: ConfigMap\ndata: {a: b}\n", "11:7: data: convert reads no ConfigMap: give its file of descriptors by itself", `"limit": 2`, ""},
		{"ratelimit, other names of fields", strings.NewReplacer("http_filters", "httpFilters", "typed_config", "typedConfig", "route_config", "routeConfig", "virtual_hosts", "virtualHosts",
			"rate_limits", "rateLimits", "generic_key", "genericKey", "descriptor_value", "descriptorValue").Replace(envoy(" FILTER", ", failureModeDeny: true, rateLimitedStatus: {code: PayloadTooLarge}")), "", `"status": 413`, ""},
		{"ratelimit, Istio's virtual host", istio("VIRTUAL_HOST", `vhost: {name: "shop.example:443"}`, foo), "", `"exact": "shop.example"`, ""},
		{"ratelimit, Istio's status", istio("VIRTUAL_HOST", `vhost: {name: "", route: {action: ANY}}`, foo), "", `"status": 503`, "match"},
		{"ratelimit, Istio's wildcard", istio("VIRTUAL_HOST", `vhost: {name: "*.example:80"}`, foo), "", `"suffix": ".example"`, ""},
		{"ratelimit, Istio's IPv6", istio("VIRTUAL_HOST", `vhost: {name: "[::1]:80"}`, foo), "", `"exact": "[::1]"`, ""},
		{"ratelimit, all of Istio's hosts", istio("VIRTUAL_HOST", `vhost: {name: "*:80"}`, foo), "", `"limit": 2`, "match"},
		{"ratelimit, Istio's inbound host", istio("VIRTUAL_HOST", `vhost: {name: "inbound|http|8080"}`, foo), "", `"limit": 2`, "match"},
		{"ratelimit, Istio's service", istio("VIRTUAL_HOST", `vhost: {name: "a.b.svc.cluster.local:80"}`, foo),
			"9:66: vhost: Istio's virtual host a.b.svc.cluster.local:80 has other names, which the rule does not know", `"exact": "a.b.svc.cluster.local"`, ""},
		{"ratelimit, Istio's port", istio("VIRTUAL_HOST", `portNumber: 80, vhost: {name: x}`, foo), "9:52: port_number: a rule does not know the listener, and counts the requests of all", `"exact": "x"`, ""},
		{"ratelimit, Istio's route", istio("HTTP_ROUTE", `vhost: {name: x, route: {name: r}}`, "{route: "+foo+"}"), "9:77: name: a rule does not know Istio's routes", "", ""},
		{"ratelimit, all of Istio's routes", istio("HTTP_ROUTE", `vhost: {name: x}`, "{route: "+foo+"}"), "", `"exact": "x"`, ""},
		{"ratelimit, a field of Istio's patch", istio("VIRTUAL_HOST", `vhost: {name: x}`, "{matcher: {}, "+foo[1:]), "10:39: matcher: convert does not know what this does in a patch of a virtual host", `"exact": "x"`, ""},
		{"ratelimit, two of Istio's ports", istio("VIRTUAL_HOST", `vhost: {name: "x:80"}`, foo) + patchOfTold("GATEWAY", "x:443"),
			"12:66: vhost: a rule counts the requests of all listeners, also those of line 9: convert each by itself\n" + together, `"exact": "x"`, ""},
		{"ratelimit, two of Istio's contexts", istio("VIRTUAL_HOST", `vhost: {name: "x:80"}`, foo) + patchOfTold("SIDECAR_INBOUND", "inbound|http|8080"),
			"12:22: context: a rule counts the requests of all listeners, also those of line 9: convert each by itself\n" + together, `"exact": "x"`, ""},
		{"ratelimit, Envoy Gateway's patch", envoy() + "---\nkind: EnvoyPatchPolicy\nspec: {jsonPatches: [{operation: {op: add, path: /virtual_hosts/0/rate_limits, value: []}}]}\n",
			"11:44: path: convert reads no rate limits here", `"limit": 2`, ""},

		{"addresses, nothing", addresses("remote_address", ""), "", `"keys"`, ""},
		{"addresses, no limit for others", addresses("other", ""), "3:3: no action in Envoy's routes makes such a descriptor\n" + noAddress, "", ""},
		{"addresses, a quota", addresses("remote_address", "}, quota_mode: true, metadata: {"), noAddress, `"limit": 9`, `"keys"`},
		{"addresses, another limit replaced", addresses("remote_address", ", replaces: [{name: x}]"), noAddress, `"limit": 9`, `"keys"`},
		{"addresses, refused hits counted", addresses("remote_address", ", count_rejected: true"), noAddress, `"limit": 9`, `"keys"`},
		{"addresses, another sync_rate", addresses("remote_address", ", sync_rate: 5"), noAddress, `"limit": 9`, `"keys"`},

		{"kong, nothing", kong(), "", `"limit": 5`, ""},
		{"kong, of the file", kong(" TOP", "\nx: 1"), "2:1: x: convert does not know what this does in Kong's configuration", `"limit": 5`, ""},
		{"kong, of a service", kong("SERVICE", "y"), "4:3: y: convert does not know what this does in a service", `"limit": 5`, ""},
		{"kong, of a route", kong(" ROUTE", ", x: 1"), "4:34: x: convert does not know what this does in a route", `"limit": 5`, ""},
		{"kong, a condition", kong(" ROUTE", ", snis: [a.example]"), "4:40: snis: a rule has no such condition", "", ""},
		{"kong, a header's expression", kong(" ROUTE", ", headers: {x-a: ['~*b']}"), "4:44: a rule can't say this condition of a route", "", ""},
		{"kong, a header's expression after a text", kong(" ROUTE", ", headers: {x-a: [b, '~*c']}"), "4:44: a rule can't say this condition of a route", "", ""},
		{"kong, a host's port", kong(" ROUTE", ", hosts: ['a.example:8000']"), "4:42: a rule can't say the port 8000 of this host alone", "", ""},
		{"kong, headers", kong(" ROUTE", ", headers: {x-a: [b, C]}"), "", `"regex": "(?i)b|C"`, ""},
		{"kong, a route of TCP", kong(" ROUTE", "}, {name: t, protocols: [tcp], sources: [{port: 1}]"), "", `"limit": 5`, ""},
		{"kong, of a plugin", kong(" PLUGIN", ", ordering: {before: {access: [a]}}"), "6:77: ordering: convert does not know what this does in a plugin", `"limit": 5`, ""},
		{"kong, a protocol", kong(" PLUGIN", ", protocols: [https]"), "6:88: protocols: a rule does not know the protocol, and holds for all", `"limit": 5`, ""},
		{"kong, of the limits", kong(" CONFIG", ", x: 1"), "6:76: x: convert does not know what this does in rate-limiting", `"limit": 5`, ""},
		{"kong, a service by its id", kong("SERVICE: x", "id: 7", "[/]", "[/a]", "OTHER", "routes: [{paths: [/b], service: {id: 7}}]"), "", `"/a.*|/b.*"`, ""},
		{"kong, a route of a disabled service", kong("OTHER", "- {name: off, enabled: false}\nroutes: [{paths: [/b], service: off, plugins: [{name: rate-limiting, config: {minute: 9}}]}]"), "", `"limit": 5`, "except"},
		{"kong, routes without names", kong("name: r, paths: [/] ROUTE", "paths: [/a], plugins: [{name: rate-limiting, config: {minute: 9}}]}, {paths: [/b]"), "", `"prefix": "/b"`, `"/a.*|/b.*"`},
		{"kong, another router", kong(" ROUTE", ", methods: [GET]", "OTHER", "- {name: b, routes: [{hosts: [a.example], plugins: [{name: rate-limiting, config: {minute: 9}}]}]}"),
			"4:12: requests may fit this route and that of line 7: Kong takes the other one of them if its router_flavor is traditional\n7:22: requests may fit this route and that of line 4", `"limit": 9`, ""},
		{"kong, routes that rank alike", kong(" ROUTE", ", methods: [GET]", "OTHER", "- {name: b, routes: [{paths: [/], methods: [GET, PUT], plugins: [{name: rate-limiting, config: {minute: 9}}]}]}"),
			"4:12: requests may fit this route and that of line 7: Kong takes one of them by their ids; here the limits of both may hold, or of neither\n7:22: requests may fit", `"limit": 9`, ""},
		{"kong, expressions that begin otherwise", kong("[/]", "['~/a/\\d+']", "OTHER", "- {name: b, routes: [{paths: ['~/b/\\d+'], regex_priority: 1, plugins: [{name: rate-limiting, config: {minute: 9}}]}]}"), "", `"limit": 9`, "except"},
		{"kong, another plugin", kong("OTHER", "plugins: [{name: request-termination, config: {status_code: 403}}]"),
			"7:11: the plugin request-termination is not converted: what it refuses, answers or changes counts as it came", "", ""},
		{"kong, a plugin of another service", kong("OTHER", "- {name: b, routes: [{name: s, paths: [/b]}], plugins: [{name: cors}]}"), "", `"limit": 5`, ""},
		{"kong, harmless plugins", kong("OTHER", "plugins: [{name: prometheus}, {name: cors, enabled: false}]"), "", `"limit": 5`, ""},
		{"kong, a message", kong(" CONFIG", ", error_message: 'say \"no\"'"), "", `"body": "{\"message\":\"say \\\"no\\\"\"}"`, ""},
		{"kong, a shared configuration", kong("config: {minute: 5, limit_by: ip, policy: local CONFIG}", "_config: c", "OTHER", "_plugin_configs: {c: {minute: 7, limit_by: ip}}"), "", `"limit": 7`, ""},
		{"kong, expressions before version 3", kong(`"3.0"`, `"2.1"`, "paths: [/]", `paths: ["/v\\d+/x", /plain-_~%20.]`), "", `"regex": "(?:/v\\d+/x.*)|/plain-_~%20\\..*"`, ""},
		{"kong, no expressions in version 3", kong("paths: [/]", `paths: ["/v(1)"]`), "", `"prefix": "/v(1)"`, ""},
		{"kong, an unknown path", kong("paths: [/]", `paths: ["~/(?=a)", /b]`), "4:30: the regular expression is not in RE2's syntax: ", "", ""},
		{"kong, a resource", "kind: KongPlugin\nplugin: rate-limiting\n", "1:7: kind: convert reads Kong's declarative configuration, and no resources of Kubernetes", "", ""},
		{"kong, keys", kong("limit_by: ip", "limit_by: consumer", "OTHER", "plugins:\n"+auth+"  config: {key_names: [a, b], key_in_query: false}"),
			"6:57: consumer: Kong counts by the consumer that the plugin key-auth finds; the rule counts by the key itself, and requests without one by address\n" +
				"8:3: the plugin key-auth is not converted: requests that it refuses count too", `"header": "b"`, `"query"`},
		{"kong, keys in the body", kong("limit_by: ip", "limit_by: consumer", "OTHER", "plugins:\n"+auth+"  config: {key_in_body: true, key_in_header: false, run_on_preflight: false}"),
			"6:57: consumer\n8:3: the plugin key-auth\n9:25: key_in_body: a rule does not read the key there, and counts by address\n9:71: run_on_preflight", `"query": "apikey"`, `"header": "apikey"`},
		{"kong, the anonymous", kong("limit_by: ip", "limit_by: consumer", "OTHER", "plugins:\n"+auth+"  config: {anonymous: guest}"), "6:57: consumer\n8:3: the plugin key-auth", `"header": "apikey"`, clientIP},
		{"kong, the anonymous, who has no credential", kong("limit_by: ip", "limit_by: credential", "OTHER", "plugins:\n"+auth+"  config: {anonymous: guest}"),
			"6:57: credential: Kong counts by the consumer that the plugin key-auth finds; the rule counts by the key itself, and requests without one by address\n8:3: the plugin key-auth", clientIP, ""},
		{"kong, several ways to authenticate", kong("limit_by: ip", "limit_by: consumer", "OTHER", "plugins:\n"+auth+"- name: jwt"),
			"6:57: consumer: Kong counts by the consumer that several plugins find; the rule counts by address\n8:3: the plugin key-auth\n9:3: the plugin jwt", clientIP, `"header"`},

		{"kong, everybody without a key", kong("  SERVICE: x\n", "", "OTHER", "plugins: [{name: key-auth, config: {anonymous: a}}]", "limit_by: ip", "limit_by: consumer"),
			"6:57: consumer: Kong counts by the consumer that the plugin key-auth finds; the rule counts by the key itself, and requests without one together\n7:11: the plugin key-auth is not converted: requests that it refuses count too", `"query": "apikey"`, "client_ip"},
		{"kong, everybody without a password", kong("  SERVICE: x\n", "", "OTHER", "plugins: [{name: basic-auth, config: {anonymous: a}}]", "limit_by: ip", "limit_by: consumer"),
			"6:57: consumer: Kong counts by the consumer that the plugin basic-auth finds; the rule counts by address\n7:11: the plugin basic-auth is not converted: requests that it refuses count too", "client_ip", ""},
		{"kong, the header host", kong("limit_by: ip", "limit_by: header, header_name: Host"), "", `"header": ":authority"`, `"host"`},
		{"apisix, nothing", apisix(), "", `"limit": 1`, ""},
		{"apisix, of the file", apisix("OTHER", "x: 1"), "3:1: x: convert does not know what this does in APISIX's configuration", `"limit": 1`, ""},
		{"apisix, of a route", apisix(" ROUTE", ", script: x"), "2:20: script: convert does not know what this does in a route", `"limit": 1`, ""},
		{"apisix, of the limits", apisix(" CONFIG", ", x: 1"), "2:91: x: convert does not know what this does in limit-count", `"limit": 1`, ""},
		{"apisix, of _meta", apisix(" CONFIG", ", _meta: {error_response: x}"), "2:99: error_response: convert does not know what this does in _meta", `"limit": 1`, ""},
		{"apisix, where counters are", apisix(" CONFIG", ", redis_host: x, redis_port: 1, redis_ssl: true"), "", `"limit": 1`, ""},
		{"apisix, a condition of the plugin", apisix(" CONFIG", ", _meta: {filter: [[http_x, ==, a]]}"), "2:107: _meta.filter: a rule has no such condition", "", ""},
		{"apisix, addresses", apisix(" ROUTE", ", remote_addrs: [10.0.0.0/8]"), "2:34: remote_addrs: a rule has no such condition", "", ""},
		{"apisix, variables", apisix(" ROUTE", ", vars: [[http_x_a, ==, b], [arg_c, ==, d]]"), "", `"exact": "b"`, ""},
		{"apisix, other variables", apisix(" ROUTE", ", vars: [[arg_c, '~~', d]]"), "2:27: vars: a rule has no such condition", "", ""},
		{"apisix, another plugin", apisix(" PLUGIN", ", cors: {}"), "2:92: the plugin cors is not converted: what it refuses, answers or changes counts as it came", `"limit": 1`, ""},
		{"apisix, a plugin of another route", apisix("OTHER", "- {id: 2, uri: /b, plugins: {cors: {}}}"), "", `"limit": 1`, ""},
		{"apisix, a workflow", apisix("OTHER", "- {id: 2, uri: /b, plugins: {workflow: {}}}"), "3:30: the plugin workflow is not converted", `"limit": 1`, ""},
		{"apisix, hosts of a service", apisix(" ROUTE", ", service_id: s", "OTHER", "services: [{id: s, hosts: [a.example]}]"), "", `"exact": "a.example"`, ""},
		{"apisix, an unknown service", apisix(" ROUTE", ", service_id: s"), `2:32: service_id: no file has "s"`, `"limit": 1`, ""},
		{"apisix, a parameter", apisix("uri: /*", "uri: '/a/:id'"), "2:16: a rule has no parameters in paths: /a/:id", "", ""},
		{"apisix, a stream", apisix("OTHER", "stream_routes: [{id: 1, plugins: {limit-conn: {conn: 1, burst: 0, key: remote_addr}}}]"), "3:35: limit-conn of a stream route: Weir limits requests", `"limit": 1`, ""},
		{"apisix, names of headers", apisix("OTHER", "plugin_metadata: [{id: limit-count, limit_header: X-A}]"), "3:51: limit_header: the rules send their own headers; want header_names", `"limit": 1`, ""},
		{"apisix, a consumer's workflow", apisix("OTHER", "consumers: [{username: a, plugins: {workflow: {}}}]"), "3:37: workflow of a consumer: a rule does not know APISIX's consumers", `"limit": 1`, ""},
		{"apisix, a redirect", apisix(" PLUGIN", ", redirect: {http_to_https: true}"), "2:92: the plugin redirect is not converted: what it refuses, answers or changes counts as it came", `"limit": 1`, ""},
		{"apisix, a breaker", apisix(" PLUGIN", ", api-breaker: {break_response_code: 502}"), "2:92: the plugin api-breaker is not converted: what it refuses, answers or changes counts as it came", `"limit": 1`, ""},
		{"apisix, routes of a service", "services: [{id: s, plugins: {limit-req: {rate: 1, burst: 0, key: remote_addr}}}]\nroutes: [{id: 1, uri: /a, service_id: s}, {id: 2, uri: /b, service_id: s}]",
			"1:41: limit-req: APISIX counts each of these 2 routes alone if they come from the Admin API; the rule counts them together", `"/a|/b"`, ""},
		{"apisix, the case of a parameter", apisix(" CONFIG", ", key: arg_userId"), "", `"query": "userId"`, "userid"},
		{"apisix, a message", apisix(" CONFIG", ", rejected_msg: no"), "", `"body": "{\"error_msg\":\"no\"}"`, ""},
		{"apisix, a path that the plugin would refuse", "routes:\n- {id: 1, uri: foo, plugins: {limit-count: {count: 5, time_window: 60}}}\n- {id: 2, uri: /, plugins: {limit-count: {count: 5, time_window: 60}}}",
			`2:44: the plugin would refuse this rule: match.path.exact: want a path that begins with "/", without a query, got "foo"`, `"route-2-limit-count"`, "route-1"},
		{"apisix, any path and host", "routes:\n- {id: 1, uri: '*', host: '*', plugins: {limit-count: {count: 5, time_window: 60}}}", "", `"route-1-limit-count"`, "match"},
		{"apisix, a resource", "kind: ApisixRoute\nspec: {}\n", "1:7: kind: convert reads apisix.yaml and the Admin API's answers, and no resources of Kubernetes", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			source, _, _ := strings.Cut(test.name, ",")
			files := []convert.File{{Name: "f", Text: []byte(test.text)}}
			switch source {
			case "ratelimit":
				files = append(files, convert.File{Name: "limits", Text: []byte(limitsOfTold)})
			case "addresses":
				source = "ratelimit"
				files = append(files, convert.File{Name: "routes", Text: []byte(envoy("{generic_key: {descriptor_value: foo ACTION}}", "{remote_address: {}}"))})
			}
			result := must.Get(convert.Convert(source, files))(t)
			lost := strings.Split(test.lost, "\n")
			if test.lost == "" {
				lost = nil
			}
			var got []string
			for _, l := range result.Lost {
				if l.File == "f" {
					got = append(got, strings.TrimPrefix(l.String(), "f:"))
				}
			}
			for _, l := range result.Lost {
				if line := strings.Split(test.text, "\n")[l.Line-1]; l.File == "f" && l.Column > 1 && !strings.ContainsRune(" {['-,\"", rune(line[l.Column-2])) {
					t.Errorf("%s: is within a word of %s", l, line)
				}
			}
			same := len(got) == len(lost)
			for i := range lost {
				same = same && strings.HasPrefix(got[i], lost[i])
			}
			if !same {
				t.Errorf("lost is\n%s\nwant\n%s", strings.Join(got, "\n"), test.lost)
			}
			document := string(result.Document)
			if !strings.Contains(document, test.has) || test.lacks != "" && strings.Contains(document, test.lacks) {
				t.Errorf("want %q, and not %q, in\n%s", test.has, test.lacks, document)
			}
			if test.lost != "" && test.has == "" && test.lacks == "" && document != "" && !strings.Contains(test.name, "plugin") {
				t.Errorf("want no rule, got\n%s", document)
			}
		})
	}
}

const clientIP = `"client_ip"`
