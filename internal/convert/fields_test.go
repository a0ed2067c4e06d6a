package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/convert"
	"weir/internal/must"
)

// The fields of the plugins' schemas, with values that are not the defaults: of kong/plugins/rate-limiting/schema.lua in
// July 2026, of the documentation of rate-limiting-advanced, whose source is closed, and of apisix/plugins/limit-*.lua in
// August 2026. Each of them changes the rules, or is told as lost; those are left out that say where counters are kept or
// what a lone plugin shares them with, and how long APISIX's limit-conn has requests wait, which is lost with their waiting.
// models_test.go compares decisions.
var (
	kongPlugin = "_format_version: '3.0'\nplugins: [{name: NAME, config: {CONFIG}}]\n"
	kongBasic  = []string{
		"second: 5", "hour: 500", "day: 5000", "month: 50000", "year: 500000", "limit_by: service", "limit_by: header, header_name: x-user",
		"limit_by: path, path: /a", "policy: redis", "policy: cluster", "policy: redis, fault_tolerant: false", "policy: redis, sync_rate: 5",
		"hide_client_headers: true", "error_code: 430", "error_message: slow down", "minute: 1.5",
	}
	kongMore = []string{
		"limit: [10, 20], window_size: [60, 3600]", "window_type: fixed", "identifier: header, header_name: x-user", "identifier: path, path: /a",
		"identifier: service", "strategy: redis, sync_rate: 5", "strategy: cluster, sync_rate: 5", "disable_penalty: true",
		"hide_client_headers: true", "error_code: 430", "error_message: slow down", "retry_after_jitter_max: 5", "enforce_consumer_groups: true",
		"compound_identifier: [ip, header]", "counter_key: consumer.username", "throttling: {enabled: true}",
	}
	apisixPlugin = "routes: [{id: 1, uri: /*, plugins: {NAME: {CONFIG}}}]\n"
	apisixFields = map[string][]string{
		"limit-count": {
			"count: 7", "time_window: 7", "count: $http_count", "window_type: sliding", "rules: [{count: 1, time_window: 60, key: $remote_addr}]",
			"key: uri", "key: $http_a $http_b, key_type: var_combination", "key: all, key_type: constant", "rejected_code: 430", "rejected_msg: slow down",
			"policy: redis", "policy: redis-cluster", "policy: redis-sentinel", "policy: redis, allow_degradation: true", "show_limit_quota_header: false",
			"policy: redis, sync_interval: 2",
		},
		"limit-req": {
			"rate: 7", "burst: 7", "key: uri", "key: $http_a $http_b, key_type: var_combination", "policy: redis", "rejected_code: 430", "rejected_msg: slow down",
			"nodelay: true", "policy: redis, allow_degradation: true",
		},
		"limit-conn": {
			"conn: 7", "conn: $http_conn", "burst: 7", "key: uri",
			"key: $http_a $http_b, key_type: var_combination", "policy: redis", "rejected_code: 430", "rejected_msg: slow down", "policy: redis, allow_degradation: true",
			"rules: [{conn: 1, burst: 1, key: $remote_addr}]",
		},
	}
)

func TestFieldsOfKong(t *testing.T) {
	t.Parallel()
	fieldsMatter(t, "kong", strings.Replace(kongPlugin, "NAME", "rate-limiting", 1), "minute: 50", kongBasic)
	fieldsMatter(t, "kong", strings.Replace(kongPlugin, "NAME", "rate-limiting-advanced", 1), "limit: [10], window_size: [60], sync_rate: -1", kongMore)
}

func TestFieldsOfAPISIX(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]string{
		"limit-count": "count: 10, time_window: 60", "limit-req": "rate: 10, burst: 5, key: remote_addr", "limit-conn": "conn: 10, burst: 5, default_conn_delay: 1, key: remote_addr",
	} {
		fieldsMatter(t, "apisix", strings.Replace(apisixPlugin, "NAME", name, 1), base, apisixFields[name])
	}
}

