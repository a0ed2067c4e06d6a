package config_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"weir/config"
	"weir/internal/must"
	"weir/window"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	rule := func(rest string) string { return `{"rules": [{"name": "a", ` + rest + `}]}` }
	limits := func(limits string) string { return rule(`"limits": [` + limits + `]`) }
	prices := func(of string) string {
		return `{"prices": {"models": {"of": {` + of + `}}}, "rules": [{"name": "a", "limits": [{"limit": 100, "window": 1}]}]}`
	}
	const hidden = "rules[0].limits[1]: never decides, because limits[0] refuses first: 100 in 1m"
	states := func(millions string) string {
		return ": has too many states to keep: a hostile value of 60 kB takes up to " + millions +
			" million steps, each 10 to 50 ns of a worker's time; counts of repetitions make states, and several rules have fewer"
	}
	for _, test := range []struct {
		document string
		want     []string
	}{
		{limits(`{"limit": 20, "window": "1m"}, {"limit": 0, "window": "1m", "algorithm": "fixed_window"}`), []string{
			"rules[0].limits[0]: never decides, because limits[1] refuses first: 0 in 1m"}},
		{`{"rules": [{"name": "a", "limits": [{"limit": 5, "window": "1m", "algorithm": "sliding_log"}]},
			{"name": "b", "limits": [{"limit": 5, "window": "1m", "precision": "10s"}, {"limit": 1, "window": "1s", "algorithm": "fixed_window"}]}]}`, nil},
		{`{"rules": [{"name": "a", "limits": [{"limit": 20, "window": "1m"}, {"limit": 19, "window": "1h"}]},
			{"name": "b", "limits": [{"limit": 1, "window": "1s", "algorithm": "sliding_window"}]}]}`, []string{
			"rules[0].limits[1]: a sliding_window of 19 lets through 0.95 of it for a client that never stops asking; a sliding_log lets through all of it",
			"rules[1].limits[0]: a sliding_window of 1 lets through 0.50 of it for a client that never stops asking; a sliding_log lets through all of it",
		}},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "openai", "reserve": {"request_json": "n", "default": 5, "most": 9}`), []string{
			`rules[0].reserve: a client that compresses its body, or pads it, reserves 5 and may cost 9: "unread" says whether it takes "default", "most" or is to "refuse"`}},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost": {"request_json": "#", "default": 1, "most": 9}`), []string{
			`rules[0].cost: a client that compresses its body, or pads it, takes 1 and may cost 9: "unread" says whether it takes "default", "most" or is to "refuse"`}},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "openai", "reserve": {"request_json": "n", "default": 5, "most": 9, "unread": "default"}`), nil},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "openai", "reserve": {"request_json": "n", "default": 9, "most": 9}`), nil},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "openai", "reserve": {"request_json": "n", "default": 5}`), nil},
		// Without a reservation, a stream that does not tell costs nothing.
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "auto"`), []string{
			`rules[0].cost_on_response: without reserve, a stream that does not tell its usage costs 1: OpenAI's tell it only if the request asks for it (stream_options.include_usage); want ask_for_usage, which has it ask, or reserve, which such a stream keeps`}},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost": 0, "cost_on_response": {"response_json": "usage.total_tokens"}`), []string{
			`rules[0].cost_on_response: without reserve, a stream that does not tell its usage costs 0: OpenAI's tell it only if the request asks for it (stream_options.include_usage); want ask_for_usage, which has it ask, or reserve, which such a stream keeps`}},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "openai", "cut": true`), nil},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "openai", "ask_for_usage": true`), nil},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": "anthropic"`), nil},
		{rule(`"limits": [{"limit": 100, "window": "1m"}], "cost_on_response": {"response_header": "x-tokens"}`), nil},
		// With equal shapes the tighter limit decides, and of equal limits the first.
		{limits(`{"limit": 100, "window": "1m"}, {"limit": 1000, "window": "1m"}`), []string{hidden}},
		{limits(`{"limit": 100, "window": "1m"}, {"limit": 100, "window": "1m"}`), []string{hidden}},
		{limits(`{"limit": 1000, "window": "1m"}, {"limit": 100, "window": "1m"}`), []string{
			"rules[0].limits[0]: never decides, because limits[1] refuses first: 100 in 1m"}},
		// Some requests may have other limits, and months may begin on other days.
		{rule(`"limits": [{"limit": 2, "window": "1s", "algorithm": "sliding_log"}, {"limit": 10000, "window": "1h"}],
			"overrides": {"by": "method", "values": {"GET": [{"limit": 100, "window": "1s", "algorithm": "sliding_log"}, {"limit": 10000, "window": "1h"}]}}`), nil},
		{limits(`{"limit": 100, "window": "month", "algorithm": "fixed_window"}, {"limit": 150, "window": "month", "algorithm": "fixed_window", "anchor": {"day": 15}}`), nil},
		{limits(`{"limit": 100, "window": "month", "algorithm": "fixed_window"}, {"limit": 150, "window": "month", "algorithm": "fixed_window"}`), []string{
			"rules[0].limits[1]: never decides, because limits[0] refuses first: 100 in 31d"}},
		// A bucket may be larger and slower.
		{limits(`{"limit": 100, "window": "1m", "algorithm": "token_bucket"}, {"limit": 200, "window": "1m", "algorithm": "token_bucket", "burst": 50}`), nil},
		// 100 in each minute are 6,000 an hour, and up to 6,400 of what a sliding window counts.
		{limits(`{"limit": 100, "window": "1m"}, {"limit": 6500, "window": "1h"}`), []string{hidden}},
		{limits(`{"limit": 100, "window": "1m"}, {"limit": 6000, "window": "1h"}`), nil},
		{limits(`{"limit": 100, "window": "1m", "algorithm": "sliding_log"}, {"limit": 6101, "window": "1h", "algorithm": "fixed_window"}`), []string{hidden}},
		{limits(`{"limit": 100, "window": "1m", "algorithm": "sliding_log"}, {"limit": 6000, "window": "1h", "algorithm": "fixed_window"}`), nil},
		{limits(`{"limit": 100, "window": "1m", "algorithm": "fixed_window"}, {"limit": 150, "window": "1m"}`), nil},
		// Such rules count requests that they have not admitted.
		{rule(`"count_rejected": true, "limits": [{"limit": 100, "window": "1m"}, {"limit": 1000, "window": "1m"}]`), nil},
		{rule(`"cost_on_response": {"response_header": "x"}, "limits": [{"limit": 100, "window": "1m"}, {"limit": 1000, "window": "1m"}]`), nil},

		{`{"sync_rate": 5, "backend": {"cluster": "weir"}, "rules": [{"name": "a", "limits": [{"limit": 100, "window": "4999ms"}, {"limit": 400, "window": 5}]}]}`, []string{
			"rules[0].limits[0]: a window of 4s999ms ends before proxies synchronise every 5s (sync_rate): hits that one proxy leaves unused come too late for the others"}},
		{`{"sync_rate": 0, "backend": {"cluster": "weir"}, "rules": [{"name": "a", "limits": [{"limit": 100, "window": "1ms"}]}]}`, nil},
		{`{"sync_rate": -5, "rules": [{"name": "a", "limits": [{"limit": 100, "window": "1ms"}]}]}`, nil},

		// Words of shared limits, where nothing is shared.
		{`{"on_backend_failure": "deny", "rules": [{"name": "a", "reveal": "plain", "limits": [{"limit": 100, "window": 1}]}]}`, []string{
			"on_backend_failure: says nothing: without backend, or with a sync_rate below 0, a rule counts in each proxy alone",
			"rules[0].reveal: shows nobody anything: without backend, or with a sync_rate below 0, a rule counts in each proxy alone"}},
		{`{"on_backend_failure": "deny", "sync_rate": -1, "backend": {"cluster": "weir"}, "rules": [
			{"name": "a", "sync_rate": 1, "reveal": 4, "limits": [{"limit": 100, "window": 1}]}, {"name": "b", "reveal": 4, "limits": [{"limit": 100, "window": 1}]}]}`, []string{
			"rules[1].reveal: shows nobody anything: without backend, or with a sync_rate below 0, a rule counts in each proxy alone"}},
		{`{"on_backend_failure": "local", "rules": [{"name": "a", "reveal": "hash", "limits": [{"limit": 100, "window": 1}]}]}`, nil},

		// A class with less than a hit of one limit has no part of the others.
		{rule(`"limits": [{"limit": 1000, "window": "1h"}, {"limit": 9, "window": "1s", "algorithm": "sliding_log"}, {"limit": 600, "window": "1m", "algorithm": "token_bucket", "burst": 5}],
			"classes": {"by": {"header": "x-class"}, "of": {"a": {"guaranteed": 0.8}, "b": {"guaranteed": 0.112}, "c": {"most": 0.5}}}`), []string{
			"rules[0].limits[2]: guarantees nothing to class b, because 0.112 of it is less than a hit: it has the pool alone"}},
		{rule(`"limits": [{"limit": 9, "window": "1s", "algorithm": "token_bucket"}], "classes": {"by": {"header": "x-class"}, "of": {"a": {"guaranteed": 0.111}}}`), []string{
			"rules[0].limits[0]: guarantees nothing to class a, because 0.111 of it is less than a hit: it has the pool alone"}},

		{`{"capacity": 4095, "rules": [{"name": "a", "key": ["method", {"header": "X-Team"}, "path"], "limits": [{"limit": 100, "window": 1}]}]}`, []string{
			"capacity: room for 4095 counters, but rule a has one for each x-team: counters that make room for others forget their hits"}},
		{`{"capacity": 4096, "rules": [{"name": "a", "key": ["path"], "limits": [{"limit": 100, "window": 1}]}]}`, nil},
		{`{"capacity": 10, "rules": [{"name": "a", "key": ["method", {"header": ":scheme"}], "limits": [{"limit": 100, "window": 1}]}]}`, nil},

		{`{"rules": [{"name": "a", "key": ["path", {"header": "X-User"}], "limits": [{"limit": 100, "window": 1}]},
			{"name": "b", "key": [{"header": "x-user"}, {"header": "x-forwarded-for"}, {"header": "authorization"}], "limits": [{"limit": 100, "window": 1}]}]}`, []string{
			"rules[0].key[1]: a client may send any x-user, and so choose its counter, unless an earlier filter sets or removes it",
			"rules[1].key[1]: a client may send any x-forwarded-for, and so choose its counter; client_ip is the address that Envoy trusts",
		}},

		{rule(`"match": {"path": {"regex": "/([a-z]*,?[a-z]*){100}x"}}, "limits": [{"limit": 100, "window": 1}]`), nil},
		{rule(`"match": {"path": {"regex": "/[xy]*x[xy]{20}"}}, "except": [{"host": {"exact": "a"}}, {"headers": {"x-a": {"regex": ".*x.{500}"}}}], "limits": [{"limit": 100, "window": 1}]`), []string{
			"rules[0].match.path.regex" + states("1.6"), "rules[0].except[1].headers.x-a.regex" + states("30.3")}},

		// The prices of long prompts are for an entry, by its whole name.
		{prices(`"gpt-5*": {"input": 1}, "above=1000/gpt-5": {"input": 2}`), []string{
			`prices.models.of["above=1000/gpt-5"]: says nothing: the list has no entry "gpt-5"; want the whole name of one behind above=1000/, with its *`}},
		{prices(`"gpt-5": {"input": 1}, "above=1000/service_tier=flex/gpt-5": {"input": 2}, "above=7/*": {"input": 2}`), []string{
			`prices.models.of["above=1000/service_tier=flex/gpt-5"]: says nothing: the list has no entry "service_tier=flex/gpt-5"; want the whole name of one behind above=1000/, with its *`,
			`prices.models.of["above=7/*"]: says nothing: the list has no entry "*"; want the whole name of one behind above=7/, with its *`}},
		{prices(`"above=1000/gpt-5*": {"input": 2}, "gpt-5*": {"input": 1}, "above=7/service_tier=flex/m": {"input": 2}, "service_tier=flex/m": {"input": 1}, "above=7/*": {"input": 2}, "*": {"input": 1}`), nil},
		{prices(`"time=1-7,00:30-08:30/m": {"input": 1}, "time=00:00-00:00/above=9/n": {"input": 1}, "m*": {"input": 2}, "time=00:00-01:00/o*": {"input": 1}`), []string{
			`prices.models.of["time=00:00-00:00/above=9/n"]: says nothing: the list has no entry "n"; want the whole name of one behind time=00:00-00:00/above=9/, with its *`,
			`prices.models.of["time=00:00-01:00/o*"]: the list has no entry for "o*" at other times`}},
		{prices(`"time=00:30-08:30/above=9/m": {"input": 1}, "above=5/o": {"input": 2}, "time=00:00-01:00/o": {"input": 1}, "o*": {"input": 1}, "time=00:00-01:00/service_tier=flex/m": {"input": 1}, "m": {"input": 2}, "time=00:00-01:00/*": {"input": 1}`), nil},
	} {
		c, err := config.Parse([]byte(test.document))
		must.OKf(t, err, "%s", test.document)
		var got []string
		for _, w := range config.Warnings(c) {
			got = append(got, w.Error())
		}
		must.Same(t, got, test.want, "%s", test.document)
	}
}

