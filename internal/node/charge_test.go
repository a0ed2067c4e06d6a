package node

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/window"
)

// charged is a request that takes hits before it is known what it costs.
type charged struct {
	Wait
	node    *fakeNode
	verdict counter.Verdict
	charges []Charge
}

// Decided implements Waiter.
func (c *charged) Decided(demands []Demand, now int64, verdict counter.Verdict) {
	if c.verdict = verdict; verdict != counter.Allowed {
		return
	}
	for i := range demands {
		c.charges = append(c.charges, c.node.Charge(&demands[i], now))
	}
}

// reserve brings a request that takes so many hits of each rule for now.
func (f *fakeNode) reserve(user string, hits uint64) *charged {
	f.process.t.Helper()
	c := &charged{node: f}
	c.Waiter = c
	for i := range f.demands {
		f.demands[i].Rule, f.demands[i].Key, f.demands[i].Cost = &f.rules[i], f.key(i, user), hits
	}
	now := f.now()
	if c.verdict = f.Decide(f.demands, now, &c.Wait); c.verdict != counter.Unsure {
		c.Decided(f.demands, now, c.verdict)
	}
	for rounds := 0; c.verdict == counter.Unsure; rounds++ {
		if rounds == 100 {
			f.process.t.Fatal("a request waits for nothing")
		}
		f.settle(f)
	}
	return c
}

func (c *charged) revise(cost uint64) {
	for i := range c.charges {
		c.node.Revise(&c.charges[i], cost, c.node.now())
	}
}

// What requests turn out to cost is what the backend has in the end, whatever was lost on the way;
// and until then no more passes than has room beside what others have reserved.
func TestChargesAreRevised(t *testing.T) {
	for _, shape := range longest {
		for _, rate := range []int64{0, second / 10, 2 * second} {
			t.Run(fmt.Sprintf("%s %v", shape.Name(), time.Duration(rate)), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(20) {
					reviseCharges(t, shape, rate, seed)
				}
			})
		}
	}
}

func reviseCharges(t *testing.T, shape window.Shape, rate int64, seed uint64) {
	const budget = 1000
	w := newWorld(t, 2, 2, rate, Options{Fallback: RejectAll}, users(of(shape, budget)), users(of(shape, 3*budget)))
	random := rand.New(rand.NewPCG(seed, 5))
	w.random = rand.New(rand.NewPCG(seed, 6))
	if seed%2 == 1 {
		w.lossBefore, w.lossAfter = 0.2, 0.2
	}
	var running []*charged
	costs := uint64(0)
	over := uint64(0) // what requests have cost above what they had reserved
	for range 150 {
		f := w.any()
		if random.IntN(3) > 0 {
			if c := f.reserve("ann", random.Uint64N(40)); c.verdict == counter.Allowed {
				running = append(running, c)
				costs += c.charges[0].Cost
			}
		}
		if costs > budget+over {
			t.Fatalf("seed %d: %d hits are reserved or spent, of a budget of %d and %d above what was reserved", seed, costs, budget, over)
		}
		if len(running) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(running))
			c, cost := running[i], random.Uint64N(50)
			before := c.charges[0].Cost
			if c.revise(cost); cost > before {
				over += cost - before
			}
			if costs += cost - before; random.IntN(3) > 0 {
				running = append(running[:i], running[i+1:]...)
			}
		}
		w.advance(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
	}
	w.lossBefore, w.lossAfter = 0, 0
	w.quiet()
	for range 4 {
		w.advance(time.Hour) // leases that are not used go back
	}
	for _, f := range w.nodes {
		f.Leave()
	}
	w.quiet()
	if lost := w.tallied(func(t *Tallies) uint64 { return t.Lost + t.GivenUp + t.Alone }); lost > 0 {
		return // as the worlds with losses may have
	}
	if shape.Kind == window.TokenBucket || shape.IsLog() && over > 0 {
		return // tokens come back, and a log over its limit forgets its oldest hits
	}
	if got := w.sum(); got != int64(2*costs) {
		t.Errorf("seed %d: the backend has %d hits, want %d", seed, got, 2*costs)
	}
}

// What responses cost above a limit is told, until its window has ended.
func TestOvershootTellsCharges(t *testing.T) {
	w := newWorld(t, 2, 1, second, Options{Fallback: RejectAll}, all(limit(window.FixedWindow, 1000, 10*second)))
	for _, f := range w.nodes {
		f.rules[0].CostsLater = true
	}
	var running []*charged
	for i := range 8 {
		running = append(running, w.nodes[i%2].reserve("", 100))
	}
	for i, c := range running {
		if c.verdict != counter.Allowed {
			t.Fatalf("request %d is refused", i)
		}
		c.revise(150)
	}
	w.advance(1500 * time.Millisecond)
	w.advance(1500 * time.Millisecond)
	for i, f := range w.nodes {
		// A hit or two may be leased on top.
		if got := f.Overshoot(0); got < 200 || got > 210 {
			t.Errorf("node %d: bound %d, want 200", i, got)
		}
	}
	w.advance(20 * time.Second)
	for i, f := range w.nodes {
		if got := f.Overshoot(0); got != 0 {
			t.Errorf("node %d: bound %d in the next window, want 0", i, got)
		}
	}
}

// A counter is spent at once where nobody else counts, and with a backend once what others have leased
// has had the time to go back.
func TestSpent(t *testing.T) {
	for _, rule := range []fakeRule{all(fixed(1000)).here(), all(fixed(1000))} {
		w := newWorld(t, 2, 1, second, Options{}, rule)
		f := w.nodes[0]
		c := f.reserve("", 900)
		if c.verdict != counter.Allowed {
			t.Fatal("the request is refused")
		}
		spent := func() bool { return f.Spent(&c.charges[0], f.now()) }
		if spent() {
			t.Error("spent before it is charged")
		}
		c.revise(1100)
		if got := spent(); got == f.rules[0].Synced() {
			t.Errorf("spent at once: %v, and synchronised: %v", got, f.rules[0].Synced())
		}
		w.advance(2 * time.Second)
		if !spent() {
			t.Error("not spent after two seconds")
		}
		if c.revise(950); spent() {
			t.Error("spent after hits have gone back")
		}
	}
}
