package filter_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"weir/filter"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/must"
	"weir/internal/proxywasm"
)

// verifiedClaim is where jwt_authn leaves claims; dots stand for what is between the parts of a name.
const verifiedClaim = "property metadata.filter_metadata.envoy/filters/http/jwt_authn.verified"

// token is a JSON Web Token with a payload, which nobody has signed.
func token(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(payload)) + ".c2ln"
}

// Each selector takes its part of a request. A part that is not there counts as the empty value.
func TestSelectors(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	claims := token(`{"sub": "ann", "n": 12.50, "admin": true, "null": null, "realm_access": {"roles": ["a", "b\u00e4"]}, "https://x.example/plan": "gold",
		"nested": {"a": [1]}, "sub": "second"}`)
	for _, test := range []struct {
		selector, request, want string
	}{
		{`"host"`, ":authority|Shop.EXAMPLE:8080", "shop.example"},
		{`"host"`, ":authority|shop.example.", "shop.example"},
		{`"host"`, ":authority|[2001:DB8::1]:80", "[2001:db8::1]"},
		{`"host"`, ":authority|[2001:db8::1]", "[2001:db8::1]"},
		{`"host"`, ":authority|2001:db8::1", "2001:db8::1"},
		{`"host"`, ":authority|", ""},
		{`"host"`, ":authority|.", "."},

		{`{"query": "user"}`, ":path|/a?user=ann&user=bob", "ann"},
		{`{"query": "user"}`, ":path|/a?x=user&users=1&user=a%20b+c%2Bd%zz%4", "a b c+d%zz%4"},
		{`{"query": "a b"}`, ":path|/?a%20b=1", "1"},
		{`{"query": "a b"}`, ":path|/?a+b=2", "2"},
		{`{"query": "user"}`, ":path|/user=ann", ""},
		{`{"query": "user"}`, ":path|/a?user", ""},
		{`{"query": "user"}`, ":path|/a?", ""},
		{`{"query": "user"}`, ":path|/a?&&=&user=ann#x&user=bob", "ann"},
		{`{"query": "user"}`, ":path|/a?b#?user=bob", ""},
		{`{"query": "ü"}`, ":path|/a?%C3%BC=%c3%bc", "ü"},
		{`{"query": "user"}`, ":path|/?user=" + long, long},
		{`{"query": "user"}`, ":path|/?" + strings.Repeat("&", 60000) + "user=%41", "A"},

		{`{"cookie": "sid"}`, "cookie|a=b; sid=1; sid=2", "1"},
		{`{"cookie": "sid"}`, `cookie|xsid=0;sid = "a b" ;`, "a b"},
		{`{"cookie": "sid"}`, "cookie|sid=a=b", "a=b"},
		{`{"cookie": "sid"}`, "cookie|sid", ""},
		{`{"cookie": "sid"}`, "cookie|SID=1", ""},
		{`{"cookie": "sid"}`, `cookie|sid="`, `"`},
		{`{"cookie": "sid"}`, "x|y", ""},
		{`{"cookie": "sid"}`, "cookie|a=b\nsid=1\nsid=2", "1"},
		{`{"cookie": "sid"}`, "cookie|a=b,sid=0\nsid=1", "1"},
		{`{"header": "x-user"}`, "x-user|ann", "ann"},
		{`{"header": "x-user"}`, "x-user|ann\nbob", "ann"},
		{`{"cookie": "sid"}`, "cookie|" + strings.Repeat(";", 60000) + "sid=z", "z"},

		{`{"path_segment": 1}`, ":path|/api/v1?x/y", "api"},
		{`{"path_segment": 2}`, ":path|/api/v1?x/y", "v1"},
		{`{"path_segment": 3}`, ":path|/api/v1?x/y", ""},
		{`{"path_segment": 2}`, ":path|//a/", "a"},
		{`{"path_segment": 3}`, ":path|//a/", ""},
		{`{"path_segment": 1000}`, ":path|" + strings.Repeat("/", 60000), ""},
		{`{"path_segment": 1}`, ":path|*", ""},

		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims, "ann"},
		// Not exactly one token in one line: jwt_authn may have verified another token.
		{`{"jwt_claim": "sub"}`, "authorization|bearer " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|BEARER " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer  " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|xBearer " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|" + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims + ",Bearer " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims + " Bearer " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims + "=", ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims + ".", ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims + ".c2ln", ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + strings.TrimSuffix(claims, "c2ln"), ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + claims + "\nBearer " + claims, ""},
		{`{"jwt_claim": "sub", "header": "x-token"}`, "x-token|" + claims + "\nBearer " + claims, ""},
		{`{"jwt_claim": "sub", "header": "x-token"}`, "x-token|Bearer " + claims, "ann"},
		{`{"jwt_claim": "sub", "header": "x-token"}`, "x-token|bearer " + claims, ""},
		{`{"jwt_claim": "sub"}`, "authorization|Basic " + claims, ""},
		{`{"jwt_claim": "sub", "header": "x-token"}`, "x-token|" + claims, "ann"},
		{`{"jwt_claim": "n"}`, "authorization|Bearer " + claims, "12.50"},
		{`{"jwt_claim": "admin"}`, "authorization|Bearer " + claims, "true"},
		{`{"jwt_claim": "null"}`, "authorization|Bearer " + claims, ""},
		{`{"jwt_claim": "realm_access.roles.1"}`, "authorization|Bearer " + claims, "bä"},
		{`{"jwt_claim": "realm_access.roles.2"}`, "authorization|Bearer " + claims, ""},
		{`{"jwt_claim": "https://x\\.example/plan"}`, "authorization|Bearer " + claims, "gold"},
		{`{"jwt_claim": "nested"}`, "authorization|Bearer " + claims, `{"a": [1]}`},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer a.b", ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer ..", ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer a.!!!!.c", ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + token(strings.Repeat("[", 40000)), ""},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + token(`{"x": "`+long[:40000]+`", "sub": "late"}`), "late"},
		{`{"jwt_claim": "sub"}`, "authorization|Bearer " + long, ""},

		{`{"jwt_claim": "sub", "metadata": "verified"}`, verifiedClaim + ".sub|ann", "ann"},
		{`{"metadata": "verified", "jwt_claim": "sub"}`, verifiedClaim + ".sub|", ""},
		{`{"jwt_claim": "sub", "metadata": "verified"}`, "authorization|Bearer " + claims, ""},
		{`{"jwt_claim": "realm_access.roles.1", "metadata": "verified"}`, verifiedClaim + ".realm_access.roles.1|b\u00e4", "b\u00e4"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|username", "username"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\x00\x00\x00\x00\x00\x00)@", "12.5"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\x00\x00\x00\x00\x00\x00E@", "42"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\xe1c\x9d1\x95j\xe5C", "12345678901234567000"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\x01", "true"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\x00", "false"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|1", "1"},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\x00\x00\x00\x00", ""},
		{`{"jwt_claim": "x", "metadata": "verified"}`, verifiedClaim + ".x|\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00a\x00b\x00", ""},

		{`{"property": ["metadata", "filter_metadata", "x", "plan"]}`, "property metadata.filter_metadata.x.plan|gold", "gold"},
		{`{"property": ["route_name"]}`, "x|y", ""},
		{`{"in_cidr": ["10.0.0.0/8", "2001:db8::/32"]}`, "property source.address|10.1.2.3:1", "true"},
		{`{"in_cidr": ["10.0.0.0/8", "2001:db8::/32"]}`, "property source.address|[2001:db8::1]:1", "true"},
		{`{"in_cidr": ["10.0.0.0/8"]}`, "property source.address|11.0.0.1:1", "false"},
		{`{"in_cidr": ["0.0.0.0/0", "::/0"]}`, "property source.address|@unix", "false"},
		{`{"in_cidr": ["0.0.0.0/0"]}`, "x|y", "false"},
		{`{"literal": "x\u0000y"}`, "x|y", "x\x00y"},

		{`{"header": "x-user", "regex": "tenant-([0-9]+)-.*"}`, "x-user|tenant-42-ann", "42"},
		{`{"header": "x-user", "regex": "tenant-([0-9]+)-.*"}`, "x-user|tenant-x-ann", ""},
		{`{"header": "x-user", "regex": "tenant-([0-9]+)-.*"}`, "x|y", ""},
		{`{"regex": "(?:.*\\.)?([^.]+\\.[a-z]+)", "header": ":authority"}`, ":authority|a.b.shop.example", "shop.example"},
		{`{"query": "user", "regex": "(.*)@.*"}`, ":path|/?user=a%2Bn%40b%40c", "a+n@b"},
		{`{"jwt_claim": "sub", "regex": "(.).*"}`, "authorization|Bearer " + claims, "a"},
		{`{"literal": ""}`, "x|y", ""},
	} {
		// Once alone, and once where others ask for the same and for another part of it.
		for _, rules := range []string{
			`{"name": "r", "key": [%s], "limits": [{"limit": 9, "window": "1m"}]}`,
			`{"name": "r", "key": [%[1]s, %[1]s, "path", {"query": "zz"}, "host", {"in_cidr": ["1.0.0.0/8"]}, {"jwt_claim": "zz"}],
				"match": {"path": {"suffix": ""}, "host": {"present": true}}, "limits": [{"limit": 9, "window": "1m"}]}`,
		} {
			rules = strings.Replace(rules, `{"suffix": ""}`, `{"present": true}`, 1)
			v := newProxy(t).start(`{"rules": [` + fmt.Sprintf(rules, test.selector) + `]}`)
			name, value, _ := strings.Cut(test.request, "|")
			v.request, v.source = map[string][]byte{":path": []byte("/"), ":authority": []byte("a")}, nil
			if property, ok := strings.CutPrefix(name, "property "); !ok {
				v.request[name] = []byte(value)
			} else if v.source = []byte(value); property != "source.address" {
				v.source, v.properties = nil, map[string][]byte{strings.NewReplacer(".", "\x00", "/", ".").Replace(property): []byte(value)}
			}
			checks := v.checks()
			want := string(counter.AppendPart(counter.AppendPart(nil, "r"), []byte(test.want)))
			must.EqualOrEnd(t, len(checks), 1, "rules apply")
			if key := string(checks[0].Key); !strings.HasPrefix(key, want) {
				t.Errorf("%s of %.80s: got %.80q, want %.80q", test.selector, test.request, key, want)
			}
			// Keys that are longer than any that are kept are made again.
			if allocated := testing.AllocsPerRun(20, func() { v.checks() }); allocated > 0 && len(checks[0].Key) <= filter.MaxIdleKeys {
				t.Errorf("%s of %.80s: %v allocations", test.selector, test.request, allocated)
			}
		}
	}
}

