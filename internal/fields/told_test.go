package fields_test

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/fields"
	"weir/internal/must"
)

var toldAt = time.Date(2026, 2, 28, 23, 59, 30, 5e8, time.UTC)

func held(status int, response string) time.Duration {
	values := map[string]string{}
	for line := range strings.SplitSeq(response, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		values[name] = value
	}
	return time.Duration(fields.Held(status, func(name string) ([]byte, bool) {
		value, ok := values[name]
		return []byte(value), ok
	}, toldAt.UnixNano()))
}

func TestHeld(t *testing.T) {
	for _, c := range []struct {
		status   int
		response string
		want     time.Duration
	}{
		{429, "retry-after: 7", 7 * time.Second},
		{429, "retry-after: 0.25", time.Second / 4},
		{503, "retry-after: 7", 7 * time.Second},
		{200, "retry-after: 7", 0},
		{301, "retry-after: 7", 0},
		{429, "retry-after-ms: 1500\nretry-after: 7", 1500 * time.Millisecond},
		{429, "retry-after: Sun, 01 Mar 2026 00:00:00 GMT", 29500 * time.Millisecond},
		{429, "retry-after: Sun, 01 Mar 2026 00:00:00 CET", 0},
		{429, "retry-after: Sat, 28 Feb 2026 23:59:30 GMT", 0},
		{429, "retry-after: -7", 0},
		{429, "retry-after: soon", 0},
		{429, "retry-after: 7 s", 0},
		{429, "", 0},
		{503, "x-ratelimit-remaining: 0\nx-ratelimit-reset: 5", 0}, // it is not about limits
		{429, "x-ratelimit-remaining: 3\nx-ratelimit-reset: 5", 0},
		{429, "retry-after: 2\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 5", 2 * time.Second},
		{200, "x-ratelimit-remaining: 0\nx-ratelimit-reset: 5", 5 * time.Second},
		{200, "x-ratelimit-remaining: 0.0\nx-ratelimit-reset: 5.5", 5500 * time.Millisecond},
		{200, "x-ratelimit-remaining: 0", 0},
		{200, "x-ratelimit-reset: 5", 0},
		{200, "x-ratelimit-remaining: none\nx-ratelimit-reset: 5", 0},
		{200, "x-ratelimit-remaining: 0\nx-ratelimit-reset: " + strconv.FormatInt(toldAt.Unix()+9, 10), 8500 * time.Millisecond},
		{200, "x-ratelimit-remaining: 0\nx-ratelimit-reset: " + strconv.FormatInt(toldAt.UnixMilli()+9, 10), 9 * time.Millisecond},
		{200, "x-ratelimit-remaining: 0\nx-ratelimit-reset: " + strconv.FormatInt(toldAt.Unix()-9, 10), 0},
		{200, "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1m30.5s", 90500 * time.Millisecond},
		{200, "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 20ms", 6 * time.Minute},
		{200, "x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 1h2m", 62 * time.Minute},
		{200, "x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 1y", 0},
		{200, "x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: h", 0},
		{200, "anthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2026-02-28T23:59:59Z", 28500 * time.Millisecond},
		{200, "anthropic-ratelimit-output-tokens-remaining: 0\nanthropic-ratelimit-output-tokens-reset: 2026-03-01T01:00:00.123+01:00", 29500 * time.Millisecond},
		{200, "anthropic-ratelimit-output-tokens-remaining: 0\nanthropic-ratelimit-output-tokens-reset: 2026-02-28T22:00:00-02:00", 29500 * time.Millisecond},
		{200, `ratelimit: "default";r=0;t=30`, 30 * time.Second},
		{200, `ratelimit: "a;r=0;t=9";r=1;t=30, "b, \"c"; r=0; t=12, "d";t=40;r=0`, 40 * time.Second},
		{200, `ratelimit: "default";r=1;t=30`, 0},
		{200, `ratelimit: "default";r=0`, 0},
		{200, "ratelimit-remaining: 0\nratelimit-reset: 4", 4 * time.Second},
	} {
		must.Equal(t, held(c.status, c.response), c.want, "%d %q", c.status, c.response)
	}
	for _, huge := range []string{strings.Repeat("9", 100), "99999999999999999999h99999999999999999h", "9999-12-31T23:59:59Z"} {
		must.Between(t, held(429, "retry-after: "+huge), 1000*24*time.Hour, math.MaxInt64/2, "%s", huge)
	}
}

// FuzzHeld wants dates as Go's own parsers read them, and nothing below 0 or too large to add to a time.
func FuzzHeld(f *testing.F) {
	for _, text := range []string{"Sun, 06 Nov 2094 08:49:37 GMT", "2027-02-29T00:00:00Z", "2026-12-31T23:59:60.5+14:00", "1h2m3.5s", "0.5", "9e9", `"a";r=0;t=5`} {
		f.Add(text, int64(1e18))
	}
	f.Fuzz(func(t *testing.T, text string, now int64) {
		now = max(now, -now) & (1<<62 - 1)
		for _, name := range []string{"retry-after", "retry-after-ms", "ratelimit"} {
			got := fields.Held(429, func(of string) ([]byte, bool) { return []byte(text), of == name }, now)
			must.Between(t, got, 0, math.MaxInt64/2, "%s %q at %d", name, text, now)
			if name != "retry-after" {
				continue
			}
			at, err := http.ParseTime(text)
			if err != nil || !strings.HasSuffix(text, " GMT") || strings.Contains(text, "-") {
				if at, err = time.Parse(time.RFC3339, text); err != nil || len(text) > 19 && text[19] == ',' {
					continue
				}
			}
			if want := min(max(at.Unix()*1e9-now, 0), math.MaxInt64/4); 1970 < at.Year() && at.Year() < 2200 && got != want {
				t.Fatalf("%q at %d: %d, want %d", text, now, got, want)
			}
		}
	})
}
