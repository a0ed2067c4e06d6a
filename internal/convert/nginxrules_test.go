package convert_test

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/convert"
	"weir/internal/must"
)

const (
	oneZone  = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;\n"
	siteHTTP = "server { listen 80; server_name a.example; location / { return 301 https://$host$request_uri; } }\n"
	siteTLS  = "server { listen 443 ssl; listen [::]:443 ssl; server_name a.example; location /x { limit_req zone=z; } location / { } }\n"
)

// Files of most sites have these, which lose nothing. Each makes a rule.
func TestNginxLosesNothing(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"IPv4 and IPv6":             "server { listen 80; listen [::]:80; listen *:80; listen 0.0.0.0; server_name a.example; limit_req zone=z; }",
		"a redirect before":         siteHTTP + siteTLS,
		"a redirect after":          siteTLS + siteHTTP,
		"a challenge":               siteTLS + strings.Replace(siteHTTP, "location / {", "location /.well-known/ { root /srv; } location / {", 1),
		"certbot's redirect":        siteTLS + "server { listen 80; server_name a.example; if ($host = a.example) { return 301 https://$host$request_uri; } return 404; }",
		"a second server of a name": siteTLS + "server { listen 443 ssl; server_name a.example; limit_req zone=z burst=7; }",
		"several places":            "server { location /a { limit_req zone=z burst=5 nodelay; } location = /b { limit_req zone=z nodelay burst=5; } location /c { } }",
		"other hosts":               "server { server_name a.example; location /a { limit_req zone=z; } location / { } } server { server_name b.example; location /a { limit_req zone=z; } location / { } }",
		"hidden":                    "server { limit_req zone=z; location /b { } location / { location = /b { limit_req zone=nowhere; } } }",
		"try_files with a limit":    "server { location / { limit_req zone=z; try_files $uri /index.php; } location ~ \\.php$ { limit_req zone=z; } }",
		"the usual error page":      "server { limit_req zone=z; error_page 500 502 503 504 /50x.html; location = /50x.html { internal; } }",
		"a rewrite elsewhere":       "server { rewrite ^/old$ /new permanent; rewrite ^/map\\.xml$ /index.php?map=1 last; location = /login { limit_req zone=z; } location / { } }",
		"a redirect to TLS":         "server { limit_req zone=z; if ($scheme != \"https\") { return 301 https://$host$request_uri; } location /b { if ( $http_x_forwarded_proto = http ) { rewrite ^ https://$host$uri permanent; } } }",
		"addresses in a map":        "map $remote_addr $k { default $binary_remote_addr; 10.0.0.1 \"\"; 2001:db8::a \"\"; } limit_req_zone $k zone=k:1m rate=1r/m; server { limit_req zone=k; }",
		"pages of what returns":     "server { error_page 404 /x; location /b { return 403; } location / { limit_req zone=z; } }",
		"a status page":             "server { limit_req zone=z; } server { listen 127.0.0.1:8081; location /nginx_status { stub_status; } }",
		"a break after a return":    "server { location / { limit_req zone=z; } location /b { return 403; break; } }",
		"an unlimited if":           "server { location /x { limit_req zone=z; } location / { if ($http_x) { return 403; } } }",
		"Lua in a log": `server { limit_req zone=z; log_by_lua_block { local s = "}" -- }
			local t = '\'}' --[[ } ]] local u = [==[ ]] } ]==] local v = {1, {2}} } }`,
	} {
		t.Run(name, func(t *testing.T) {
			var document struct{ Rules []any }
			must.OK(t, json.Unmarshal(converted(t, "nginx", oneZone+text), &document))
			must.Equal(t, len(document.Rules), 1, "rules")
		})
	}
}

