package filter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/proxywasm"
)

// The tests of this package are not parallel: as in a VM, there is one thread.

func TestRejection(t *testing.T) {
	v := newProxy(t).start(`{
		"rules": [{"name": "all", "limits": [{"limit": 1, "window": "10s", "algorithm": "fixed_window"}]}],
		"response": {"status": 503, "body": "later", "content_type": "text/x", "headers": {"X-Why": "limit"}, "grpc_status": 14}
	}`)
	v.now += 3*second + 1
	v.send()
	for range 2 { // from shared data, and from the VM's memory
		must.EqualOrEnd(t, v.send(), false, "above the limit, but passed")
		r := v.reply
		if r.status != 503 || r.body != "later" || r.grpc != 14 || r.details != "weir_rate_limited:all" {
			t.Errorf("got %+v", r)
		}
		want(t, r.headers, `
			ratelimit-policy: "all";q=1;w=10
			ratelimit: "all";r=0;t=7
			x-ratelimit-limit: 1
			x-ratelimit-remaining: 0
			x-ratelimit-reset: 7
			retry-after: 7
			x-envoy-ratelimited: true
			content-type: text/x
			x-why: limit
		`)
		must.Equal(t, len(v.response), 0, "the local reply was decorated twice: %v", v.response)
	}
	v.now += 7*second - 2
	must.Equal(t, v.send(), false, "passed a nanosecond too early")
	v.now++
	must.Equal(t, v.send(), true, "did not pass when the window had turned")
}

func TestHeaderSets(t *testing.T) {
	limits := `"limits": [{"limit": 2, "window": "90s", "algorithm": "fixed_window", "start": "first_hit"}]`
	for _, test := range []struct{ options, allowed, rejected string }{
		{`"headers": []`, "", "x-envoy-ratelimited"},
		{`"headers": ["retry-after"]`, "", "retry-after x-envoy-ratelimited"},
		{`"headers": ["ratelimit"]`, "ratelimit ratelimit-policy", "ratelimit ratelimit-policy x-envoy-ratelimited"},
		{`"headers": ["x-ratelimit"], "x_ratelimit_reset": "milliseconds"`, "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset=90000",
			"x-envoy-ratelimited x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset=90000"},
		{`"headers": ["x-ratelimit"], "x_ratelimit_reset": "epoch"`, "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset=1767571290",
			"x-envoy-ratelimited x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset=1767571290"},
	} {
		v := newProxy(t).start(`{` + test.options + `, "response": {"body": ""}, "rules": [{"name": "all", ` + limits + `}]}`)
		v.send()
		must.Equal(t, names(v.response), test.allowed, "%s: allowed", test.options)
		v.send()
		v.send()
		must.Equal(t, names(v.reply.headers), test.rejected, "%s: rejected", test.options)
	}
}

func names(headers map[string]string) string {
	var all []string
	for _, name := range []string{"content-type", "ratelimit", "ratelimit-policy", "retry-after", "x-envoy-ratelimited",
		"x-ratelimit-limit", "x-ratelimit-remaining"} {
		if _, ok := headers[name]; ok {
			all = append(all, name)
		}
	}
	if reset, ok := headers["x-ratelimit-reset"]; ok {
		all = append(all, "x-ratelimit-reset="+reset)
	}
	return strings.Join(all, " ")
}