// A limit with this warning has room whenever the other limit has, for any traffic.
func TestHiddenLimitsNeverDecide(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	shapes := []string{
		`"algorithm": "sliding_window"`, `"algorithm": "fixed_window"`, `"algorithm": "fixed_window", "start": "first_hit"`,
		`"algorithm": "sliding_log"`, `"algorithm": "token_bucket"`, `"algorithm": "token_bucket", "burst": 3`, `"precision": "500ms"`,
	}
	limit := func(most int) string {
		return `{"limit": ` + strconv.Itoa(1+random.IntN(most)) + `, "window": ` + strconv.Itoa(1+random.IntN(5)) + `, ` + shapes[random.IntN(len(shapes))] + `}`
	}
	hidden := 0
	for range 20_000 {
		document := `{"rules": [{"name": "a", "limits": [` + limit(6) + `, ` + limit(40) + `]}]}`
		c, err := config.Parse([]byte(document))
		must.OKf(t, err, "%s", document)
		for _, w := range config.Warnings(c) {
			if !strings.Contains(w.Problem, "never decides") {
				continue
			}
			hidden++
			this, other := &c.Rules[0].Limits[0], &c.Rules[0].Limits[1]
			if strings.Contains(w.Path, "limits[1]") {
				this, other = other, this
			}
			var a, b window.State
			for now := random.Int64N(1e10); now < 6e10; {
				other.Advance(&a, now)
				this.Advance(&b, now)
				if other.Allows(&a, 1) {
					must.EqualOrEnd(t, this.Allows(&b, 1), true, "%s at %d: %v", document, now, w)
					other.Count(&a, 1)
					this.Count(&b, 1)
				}
				switch random.IntN(8) {
				case 0:
					now += random.Int64N(3e9)
				case 1, 2:
					now += random.Int64N(3e8)
				default:
					now += random.Int64N(3e7)
				}
			}
		}
	}
	t.Logf("%d hidden limits", hidden)
	must.AtLeast(t, hidden, 1000, "hidden limits")
}