// A line tells where something stands that a rule can't say, and about nothing else.
func TestNginxTells(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, lost string }{
		{"location = /x { limit_req zone=z; }\nunknown on;", "f:3:1: unknown: what this does"},
		{"limit_req zone=z;\nlocation / { if ($http_x) { return 403; } }", "f:3:29: return: nginx answers before"},
		{"location /x { limit_req zone=z; }\nlocation / { rewrite ^/y /x/z last; }", "f:3:14: rewrite: the limits are those of another"},
		{"location /x { limit_req zone=z; }\nlocation / { try_files $uri /x/index; }", "f:3:14: try_files: nginx limits requests"},
		{"location /x { limit_req zone=z; }\nlocation / { error_page 404 /x/y; }", "f:3:14: error_page: nginx limits requests"},
		{"location /x { limit_req zone=z; }\nlocation /y { error_page 418 = /x/y; return 418; }", "f:3:15: error_page: nginx limits requests"},
		{"limit_req zone=z;\nlocation /y { error_page 404 /x/y; internal; } location /x { }", "f:3:15: error_page: nginx limits requests"},
		{"limit_req_zone $arg_a$uri zone=u:1m rate=1r/m; limit_req zone=u;\nrewrite php$ /ab;", "f:3:1: rewrite: nginx counts by the new path"},
		{"map $host $k { default $by; } map $uri $by { /a b; } limit_req_zone $k zone=u:1m rate=1r/m; location / { limit_req zone=u;\nif ($http_x) { rewrite ^ /ab? break; } }", "f:3:16: rewrite: nginx counts by the new path"},
		{"limit_req zone=u;\nlimit_req_zone $http_x_forwarded_for zone=u:1m rate=1r/m;", "f:3:1: x-forwarded-for: Envoy adds"},
		{"limit_req_zone $k zone=u:1m rate=1r/m; limit_req zone=u;\nmap $http_x_forwarded_for $k { \"\" $remote_addr; }", "f:3:1: x-forwarded-for: Envoy adds"},
		{"limit_req zone=u;\nmap $uri $k { /a $server_name; } limit_req_zone $k zone=u:1m rate=1r/m; server_name a.example b.example;", "f:3:34: a map's value has $server_name"},
		{"server { listen 80; }\nserver { listen 127.0.0.1:81; limit_req zone=z; }", "f:3:10: listen: a rule can't tell apart"},
		{"limit_req zone=z;\nif ($scheme = https) { return 301 https://b.example/; }", "f:3:24: return: nginx answers before"},
		{"location /x { limit_req zone=z; }\nlocation /y { auth_request /x/y; }", "f:3:15: auth_request: nginx limits requests"},
		{"limit_req zone=z;\nerror_page 503 =302 /wait;", "f:3:1: error_page: a refusal gets"},
		{"limit_req zone=z;\nlocation @b { limit_req zone=z burst=3; }", "f:3:15: limit_req: a rule can't match"},
		{"limit_req zone=z;\nserver_name a; listen 80 proxy_protocol;", "f:3:16: proxy_protocol: Envoy needs"},
		{"limit_req zone=z;\nset_real_ip_from 10.0.0.0/8; set_real_ip_from 10.0.0.1; real_ip_header X-A;", "f:3:1: set_real_ip_from: nginx takes"},
		{"limit_req zone=z;\nlocation / { if ($http_x) { break; } return 403; }", "f:3:38: return: nginx answers before"},
		{"limit_req zone=z; if ($uri = /x) { break; }\nreturn 301 /y;", "f:3:1: return: nginx answers before"},
		{"location /x { limit_req zone=z; } location /y { }\nrewrite ^/x/old$ /y/new last;", "f:3:1: rewrite: the limits are those of another"},
		{"location /x { limit_req zone=z; } location /y { }\nif ($http_x) { rewrite ^(.*)x$ /y/new; }", "f:3:16: rewrite: the limits are those of another"},
		{"location /x { limit_req zone=z; } location /y { }\nrewrite ^/x/old$ /y/new break;", "f:3:1: rewrite: the limits are those of another"},
		{"location /x { limit_req zone=z; } location /y { }\nrewrite ^/(?!y) /y/new last;", "f:3:1: rewrite: the limits are those of another"},
		{"location /x { limit_req zone=z; } location /y { }\nrewrite ^/(x|y)/old$ /new redirect;", "f:3:1: rewrite: nginx answers before"},
		{"limit_req zone=z;\nlocation ~ ^/(?:über|x) { limit_req zone=z burst=9 nodelay; }", "f:3:1: location: clients send"},
		{"limit_req zone=z;\nlocation / { content_by_lua_block { ngx.exec('/') } }", "f:3:14: content_by_lua_block: what this does"},
	} {
		result := must.Get(convert.Convert("nginx", []convert.File{{Name: "f", Text: []byte(oneZone + test.text)}}))(t)
		if len(result.Lost) != 1 || !strings.HasPrefix(result.Lost[0].String(), test.lost) {
			t.Errorf("%s: lost %v, want %s", test.text, result.Lost, test.lost)
		}
	}
}

