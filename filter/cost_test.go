package filter_test

import (
	"fmt"
	"testing"
	"time"

	"weir/filter"
)

func TestParseHits(t *testing.T) {
	for _, test := range []struct {
		digits string
		hits   uint64
		ok     bool
	}{
		{"0", 0, true}, {"007", 7, true}, {"18446744073709551615", 1<<64 - 1, true}, {"18446744073709551616", 1<<64 - 1, true},
		{"99999999999999999999999999999999", 1<<64 - 1, true}, {"", 0, false}, {"-1", 0, false}, {"+1", 0, false}, {"1.0", 0, false},
		{" 1", 0, false}, {"1e3", 0, false}, {"٣", 0, false}, {"0x1", 0, false},
	} {
		if hits, ok := filter.ParseHits([]byte(test.digits)); hits != test.hits || ok != test.ok {
			t.Errorf("%q: got %d, %v, want %d, %v", test.digits, hits, ok, test.hits, test.ok)
		}
	}
}

func costly(options, limits string) string {
	return `{"rules": [{"name": "r", "key": [{"header": "x-user"}], ` + options + `, "limits": [` + limits + `]}]}`
}

func TestCosts(t *testing.T) {
	p := newProxy(t)
	v := p.start(costly(`"cost": {"header": "x-cost", "least": 0}`, `{"limit": 10, "window": "1h"}`))
	for i, test := range []struct {
		cost      string
		passed    bool
		remaining string
	}{
		{"4", true, "6"}, {"7", false, "6"}, {"0", true, "6"}, {"6", true, "0"}, {"0", true, "0"}, {"1", false, "0"},
	} {
		if got := v.send("x-user", "ann", "x-cost", test.cost); got != test.passed {
			t.Fatalf("request %d, cost %s: passed %v", i, test.cost, got)
		}
		headers := v.response
		if v.reply != nil {
			headers = v.reply.headers
		}
		want(t, headers, `x-ratelimit-remaining: `+test.remaining)
	}
	// A cost above the limit is refused always, without harm to others, and no waiting helps.
	for _, cost := range []string{"11", "18446744073709551616"} {
		if v.send("x-user", "bob", "x-cost", cost) {
			t.Errorf("cost %s passed", cost)
		}
		if after, ok := v.reply.headers["retry-after"]; ok {
			t.Errorf("cost %s: retry after %s", cost, after)
		}
	}
	if !v.send("x-user", "bob", "x-cost", "10") {
		t.Error("costs above the limit took something")
	}
	// A value that is no number counts as 1, and in a metric.
	for _, cost := range []string{"", "ten", "-5"} {
		v.send("x-user", "cid", "x-cost", cost)
	}
	v.send("x-user", "cid")
	want(t, v.response, `x-ratelimit-remaining: 6`)
	if got := [2]uint64{v.count("bad_costs_total"), v.count("absent_costs_total")}; got != [2]uint64{3, 1} {
		t.Errorf("counted %d bad and absent costs, want 3 and 1", got)
	}
}

// A client that writes its own cost does not pass for nothing, nor takes all at once, unless the
// configuration says so.
func TestBoundsOfCosts(t *testing.T) {
	const huge = "99999999999999999999"
	for _, test := range []struct {
		cost, asked string
		takes       int // of 100; more than that is refused
		bad         uint64
	}{
		{`{"header": "x-cost"}`, "0", 1, 0},
		{`{"header": "x-cost"}`, "000", 1, 0},
		{`{"header": "x-cost"}`, "1", 1, 0},
		{`{"header": "x-cost"}`, "100", 100, 0},
		{`{"header": "x-cost"}`, "101", 101, 0},
		{`{"header": "x-cost"}`, huge, 101, 0},
		{`{"header": "x-cost"}`, "", 1, 0},
		{`{"header": "x-cost"}`, "-5", 1, 1},
		{`{"header": "x-cost", "least": 0}`, "0", 0, 0},
		{`{"header": "x-cost", "least": 0}`, "no", 1, 1},
		{`{"header": "x-cost", "least": 0, "most": 1}`, "2", 1, 0},
		{`{"header": "x-cost", "least": 3}`, "0", 3, 0},
		{`{"header": "x-cost", "least": 3}`, "2", 3, 0},
		{`{"header": "x-cost", "least": 3}`, "4", 4, 0},
		{`{"header": "x-cost", "least": 3}`, "many", 3, 1},
		{`{"header": "x-cost", "least": 3}`, "", 3, 0},
		{`{"header": "x-cost", "most": 20}`, "0", 1, 0},
		{`{"header": "x-cost", "most": 20}`, "20", 20, 0},
		{`{"header": "x-cost", "most": 20}`, "21", 20, 0},
		{`{"header": "x-cost", "most": 20}`, huge, 20, 0},
		{`{"header": "x-cost", "most": 20}`, "1e3", 1, 1},
		{`{"most": 5, "least": 5, "header": "x-cost"}`, "1", 5, 0},
		{`{"most": 5, "least": 5, "header": "x-cost"}`, "9", 5, 0},
		{`{"header": "x-cost", "least": 101}`, "1", 101, 0},
		{`"method"`, "0", 1, 1},
	} {
		v := newProxy(t).start(costly(`"cost": `+test.cost, `{"limit": 100, "window": "1h", "algorithm": "fixed_window"}`))
		request := []string{"x-user", "ann"}
		if test.asked != "" {
			request = append(request, "x-cost", test.asked)
		}
		passed := v.send(request...)
		if passed != (test.takes <= 100) {
			t.Errorf("%s of %q: passed %v", test.cost, test.asked, passed)
			continue
		}
		if passed {
			want(t, v.response, fmt.Sprint("x-ratelimit-remaining: ", 100-test.takes))
		}
		if got := v.count("bad_costs_total"); got != test.bad {
			t.Errorf("%s of %q: counted %d bad costs, want %d", test.cost, test.asked, got, test.bad)
		}
	}
}

