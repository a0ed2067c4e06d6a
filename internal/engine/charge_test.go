package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/window"
)

// charging is a rule whose requests turn out to cost more or less.
func charging(r fakeRule) fakeRule {
	r.costsLater = true
	return r
}

// charged is a request that takes hits before it is known what it costs.
type charged struct {
	engine.Wait
	node    *fakeNode
	verdict counter.Verdict
	charges []rule.Charge
}

// Decided implements Request.
func (c *charged) Decided(checks []rule.Check, now int64, verdict counter.Verdict) {
	if c.verdict = verdict; verdict != counter.Allowed {
		return
	}
	for i := range checks {
		c.charges = append(c.charges, c.node.Charges.Of(&checks[i], now))
	}
}

// reserve brings a request that takes so many hits of each rule for now.
func (f *fakeNode) reserve(user string, hits uint64) *charged {
	f.process.t.Helper()
	c := &charged{node: f}
	c.Request = c
	for i := range f.checks {
		f.checks[i].Rule, f.checks[i].Key, f.checks[i].Cost = f.rule(i), f.key(i, user), hits
	}
	now := f.time()
	if c.verdict = f.Decide(f.checks, now, &c.Wait); c.verdict != counter.Unsure {
		c.Decided(f.checks, now, c.verdict)
	}
	for rounds := 0; c.verdict == counter.Unsure; rounds++ {
		must.EqualOrEnd(f.process.t, rounds < 100, true, "what a request waits for comes")
		f.settle(f)
	}
	return c
}

func (c *charged) revise(cost uint64) {
	for i := range c.charges {
		c.node.Charges.Revise(&c.charges[i], cost, c.node.time())
	}
	c.node.PushCharges()
}

// What a request has taken goes back from where it was counted, though the clock has gone on meanwhile, or was set back.
func TestRefundsFindTheirHits(t *testing.T) {
	for _, shape := range append(longest, window.Shape{Kind: window.SlidingBuckets, Width: 300 * second, Precision: 5 * second}) {
		for _, rate := range []int64{-1, 0, second / 10} {
			w, f := joined(t, 0, engine.Options{}, charging(users(of(shape, 10))).at(rate))
			w.runs = 1000
			for i := range 60 {
				if i == 30 && rate < 0 {
					w.now -= 10 * second
				}
				c := f.reserve("ann", 1)
				must.EqualOrEnd(t, c.verdict, counter.Allowed, "%s at rate %v: request %d, and no other is open", shape.Name(), time.Duration(rate), i)
				w.advance(100 * time.Millisecond)
				c.revise(0)
			}
		}
	}
}

// The backend has the final costs of requests in the end, whatever was lost on the way; and until
// then no more passes than has room beside the reservations of others.
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
	w := newWorld(t, 2, 2, rate, engine.Options{OnBackendFailure: failure.Deny}, charging(users(of(shape, budget))), charging(users(of(shape, 3*budget))))
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
		must.EqualOrEnd(t, costs <= budget+over, true, "seed %d: %d hits are reserved or spent, of a budget of %d and %d above what was reserved: there is room", seed, costs, budget, over)
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
	often(4, w.advance, time.Hour) // leases that are not used go back
	for _, f := range w.nodes {
		f.Leave()
	}
	w.quiet()
	if lost := w.tallied(func(t *entry.Tallies) uint64 { return t.Lost + t.GivenUp + t.Alone }); lost > 0 {
		return // as the worlds with losses may have
	}
	if shape.Kind == window.TokenBucket || shape.IsLog() && over > 0 {
		return // tokens come back, and a log over its limit forgets its oldest hits
	}
	w.wantSum(int64(2*costs), "seed %d", seed)
}

// Costs of responses above a limit are told, until its window has ended.
func TestOvershootTellsCharges(t *testing.T) {
	w := newWorld(t, 2, 1, second, engine.Options{OnBackendFailure: failure.Deny}, charging(all(limit(window.FixedWindow, 1000, 10*second))))
	var running []*charged
	for i := range 8 {
		running = append(running, w.nodes[i%2].reserve("", 100))
	}
	for i, c := range running {
		must.EqualOrEnd(t, c.verdict, counter.Allowed, "request %d is refused", i)
		c.revise(150)
	}
	w.advance(1500 * time.Millisecond)
	w.advance(1500 * time.Millisecond)
	for i, f := range w.nodes {
		// A hit or two may be leased on top.
		must.Between(t, f.Overshoot(0), 200, 210, "node %d: bound", i)
	}
	w.advance(20 * time.Second)
	for i, f := range w.nodes {
		must.Equal(t, f.Overshoot(0), 0, "node %d: bound in the next window", i)
	}
}

// A grant that goes back, as another rule has no room any more, is there for others without a tick.
func TestGrantsGoBackAtOnce(t *testing.T) {
	w, f := alone(t, 0, engine.Options{}, all(fixed(10)), all(fixed(1)).here())
	requests := f.pausedOften(2, "")
	f.deliver()
	must.EqualOrEnd(t, [2]int{allowed(requests), f.still(requests)}, [2]int{1, 0}, "requests that pass, and that wait")
	f.deliver()
	must.Equal(t, w.sum(), 1, "hits of the backend")
}

