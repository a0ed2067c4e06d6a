package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"weir/internal/must"
	"weir/internal/schema"
)

// token returns an unsigned JSON Web Token with a payload.
func token(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(payload)) + ".c2ln"
}

// TestEveryFieldHasAScenario wants each field of configurations in a configuration of
// TestReference. Another test compares the schema with the parser.
func TestEveryFieldHasAScenario(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	var names func(value any)
	names = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, field := range value {
				tried[name] = true
				names(field)
			}
		case []any:
			for _, element := range value {
				names(element)
			}
		case string:
			tried[value] = true // a selector without fields, or an algorithm
		}
	}
	all := slices.Concat(references, choices, costs, warnings)
	for _, r := range backendReferences {
		all = append(all, r.reference)
	}
	for _, r := range all {
		documents := []string{r.configuration}
		for _, s := range r.steps {
			if s.configure != "" && len(s.refused) == 0 {
				documents = append(documents, s.configure)
			}
		}
		for _, document := range documents {
			var value any
			must.OKf(t, json.Unmarshal([]byte(document), &value), "%s", r.name)
			names(value)
		}
	}
	var root any
	must.OK(t, json.Unmarshal(schema.JSON, &root))
	fields := 0
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if properties, ok := value["properties"].(map[string]any); ok {
				for name, field := range properties {
					// A secret has an effect only among several nodes, as in
					// TestProxiesAndPrograms. Expressions are compiled before, as in
					// TestExpressions.
					if fields++; !tried[name] && name != "key_secret" && name != "if" {
						t.Errorf("no scenario has %s", name)
					}
					walk(field)
				}
			}
			for name, field := range value {
				if name != "properties" {
					walk(field)
				}
			}
		case []any:
			for _, element := range value {
				walk(element)
			}
		}
	}
	walk(root)
	must.AtLeast(t, fields, 60, "fields of the schema")
}

