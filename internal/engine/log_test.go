package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/must"
	"weir/window"
)

// TestLogsAfterAnOutage lets a log of 100 hits fill while the backend is away, by requests at random times, and
// wants no more to pass when it is back: what it grants before it has counted these hits stands for them. A lost call
// that is repeated may still bring a grant while all these hits are on their way. That is a hit, and seldom.
func TestLogsAfterAnOutage(t *testing.T) {
	t.Parallel()
	l := limit(window.SlidingBuckets, 100, day)
	l.Precision = window.LogPrecision
	full, above := 0, 0
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 1, 1+int(seed/3)%2, second, engine.Options{}, users(l))
		w.advance(time.Second)
		type late struct {
			push fakePush
			of   *fakeNode
			at   int64
		}
		var waiting []*fakeRequest
		var out []late
		passed, most, phase := 0, 1+r.IntN(40), [2]int{r.IntN(100), r.IntN(100)}
		run := func(millis int, away bool) {
			for _, n := range w.nodes {
				n.refuse = away
			}
			for i := range millis {
				w.pass(time.Millisecond)
				for range r.IntN(most) {
					switch request, verdict := w.nodes[0].request("zoe"); verdict {
					case counter.Allowed:
						passed++
					case counter.Unsure:
						waiting = append(waiting, request)
					}
				}
				for j, n := range w.nodes {
					if (i+phase[j])%100 == 0 {
						n.tick()
					}
					for _, p := range n.taken() {
						out = append(out, late{p, n, w.now + int64(r.IntN(4))*1e6})
					}
				}
				rest := out[:0]
				for _, o := range out {
					if o.at > w.now {
						rest = append(rest, o)
					} else {
						o.of.answer(o.push)
					}
				}
				out = rest
			}
		}
		run(200+r.IntN(3000), true)
		alone := passed + allowed(waiting)
		run(2500, false)
		all := passed + allowed(waiting)
		if all > 100 {
			above++
		}
		must.AtMost(t, all, 101, "seed %d: passed, and %d of them while the backend was away", seed, alone)
		if alone == 100 {
			full++
		}
	}
	must.AtLeast(t, full, 50, "logs that were full")
	must.AtMost(t, above, 5, "logs that let a hit more pass")
}