// nginx limits no requests whose key is empty. So a rule holds for all where the key has a text beside its variables, or the name of
// a server that has one.
func TestNginxLimitsKeysWithText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		key, server string
		rules       int
		some        bool // the rule leaves requests alone
	}{
		{"u:$http_x_user", "", 1, false},
		{"$http_a:$http_b", "", 1, false},
		{"$http_a$http_b", "", 1, true},
		{"$by_user", "", 1, false},
		{"$server_name$http_x_user", "server_name a.example; ", 1, false},
		{"$server_name$http_x_user", "", 1, true},
		{"$server_name", "server_name a.example; ", 1, false},
		{"$server_name", "", 0, false},
	} {
		const file = `map $http_x_user $by_user { default u:$http_x_user; }
limit_req_zone KEY zone=z:1m rate=1r/m;
server { SERVER limit_req zone=z; }`
		var document struct{ Rules []struct{ Match, Except any } }
		if text := converted(t, "nginx", strings.NewReplacer("KEY", test.key, "SERVER", test.server).Replace(file)); text != nil {
			must.OK(t, json.Unmarshal(text, &document))
		}
		must.Equal(t, len(document.Rules), test.rules, "rules of %s, %s", test.key, test.server)
		for _, r := range document.Rules {
			must.Equal(t, r.Match != nil || r.Except != nil, test.some, "the rule of %s, %s leaves requests alone", test.key, test.server)
		}
	}
}

// A path of an Ingress without a type, or of type ImplementationSpecific, is one of type Prefix, which is for whole parts of paths
// (SetDefaultNGINXPathType and updateServerLocations of ingress-nginx). Of two of one type the older holds.
func TestPathTypesOfIngress(t *testing.T) {
	t.Parallel()
	const file = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: NAME, annotations: {nginx.ingress.kubernetes.io/limit-rpm: "1"ANNOTATIONS}}
spec: {rules: [{host: a.example, http: {paths: [PATH]}}]}
---
`
	of := func(name, annotations, path string) string {
		return strings.NewReplacer("NAME", name, "ANNOTATIONS", annotations, "PATH", path).Replace(file)
	}
	others := strings.Replace(of("others", "", "{path: /, pathType: Prefix}"), `limit-rpm: "1"`, `limit-rpm: "0"`, 1)
	const (
		foo      = `"path": {"regex": "/foo|/foo/.*"}`
		younger  = "the path of line 9 is the same"
		asRegexp = `, nginx.ingress.kubernetes.io/use-regex: "true"`
	)
	for _, test := range []struct {
		text  string
		paths []string
		lost  int
	}{
		{of("a", "", "{path: /foo, pathType: Prefix}"), []string{foo}, 0},
		{of("a", "", "{path: /foo, pathType: ImplementationSpecific}"), []string{foo}, 0},
		{of("a", "", "{path: /foo}"), []string{foo}, 0},
		{of("a", "", "{path: /foo, pathType: Exact}"), []string{`"path": {"exact": "/foo"}`}, 0},
		{of("a", "", "{path: /foo/, pathType: ImplementationSpecific}"), []string{`"path": {"prefix": "/foo/"}`}, 0},
		{of("a", asRegexp, "{path: /foo, pathType: ImplementationSpecific}"), []string{`"path": {"regex": "(?i)/foo.*"}`}, 0},
		{of("a", "", "{path: /foo}") + of("b", "", "{path: /foo, pathType: Prefix}"), []string{foo}, 1},
		{of("a", "", "{path: /foo}") + of("b", asRegexp, "{path: /foo}"), []string{foo}, 1},
		{of("a", asRegexp, "{path: /foo}") + of("b", "", "{path: /foo, pathType: Prefix}"), []string{`"path": {"regex": "(?i)/foo.*"}`}, 1},
		{of("a", "", "{path: /foo, pathType: Prefix}") + of("b", "", "{path: /foo, pathType: Exact}"), []string{`"path": {"prefix": "/foo/"}`, `"path": {"exact": "/foo"}`}, 0},
	} {
		result := must.Get(convert.Convert("nginx", []convert.File{{Name: "f", Text: []byte(others + test.text)}}))(t)
		document := string(result.Document)
		must.Equal(t, strings.Count(document, `"path"`), len(test.paths), "paths of\n%s\n%s", test.text, document)
		for _, path := range test.paths {
			must.Contains(t, document, path, "%s", test.text)
		}
		if len(result.Lost) != test.lost || test.lost > 0 && !strings.HasPrefix(result.Lost[0].Problem, younger) {
			t.Errorf("%s: lost %v", test.text, result.Lost)
		}
	}
}
