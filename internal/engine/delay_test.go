package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/window"
)

// smooth is nginx's limit_req: ten a second, none at once.
var smooth = window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: second}, Max: 10, Burst: 1}

func delayed(most int64, queue int, limits ...window.Limit) fakeRule {
	return fakeRule{limits: limits, delay: rule.Delay{Most: most, Queue: queue}}
}

// run ticks the nodes as their hosts do, at the millisecond, until a time.
func (p *fakeProcess) run(d time.Duration) {
	for end := p.now + int64(d); p.now < end; {
		p.pass(time.Millisecond)
		for _, f := range p.nodesHere() {
			if (p.now-monday)/1e6%int64(f.tickMillis) == 0 {
				f.tick()
			}
			f.deliver()
		}
	}
}

// A burst of 20 at ten a second comes out at every tenth of a second, in its order, and what is above the
// queue is refused at once.
func TestDelayIsSmooth(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	f := p.startOf(-1, engine.Options{}, delayed(5*second, 20, smooth))
	must.EqualOrEnd(t, f.send("ann"), true, "the first request does not pass at once")
	waiting := f.pausedOften(20, "ann")
	_, verdict := f.request("ann")
	must.Equal(t, verdict, counter.Rejected, "the queue is full")
	_, verdict = f.request("bob")
	must.Equal(t, verdict, counter.Allowed, "another key")
	start := p.now
	for i, r := range waiting {
		for len(r.verdicts) == 0 {
			p.run(time.Millisecond)
			must.EqualOrEnd(t, f.still(waiting) >= 20-i-1, true, "those behind request %d wait while it does", i)
		}
		must.Between(t, p.now-start, int64(i+1)*second/10, int64(i+1)*second/10+2e6, "request %d passes after ns", i)
		must.Equal(t, r.verdicts[0], counter.Allowed, "request %d: verdict", i)
		must.Equal(t, r.Delayed(), p.now-start, "request %d: delayed by ns", i)
	}
	if f.run(time.Second); f.tickMillis != f.TickMillis() || f.Waits() {
		t.Errorf("ticks come every %d ms, and %d wait", f.tickMillis, f.Delayed())
	}
}

func (f *fakeNode) run(d time.Duration) { f.process.run(d) }

// Random requests of several keys at two workers: each key's are let go in the order of their coming, no more
// wait than may, none for longer than it may, and never do more pass than the limit has room for. Those who
// leave make room.
func TestDelayInOrder(t *testing.T) {
	t.Parallel()
	const most, queue = 2 * second, 5
	for _, limit := range []window.Limit{
		smooth, {Shape: window.Shape{Kind: window.FixedWindow, Width: second}, Max: 4},
		{Shape: window.Shape{Kind: window.SlidingBuckets, Width: second, Precision: window.LogPrecision}, Max: 4},
		{Shape: window.Shape{Kind: window.SlidingWindow, Width: second}, Max: 4},
	} {
		p, random := newProcess(t), rand.New(rand.NewPCG(1, uint64(limit.Kind)))
		workers := []*fakeNode{p.startOf(-1, engine.Options{}, delayed(most, queue, limit)), p.startOf(-1, engine.Options{}, delayed(most, queue, limit))}
		type waiter struct {
			r     *fakeRequest
			user  string
			since int64
		}
		var waiting []waiter
		passed, refused, late := map[string]int{}, 0, 0
		begin := p.now
		for range 20_000 {
			if random.IntN(25) == 0 {
				user := []string{"ann", "bob"}[random.IntN(2)]
				r, verdict := workers[random.IntN(2)].request(user)
				switch verdict {
				case counter.Allowed:
					passed[user]++
					for _, w := range waiting {
						if w.user == user {
							t.Fatalf("kind %d: a request overtakes one that waits since %v", limit.Kind, time.Duration(p.now-w.since))
						}
					}
				case counter.Rejected:
					refused++
				default:
					waiting = append(waiting, waiter{r, user, p.now})
				}
			}
			if n := len(waiting); n > 0 && random.IntN(500) == 0 {
				i := random.IntN(n)
				waiting[i].r.Leave()
				waiting = append(waiting[:i], waiting[i+1:]...)
			}
			p.run(time.Millisecond)
			lines := map[string]int{}
			for i := 0; i < len(waiting); i++ {
				w := waiting[i]
				if len(w.r.verdicts) == 0 {
					if lines[w.user]++; lines[w.user] > queue {
						t.Fatalf("kind %d: %d of %s wait", limit.Kind, lines[w.user], w.user)
					}
					if p.now-w.since > most+second/10 {
						t.Fatalf("kind %d: a request waits for %v", limit.Kind, time.Duration(p.now-w.since))
					}
					continue
				}
				if w.r.verdicts[0] == counter.Allowed {
					passed[w.user]++
					if lines[w.user] > 0 {
						t.Fatalf("kind %d: a request overtakes one that came before", limit.Kind)
					}
				} else {
					late++
				}
				waiting = append(waiting[:i], waiting[i+1:]...)
				i--
			}
		}
		seconds := int((p.now - begin) / second)
		for user, n := range passed {
			must.Between(t, n, int(limit.Max)*seconds/3, int(limit.Max)*(seconds+1)+1, "kind %d: requests of %s that passed in %d s of %d each", limit.Kind, user, seconds, limit.Max)
		}
		must.Equal(t, refused > 0, true, "kind %d: a line was full once", limit.Kind)
		t.Logf("kind %d: passed %v, refused %d, late %d", limit.Kind, passed, refused, late)
	}
}
