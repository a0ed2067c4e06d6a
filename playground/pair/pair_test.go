package pair

import (
	"testing"

	"weir/internal/must"
	"weir/internal/sim"
)

const (
	limit = 200
	width = 10 * sim.Second
)

func start(t *testing.T) *Pair {
	t.Helper()
	return must.Get(New(limit, width))(t)
}

// send sends requests to a proxy, some milliseconds apart.
func (p *Pair) send(proxy, requests int, apart int64) {
	for range requests {
		p.Hit(proxy)
		p.Advance(apart * sim.Millisecond)
	}
}

func (p *Pair) view() (v struct{ most, ends, requests, waited, a, b, heldA, heldB, sent float64 }) {
	n := p.AppendView(nil)
	v.most, v.ends, v.requests, v.waited, v.a, v.heldA, v.b, v.heldB, v.sent = n[0], n[1], n[2], n[3], n[4], n[6], n[8], n[10], n[7]+n[11]
	return v
}

// Two proxies let the limit pass, whoever gets the requests, and few requests wait.
func TestOneLimit(t *testing.T) {
	t.Parallel()
	for name, share := range map[string][2]int{"even": {150, 150}, "one": {300, 0}, "other": {60, 240}} {
		p := start(t)
		before := p.view()
		if before.most != 0 || before.ends != float64(width) || before.requests != 0 {
			t.Errorf("%s: it begins with %+v", name, before)
		}
		for i := range 300 {
			// A proxy that was refused asks again within a second and a half.
			for proxy := range share {
				if i < share[proxy] {
					p.send(proxy, 1, 20)
				}
			}
		}
		v := p.view()
		// What a proxy holds at the window's end is lost to the other.
		if v.a+v.b > limit || v.a+v.b+v.heldA+v.heldB < limit || v.requests != 300 {
			t.Errorf("%s: %v and %v have passed of %v, and %v and %v are held", name, v.a, v.b, v.requests, v.heldA, v.heldB)
		}
		if v.waited == 0 || v.waited > 40 || v.sent == before.sent {
			t.Errorf("%s: %v waited, %v callouts", name, v.waited, v.sent-before.sent)
		}
	}
}

// Without the backend each proxy counts alone; what has passed counts when it is back.
func TestAway(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Away(true)
	p.send(0, 250, 10)
	p.send(1, 250, 10)
	if v := p.view(); v.a != limit || v.b != limit {
		t.Errorf("alone, %v and %v have passed", v.a, v.b)
	}
	p.Away(false)
	p.Advance(3 * sim.Second)
	must.AtLeast(t, p.view().most, 2*limit, "hits that count")
	p.send(0, 10, 10)
	must.Equal(t, p.view().a, limit, "have passed")
}
