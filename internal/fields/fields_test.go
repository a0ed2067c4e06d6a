package fields_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/fields"
	"weir/internal/must"
	"weir/window"
)

const (
	second = int64(1e9)
	minute = 60 * second
	now    = 1_767_571_200 * second
)

var (
	perUser = fields.NewRule("per-user", []window.Limit{
		{Shape: window.Shape{Kind: window.SlidingWindow, Width: minute}, Max: 100},
		{Shape: window.Shape{Kind: window.FixedWindow, Width: second}, Max: 10},
	}, fields.Requests)
	bucket = fields.NewRule("bucket", []window.Limit{
		// A bucket that fills in 7.5 s has no w.
		{Shape: window.Shape{Kind: window.TokenBucket, Width: minute}, Max: 40, Burst: 5},
	}, fields.Weighted)
	none = fields.NewRule("none", []window.Limit{{Shape: window.Shape{Kind: window.FixedWindow, Width: minute}}}, fields.Requests)
)

// write has a list write a response, and returns it a field to a line.
func write(l *fields.List, set fields.Set, unit fields.ResetUnit, rules []*fields.Rule, standings [][]window.Standing) string {
	l.Begin(unit, now)
	for i, r := range rules {
		l.Rule(r, set)
		for _, s := range standings[i] {
			l.Limit(s)
		}
	}
	l.End()
	return lines(l)
}

// TestVariants wants rules with other limits to be written as if they were made for these.
func TestVariants(t *testing.T) {
	own := [][]window.Limit{
		{{Shape: window.Shape{Kind: window.SlidingWindow, Width: minute}, Max: 100}, {Shape: window.Shape{Kind: window.FixedWindow, Width: second}, Max: 10}},
		{{Shape: window.Shape{Kind: window.TokenBucket, Width: minute}, Max: 40, Burst: 5}, window.NewBlock(minute)},
	}
	other := [][]window.Limit{
		{{Shape: window.Shape{Kind: window.SlidingWindow, Width: minute}, Max: 123456}, {Shape: window.Shape{Kind: window.FixedWindow, Width: second}}},
		{{Shape: window.Shape{Kind: window.TokenBucket, Width: minute}, Max: 60, Burst: 30}},
	}
	var varied, want fields.List
	limit := func(l *fields.List, limits []window.Limit) {
		for i := range limits {
			l.Limit(window.Standing{Remaining: uint64(i), Next: second})
		}
	}
	write := func() {
		varied.Begin(fields.Seconds, now)
		want.Begin(fields.Seconds, now)
		for i, name := range []string{"a", "b"} {
			rule, made := fields.NewRule(name, own[i], "cents"), fields.NewRule(name, other[i], "cents")
			varied.Variant(&rule, other[i], fields.All)
			limit(&varied, other[i])
			want.Rule(&made, fields.All)
			limit(&want, other[i])
		}
		varied.End()
		want.End()
	}
	for range 2 { // with memory of the first response
		if write(); lines(&varied) != lines(&want) || !strings.Contains(lines(&want), `"a";q=123456;qu="cents";w=60, "a.2";q=0;qu="cents", "b";q=30;qu="cents";w=30`) {
			t.Errorf("got\n%swant\n%s", lines(&varied), lines(&want))
		}
	}
}

func lines(l *fields.List) string {
	var text strings.Builder
	for _, f := range l.Fields() {
		text.WriteString(f.Name + ": " + string(f.Value) + "\n")
	}
	return text.String()
}

