package link

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/engine/jitter"
	"weir/internal/must"
	"weir/sharedata"
)

// Pauses double up to a bound, and differ.
func TestBreakerPauses(t *testing.T) {
	l := New(new(sharedata.Map), "default", nil, rand.New(rand.NewPCG(1, 2)).Uint64, 200e6, nil)
	now := int64(1_700_000_000e9)
	seen := map[int64]bool{}
	for failure := range 40 {
		now += 60e9
		l.failed(now, now)
		if failure < breakAfter-1 {
			must.EqualOrEnd(t, l.Open(), false, "open after %d failures", failure+1)
			continue
		}
		pause := l.shared.retryAt - now
		usual := min(int64(50e6)<<min(failure-breakAfter+1, 20), jitter.LongestPause)
		must.Between(t, time.Duration(pause), time.Duration(usual/2), time.Duration(3*usual/2), "failure %d: a pause of", failure+1)
		seen[pause] = true
	}
	must.AtLeast(t, len(seen), 30, "of 38 pauses differ")
	l.see(now, now+1, now)
	l.reached(1)
	must.Equal(t, l.Open(), false, "open after an answer")
	must.Equal(t, l.Reach(), Near, "the backend after an answer")
}

// Callouts that were sent before the breaker opened say nothing new, and a clock that went back
// holds nothing up.
func TestBreakerAndOldNews(t *testing.T) {
	now := clock(1_700_000_000e9)
	l := New(new(sharedata.Map), "default", &now, rand.New(rand.NewPCG(1, 2)).Uint64, 200e6, nil)
	sentAt := int64(now)
	now += 1e9
	for range 20 {
		l.failed(int64(now), sentAt)
	}
	must.Equal(t, l.shared.failures, breakAfter, "failures: the others are of callouts from before")
	now -= 3600e9
	must.Equal(t, l.Reach() != Away && l.Enter(), true, "a probe goes though the clock went back by an hour")
	must.Equal(t, l.Enter(), false, "two probes")
	now += 201e6
	must.Equal(t, l.Enter(), true, "another probe goes if one is not answered")
}

// clock is a host's clock that a test sets.
type clock int64

func (c *clock) Now() int64 { return int64(*c) }

func TestClockCorrection(t *testing.T) {
	var c Link
	for i, step := range []struct{ sent, received, backend, offset int64 }{
		{0, 10e6, 5e6, 0},                  // agrees
		{1e9, 1e9 + 10e6, 1e9 + 9e6, 0},    // within the round trip
		{2e9, 2e9 + 10e6, 5e9, 3e9 - 5e6},  // 3 s behind the backend
		{3e9, 3e9 + 500e6, 9e9, 3e9 - 5e6}, // a slow answer says less than the one before
		{70e9, 70e9 + 500e6, 73e9, 2.75e9}, // but that is old by now
		{80e9, 79e9, 73e9, 2.75e9},         // the clock was set meanwhile
		{90e9, 90e9 + 10e6, 90e9 + 5e6, 0}, // agrees again
	} {
		c.see(step.sent, step.received, step.backend)
		must.Equal(t, c.offset, step.offset, "step %d: offset", i)
	}
}