func TestMatchAndKey(t *testing.T) {
	v := newProxy(t).start(`{"rules": [
		{"name": "writes", "match": {"path": {"prefix": "/api/"}, "methods": ["POST", "PUT"]}, "key": ["method"], "limits": [{"limit": 1, "window": "1h"}]},
		{"name": "exact", "match": {"path": {"exact": "/login"}}, "key": [{"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 64}}], "limits": [{"limit": 1, "window": "1h"}]},
		{"name": "suffix", "match": {"path": {"suffix": ".png"}}, "key": ["path"], "limits": [{"limit": 1, "window": "1h"}]},
		{"name": "two", "match": {"path": {"exact": "/two"}}, "key": [{"header": "a"}, {"header": "b"}], "limits": [{"limit": 1, "window": "1h"}]}
	]}`)
	for i, test := range []struct {
		source, request string
		want            bool
	}{
		{"", ":path /other", true}, {"", ":path /other", true},
		{"", ":path /api/x :method POST", true}, {"", ":path /api/y?q=1 :method POST", false}, {"", ":path /api/x :method PUT", true},
		{"", ":path /api/x :method GET", true}, {"", ":path /apix :method POST", true},
		{"10.1.2.3:1", ":path /login", true}, {"10.1.2.99:5", ":path /login?next=/", false}, {"10.1.3.3:1", ":path /login", true},
		{"[::ffff:10.1.3.77]:1", ":path /login", false}, {"10.1.3.9", ":path /login", false},
		{"[2001:db8::1]:80", ":path /login", true}, {"[2001:db8::ffff:1]:80", ":path /login", false}, {"[2001:db8:0:1::1]:80", ":path /login", true},
		{"@abstract", ":path /login", true}, {"@abstract", ":path /login", false}, {"/run/x.sock", ":path /login", true},
		{"", ":path /a.png?size=1", true}, {"", ":path /a.png?size=2", false}, {"", ":path /b.png", true},
		{"", ":path /two a a b bc", true}, {"", ":path /two a ab b c", true}, {"", ":path /two a a b bc", false},
		{"", ":path /two", true}, {"", ":path /two", false}, {"", ":path /two a x", true}, {"", ":path /two b x", true},
	} {
		v.source = []byte(test.source)
		must.Equal(t, v.send(strings.Fields(test.request)...), test.want, "request %d, %s %s: passed", i, test.source, test.request)
	}
	v.source = nil
	must.Equal(t, [2]bool{v.send(":path", "/login"), v.send(":path", "/login")}, [2]bool{true, false}, "requests without an address share a counter: passed")
}

func TestRefusedConfiguration(t *testing.T) {
	p := newProxy(t)
	v := p.vm(`{"rules": [{"name": "x", "limits": [{"limit": -1, "window": "1 minute"}]}]}`)
	must.EqualOrEnd(t, v.configure(), false, "accepted")
	must.Contains(t, strings.Join(v.log, "\n"), "rules[0].limits[0].limit", "the log says all that is wrong")
	must.Contains(t, strings.Join(v.log, "\n"), "rules[0].limits[0].window", "the log says all that is wrong")
	restore := proxywasm.Use(v)
	defer restore()
	v.plugin.OnTick()
	must.Equal(t, v.plugin.OnPluginDone(), true, "a refused plugin isn't done")
}

// An answer that the proxy turns into a gRPC status has a sentence, and no content type of its own.
func TestGRPCRejection(t *testing.T) {
	const document = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded","status":429,"violated-policies":["per-user"]}`
	v := newProxy(t).start(oneRule(`{"limit": 0, "window": "1m"}`))
	for contentType, want := range map[string][2]string{
		"application/grpc":           {"Rate limit exceeded", ""},
		"application/grpc+proto":     {"Rate limit exceeded", ""},
		"application/grpc-web+proto": {document, "application/problem+json"},
		"application/grpc;a=b":       {document, "application/problem+json"},
		"Application/grpc":           {document, "application/problem+json"},
		"application/grp":            {document, "application/problem+json"},
		"":                           {document, "application/problem+json"},
	} {
		v.send("content-type", contentType)
		must.Equal(t, [2]string{v.reply.body, v.reply.headers["content-type"]}, want, "%s", contentType)
	}
	v.send()
	must.Equal(t, v.reply.body, document, "no content type")
}

// The details name the rule that has refused, of several the first.
func TestDetailsNameTheRule(t *testing.T) {
	configuration := `{"rules": [{"name": "a", "limits": [{"limit": 9, "window": "1m"}]},
		{"name": "b", "match": {"path": {"prefix": "/b"}}, "limits": [{"limit": 1, "window": "1m"}]},
		{"name": "c", "limits": [{"limit": 3, "window": "1m"}]}]}`
	v := newProxy(t).start(configuration)
	for i, want := range []string{"", "b", "", "", "c", "b", "b"} {
		path := "/b"
		if i == 2 || i == 3 || i == 4 {
			path = "/"
		}
		if passed := v.send(":path", path); passed != (want == "") || !passed && v.reply.details != "weir_rate_limited:"+want {
			t.Errorf("request %d: passed %v, reply %+v, want one of %q", i, passed, v.reply, want)
		}
	}
}

// A client that goes on asking is refused from the VM's memory: without shared data, by the same
// rules.
func TestRefusedAgain(t *testing.T) {
	v := newProxy(t).start(oneRule(`{"limit": 10, "window": "1m"}`))
	for range 11 {
		v.send("x-user", "ann")
	}
	clear(v.calls)
	for range 100 {
		v.now += 1e6
		must.EqualOrEnd(t, v.send("x-user", "ann"), false, "passed")
	}
	must.Equal(t, v.calls["get"]+v.calls["set"], 0, "shared data was called: %v", v.calls)
	must.Same(t, v.calls, map[string]int{"now": 100, "request header": 200, "reply": 100}, "calls")
	v.now = monday + 66*second
	must.Equal(t, v.send("x-user", "ann"), true, "refused from memory what has room by now")
}

