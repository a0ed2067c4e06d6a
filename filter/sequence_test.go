package filter_test

import (
	"testing"
	"time"

	"weir/internal/must"
)

// A client that sends one request after the other, to one node or another, is not refused: what it
// held at one node is free for it at the next.
func TestPlacesOneAfterTheOther(t *testing.T) {
	for _, rate := range []string{"0", "0.2", "1"} {
		for _, limit := range []string{"1", "2", "5"} {
			w := newWorld(t, 3, 1, synced(rate, `{"name": "r", "limits": [{"limit": `+limit+`, "algorithm": "in_flight"}]}`))
			w.advance(3 * time.Second)
			refused := 0
			for i := range 400 {
				v := w.vms[i%3]
				s := v.pause()
				passed := s == nil && v.reply == nil
				for ms := 0; s != nil && ms < 400; ms++ {
					if w.advance(time.Millisecond); v.ended[s.ID()] > 0 {
						passed = v.reply == nil
						break
					}
				}
				if passed {
					w.advance(20 * time.Millisecond)
					v.reset(v.last)
				} else {
					refused++
				}
				w.advance(20 * time.Millisecond)
			}
			t.Logf("sync_rate %s, limit %s: %d of 400 refused", rate, limit, refused)
			must.AtMost(t, refused, 4, "sync_rate %s, limit %s: of 400 requests, of which no two were in flight, refused", rate, limit)
		}
	}
}

// While more clients want a place than there are, nearly all places are used.
func TestPlacesUnderPressure(t *testing.T) {
	const limit, clients = 20, 50
	for _, rate := range []string{"0", "0.1", "1"} {
		w := newWorld(t, 3, 1, synced(rate, `{"name": "r", "limits": [{"limit": 20, "algorithm": "in_flight"}]}`))
		w.advance(3 * time.Second)
		type client struct {
			v      *fakeVM
			s      *stream
			waits  bool
			passed bool
			until  int64
		}
		all := make([]client, clients)
		held, steps, used, most := 0, 0, 0, 0
		for ms := 0; ms < 25_000; ms += 2 {
			for i := range all {
				c := &all[i]
				switch {
				case c.waits && c.v.ended[c.s.ID()] == 0:
				case c.waits:
					c.waits = false
					if c.passed = !c.s.Answered(); c.passed {
						held++
						c.until = w.now + int64(w.random.IntN(500))*1e6
					} else {
						c.until = w.now + int64(1+w.random.IntN(20))*1e6
					}
				case w.now < c.until:
				case c.passed:
					c.v.reset(c.s)
					c.passed = false
					held--
				default:
					c.v = w.any()
					s := c.v.pause()
					if c.s = c.v.last; s != nil {
						c.waits = true
					} else if c.passed = c.v.reply == nil; c.passed {
						held++
						c.until = w.now + int64(w.random.IntN(500))*1e6
					} else {
						c.until = w.now + int64(1+w.random.IntN(20))*1e6
					}
				}
			}
			w.advance(2 * time.Millisecond)
			if most = max(most, held); ms >= 5000 {
				steps++
				used += held
			}
		}
		share := float64(used) / float64(steps) / limit
		if t.Logf("sync_rate %s: %.3f of the places are used", rate, share); share < 0.95 || most > limit {
			t.Errorf("sync_rate %s: %.3f of the places are used, up to %d", rate, share, most)
		}
	}
}