// choices are the parts of the reference on matches, keys and limits.
var choices = []reference{
	{
		name:          "key: host, in any letters, with a port or without",
		configuration: once(`"key": ["host"]`),
		steps: []step{
			{send: "GET / host:shop.example", status: 200},
			{send: "GET / host:SHOP.example:8080", status: 429},
			{send: "GET / host:shop.example.", status: 429},
			{send: "GET / host:other.example", status: 200},
		},
	},
	{
		name:          "key: query, decoded; the first of a name",
		configuration: once(`"key": [{"query": "user name"}]`),
		steps: []step{
			{send: "GET /?user%20name=ann", status: 200},
			{send: "GET /x?a=b&user+name=%61nn&user+name=bob", status: 429},
			{send: "GET /?user+name=bob", status: 200},
			{send: "GET /?other=ann", status: 200},
			{send: "GET /user%20name=carl", status: 429},
		},
	},
	{
		name:          "key: cookie",
		configuration: once(`"key": [{"cookie": "sid"}]`),
		steps: []step{
			{send: "GET / cookie:a=b;sid=1;sid=2", status: 200},
			{send: `GET / cookie:sid="1"`, status: 429},
			{send: "GET / cookie:sid=2", status: 200},
			{send: "GET / cookie:xsid=1", status: 200},
			{send: "GET /", status: 429},
		},
	},
	{
		name: "match: any of several conditions, numbers, a set of texts, and none of what not says",
		configuration: once(`"match": {
			"path_segment": {"1": {"in": ["api", "v2"]}},
			"any": [{"query": {"size": {"above": 100, "below": 1e6}}}, {"cookie": {"tier": {"exact": "free"}}}, {"jwt_claim": {"tier": {"header": "x-token", "exact": "free"}}}],
			"not": {"any": [{"property": {"request.method": {"exact": "PUT"}}}, {"method": {"prefix": "PATC"}}]}}`),
		steps: []step{
			{send: "GET /api?size=100", status: 200, want: nothing},
			{send: "PUT /api?size=101", status: 200, want: nothing},
			{send: "PATCH /api cookie:tier=free", status: 200, want: nothing},
			{send: "GET /v1?size=101", status: 200, want: nothing},
			{send: "GET /v2?size=100.5", status: 200},
			{send: "GET /api cookie:tier=free", status: 429},
			{send: "GET /api x-token:" + token(`{"tier":"free"}`), status: 429},
			{send: "GET /api x-token:" + token(`{"tier":"gold"}`), status: 200, want: nothing},
		},
	},
	{
		name:          "key: regex, a part of a value",
		configuration: once(`"key": [{"header": "x-user", "regex": "tenant-([0-9]+)-.*"}, {"query": "q", "regex": "(.*)@.*"}]`),
		steps: []step{
			{send: "GET / x-user:tenant-7-ann", status: 200},
			{send: "GET /?q=b x-user:tenant-7-bob", status: 429},
			{send: "GET /?q=a@b@c x-user:tenant-7-bob", status: 200},
			{send: "GET /?q=a%40b%40d x-user:tenant-7-", status: 429},
			{send: "GET / x-user:tenant-8-ann", status: 200},
			{send: "GET / x-user:ann", status: 200},
			{send: "GET /", status: 429},
		},
	},
	{
		name:          "key: path_segment",
		configuration: once(`"key": [{"path_segment": 2}]`),
		steps: []step{
			{send: "GET /api/users/1?a=/b", status: 200},
			{send: "GET /v2/users", status: 429},
			{send: "GET /api/orders", status: 200},
			{send: "GET /api", status: 200},
			{send: "GET /", status: 429},
		},
	},
	{
		name:          "key: jwt_claim, of authorization and of another header, nested too",
		configuration: once(`"key": [{"jwt_claim": "sub"}, {"jwt_claim": "realm_access.roles.0", "header": "X-Token"}]`),
		steps: []step{
			{send: "GET / authorization:Bearer␠" + token(`{"sub":"ann","n":1}`), status: 200},
			{send: "GET / authorization:Bearer␠" + token(`{"n":2,"sub":"ann"}`), status: 429},
			{send: "GET / authorization:Bearer␠" + token(`{"sub":"bob"}`), status: 200},
			{send: "GET / authorization:Bearer␠" + token(`{"sub":"ann"}`) + " x-token:" + token(`{"realm_access":{"roles":["admin"]}}`), status: 200},
			{send: "GET / authorization:nonsense", status: 200},
			{send: "GET / authorization:" + token(`{"sub":"ann"}`), status: 429},
			{send: "GET / authorization:bearer␠" + token(`{"sub":"ann"}`), status: 429},
			{send: "GET / authorization:bearer␠" + token(`{"sub":"eve"}`) + ",Bearer␠" + token(`{"sub":"ann"}`), status: 429},
			{send: "GET / authorization:" + token(`{"sub":"eve"}`) + " authorization:Bearer␠" + token(`{"sub":"ann"}`), status: 429},
			{send: "GET /", status: 429},
		},
	},
	{
		name:          "key: jwt_claim of metadata, which has nothing where nobody has verified a token",
		configuration: once(`"key": [{"jwt_claim": "sub", "metadata": "verified"}]`),
		steps: []step{
			{send: "GET / authorization:Bearer␠" + token(`{"sub":"ann"}`), status: 200},
			{send: "GET / authorization:Bearer␠" + token(`{"sub":"bob"}`), status: 429},
		},
	},
	{
		name:          "key: cookies are those of all lines",
		configuration: once(`"key": [{"cookie": "sid"}]`),
		steps: []step{
			{send: "GET / cookie:sid=1", status: 200},
			{send: "GET / cookie:a=b,sid=2 cookie:sid=1", status: 429},
			{send: "GET / cookie:a=b cookie:sid=1 cookie:sid=2", status: 429},
			{send: "GET / cookie:sid=2 cookie:sid=1", status: 200},
			{send: "GET / cookie:a=b cookie:c=d", status: 200},
			{send: "GET /", status: 429},
		},
	},
	{
		name:          "match: several lines of a header are one, with commas, as for Envoy's own matchers",
		configuration: once(`"match": {"headers": {"x-plan": {"suffix": "free"}}}, "except": [{"headers": {"x-plan": {"exact": "a"}}}]`),
		steps: []step{
			{send: "GET / x-plan:gold x-plan:free", status: 200},
			{send: "GET / x-plan:a x-plan:free", status: 429},
			{send: "GET / x-plan:free x-plan:gold", times: 2, status: 200, want: nothing},
		},
	},
	{
		name:          "key: property",
		configuration: once(`"key": [{"property": ["request", "method"]}, {"property": ["request", "query"]}]`),
		steps: []step{
			{send: "GET /a?x", status: 200},
			{send: "GET /b?x", status: 429},
			{send: "POST /a?x", status: 200},
			{send: "GET /a?y", status: 200},
		},
	},
	{
		name:          "key: in_cidr and literal",
		configuration: once(`"key": [{"in_cidr": ["198.51.100.0/24", "2001:db8::/32"]}, {"literal": "x"}]`),
		steps: []step{
			{send: "GET / x-forwarded-for:198.51.100.1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:198.51.100.2,10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:2001:db8::1,10.0.0.9", status: 429},
			{send: "GET / x-forwarded-for:203.0.113.1,10.0.0.9", status: 200},
			{send: "GET / x-forwarded-for:203.0.113.2,10.0.0.9", status: 429},
		},
	},
	{
		name: "match: host, headers and regular expressions",
		configuration: once(`"key": ["path"], "match": {"host": {"suffix": ".example"}, "path": {"regex": "/v[0-9]+/.*"},
			"headers": {"X-Plan": {"exact": "free"}, "x-debug": {"present": false}}}`),
		steps: []step{
			{send: "GET /v1/a host:Shop.Example:80 x-plan:free", times: 1, status: 200},
			{send: "GET /v1/a?x host:b.example x-plan:free", status: 429},
			{send: "GET /v1/a host:b.example x-plan:gold", times: 2, status: 200, want: nothing},
			{send: "GET /v1/a host:b.example", times: 2, status: 200, want: nothing},
			{send: "GET /v1/a host:b.example x-plan:free x-debug:", times: 2, status: 200, want: nothing},
			{send: "GET /v1/a host:b.example.org x-plan:free", times: 2, status: 200, want: nothing},
			{send: "GET /x/v1/a host:b.example x-plan:free", times: 2, status: 200, want: nothing},
		},
	},
	{
		name: "except: matches and networks",
		configuration: once(`"except": [{"path": {"prefix": "/health"}, "methods": ["GET"]}, {"host": {"exact": "status.example"}},
			{"headers": {"x-internal": {"present": true}}}, {"client_ip": ["198.51.100.0/24"]}]`),
		steps: []step{
			{send: "GET /healthz", times: 2, status: 200, want: nothing},
			{send: "GET / host:status.example", times: 2, status: 200, want: nothing},
			{send: "GET / x-internal:", times: 2, status: 200, want: nothing},
			{send: "GET / x-forwarded-for:198.51.100.1,10.0.0.9", times: 2, status: 200, want: nothing},
			{send: "POST /healthz", status: 200},
			{send: "GET / x-forwarded-for:203.0.113.1,10.0.0.9", status: 429},
		},
	},
	{
		name:          "response: grpc_status, in headers alone",
		configuration: `{"response": {"grpc_status": 14}, "rules": [{"name": "r", "limits": [{"limit": 0, "window": "1m"}]}]}`,
		steps: []step{
			{send: "POST /shop.Cart/Add content-type:application/grpc", status: 200, want: `
				grpc-status: 14
				content-type: application/grpc
				x-envoy-ratelimited: true`},
		},
	},
	{
		name: "mode: shadow",
		configuration: `{"rules": [
			{"name": "new", "mode": "shadow", "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]},
			{"name": "old", "mode": "enforce", "limits": [{"limit": 3, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /", times: 3, status: 200, want: `ratelimit-policy: "old";q=3;w=60`},
			{send: "GET /", status: 429, want: `ratelimit-policy: "old";q=3;w=60`},
		},
		metrics: map[string]int64{
			metricName("requests_total", "new", "shadow_allowed"):  1,
			metricName("requests_total", "new", "shadow_rejected"): 2,
			metricName("requests_total", "old", "allowed"):         3,
			metricName("requests_total", "old", "rejected"):        1,
		},
	},
	{
		name: "reveal: it concerns people who look, and no request",
		configuration: `{"rules": [{"name": "once", "reveal": 4, "key": [{"header": "x-user"}],
			"limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET / x-user:annabel", status: 200},
			{send: "GET / x-user:annabel", status: 429},
			{send: "GET / x-user:annabella", status: 200},
		},
	},
	{
		name: "response and headers of single rules: the first that rejects answers",
		configuration: `{"response": {"headers": {"x-all": "1"}}, "rules": [
			{"name": "quiet", "headers": [], "match": {"path": {"prefix": "/q"}}, "limits": [{"limit": 0, "window": "1m"}],
				"response": {"status": 430, "body": "quiet", "headers": {"x-own": "2"}}},
			{"name": "plain", "limits": [{"limit": 1, "window": "1m", "algorithm": "fixed_window"}]}]}`,
		steps: []step{
			{send: "GET /q", status: 430, body: "quiet", want: `
				x-own: 2
				x-all:
				retry-after:
				ratelimit-policy: "plain";q=1;w=60
				x-envoy-ratelimited: true`},
			{send: "GET /", status: 200, want: `ratelimit: "plain";r=0;t=60`},
			{send: "GET /", status: 429, want: "x-all: 1\nx-own:\nretry-after: 60"},
		},
	},
	{
		name: "overrides: by a value, and for keys; counters stay",
		configuration: once(`"key": [{"header": "x-user"}], "overrides": {
			"by": {"header": "x-plan"}, "values": {"gold": [{"limit": 3, "window": "1m", "algorithm": "fixed_window"}]},
			"keys": [{"key": ["ann"], "limits": [{"limit": 2, "window": "1m", "algorithm": "fixed_window"}]}]}`),
		steps: []step{
			{send: "GET / x-user:bob", status: 200, want: `ratelimit-policy: "once";q=1;w=60`},
			{send: "GET / x-user:bob", status: 429},
			{send: "GET / x-user:bob x-plan:gold", times: 2, status: 200, want: `
				ratelimit-policy: "once";q=3;w=60
				ratelimit: "once";r=0;t=60
				x-ratelimit-limit: 3`},
			{send: "GET / x-user:bob x-plan:gold", status: 429},
			{send: "GET / x-user:carl x-plan:gold x-plan:free", status: 200, want: `ratelimit-policy: "once";q=1;w=60`},
			{send: "GET / x-user:ann x-plan:gold", times: 2, status: 200, want: `ratelimit-policy: "once";q=2;w=60`},
			{send: "GET / x-user:ann", status: 429},
		},
	},
	{
		name: "limit_from: a header or a property, at most max",
		configuration: `{"rules": [{"name": "r", "key": [{"header": "x-user"}], "limits": [
			{"limit": 1, "window": "1m", "algorithm": "fixed_window", "limit_from": {"header": "x-limit", "max": 3}},
			{"limit": 9, "window": "1h", "algorithm": "token_bucket", "limit_from": {"property": ["request", "headers", "x-hourly"], "max": 100}}]}]}`,
		steps: []step{
			{send: "GET / x-user:ann", status: 200, want: `ratelimit-policy: "r";q=1;w=60, "r.2";q=9;w=3600`},
			{send: "GET / x-user:ann", status: 429},
			{send: "GET / x-user:ann x-limit:2", status: 200, want: "x-ratelimit-limit: 2"},
			{send: "GET / x-user:ann x-limit:99 x-hourly:50", status: 200, want: `ratelimit-policy: "r";q=3;w=60, "r.2";q=50;w=3600`},
			{send: "GET / x-user:ann x-limit:99", status: 429},
			{send: "GET / x-user:bob x-limit:0", status: 429, want: `ratelimit-policy: "r";q=0, "r.2";q=9;w=3600`},
			{send: "GET / x-user:carl x-limit:3 x-limit:1 x-hourly:50 x-hourly:9", status: 200, want: `ratelimit-policy: "r";q=1;w=60, "r.2";q=9;w=3600`},
			{send: "GET / x-user:carl x-limit:3 x-limit:2", status: 429, want: `ratelimit-policy: "r";q=1;w=60, "r.2";q=9;w=3600`},
			{send: "GET / x-user:bob x-limit:none", status: http.StatusOK, want: "x-ratelimit-limit: 1"},
		},
	},
}