func TestList(t *testing.T) {
	var l fields.List
	for _, test := range []struct {
		name      string
		set       fields.Set
		unit      fields.ResetUnit
		rules     []*fields.Rule
		standings [][]window.Standing
		want      string
	}{
		{"the contract's example", fields.All, fields.Seconds, []*fields.Rule{&perUser},
			[][]window.Standing{{{Remaining: 50, Next: 30 * second, Reset: 30 * second}, {Remaining: 9, Next: second, Reset: second}}}, `
ratelimit-policy: "per-user";q=100;w=60, "per-user.2";q=10;w=1
ratelimit: "per-user";r=50;t=30, "per-user.2";r=9;t=1
x-ratelimit-limit: 10
x-ratelimit-remaining: 9
x-ratelimit-reset: 1
`},
		{"several rules", fields.RateLimit, fields.Seconds, []*fields.Rule{&bucket, &perUser, &none},
			[][]window.Standing{{{Remaining: 5}}, {{Remaining: 1234, Next: 1}, {Remaining: 12345}}, {{Reset: -1}}}, `
ratelimit-policy: "bucket";q=5, "per-user";q=100;w=60, "per-user.2";q=10;w=1, "none";q=0
ratelimit: "bucket";r=5;t=0, "per-user";r=1234;t=1, "per-user.2";r=12345;t=0, "none";r=0;t=0
`},
		{"one rule after several", fields.RateLimit, fields.Seconds, []*fields.Rule{&none}, [][]window.Standing{{{}}}, `
ratelimit-policy: "none";q=0
ratelimit: "none";r=0;t=0
`},
		{"among equals the longest t", fields.XRateLimit, fields.Seconds, []*fields.Rule{&bucket, &perUser},
			[][]window.Standing{{{Remaining: 3, Next: second, Reset: 1}}, {{Remaining: 4, Next: minute}, {Remaining: 3, Next: second + 1, Reset: 2 * second}}}, `
x-ratelimit-limit: 10
x-ratelimit-remaining: 3
x-ratelimit-reset: 2
`},
		{"t counts in seconds, then the first", fields.XRateLimit, fields.Seconds, []*fields.Rule{&bucket, &perUser},
			[][]window.Standing{{{Remaining: 3, Next: 1, Reset: 1}}, {{Remaining: 3, Next: second, Reset: minute}, {Remaining: 3}}}, `
x-ratelimit-limit: 5
x-ratelimit-remaining: 3
x-ratelimit-reset: 1
`},
		{"milliseconds", fields.XRateLimit, fields.Milliseconds, []*fields.Rule{&none}, [][]window.Standing{{{Reset: second + 1}}}, `
x-ratelimit-limit: 0
x-ratelimit-remaining: 0
x-ratelimit-reset: 1001
`},
		{"epoch", fields.XRateLimit, fields.Epoch, []*fields.Rule{&none}, [][]window.Standing{{{Reset: second + 1}}}, `
x-ratelimit-limit: 0
x-ratelimit-remaining: 0
x-ratelimit-reset: 1767571202
`},
		{"tokens", fields.All | fields.Tokens, fields.Milliseconds, []*fields.Rule{&bucket}, [][]window.Standing{{{Remaining: 3, Next: second, Reset: 59*second + 1}}}, `
ratelimit-policy: "bucket";q=5
ratelimit: "bucket";r=3;t=1
x-ratelimit-limit: 5
x-ratelimit-remaining: 3
x-ratelimit-reset: 59001
x-ratelimit-limit-tokens: 5
x-ratelimit-remaining-tokens: 3
x-ratelimit-reset-tokens: 1m0s
`},
		{"the tightest of tokens", fields.Tokens, fields.Epoch, []*fields.Rule{&perUser}, [][]window.Standing{{{Remaining: 7, Reset: 3*3600*second - 1}, {Remaining: 8}}}, `
x-ratelimit-limit-tokens: 100
x-ratelimit-remaining-tokens: 7
x-ratelimit-reset-tokens: 3h0m0s
`},
		{"tokens as Anthropic has them", fields.AnthropicTokens, fields.Seconds, []*fields.Rule{&perUser}, [][]window.Standing{{{Remaining: 8}, {Remaining: 7, Reset: second + 1}}}, `
anthropic-ratelimit-tokens-limit: 10
anthropic-ratelimit-tokens-remaining: 7
anthropic-ratelimit-tokens-reset: 2026-01-05T00:00:02Z
`},
		{"tokens, both ways", fields.Tokens | fields.AnthropicTokens, fields.Seconds, []*fields.Rule{&none}, [][]window.Standing{{{Reset: -1}}}, `
x-ratelimit-limit-tokens: 0
x-ratelimit-remaining-tokens: 0
x-ratelimit-reset-tokens: 0s
anthropic-ratelimit-tokens-limit: 0
anthropic-ratelimit-tokens-remaining: 0
anthropic-ratelimit-tokens-reset: 2026-01-05T00:00:00Z
`},
		{"nothing runs", fields.XRateLimit, fields.Epoch, []*fields.Rule{&none}, [][]window.Standing{{{Reset: -minute}}}, `
x-ratelimit-limit: 0
x-ratelimit-remaining: 0
x-ratelimit-reset: 1767571200
`},
	} {
		// The memory of a list is reused, whatever it had before.
		must.Equal(t, write(&l, test.set, test.unit, test.rules, test.standings), test.want[1:], "%s", test.name)
	}
}

