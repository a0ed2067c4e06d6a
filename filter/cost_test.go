package filter_test

import (
	"fmt"
	"testing"

	"weir/filter"
	"weir/internal/must"
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

// A value that is no number counts as 1, and in a metric.
func TestBadCosts(t *testing.T) {
	v := newProxy(t).start(costly(`"cost": {"header": "x-cost", "least": 0}`, `{"limit": 10, "window": "1h"}`))
	for _, cost := range []string{"", "ten", "-5"} {
		v.send("x-user", "cid", "x-cost", cost)
	}
	v.send("x-user", "cid")
	want(t, v.response, `x-ratelimit-remaining: 6`)
	must.Equal(t, [2]uint64{v.count("bad_costs_total"), v.count("absent_costs_total")}, [2]uint64{3, 1}, "counted bad and absent costs")
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
		must.Equal(t, v.count("bad_costs_total"), test.bad, "%s of %q: counted bad costs", test.cost, test.asked)
	}
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
		must.Equal(t, v.send("x-user", "ann"), test.tokens != "1", "tokens %q: passed", test.tokens)
		want(t, v.headers(), `x-ratelimit-remaining: `+test.remaining)
	}
	must.Equal(t, [2]uint64{v.count("bad_costs_total"), v.count("absent_costs_total")}, [2]uint64{3, 1}, "counted bad and absent costs")
	// The request's own value is read while the request is there.
	v = p.start(`{"namespace": "n", ` + costly(`"cost_on_response": {"header": "x-size"}`, `{"limit": 10, "window": "1h", "algorithm": "token_bucket"}`)[1:])
	v.send("x-user", "ann", "x-size", "14")
	must.Equal(t, v.send("x-user", "ann"), false, "passed with a debt of 5 tokens")
	want(t, v.reply.headers, `
		ratelimit: "r";r=0;t=2160
		retry-after: 2160
		x-ratelimit-reset: 5400
	`)
}

// A log of the greatest limit that a configuration may have fits its table.
func TestGreatestLog(t *testing.T) {
	v := newProxy(t).start(`{"capacity": 10, "rules": [{"name": "r", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "1m", "algorithm": "sliding_log"}]}]}`)
	for i := range 1000 {
		v.now += minute / 1001
		must.EqualOrEnd(t, v.send("x-user", "ann"), true, "hit %d passes", i)
	}
	must.Equal(t, v.send("x-user", "ann"), false, "passed above the limit")
	must.AtMost(t, v.shared.Bytes(), 10*(8064+96)+40, "bytes of shared data")
}
