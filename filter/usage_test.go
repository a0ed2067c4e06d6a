package filter_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/must"
	"weir/internal/wire"
)

// toldRule is what a client is told of a rule.
type toldRule struct {
	Name, Unit, Source string
	OnFull             string    `json:"on_full"`
	AsOf               time.Time `json:"as_of"`
	Blocked            uint64    `json:"blocked_seconds"`
	Limits             []struct {
		Name, Algorithm               string
		Limit, Burst, Used, Remaining uint64
		Window                        uint64 `json:"window_ms"`
		Next                          uint64 `json:"next_seconds"`
		Reset                         uint64 `json:"reset_seconds"`
	}
}

// usage asks at a path with a query, and returns what it says of each rule.
func (v *fakeVM) usage(path string, headers ...string) (rules []toldRule) {
	v.t.Helper()
	v.receive("GET", path, headers)
	v.stream()
	if v.reply == nil || v.reply.status != 200 || v.reply.headers["content-type"] != "application/json" ||
		v.reply.headers["cache-control"] != "no-store" || v.reply.details != "weir_usage" {
		v.t.Fatalf("%s: got %+v", path, v.reply)
	}
	var told struct {
		At    time.Time
		Rules []toldRule
	}
	if err := json.Unmarshal([]byte(v.reply.body), &told); err != nil || told.Rules == nil {
		v.t.Fatalf("%s: %v in %s", path, err, v.reply.body)
	}
	if now := time.Unix(0, v.now/second*second); !told.At.Equal(now) {
		v.t.Errorf("%s: at %v, want %v", path, told.At, now)
	}
	return told.Rules
}

// used is how many hits each rule has used, by what usage says.
func used(rules []toldRule) string {
	var all []string
	for _, r := range rules {
		all = append(all, fmt.Sprint(r.Name, "=", r.Limits[0].Used))
	}
	return strings.Join(all, " ")
}

const usageRules = `{"usage_path": "/.weir/usage", "rules": [
	{"name": "user", "key": [{"header": "x-user"}], "overrides": {"keys": [{"key": ["gold"], "limits": [
		{"limit": 70, "window": "1m", "algorithm": "token_bucket", "burst": 90}, {"limit": 9, "window": "1500ms"}]}]},
		"limits": [{"limit": 7, "window": "1m", "algorithm": "token_bucket", "burst": 9}, {"limit": 9, "window": "1500ms"}]},
	{"name": "shadow", "mode": "shadow", "limits": [{"limit": 5, "window": "1h"}]},
	{"name": "cost", "cost": {"header": "x-cost"}, "on_full": "mark", "limits": [{"limit": 50, "window": "month", "algorithm": "fixed_window"}]},
	{"name": "chat", "match": {"path": {"prefix": "/v1/"}, "methods": ["POST"]}, "key": [{"query": "api"}], "limits": [{"limit": 20, "window": "1h"}]},
	{"name": "tenant", "match": {"path": {"prefix": "/t/"}}, "key": [{"path_segment": 2}], "limits": [{"limit": 20, "window": "1h"}]},
	{"name": "method", "key": ["method"], "limits": [{"limit": 20, "window": "1h"}]}]}`

// A client is told of its own keys, by the numbers of the response headers, and nothing is taken.
func TestUsage(t *testing.T) {
	v := newProxy(t).start(usageRules)
	for _, user := range []string{"ann", "ann", "bob", "gold"} {
		v.send("x-user", user, "x-cost", "3")
	}
	bad := v.count("absent_costs_total")
	for range 20 {
		v.usage("/.weir/usage", "x-user", "ann")
	}
	v.receive("GET", "/", []string{"x-user", "ann", "x-cost", "0"})
	v.stream()
	want(t, v.response, `ratelimit: "user";r=6;t=9, "user.2";r=6;t=2, "cost";r=37;t=2332800, "method";r=15;t=4320`)
	rules := v.usage("/.weir/usage", "x-user", "ann")
	must.Equal(t, used(rules), "user=3 cost=13 method=5", "used")
	first, second := rules[0].Limits[0], rules[0].Limits[1]
	must.Equal(t, [2]string{fmt.Sprint(first), fmt.Sprint(second)}, [2]string{"{user token_bucket 7 9 3 6 60000 9 26}", "{user.2 sliding_window 9 9 3 6 1500 2 2}"}, "limits")
	if r := rules[1]; rules[0].Unit != "requests" || rules[0].OnFull != "refuse" || rules[0].Source != "proxy" || r.Unit != "hits" || r.OnFull != "mark" {
		t.Errorf("got %+v", rules)
	}
	gold := v.usage("/.weir/usage?x=y", "x-user", "gold")[0].Limits[0]
	must.Equal(t, [3]uint64{gold.Limit, gold.Burst, gold.Remaining}, [3]uint64{70, 90, 89}, "an override's limit, burst, and what remains")
	must.Equal(t, used(v.usage("/.weir/usage", "x-user", "carl")), "user=0 cost=13 method=5", "an unused key")
	must.Equal(t, v.count("absent_costs_total"), bad, "absent costs that usage counted")
	for _, path := range []string{"/.weir/usage/", "/.weir/usag", "/x/.weir/usage", "/.weir/usage2"} {
		v.receive("GET", path, nil)
		must.Equal(t, v.stream(), true, "%s passes: %+v", path, v.reply)
	}
}