// A refusal is only remembered if nothing can change what the next one says. Where another rule
// matches too, its page is got each time.
func TestRefusalsThatAreRemembered(t *testing.T) {
	const ten, two = `"limits": [{"limit": 10, "window": "1h"}]`, `"limits": [{"limit": 2, "window": "1h"}]`
	for _, test := range []struct {
		name, rules string
		gets        int
	}{
		{"one rule", `{"name": "a", ` + two + `}`, 0},
		{"beside a rule that does not match", `{"name": "a", ` + two + `}, {"name": "b", "match": {"path": {"exact": "/b"}}, ` + two + `}`, 0},
		{"the later of two rules", `{"name": "a", ` + ten + `}, {"name": "b", ` + two + `}`, 100},
		{"the earlier of two rules, as the later may refuse", `{"name": "a", ` + two + `}, {"name": "b", ` + ten + `}`, 200},
		{"refused hits count", `{"name": "a", "count_rejected": true, ` + two + `}`, 100},
		{"responses cost", `{"name": "a", "cost_on_response": {"response_header": "x-tokens"}, ` + two + `}`, 100},
		{"one hit more has room", `{"name": "a", "cost": 3, "limits": [{"limit": 4, "window": "1h"}]}`, 100},
	} {
		v := newProxy(t).start(`{"rules": [` + test.rules + `]}`)
		for v.send() {
		}
		clear(v.calls)
		for range 100 {
			v.now += 1e6
			must.Equal(t, v.send(), false, "%s: passed", test.name)
		}
		must.Equal(t, v.calls["get"], test.gets, "%s: pages for 100 requests", test.name)
	}
}

func TestHostCalls(t *testing.T) {
	p := newProxy(t)
	v := p.start(oneRule(`{"limit": 1000000, "window": "1h"}`))
	quiet := p.start(`{"headers": [], ` + oneRule(`{"limit": 1000000, "window": "1h"}`)[1:])
	v.send("x-user", "ann")
	for _, test := range []struct {
		v    *fakeVM
		want map[string]int
	}{
		{v, map[string]int{"now": 1, "request header": 1, "get": 1, "set": 1, "replace header": 5}},
		{quiet, map[string]int{"now": 1, "request header": 1, "get": 1, "set": 1}},
	} {
		clear(p.calls)
		test.v.send("x-user", "ann")
		must.Same(t, p.calls, test.want, "calls")
	}
}

// A part of a request that several rules ask for is read once.
func TestHeadersAreReadOnce(t *testing.T) {
	v := newProxy(t).start(`{"headers": [], "rules": [
		{"name": "a", "key": [{"header": "x-user"}], "limits": [{"limit": 9, "window": "1h"}]},
		{"name": "b", "key": [{"header": "x-user"}, "path"], "match": {"path": {"prefix": "/"}}, "limits": [{"limit": 9, "window": "1h"}]}
	]}`)
	clear(v.calls)
	v.send("x-user", "ann", ":path", "/x?y")
	must.Equal(t, v.calls["request header"], 2, "headers read")
}

// BenchmarkRequest measures a whole stream natively, the host's part excepted: shared data is a map
// here.
func BenchmarkRequest(b *testing.B) {
	for name, configuration := range map[string]string{
		"allowed":            oneRule(`{"limit": 1000000000, "window": "1h"}`),
		"allowed, no header": `{"headers": [], ` + oneRule(`{"limit": 1000000000, "window": "1h"}`)[1:],
		"three limits":       oneRule(`{"limit": 1000000000, "window": "1s"}, {"limit": 1000000000, "window": "1m"}, {"limit": 1000000000, "window": "1h"}`),
		"log of 500":         oneRule(`{"limit": 500, "window": "1m", "algorithm": "sliding_log"}`),
		"refused again":      oneRule(`{"limit": 0, "window": "1h"}`),
		"beside a backend": `{"backend": {"cluster": "b"}, "headers": [], "rules": [{"name": "user", "key": [{"header": "x-user"}], "sync_rate": -1, "limits": [{"limit": 1000000000, "window": "1h"}]},
			{"name": "far", "match": {"headers": {"x-far": {"present": true}}}, "limits": [{"limit": 1, "window": "1h"}]}]}`,
	} {
		b.Run(name, func(b *testing.B) {
			v := newProxy(b).start(configuration)
			v.request = map[string][]byte{"x-user": []byte("ann")}
			v.response, v.calls = nil, nil
			b.ReportAllocs()
			for b.Loop() {
				v.now += minute / 400
				v.reply = nil
				v.stream()
			}
		})
	}
}