// A cost of 0 starts no window.
func TestCostOfNothingStartsNoWindow(t *testing.T) {
	p := newProxy(t)
	v := p.start(costly(`"cost": {"header": "x-cost", "least": 0}`, `{"limit": 2, "window": "1m", "algorithm": "fixed_window", "start": "first_hit"}`))
	v.send("x-user", "ann", "x-cost", "0")
	want(t, v.response, `x-ratelimit-reset: 0`)
	p.now += 30 * second
	v.send("x-user", "ann", "x-cost", "2")
	p.now += 59 * second
	if v.send("x-user", "ann", "x-cost", "1") {
		t.Error("the window ended with the request that took nothing")
	}
	want(t, v.reply.headers, `retry-after: 1`)
}

func TestCountRejected(t *testing.T) {
	for _, test := range []struct {
		limit                     string
		retryPlain, retryCounting string
	}{
		{`{"limit": 3, "window": "10s"}`, "14", "17"},
		{`{"limit": 3, "window": "10s", "algorithm": "sliding_log"}`, "10", "10"},
		{`{"limit": 3, "window": "10s", "precision": "5s"}`, "10", "10"},
		{`{"limit": 3, "window": "9s", "algorithm": "token_bucket"}`, "3", "3"},
	} {
		p := newProxy(t)
		plain := p.start(`{"namespace": "plain", ` + costly(`"count_rejected": false`, test.limit)[1:])
		counting := p.start(`{"namespace": "counting", ` + costly(`"count_rejected": true`, test.limit)[1:])
		for range 6 {
			plain.send("x-user", "ann")
			counting.send("x-user", "ann")
		}
		want(t, plain.reply.headers, `retry-after: `+test.retryPlain)
		want(t, counting.reply.headers, `retry-after: `+test.retryCounting)
	}
	// Refused by another rule, a request takes nothing here; and no cost that never passes is
	// counted.
	p := newProxy(t)
	v := p.start(`{"rules": [
		{"name": "first", "limits": [{"limit": 5, "window": "1h"}]},
		{"name": "second", "count_rejected": true, "cost": {"header": "x-cost"}, "limits": [{"limit": 10, "window": "1h"}]}
	]}`)
	for range 20 {
		v.send("x-cost", "1")
	}
	v.send("x-cost", "1000")
	want(t, v.reply.headers, `ratelimit: "first";r=0;t=4320, "second";r=5;t=4320`)
}