func TestFieldsOfPolicies(t *testing.T) {
	t.Parallel()
	const gateway = "{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: BackendTrafficPolicy, metadata: {name: p}, spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}], rateLimit: {SCOPE: {rules: [{CONFIG}]}}}}\n"
	for _, scope := range []string{"global", "local"} {
		fieldsMatter(t, "policies", strings.Replace(gateway, "SCOPE", scope, 1), "limit: {requests: 5, unit: Hour}", []string{
			"limit: {requests: 6, unit: Hour}", "limit: {requests: 5, unit: Month}", "limit: {requests: 5, unit: Fortnight}", "limit: {requests: 5, unit: Hour, fromMetadata: {namespace: a, key: b}}",
			"clientSelectors: [{headers: [{name: X, value: a}]}]", "clientSelectors: [{headers: [{name: x, value: a, invert: true}]}]", "clientSelectors: [{headers: [{name: x, type: Distinct}]}]",
			"clientSelectors: [{headers: [{name: x, type: RegularExpression, value: a.*}]}]", "clientSelectors: [{queryParams: [{name: x, type: Distinct}]}]", "clientSelectors: [{sourceCIDR: {value: 10.0.0.0/8}}]",
			"clientSelectors: [{sourceCIDR: {value: 10.0.0.0/8, type: Distinct}}]", "clientSelectors: [{methods: [{value: GET, invert: true}, {value: PUT}]}]", "clientSelectors: [{path: {value: /a}}]",
			"clientSelectors: [{path: {value: /a, type: Exact, invert: true}}]", "clientSelectors: [{path: {value: /a, type: Glob}}]", "clientSelectors: [{headers: [{name: x, value: a}, {name: x, type: RegularExpression, value: a}]}]",
			"clientSelectors: [{x: 1}]", "clientSelectors: [{headers: [{name: x, value: a, x: 1}]}]", "cost: {request: {from: Number, number: 0}}", "cost: {request: {from: Metadata, metadata: {namespace: a, key: b}}}",
			"cost: {response: {from: Number, number: 1}}", "shared: true", "shadowMode: true", "xRateLimitHeaders: Off", "x: 1",
		})
	}
	for _, kind := range []string{"v1, kind: RateLimitPolicy", "v1alpha1, kind: TokenRateLimitPolicy"} {
		fieldsMatter(t, "policies", "{apiVersion: kuadrant.io/"+kind+", metadata: {name: p}, spec: {targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: g}, CONFIG}}\n", "limits: {a: {rates: [{limit: 5, window: 1h}]}}", []string{
			"limits: {a: {rates: [{limit: 6, window: 1h}]}}", "limits: {a: {rates: [{limit: 5, window: 2h}]}}", "limits: {a: {rates: [{limit: 5, window: 1h}, {limit: 1, window: 1s}]}}", "limits: {b: {rates: [{limit: 5, window: 1h}]}}",
			`limits: {a: {rates: [{limit: 5, window: 1h}], counters: [{expression: "request.headers['x']"}]}}`, "limits: {a: {rates: [{limit: 5, window: 1h}], counters: [{expression: request.headers.x}]}}",
			"limits: {a: {rates: [{limit: 5, window: 1h}], counters: [{expression: auth.identity.user}]}}", "limits: {a: {rates: [{limit: 5, window: 1h}], counters: [{expression: source.remote_address}]}}",
			"limits: {a: {rates: [{limit: 5, window: 1h}], when: [{predicate: request.method == 'GET'}]}}", "limits: {a: {rates: [{limit: 5, window: 1h}], when: [{predicate: auth.x == 'a'}]}}", "limits: {a: {}}",
			"limits: {a: {rates: [{limit: 5, window: never}]}}", "limits: {a: {rates: [{limit: 5, window: 1h}], x: 1}}", "when: [{predicate: request.method == 'GET'}]", "x: 1",
			"defaults: {limits: {a: {rates: [{limit: 5, window: 1h}]}}}", "overrides: {strategy: merge, limits: {a: {rates: [{limit: 5, window: 1h}]}}}",
		})
	}
}

// fieldsOf returns the fields of a mapping in flow style, without those in its values.
func fieldsOf(mapping string) (fields []string) {
	depth, from := 0, 0
	for i, c := range mapping {
		switch {
		case strings.ContainsRune("{[", c):
			depth++
		case strings.ContainsRune("}]", c):
			depth--
		case c == ',' && depth == 0:
			fields, from = append(fields, mapping[from:i]), i+2
		}
	}
	return append(fields, mapping[from:])
}

// fieldsMatter wants the conversion of a plugin to differ with each field from that without it.
func fieldsMatter(t *testing.T, source, plugin, base string, fields []string) {
	t.Helper()
	said := func(config string) string {
		text := strings.Replace(plugin, "CONFIG", config, 1)
		result, err := convert.Convert(source, []convert.File{{Name: "file.yaml", Text: []byte(text)}})
		must.OKf(t, err, "%s", text)
		var all strings.Builder
		all.Write(result.Document)
		for _, l := range result.Lost {
			// Without its place, which differs with each field.
			_, text, _ := strings.Cut(l.String(), " ")
			all.WriteString("\n" + text)
		}
		return all.String()
	}
	without := said(base)
	for _, field := range fields {
		name, _, _ := strings.Cut(field, ":")
		kept := ""
		for _, part := range fieldsOf(base) {
			if !strings.Contains(", "+field, ", "+strings.SplitN(part, ":", 2)[0]+":") {
				kept += part + ", "
			}
		}
		with := said(kept + field)
		// The store's being another one than that of the field's companions is no difference of its own.
		if companion, _, found := strings.Cut(field, ", "); found && strings.HasPrefix(name, "policy") || strings.HasPrefix(name, "strategy") {
			without := said(kept + companion)
			if found && with == without {
				t.Errorf("%s: %s: has no effect beside %s, and is not told as lost:\n%s", source, field, companion, with)
			}
		}
		if with == without {
			t.Errorf("%s: %s: has no effect, and is not told as lost:\n%s", source, field, with)
		}
		must.Equal(t, placed(source, strings.Replace(plugin, "CONFIG", kept+field, 1), field, without), "", "")
	}
}

// placed wants what a field alone loses to be told at the field: between its name and its end.
func placed(source, text, field, without string) (problem string) {
	result, err := convert.Convert(source, []convert.File{{Name: "file.yaml", Text: []byte(text)}})
	if err != nil {
		return ""
	}
	for _, l := range result.Lost {
		if strings.Contains(without, l.Problem) {
			continue
		}
		line := strings.Split(text, "\n")[l.Line-1]
		if at := strings.Index(line, field); l.Column <= at || l.Column > at+len(field) {
			problem = fmt.Sprintf("%s: %s: the loss is told elsewhere: %s", source, field, l)
		}
	}
	return problem
}
