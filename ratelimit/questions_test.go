package ratelimit

import (
	"testing"
	"time"

	"weir/internal/must"
)

// A program asks whether a budget has room, and another program counts the costs of requests. No more pass
// than with a single program, except those within a sync_rate.
func TestQuestions(t *testing.T) {
	t.Parallel()
	const limit, cost, every = 400, 120, 200 * time.Millisecond
	eachKind(t, limit, func(t *testing.T, kind string, of Limit, exact bool) {
		w := newWorld()
		a, b := limiter(t, w.node(t, Options{Rules: rule(of), Exact: exact}), "r"), limiter(t, w.node(t, Options{Rules: rule(of), Exact: exact}), "r")
		passes, left := 0, uint64(limit)
		for range 50 {
			d := decide(t, a, 0, "ann")
			if d.Remaining < cost {
				break
			}
			passes++
			if must.Get(b.AllowN(t.Context(), Key{"ann"}, cost))(t) {
				left -= cost
			}
			pause(every)
		}
		if most := limit/cost + int(time.Second/every); passes < limit/cost || passes > most || exact && passes != limit/cost {
			t.Errorf("%d requests pass, want %d to %d", passes, limit/cost, most)
		}
		if kind == "log" || kind == "tokens" { // which give none back
			return
		}
		// Hits that go back are there again, though the program that gives them back has taken none.
		must.OK(t, a.GiveBack(t.Context(), Key{"ann"}, limit-left))
		pause(5 * time.Second)
		for _, l := range []*Limiter{a, b} {
			must.AtLeast(t, decide(t, l, 0, "ann").Remaining, limit-32, "left, of which others may have leased some")
		}
	})
}