// A request's query may name another path and method, and never another key.
func TestUsageOfPaths(t *testing.T) {
	v := newProxy(t).start(usageRules)
	for _, target := range []string{"POST /v1/chat?api=a", "POST /v1/x?api=a", "POST /v1/chat?api=b", "GET /t/a", "GET /t/usage"} {
		method, path, _ := strings.Cut(target, " ")
		v.receive(method, path, nil)
		v.stream()
	}
	for path, want := range map[string]string{
		"?path=/v1/chat&method=POST&api=a":         "user=5 cost=5 chat=2",
		"?api=b&method=POST&path=%2Fv1%2Fx":        "user=5 cost=5 chat=1",
		"?path=/v1/chat%3Fapi=b&method=POST&api=a": "user=5 cost=5 chat=2", // the key is the request's own
		"?path=/v1/chat%3Fapi=b&method=POST":       "user=5 cost=5 chat=0",
		"?path=/v1/chat&method=GET&api=a":          "user=5 cost=5 method=2",
		"?path=/v1/chat&api=a":                     "user=5 cost=5 method=2",
		"?path=/t/a":                               "user=5 cost=5 method=2", // the key would be another's
		"?path=&method=":                           "user=5 cost=5",
		"?path=/t/a&method=POST":                   "user=5 cost=5",
	} {
		must.Equal(t, used(v.usage("/.weir/usage"+path)), want, "%s", path)
	}
	v = newProxy(t).start(`{"usage_path": "/u", "rules": [{"name": "one", "match": {"path": {"exact": "/a"}, "methods": ["POST"]},
		"limits": [{"limit": 9, "window": "1h"}]}]}`) // no other rule reads path and method
	must.Equal(t, used(v.usage("/u?path=/a&method=POST")), "one=0", "the only rule")
}

// Only GET and HEAD are answered, and other requests pass as ever where there is no such path.
func TestUsageMethods(t *testing.T) {
	v := newProxy(t).start(usageRules)
	for _, method := range []string{"POST", "PUT", "OPTIONS", "get"} {
		v.receive(method, "/.weir/usage", nil)
		if v.stream() || v.reply.status != 405 || v.reply.headers["allow"] != "GET, HEAD" {
			t.Errorf("%s: got %+v", method, v.reply)
		}
	}
	v.receive("HEAD", "/.weir/usage", nil)
	must.Equal(t, v.stream(), false, "HEAD passes")
	must.Equal(t, v.reply.status, 200, "HEAD: status")
	v = newProxy(t).start(strings.Replace(usageRules, `"usage_path": "/.weir/usage", `, "", 1))
	v.receive("GET", "/.weir/usage", nil)
	must.Equal(t, v.stream(), true, "without a path: answered")
}

// A blocked key is told for how long, and a rule of tokens or money its unit.
func TestUsageOfBlocksAndMoney(t *testing.T) {
	v := newProxy(t).start(`{"usage_path": "/u", "prices": {"p": {"unit": "cents", "by": {"header": "x-model"}, "of": {"*": {"input": 2}}}}, "rules": [
		{"name": "banned", "block": "10m", "limits": [{"limit": 1, "window": "1s", "algorithm": "fixed_window"}]},
		{"name": "money", "price": "p", "cost_on_response": "openai", "limits": [{"limit": 10, "window": "1h"}]},
		{"name": "tokens", "cost_on_response": "openai", "limits": [{"limit": 10, "window": "1h"}]}]}`)
	v.send()
	v.send()
	rules := v.usage("/u")
	if len(rules) != 3 || rules[0].Blocked < 600 || rules[0].Blocked > 620 || rules[1].Unit != "cents" || rules[2].Unit != "tokens" {
		t.Errorf("got %+v", rules)
	}
}

