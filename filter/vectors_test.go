package filter_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/window"
)

// vector is one of window/testdata/vectors.json: what a rule with these limits decides, step by
// step. The same file is run against the compiled plugin in package e2e.
type vector struct {
	Name   string            `json:"name"`
	Limits []json.RawMessage `json:"limits"`
	Steps  []vectorStep      `json:"steps"`
}

// vectorStep is a request, and what is to become of it. Seconds are rounded as in headers.
type vectorStep struct {
	// At is the time since the beginning of a day.
	At   string `json:"at"`
	Key  string `json:"key,omitempty"`
	Cost uint64 `json:"cost"`

	Allowed bool `json:"allowed"`
	// Remaining and Next are r and t of each limit.
	Remaining []uint64 `json:"remaining"`
	Next      []uint64 `json:"t"`
	// Reset is X-RateLimit-Reset.
	Reset uint64 `json:"reset"`
	// RetryAfter is -1 if there is none.
	RetryAfter int64 `json:"retry_after"`
}

func readVectors(t *testing.T) (vectors []vector) {
	t.Helper()
	b, err := os.ReadFile("../window/testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(b, &vectors)
	}
	if err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	return vectors
}

func (v *vector) configuration(t *testing.T) string {
	t.Helper()
	limits, err := json.Marshal(v.Limits)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"rules": [{"name": "r", "key": [{"header": "x-key"}], "cost": {"header": "x-cost", "least": 0}, "limits": %s}]}`, limits)
}

func (s *vectorStep) time(t *testing.T) int64 {
	t.Helper()
	d, err := time.ParseDuration(s.At)
	if err != nil {
		t.Fatal(err)
	}
	return monday + int64(d)
}

// TestVectors runs the vectors against the algorithms alone, with a counter for each key.
func TestVectors(t *testing.T) {
	for _, vector := range readVectors(t) {
		c, err := config.Parse([]byte(vector.configuration(t)))
		if err != nil {
			t.Fatal(err)
		}
		limits := c.Rules[0].Limits
		shown := fields.NewRule(c.Rules[0].Name, limits)
		var headers fields.List
		counters := map[string]*counter.Counter{}
		for i, step := range vector.Steps {
			kept := counters[step.Key]
			if kept == nil {
				kept = &counter.Counter{}
				kept.Load(&counter.Rule{Limits: limits}, nil)
				counters[step.Key] = kept
			}
			now := step.time(t)
			kept.Advance(now)
			d := engine.Check{Ref: engine.Ref{Rule: &engine.Rule{Rule: counter.Rule{Limits: limits}}, Cost: step.Cost}}
			allowed := kept.Allows(step.Cost)
			d.Verdict = counter.Rejected
			if allowed {
				d.Verdict = counter.Allowed
				kept.Count(step.Cost)
			}
			if allowed != step.Allowed {
				t.Errorf("%s\nstep %d: allowed %v", vector.Name, i, allowed)
			}
			d.Counter = *kept
			headers.Begin(fields.Seconds, now)
			headers.Rule(&shown, fields.All)
			for j := range limits {
				headers.Limit(d.Standing(j, now))
			}
			headers.End()
			if !allowed {
				at, ok := engine.RetryAt([]engine.Check{d}, now)
				headers.Refuse(fields.All, at, ok)
			}
			want(t, sent(&headers), step.headers())
		}
	}
}

// TestVectorsThroughTheTable runs them through whole requests.
func TestVectorsThroughTheTable(t *testing.T) {
	for _, vector := range readVectors(t) {
		p := newProxy(t)
		workers := []*fakeVM{p.start(vector.configuration(t)), p.start(vector.configuration(t))}
		for i, step := range vector.Steps {
			p.now = step.time(t)
			v := workers[i%2]
			passed := v.send("x-key", step.Key, "x-cost", fmt.Sprint(step.Cost))
			headers := v.response
			if !passed {
				headers = v.reply.headers
			}
			if passed != step.Allowed {
				t.Errorf("%s\nstep %d: passed %v", vector.Name, i, passed)
			}
			want(t, headers, step.headers())
		}
	}
}

func (s *vectorStep) headers() string {
	state := ""
	for i := range s.Remaining {
		name := `"r"`
		if i > 0 {
			name = fmt.Sprintf(`, "r.%d"`, i+1)
		}
		state += fmt.Sprintf("%s;r=%d;t=%d", name, s.Remaining[i], s.Next[i])
	}
	retry := ""
	if s.RetryAfter >= 0 {
		retry = fmt.Sprint(s.RetryAfter)
	}
	return fmt.Sprintf("ratelimit: %s\nx-ratelimit-reset: %d\nretry-after: %s\n", state, s.Reset, retry)
}

// TestRetryAfterIsTrue holds 10,000 rejections of random rules to their word: after so many seconds
// the same request passes, and a second earlier, where there is one, it does not.
func TestRetryAfterIsTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	widths := []int64{1e6, 50e6, second, 7 * second, minute, 3600 * second, 24 * 3600 * second}
	for refusals := 0; refusals < 10_000; {
		r := &engine.Rule{}
		for range random.IntN(3) + 1 {
			width := widths[random.IntN(len(widths))]
			l := window.Limit{Shape: window.Shape{Kind: window.Kind(random.IntN(5) + 1), Width: width}, Max: random.Uint64N(30) + 1}
			switch l.Kind {
			case window.SlidingBuckets:
				l.Precision = width / []int64{2, 5, 10, width}[random.IntN(4)]
			case window.TokenBucket:
				l.Burst = random.Uint64N(40) + 1
			}
			r.Limits = append(r.Limits, l)
		}
		d := engine.Check{Ref: engine.Ref{Rule: r}}
		d.Counter.Load(&r.Rule, nil)
		now := monday + random.Int64N(24*3600*second)
		for range 60 {
			now += random.Int64N(r.Limits[0].Width/4 + 1)
			d.Cost = random.Uint64N(6) + 1
			d.Counter.Advance(now)
			if d.Counter.Allows(d.Cost) {
				d.Counter.Count(d.Cost)
				continue
			}
			at, ok := engine.RetryAt([]engine.Check{d}, now)
			if ok != d.Counter.Possible(d.Cost) {
				t.Fatalf("%+v, cost %d: retry in %d, %v", r.Limits, d.Cost, at-now, ok)
			}
			if !ok {
				continue
			}
			refusals++
			seconds := max((at-now+second-1)/second, 1)
			if !passesAt(&d, now+seconds*second) {
				t.Fatalf("%+v, cost %d: refused again after %d s", r.Limits, d.Cost, seconds)
			}
			if seconds > 1 && passesAt(&d, now+(seconds-1)*second) {
				t.Fatalf("%+v, cost %d: told to wait %d s, but passes a second earlier", r.Limits, d.Cost, seconds)
			}
		}
	}
}

func passesAt(d *engine.Check, at int64) bool {
	later := &counter.Counter{}
	later.Load(&d.Rule.Rule, d.Counter.Append(nil, 0))
	later.Advance(at)
	return later.Allows(d.Cost)
}
