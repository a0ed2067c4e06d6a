package answer

import (
	"testing"
	"time"

	"weir/internal/fields"
	"weir/internal/must"
	"weir/ratelimit"
)

// A program may make a limiter for each request. The fields are those of its limits, and only some limiters are kept.
func TestLimitersOfRequests(t *testing.T) {
	rule := must.Get(ratelimit.NewLimiter(ratelimit.FixedWindow(1, time.Minute)))(t)
	w := NewWriter(0, fields.Seconds)
	for i := range uint64(10_000) {
		l := must.Get(rule.WithLimits(ratelimit.FixedWindow(i%7+20_000, time.Minute)))(t)
		d := must.Get(ratelimit.Decide(t.Context(), l.Demand(nil, 1)))(t)
		w.Write(&d, func(name string, value []byte) {
			if name == "x-ratelimit-limit" {
				must.Equal(t, string(value), "2000"+string(rune('0'+i%7)), "request %d: a limit of", i)
			}
		})
	}
	kept := 0
	w.rules.Range(func(any, any) bool { kept++; return true })
	if kept == 0 || kept > mostKept {
		t.Errorf("%d limiters are kept, want 1 to %d", kept, mostKept)
	}
}