// checks returns the current request's checks.
func (v *fakeVM) checks() []engine.Check {
	defer proxywasm.Use(v)()
	checks := v.plugin.Find()
	return checks
}

// FuzzParts takes all parts of whatever clients send: nothing traps, and what a client makes of one
// value is never what another part is.
func FuzzParts(f *testing.F) {
	f.Add("/a/b?user=%41&x", "a=b; sid=\"c\"", "Shop.example:80", "Bearer "+token(`{"sub": "ann"}`), "[::1]:1")
	f.Add("*", ";;=;", "[", "Bearer ..", "@")
	f.Add("?%", "\"=\"", ":", "a.b.c.d", "")
	v := newProxy(f).start(`{"rules": [{"name": "r", "key": ["host", "path", {"query": "user"}, {"cookie": "sid"}, {"path_segment": 2},
		{"jwt_claim": "sub"}, {"in_cidr": ["10.0.0.0/8", "::/1"]}, "client_ip"], "match": {"path": {"regex": ".*"}}, "limits": [{"limit": 9, "window": "1m"}]}]}`)
	f.Fuzz(func(t *testing.T, path, cookie, host, authorization, source string) {
		v.request = map[string][]byte{":path": []byte(path), "cookie": []byte(cookie), ":authority": []byte(host), "authorization": []byte(authorization)}
		v.source = []byte(source)
		for _, d := range v.checks() {
			key := string(d.Key)
			again := v.checks()
			if len(again) != 1 || string(again[0].Key) != key {
				t.Errorf("two keys for one request: %q", key)
			}
		}
	})
}

