package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/must"
)

// passed is how many of n requests pass.
func (v *fakeVM) passed(n int, headers ...string) (passed int) {
	for range n {
		if v.send(headers...) {
			passed++
		}
	}
	return passed
}

// wantPassed wants so many of n requests of a user to pass.
func (v *fakeVM) wantPassed(n, want int) {
	v.t.Helper()
	must.Equal(v.t, v.passed(n, "x-user", "ann"), want, "%d requests passed", n)
}

// A key's own limits go before those of a value, and these before the limit that a request says.
func TestOverrides(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{
		"name": "per-user", "key": [{"header": "x-user"}, {"client_ip": {"ipv4_prefix": 24}}],
		"limits": [{"limit": 2, "window": "1h", "limit_from": {"header": "x-limit", "max": 6}}, {"limit": 4, "window": "1d", "algorithm": "fixed_window"}],
		"overrides": {
			"by": {"header": "x-plan"},
			"values": {
				"gold": [{"limit": 5, "window": "1h"}, {"limit": 9, "window": "1d", "algorithm": "fixed_window"}],
				"none": [{"limit": 0, "window": "1h"}, {"limit": 9, "window": "1d", "algorithm": "fixed_window"}]
			},
			"keys": [{"key": ["ann", "10.0.0.77"], "limits": [{"limit": 3, "window": "1h"}, {"limit": 8, "window": "1d", "algorithm": "fixed_window"}]}]
		}
	}]}`)
	for i, test := range []struct {
		request string
		passes  int
		policy  string
	}{
		{"x-user bob", 2, `"per-user";q=2;w=3600, "per-user.2";q=4;w=86400`},
		{"x-user bob x-plan gold", 3, `"per-user";q=5;w=3600, "per-user.2";q=9;w=86400`},
		{"x-user bob x-plan none", 0, `"per-user";q=0, "per-user.2";q=9;w=86400`},
		{"x-user bob x-plan Gold", 0, `"per-user";q=2;w=3600, "per-user.2";q=4;w=86400`},
		{"x-user cid x-limit 3", 3, `"per-user";q=3;w=3600, "per-user.2";q=4;w=86400`},
		{"x-user cid x-limit 99999999999999999999999", 1, `"per-user";q=6;w=3600, "per-user.2";q=4;w=86400`},
		{"x-user cid x-limit 6x", 0, `"per-user";q=2;w=3600, "per-user.2";q=4;w=86400`},
		{"x-user dee x-limit 0", 0, `"per-user";q=0, "per-user.2";q=4;w=86400`},
		{"x-user eve x-limit 1 x-plan gold", 5, `"per-user";q=5;w=3600, "per-user.2";q=9;w=86400`},
		{"x-user ann x-plan gold x-limit 1", 3, `"per-user";q=3;w=3600, "per-user.2";q=8;w=86400`},
	} {
		must.Equal(t, v.passed(12, strings.Fields(test.request)...), test.passes, "step %d, %s: passed", i, test.request)
		must.Equal(t, v.reply.headers["ratelimit-policy"], test.policy, "step %d, %s: policy", i, test.request)
	}
	v.source = []byte("10.0.1.77:1") // another network than ann's
	must.Equal(t, v.passed(12, "x-user", "ann"), 2, "another key: passed")
}

// Addresses choose limits by their networks, written as people write them, as they do in keys.
func TestOverridesByAddress(t *testing.T) {
	for by, sources := range map[string]map[string]int{
		`"client_ip"`:                         {"10.0.0.1:4711": 5, "10.0.0.2:4711": 2, "[2001:db8::7]:443": 3},
		`{"client_ip": {"ipv4_prefix": 24}}`:  {"10.0.0.1:4711": 5, "10.0.0.2:4711": 5, "[2001:db8::7]:443": 3},
		`{"client_ip": {"ipv6_prefix": 128}}`: {"10.0.0.1:4711": 5, "[2001:db8::7]:443": 2, "[2001:DB8:0::1]:443": 3},
	} {
		for source, want := range sources {
			v := newProxy(t).start(`{"rules": [{"name": "r", "limits": [{"limit": 2, "window": "1h"}], "overrides": {"by": ` + by + `, "values": {
				"10.0.0.1": [{"limit": 5, "window": "1h"}], "2001:db8:0::1": [{"limit": 3, "window": "1h"}]}}}]}`)
			v.source = []byte(source)
			must.Equal(t, v.passed(9), want, "by %s, from %s: passed", by, source)
		}
	}
}

// The request's limit is a bucket's burst, too, unless the configuration has a burst.
func TestLimitFromOfBuckets(t *testing.T) {
	const limits = `{"limit": 2, "window": "1d", "algorithm": "token_bucket"%s, "limit_from": {"property": ["a", "b"], "max": 6}}`
	for burst, want := range map[string]int{"": 5, `, "burst": 3`: 3} {
		v := newProxy(t).start(`{"rules": [{"name": "r", "limits": [` + fmt.Sprintf(limits, burst) + `]}]}`)
		v.properties = map[string][]byte{"a\x00b": []byte("5")}
		must.Equal(t, v.passed(9), want, "burst %q: passed", burst)
	}
}

// Envoy's numbers, floating in metadata and whole elsewhere, say limits and costs as their digits would.
func TestNumbersOfAttributes(t *testing.T) {
	for _, attribute := range []struct{ path, value string }{
		{`["metadata", "filter_metadata", "a"]`, "\x00\x00\x00\x00\x00\x00\x14@"},
		{`["request", "size"]`, "\x05\x00\x00\x00\x00\x00\x00\x00"},
		{`["request", "size"]`, "5"},
	} {
		for _, rule := range []string{
			`"limits": [{"limit": 2, "window": "1d", "limit_from": {"property": %s, "max": 6}}]`,
			`"limits": [{"limit": 2, "window": "1d"}], "overrides": {"by": {"property": %s}, "values": {"5": [{"limit": 5, "window": "1d"}]}}`,
			`"limits": [{"limit": 29, "window": "1d"}], "cost": {"property": %s}`,
		} {
			v := newProxy(t).start(`{"rules": [{"name": "r", ` + fmt.Sprintf(rule, attribute.path) + `}]}`)
			path := strings.NewReplacer(`["`, "", `", "`, "\x00", `"]`, "").Replace(attribute.path)
			v.properties = map[string][]byte{path: []byte(attribute.value)}
			must.Equal(t, v.passed(9), 5, "%q, %s: passed", attribute.value, rule)
		}
	}
}

// Whatever limits requests say, and in whatever order, each is decided by its own, and what is kept
// of them is bounded.
func TestManyLimits(t *testing.T) {
	v := newProxy(t).start(`{"rules": [{"name": "r", "key": [{"header": "x-user"}],
		"limits": [{"limit": 1, "window": "1h", "limit_from": {"header": "x-limit", "max": 1000000}}]}]}`)
	for i := range 5000 {
		limit := i * 7919 % 1000
		user := fmt.Sprint(i)
		v.send("x-user", user, "x-limit", fmt.Sprint(limit))
		must.EqualOrEnd(t, v.headers()["x-ratelimit-limit"], fmt.Sprint(limit), "request %d says %d, and is told", i, limit)
	}
}

// If several rules reject, the first answers. A rule is in the header sets that it names.
func TestRulesAnswerForThemselves(t *testing.T) {
	v := newProxy(t).start(`{
		"response": {"status": 503, "headers": {"x-all": "1"}}, "headers": ["ratelimit", "x-ratelimit"],
		"rules": [
			{"name": "quiet", "headers": [], "limits": [{"limit": 3, "window": "1h"}], "response": {"body": "quiet"}},
			{"name": "plain", "key": [{"header": "x-user"}], "limits": [{"limit": 2, "window": "1h"}]},
			{"name": "x", "headers": ["x-ratelimit", "retry-after"], "key": [{"header": "x-user"}], "limits": [{"limit": 2, "window": "1h"}],
				"response": {"status": 430, "headers": {"x-own": "2"}}},
			{"name": "r", "headers": ["ratelimit"], "key": [{"header": "x-user"}], "limits": [{"limit": 9, "window": "1h"}]}
		]}`)
	v.send("x-user", "ann")
	want(t, v.response, `
		ratelimit-policy: "plain";q=2;w=3600, "r";q=9;w=3600
		ratelimit: "plain";r=1;t=7200, "r";r=8;t=7200
		x-ratelimit-limit: 2
		x-ratelimit-remaining: 1
		x-ratelimit-reset: 3600
	`)
	v.passed(2, "x-user", "ann")
	if r := v.reply; r.status != 503 || r.details != "weir_rate_limited:plain" || r.headers["x-all"] != "1" || r.headers["retry-after"] != "" {
		t.Errorf("got %+v", r)
	}
	v.send("x-user", "bob")
	v.send("x-user", "bob")
	if r := v.reply; r.status != 503 || r.details != "weir_rate_limited:quiet" || r.body != "quiet" || r.headers["x-all"] != "1" {
		t.Errorf("got %+v", r)
	}
	want(t, v.reply.headers, `
		ratelimit-policy: "plain";q=2;w=3600, "r";q=9;w=3600
		ratelimit: "plain";r=1;t=7200, "r";r=8;t=7200
		x-ratelimit-limit: 2
	`)
	own := newProxy(t).start(`{"rules": [
		{"name": "x", "headers": ["retry-after"], "limits": [{"limit": 0, "window": "1h"}, {"limit": 9, "window": "1d"}],
			"response": {"status": 430, "body": "no", "headers": {"x-own": "2"}, "grpc_status": 9}}]}`)
	own.send("content-type", "application/grpc")
	if r := own.reply; r.status != 430 || r.body != "no" || r.grpc != 9 || len(r.headers) != 2 || r.headers["x-own"] != "2" {
		t.Errorf("got %+v", r)
	}
}