// Each worker of a process tells the same bound, whichever of them has brought the key above its limit,
// and a smaller one once the window of the largest has ended.
func TestOvershootOfTheProcess(t *testing.T) {
	for _, rate := range []int64{0, second} {
		w := newWorld(t, 1, 2, rate, engine.Options{}, charging(all(limit(window.FixedWindow, 1000, 10*second))))
		a, b := w.nodes[0], w.nodes[1]
		w.pass(2 * time.Second)
		want := func(when string, hits uint64) {
			t.Helper()
			for i, f := range w.nodes {
				f.tick()
				must.Equal(t, f.Overshoot(0), hits, "rate %v, %s: worker %d has a bound of", time.Duration(rate), when, i)
			}
		}
		a.reserve("", 100).revise(1300)
		want("charged by one", 300)
		b.charge("")
		want("charged by both", 301)
		w.pass(10 * time.Second)
		want("in the next window", 0)
		b.reserve("", 100).revise(1010)
		want("charged in the next window", 10)
	}
}

// A charge of a configuration that has gone may be answered under one with fewer rules.
func TestChargesOfRulesThatHaveGone(t *testing.T) {
	w, old := alone(t, second, engine.Options{}, charging(all(fixed(1000))), charging(all(fixed(100))))
	c := old.reserve("", 10)
	c.revise(500)
	heir := old.process.startOf(second, engine.Options{}, charging(all(fixed(1000))))
	heir.Inherit(old.Engine)
	w.nodes = w.nodes[1:]
	w.quiet()
	must.Equal(t, heir.Overshoot(0), 0, "the rule that stays has a bound of")
	w.wantSum(2*500, "in the end")
}

// A counter is spent at once where nobody else counts, and with a backend once what others have leased
// has had the time to go back.
func TestSpent(t *testing.T) {
	for _, rule := range []fakeRule{all(fixed(1000)).here(), all(fixed(1000))} {
		w := newWorld(t, 2, 1, second, engine.Options{}, rule)
		f := w.nodes[0]
		c := f.reserve("", 900)
		must.EqualOrEnd(t, c.verdict, counter.Allowed, "the request is refused")
		spent := func() bool { return f.Charges.Spent(&c.charges[0], f.time()) }
		must.Equal(t, spent(), false, "spent before it is charged")
		c.revise(1100)
		must.Equal(t, spent(), !f.rule(0).Synced(), "spent at once")
		w.advance(2 * time.Second)
		must.Equal(t, spent(), true, "not spent after two seconds")
		c.revise(950)
		must.Equal(t, spent(), false, "spent after hits have gone back")
	}
}

// Requests come one after the other, each of which costs more than it reserves, or less. Its node
// knows that with the next request, and where the backend decides all others do too, whatever order
// pushes arrive in.
func TestChargesAreKnownAtOnce(t *testing.T) {
	for _, shape := range longest {
		for _, rate := range []int64{0, second} {
			for _, nodes := range []int{1, 2} {
				if rate > 0 && nodes > 1 {
					continue // the others hear a second later
				}
				w := newWorld(t, nodes, 2, rate, engine.Options{}, charging(users(of(shape, 50_000))))
				w.advance(time.Second)
				spent, passed := uint64(0), 0
				for range 200 {
					w.pass(time.Millisecond)
					f := w.any()
					c := f.reserve("ann", 50)
					if c.verdict != counter.Allowed {
						continue
					}
					passed++
					spent += 1000
					c.revise(1000)
					for _, other := range w.nodes {
						if other.process != f.process || rate > 0 {
							w.deliver(f) // before the client asks another node
						}
					}
				}
				must.Equal(t, passed, 50, "%s, rate %v, %d nodes: of 200 requests pass", shape.Name(), time.Duration(rate), nodes)
				must.Equal(t, spent, 50_000, "%s, rate %v, %d nodes: spent", shape.Name(), time.Duration(rate), nodes)
			}
		}
	}
}

// Hits that a response does not need are there for the next request.
func TestRefundsAreKnownAtOnce(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		w := newWorld(t, nodes, 2, 0, engine.Options{}, charging(all(fixed(10_000))))
		w.advance(time.Second)
		for _, f := range w.nodes {
			f.settle = func(*fakeNode) {
				for _, i := range w.random.Perm(len(w.nodes)) {
					w.deliver(w.nodes[i])
				}
			}
		}
		for i := range 20 {
			w.pass(time.Millisecond)
			c := w.any().reserve("", 8000)
			must.EqualOrEnd(t, c.verdict, counter.Allowed, "%d nodes: request %d is refused, and %d hits are spent of 10000", nodes, i, 100*i)
			c.revise(100)
			if nodes > 1 {
				w.deliver(c.node) // before the client asks another node
			}
		}
	}
}