func TestCostOnResponse(t *testing.T) {
	p := newProxy(t)
	v := p.start(costly(`"cost": 0, "cost_on_response": {"response_header": "x-tokens"}`, `{"limit": 100, "window": "1h"}`))
	for _, test := range []struct{ tokens, remaining string }{
		{"30", "100"}, {"60", "70"}, {"", "10"}, {"many", "10"}, {"1000000000000000", "10"}, {"99999999999999999999", "10"}, {"50", "10"}, {"1", "0"},
	} {
		v.upstream = map[string]string{}
		if test.tokens != "" {
			v.upstream["x-tokens"] = test.tokens
		}
		passed := v.send("x-user", "ann")
		if want := test.tokens != "1"; passed != want {
			t.Errorf("tokens %q: passed %v", test.tokens, passed)
		}
		headers := v.response
		if v.reply != nil {
			headers = v.reply.headers
		}
		want(t, headers, `x-ratelimit-remaining: `+test.remaining)
	}
	if got := [2]uint64{v.count("bad_costs_total"), v.count("absent_costs_total")}; got != [2]uint64{3, 1} {
		t.Errorf("counted %d bad and absent costs, want 3 and 1", got)
	}
	// The request's own value is read while the request is there.
	v = p.start(`{"namespace": "n", ` + costly(`"cost_on_response": {"header": "x-size"}`, `{"limit": 10, "window": "1h", "algorithm": "token_bucket"}`)[1:])
	v.send("x-user", "ann", "x-size", "14")
	if v.send("x-user", "ann") {
		t.Error("passed with a debt of 5 tokens")
	}
	want(t, v.reply.headers, `
		ratelimit: "r";r=0;t=2160
		retry-after: 2160
		x-ratelimit-reset: 5400
	`)
}

// All algorithms in one rule: what one refuses takes nothing from the others.
func TestAllAlgorithms(t *testing.T) {
	p := newProxy(t)
	v := p.start(oneRule(`
		{"limit": 20, "window": "1m"},
		{"limit": 20, "window": "1m", "algorithm": "fixed_window"},
		{"limit": 20, "window": "1m", "algorithm": "fixed_window", "start": "first_hit"},
		{"limit": 20, "window": "1m", "precision": "20s"},
		{"limit": 20, "window": "1m", "algorithm": "sliding_log"},
		{"limit": 6, "window": "1m", "algorithm": "token_bucket", "burst": 10},
		{"limit": 7, "window": "3s", "algorithm": "token_bucket"}`))
	for range 20 {
		v.send("x-user", "ann")
	}
	want(t, v.reply.headers, `
		ratelimit-policy: "per-user";q=20;w=60, "per-user.2";q=20;w=60, "per-user.3";q=20;w=60, "per-user.4";q=20;w=60, "per-user.5";q=20;w=60, "per-user.6";q=10;w=100, "per-user.7";q=7;w=3
		ratelimit: "per-user";r=13;t=69, "per-user.2";r=13;t=60, "per-user.3";r=13;t=60, "per-user.4";r=13;t=60, "per-user.5";r=13;t=60, "per-user.6";r=3;t=10, "per-user.7";r=0;t=1
		x-ratelimit-limit: 7
		x-ratelimit-remaining: 0
		x-ratelimit-reset: 3
		retry-after: 1
	`)
	p.now += 3 * second
	passed := 0
	for range 20 {
		if v.send("x-user", "ann") {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("passed %d, want the 3 tokens that are left", passed)
	}
}

// A log of the greatest limit that a configuration may have fits its table.
func TestGreatestLog(t *testing.T) {
	p := newProxy(t)
	v := p.start(`{"capacity": 10, "rules": [{"name": "r", "key": [{"header": "x-user"}], "limits": [{"limit": 505, "window": "1m", "algorithm": "sliding_log"}]}]}`)
	for i := range 505 {
		if p.now += minute / 506; !v.send("x-user", "ann") {
			t.Fatalf("hit %d refused", i)
		}
	}
	if v.send("x-user", "ann") {
		t.Error("passed above the limit")
	}
	if bound := 10*(4096+96) + 40; p.shared.Bytes() > bound {
		t.Errorf("shared data has %d bytes, want at most %d", p.shared.Bytes(), bound)
	}
}

// The response's cost is counted besides leases, and pushed.
func TestCostOnResponseBesidesLeases(t *testing.T) {
	for _, rate := range []string{"0", "0.1"} {
		w := newWorld(t, 2, 2, synced(rate, `{"name": "all", "cost_on_response": {"response_header": "x-tokens"},
			"limits": [{"limit": 100000, "window": "1h", "algorithm": "fixed_window"}, {"limit": 90000, "window": "1s"}]}`))
		w.pass(time.Second)
		sent := int64(0)
		for i := range 400 {
			v := w.any()
			v.upstream = map[string]string{"x-tokens": "4"}
			if v.send() {
				sent++
			}
			if i%4 == 0 {
				w.advance(time.Millisecond)
			}
		}
		for range 100 {
			w.advance(100 * time.Millisecond)
		}
		if got := w.sum(); sent != 400 || got != 5*400 {
			t.Errorf("sync_rate %s: passed %d, the backend has %d hits of the long window, want 2000", rate, sent, got)
		}
	}
}