func TestConditions(t *testing.T) {
	for _, test := range []struct {
		rule, request string
		applies       bool
	}{
		{`"match": {"host": {"exact": "shop.example"}}`, ":authority|Shop.Example:443", true},
		{`"match": {"host": {"exact": "shop.example"}}`, ":authority|shop.examples", false},
		{`"match": {"host": {"suffix": ".example"}}`, ":authority|a.b.EXAMPLE", true},
		{`"match": {"host": {"regex": "[a-z]+\\.example"}}`, ":authority|shop.EXAMPLE:1", true},
		{`"match": {"host": {"present": true}}`, ":authority|a", true},
		{`"match": {"path": {"regex": "/v[0-9]+/.*"}}`, ":path|/v12/a?b", true},
		{`"match": {"path": {"regex": "/v[0-9]+/"}}`, ":path|/v12/a", false},
		{`"match": {"headers": {"x-plan": {"exact": "free"}}}`, "x-plan|free", true},
		{`"match": {"headers": {"X-Plan": {"exact": "free"}}}`, "x-plan|gold", false},
		{`"match": {"headers": {"x-plan": {"exact": "free"}}}`, "a|b", false},
		{`"match": {"headers": {"x-plan": {"exact": ""}}}`, "x-plan|", true},
		{`"match": {"headers": {"x-plan": {"exact": ""}}}`, "a|b", false},
		{`"match": {"headers": {"x-plan": {"present": false}}}`, "a|b", true},
		{`"match": {"headers": {"x-plan": {"present": false}}}`, "x-plan|", false},
		{`"match": {"headers": {"a": {"prefix": "b"}, "x-plan": {"present": true}}}`, "a|b", false},
		{`"match": {"headers": {":path": {"suffix": "?x"}}}`, ":path|/a?x", true},
		{`"match": {"headers": {"Host": {"exact": "a.example"}}}`, ":authority|a.example", true},
		{`"match": {"headers": {"host": {"exact": "a.example"}}}`, ":authority|b.example", false},
		{`"match": {"headers": {"x-plan": {"exact": "free"}}}`, "x-plan|free\ngold", false},
		{`"match": {"headers": {"x-plan": {"exact": "free,gold"}}}`, "x-plan|free\ngold", true},
		{`"match": {"headers": {"x-plan": {"suffix": "gold"}}}`, "x-plan|free\ngold", true},
		{`"match": {"headers": {"x-plan": {"present": false}}}`, "x-plan|free\ngold", false},
		{`"except": [{"path": {"exact": "/health"}}]`, ":path|/health?x", false},
		{`"except": [{"path": {"exact": "/health"}}]`, ":path|/healthy", true},
		{`"except": [{"path": {"exact": "/health"}, "methods": ["POST"]}]`, ":path|/health", true},
		{`"except": [{"headers": {"x-a": {"present": true}}}, {"path": {"prefix": "/a"}}]`, ":path|/ab", false},
		{`"except": [{"client_ip": ["10.0.0.0/8", "2001:db8::/32"]}]`, "source|10.255.0.1:80", false},
		{`"except": [{"client_ip": ["10.0.0.0/8", "2001:db8::/32"]}]`, "source|[2001:db8:1::]:80", false},
		{`"except": [{"client_ip": ["10.0.0.0/8", "2001:db8::/32"]}]`, "source|11.0.0.1:80", true},
		{`"except": [{"client_ip": ["0.0.0.0/0"]}]`, "a|b", true},
		{`"match": {"path": {"prefix": "/a"}}, "except": [{"path": {"suffix": ".png"}}]`, ":path|/a.png", false},
		{`"match": {"path": {"prefix": "/a"}}, "except": [{"path": {"suffix": ".png"}}]`, ":path|/a.gif", true},
		{`"except": [{"client_ip": ["10.0.0.0/8"], "path": {"exact": "/"}}]`, "source|10.0.0.1:80", false},
		{`"except": [{"client_ip": ["10.0.0.0/8"], "path": {"exact": "/a"}}]`, "source|10.0.0.1:80", true},

		{`"match": {"method": {"prefix": "G"}}`, "a|b", true},
		{`"match": {"method": {"in": ["PUT", "POST"]}}`, "a|b", false},
		{`"match": {"path": {"in": ["/a", "/b"]}}`, ":path|/b?c", true},
		{`"match": {"path": {"in": ["/a", "/b"]}}`, ":path|/c", false},
		{`"match": {"query": {"a b": {"exact": "c d"}}}`, ":path|/?a+b=c%20d", true},
		{`"match": {"query": {"page": {"above": 100}}}`, ":path|/?page=1e2", false},
		{`"match": {"query": {"page": {"above": 100}}}`, ":path|/?page=100.000001", true},
		{`"match": {"query": {"page": {"above": 100}}}`, ":path|/?page=101x", false},
		{`"match": {"query": {"page": {"above": 99, "below": 101}}}`, ":path|/?page=100", true},
		{`"match": {"query": {"page": {"below": 101}}}`, ":path|/", false},
		{`"match": {"query": {"page": {"below": 99999999999999999999.5}}}`, ":path|/?page=99999999999999999999.49", true},
		{`"match": {"cookie": {"sid": {"present": false}}}`, "cookie|a=b", true},
		{`"match": {"cookie": {"sid": {"exact": "x"}}}`, "cookie|a=b\nsid=\"x\"", true},
		{`"match": {"path_segment": {"2": {"exact": "v1"}}}`, ":path|/api/v1/x", true},
		{`"match": {"path_segment": {"3": {"present": true}}}`, ":path|/api/v1", false},
		{`"match": {"jwt_claim": {"n": {"above": -1.5}}}`, "authorization|Bearer " + token(`{"n": -1.499}`), true},
		{`"match": {"jwt_claim": {"n": {"above": -1.5}}}`, "x-token|" + token(`{"n": 1}`), false},
		{`"match": {"jwt_claim": {"n": {"header": "x-token", "above": -1.5}}}`, "x-token|" + token(`{"n": 1}`), true},
		{`"match": {"jwt_claim": {"n": {"metadata": "verified", "exact": "12.5"}}}`, verifiedClaim + ".n|\x00\x00\x00\x00\x00\x00)@", true},
		{`"match": {"property": {"metadata.filter_metadata.x\\.y.n": {"above": 12, "below": 13}}}`, "property metadata.filter_metadata.x/y.n|\x00\x00\x00\x00\x00\x00)@", true},
		{`"match": {"property": {"request.size": {"exact": "258"}}}`, "property request.size|\x02\x01\x00\x00\x00\x00\x00\x00", true},
		{`"match": {"property": {"a.b": {"below": 0}}}`, "property a.b|\xff\xff\xff\xff\xff\xff\xff\xff", true},
		{`"match": {"property": {"connection.mtls": {"exact": "true"}}}`, "property connection.mtls|\x01", true},
		{`"match": {"property": {"route_name": {"exact": "eight888"}}}`, "property route_name|eight888", true},
		{`"match": {"client_ip": {"exact": "2001:db8::1"}}`, "source|[2001:DB8:0::1]:80", true},
		{`"match": {"client_ip": {"prefix": "2001:db8:"}}`, "source|[2001:db8::1%eth0]:80", true},
		{`"match": {"client_ip": {"suffix": ".1"}}`, "source|10.0.0.1:80", true},
		{`"match": {"client_ip": {"in": ["10.0.0.0/8"]}}`, "source|10.0.0.1:80", true},
		{`"match": {"client_ip": {"present": false}}`, "a|b", true},

		{`"match": {"any": [{"path": {"exact": "/a"}}, {"headers": {"x": {"exact": "1"}}}]}`, "x|1", true},
		{`"match": {"any": [{"path": {"exact": "/a"}}, {"headers": {"x": {"exact": "1"}}}]}`, "x|2", false},
		{`"match": {"path": {"exact": "/a"}, "any": [{"headers": {"x": {"exact": "1"}}}]}`, "x|1", false},
		{`"match": {"not": {"path": {"exact": "/"}, "headers": {"x": {"exact": "1"}}}}`, "x|1", false},
		{`"match": {"not": {"path": {"exact": "/"}, "headers": {"x": {"exact": "1"}}}}`, "x|2", true},
		{`"match": {"not": {"not": {"headers": {"x": {"exact": "1"}}}}}`, "x|1", true},
		{`"except": [{"not": {"headers": {"x": {"exact": "1"}}}}]`, "x|1", true},
		{`"except": [{"not": {"headers": {"x": {"exact": "1"}}}}]`, "x|2", false},
	} {
		v := newProxy(t).start(`{"rules": [{"name": "r", ` + test.rule + `, "limits": [{"limit": 9, "window": "1m"}]}]}`)
		name, value, _ := strings.Cut(test.request, "|")
		v.request, v.source = map[string][]byte{":path": []byte("/"), ":method": []byte("GET"), ":authority": []byte("a")}, nil
		if property, ok := strings.CutPrefix(name, "property "); ok {
			v.properties = map[string][]byte{strings.NewReplacer(".", "\x00", "/", ".").Replace(property): []byte(value)}
		} else if v.request[name] = []byte(value); name == "source" {
			v.source = []byte(value)
		}
		must.Equal(t, len(v.checks()) == 1, test.applies, "%s, %s: applies", test.rule, test.request)
		must.Equal(t, testing.AllocsPerRun(20, func() { v.checks() }), 0, "%s: allocations", test.rule)
	}
}
