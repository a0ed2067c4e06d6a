package ratelimit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/must"
)

// A program asks whether a budget has room, and another program counts the costs of requests. No more pass
// than with a single program, except those within a sync_rate.
func TestQuestions(t *testing.T) {
	t.Parallel()
	const limit, cost, every = 400, 120, 200 * time.Millisecond
	for kind, of := range kinds(limit) {
		givesBack := kind != "log" && kind != "tokens"
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " exact ", exact), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					a, b := limiter(t, w.node(t, Options{Rules: rule(of), Exact: exact}), "r"), limiter(t, w.node(t, Options{Rules: rule(of), Exact: exact}), "r")
					passes, left := 0, uint64(limit)
					for range 50 {
						d := decide(t, a, 0, "ann")
						if d.Remaining < cost {
							break
						}
						passes++
						if ok, err := b.AllowN(t.Context(), Key{"ann"}, cost); err != nil {
							t.Fatal(err)
						} else if ok {
							left -= cost
						}
						pause(every)
					}
					if most := limit/cost + int(time.Second/every); passes < limit/cost || passes > most || exact && passes != limit/cost {
						t.Errorf("%d requests pass, want %d to %d", passes, limit/cost, most)
					}
					if !givesBack {
						return
					}
					// Hits that go back are there again, though the program that gives them back has taken none.
					must.OK(t, a.GiveBack(t.Context(), Key{"ann"}, limit-left))
					pause(5 * time.Second)
					for _, l := range []*Limiter{a, b} {
						if d := decide(t, l, 0, "ann"); d.Remaining < limit-32 { // others may have leased some
							t.Errorf("%d are left, want %d", d.Remaining, limit)
						}
					}
				})
			})
		}
	}
}