// A node that the backend has refused says so until it asks again: nothing remains, and a client is
// told to wait.
func TestRefusedByADryLease(t *testing.T) {
	w := newWorld(t, 2, 1, synced("1", `{"name": "user", "limits": [{"limit": 5, "window": "1m", "algorithm": "fixed_window"}]}, {"name": "other", "key": [{"header": "x-user"}], "limits": [{"limit": 6, "window": "1h"}]}`))
	a, b := w.vms[0], w.vms[1]
	w.advance(time.Second)
	for range 5 {
		a.send()
	}
	for _, user := range []string{"bob", "sue", "zoe"} {
		must.EqualOrEnd(t, b.send("x-user", user), false, "more than the limit")
		if got := b.reply.headers["retry-after"]; got == "" || got == "0" {
			t.Errorf("retry after %q", got)
		}
		want(t, b.reply.headers, `x-ratelimit-remaining: 0`)
	}
	// A rule that has room, and was not asked, says so.
	want(t, b.reply.headers, `ratelimit: "user";r=0;t=59, "other";r=6;t=0`)
}

// Limits that have room say nothing about when to try again, though a clock that went back makes
// them wait for nothing.
func TestRetryAfterWhenTheClockWentBack(t *testing.T) {
	v := newProxy(t).start(`{"rules": [
		{"name": "day", "limits": [{"limit": 1000, "window": "1d", "algorithm": "fixed_window"}]},
		{"name": "sec", "key": [{"header": "x-user"}], "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}]}`)
	v.send("x-user", "ann")
	v.now -= 3600 * second
	v.send("x-user", "bob")
	v.send("x-user", "bob")
	want(t, v.reply.headers, `retry-after: 1`)
}

// A local rule stands beside a rule that many proxies keep: while the backend is away, each proxy
// still keeps the local rule, and a request of that alone never waits.
func TestRates(t *testing.T) {
	w := newWorld(t, 2, 1, `{"backend": {"cluster": "b"}, "on_backend_failure": "deny", "rules": [
		{"name": "local", "sync_rate": -1, "limits": [{"limit": 3, "window": "1d"}]},
		{"name": "all", "match": {"path": {"exact": "/all"}}, "limits": [{"limit": 4, "window": "1d"}]},
		{"name": "exact", "sync_rate": 0, "match": {"path": {"exact": "/all"}}, "limits": [{"limit": 5, "window": "1d"}]}]}`)
	w.advance(time.Second)
	a, b := w.vms[0], w.vms[1]
	must.Equal(t, a.passed(2, ":path", "/all")+b.passed(9, ":path", "/all"), 4, "passed of all proxies' limit")
	must.Equal(t, b.reply.details, "weir_rate_limited:all", "refused by")
	w.away = true
	a.settle = nil
	must.Equal(t, [2]bool{a.send(), a.send()}, [2]bool{true, false}, "requests pass by a local rule while the backend is away")
	for name := range a.metrics {
		must.Lacks(t, name, "=.=local;.;overshoot_bound", "a local rule's metric")
	}
}

// A worker that refuses because another has taken the last hit tells how the other rules' keys stand by now, not
// as it remembers them.
func TestRefusedByWhatAnotherTook(t *testing.T) {
	p := newProxy(t)
	of := func(name string, limit int) string {
		return fmt.Sprintf(`{"name": %q, "limits": [{"limit": %d, "window": "1h", "algorithm": "fixed_window"}]}`, name, limit)
	}
	configuration := `{"rules": [` + of("full", 2) + `, ` + of("a", 10) + `, ` + of("b", 10) + `, ` + of("c", 10) + `]}`
	for name, other := range map[string]bool{"the same worker": false, "another worker": true} {
		p.now += 3600 * second
		v, w := p.start(configuration), p.start(configuration)
		if !other {
			w = v
		}
		must.EqualOrEnd(t, [3]bool{v.send(), w.send(), v.send()}, [3]bool{true, true, false}, "%s: passed", name)
		want(t, v.reply.headers, `ratelimit: "full";r=0;t=3600, "a";r=8;t=3600, "b";r=8;t=3600, "c";r=8;t=3600`)
	}
}