func TestRefusal(t *testing.T) {
	for _, test := range []struct {
		set   fields.Set
		wait  int64
		never bool
		want  string
	}{
		{fields.All, 3*second + 1, false, "retry-after: 4\nx-envoy-ratelimited: true\n"},
		{fields.All, 0, false, "retry-after: 1\nx-envoy-ratelimited: true\n"},
		{fields.All, 0, true, "x-envoy-ratelimited: true\n"},
		{fields.RateLimit, second, false, "x-envoy-ratelimited: true\n"},
	} {
		var l fields.List
		l.Begin(fields.Seconds, now)
		l.Refuse(test.set, now+test.wait, !test.never)
		must.Equal(t, lines(&l), test.want, "%+v", test)
	}
}

func TestWarnings(t *testing.T) {
	var l fields.List
	write(&l, fields.All, fields.Seconds, []*fields.Rule{&perUser}, [][]window.Standing{{{}, {}}})
	before := len(l.Fields())
	l.Warn(&bucket, fields.RateLimit, 1)
	l.Warn(&perUser, fields.XRateLimit, 0)
	if l.EndWarnings(); len(l.Fields()) != before {
		t.Errorf("nobody warns, and got\n%s", lines(&l))
	}
	l.Warn(&perUser, fields.XRateLimit, 3)
	l.Warn(&none, fields.XRateLimit, 0)
	l.Warn(&bucket, fields.XRateLimit, 1)
	l.EndWarnings()
	l.Refuse(fields.RetryAfter, now, true)
	want := `x-ratelimit-warning: "per-user", "per-user.2", "bucket"` + "\nretry-after: 1\nx-envoy-ratelimited: true\n"
	if got := lines(&l); !strings.HasSuffix(got, want) || len(l.Fields()) != before+3 {
		t.Errorf("got\n%swant at the end\n%s", got, want)
	}
}

// Numbers of each length are written as they are.
func TestNumbers(t *testing.T) {
	var l fields.List
	for _, n := range []uint64{0, 9, 10, 99, 100, 999, 1000, 9999, 10_000, 1<<64 - 1} {
		got := write(&l, fields.XRateLimit, fields.Seconds, []*fields.Rule{&none}, [][]window.Standing{{{Remaining: n}}})
		must.Contains(t, got, "x-ratelimit-remaining: "+strconv.FormatUint(n, 10)+"\n", "")
	}
}

// Times are those of package time, over 400 years and as long as limits take.
func TestTimes(t *testing.T) {
	var l fields.List
	random := rand.New(rand.NewPCG(1, 2))
	for day := int64(0); day < 400*366; day++ {
		at := time.Unix(day*24*3600+random.Int64N(24*3600), 0).UTC()
		reset := random.Int64N(366 * 24 * 3600 >> random.IntN(25))
		l.Begin(fields.Seconds, at.Unix()*second-reset*second%second)
		l.Rule(&none, fields.Tokens|fields.AnthropicTokens)
		l.Limit(window.Standing{Reset: reset * second})
		l.End()
		then := at.Add(time.Duration(reset) * time.Second)
		if then.Year() >= 2262 {
			break // where nanoseconds end
		}
		got := l.Fields()
		must.EqualOrEnd(t, string(got[2].Value), (time.Duration(reset) * time.Second).String(), "%s: %s", got[2].Name, got[2].Value)
		must.EqualOrEnd(t, string(got[5].Value), then.Format(time.RFC3339), "%s: %s", got[5].Name, got[5].Value)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var l fields.List
	rules, standings := []*fields.Rule{&bucket, &perUser}, [][]window.Standing{{{}}, {{Remaining: 1}, {Remaining: 123456}}}
	respond := func() {
		l.Begin(fields.Seconds, now)
		for i, r := range rules {
			l.Rule(r, fields.All|fields.Tokens|fields.AnthropicTokens)
			for _, s := range standings[i] {
				l.Limit(s)
			}
		}
		l.End()
		l.Refuse(fields.All, now+second, true)
	}
	respond()
	must.Equal(t, testing.AllocsPerRun(100, respond), 0, "allocations")
}