// With a backend the request waits for the totals of all proxies, if the node has not heard of them
// lately; without an answer it is told what the node knows.
func TestUsageFromBackend(t *testing.T) {
	for _, rate := range []string{"0", "1"} {
		rule := strings.Replace(perUser, `"name"`, `"warn_at": 0.01, "name"`, 1)
		w := newWorld(t, 2, 1, strings.Replace(synced(rate, rule), "{", `{"usage_path": "/u", `, 1))
		a, b := w.vms[0], w.vms[1]
		for range 5 {
			a.send("x-user", "ann")
		}
		w.quiet()
		sum, warnings := w.sum(), b.count("weir_rule=.=user;.;warnings_total")
		rules := b.usage("/u", "x-user", "ann")
		if r := rules[0]; r.Limits[0].Used != 5 || r.Source != "backend" || w.now-r.AsOf.UnixNano() > second {
			t.Errorf("rate %s: got %+v", rate, rules)
		}
		if r := b.usage("/u", "x-user", "nobody")[0]; r.Limits[0].Used != 0 || r.Source != "backend" {
			t.Errorf("rate %s: an unused key: got %+v", rate, r)
		}
		w.advance(time.Second)
		w.wantSum(sum, "rate "+rate+", as usage takes nothing")
		must.Equal(t, b.count("weir_rule=.=user;.;warnings_total"), warnings, "rate %s: times warned, and not by usage", rate)
		w.away = true
		w.pass(10 * time.Second)
		rules = b.usage("/u", "x-user", "ann")
		if r := rules[0]; r.Limits[0].Used != 5 || r.Source != "backend" || w.now-r.AsOf.UnixNano() < 10*second {
			t.Errorf("rate %s: away: got %+v", rate, rules)
		}
		if r := b.usage("/u", "x-user", "eve")[0]; r.Limits[0].Used != 0 || r.Source != "proxy" {
			t.Errorf("rate %s: away, an unknown key: got %+v", rate, r)
		}
	}
}

// A flood of requests is no flood of questions.
func TestUsageFlood(t *testing.T) {
	w := newWorld(t, 1, 1, strings.Replace(synced("0", perUser), "{", `{"usage_path": "/u", `, 1))
	v, asked := w.vms[0], 0
	settle := v.settle
	v.settle = func(v *fakeVM) {
		asked++
		settle(v)
	}
	for i := range 1000 {
		v.usage("/u", "x-user", fmt.Sprint(i))
	}
	must.Between(t, asked, 10, 20, "times that 1000 requests in a second have asked")
	w.pass(time.Second)
	v.usage("/u", "x-user", "next")
	must.AtLeast(t, asked, 11, "times that it has asked, with the next second's")
}

// Whatever is asked, the answer is JSON, and says nothing of keys that are not the request's own.
func FuzzUsage(f *testing.F) {
	for _, query := range []string{"?path=/t/a", "?path=%2", "?path=/t/a%3F&path=%00", "?method=%22\\&path=\"", "?%70ath=/t/a#x", "?path=*&method=GET"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if query != "" && query[0] != '?' || strings.ContainsAny(query, "\r\n\x00") {
			return
		}
		v := newProxy(t).start(usageRules)
		v.receive("GET", "/t/a", []string{"x-user", "ann"})
		v.stream()
		for _, r := range v.usage("/.weir/usage"+query, "x-user", "bob") {
			if (r.Name == "user" || r.Name == "tenant") && r.Limits[0].Used != 0 {
				t.Errorf("%q: told of another's %+v", query, r)
			}
		}
	})
}

// People see the network of a client as they write it, however much of it they may see. What is no address stays
// as it is.
func TestNamesOfAddresses(t *testing.T) {
	w := joined(t, 1, 1, synced("0.1", `{"name": "plain", "key": [{"header": "x-user"}, {"client_ip": {"ipv4_prefix": 24}}], "reveal": "plain", "limits": [{"limit": 100, "window": "1h"}]},
		{"name": "some", "key": ["client_ip"], "reveal": 6, "limits": [{"limit": 100, "window": "1h"}], "cost_on_response": {"header": "x-cost"}}`))
	v := w.vms[0]
	for _, source := range []string{"192.168.0.1:80", "[2001:db8::1:0:0:1]:80", "/run/a.sock"} {
		v.source = []byte(source)
		v.send("x-user", "4now", "x-cost", "2")
	}
	w.quiet()
	var names []string
	backendtest.Used(t, w.store, "default", func(_ wire.UsedLabel, name string, _ uint32, _ int64) { names = append(names, name) })
	slices.Sort(names)
	must.Equal(t, strings.Join(slices.Compact(names), ", "), "/run/a…, 192.16…, 2001:d…, 4now /run/a.sock, 4now 192.168.0.0, 4now 2001:db8::", "names")
}
