package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/sharedata"
	"weir/window"
)

// inOrders is how many entries the pages of the order of waiting requests have.
func (f *fakeNode) inOrders() (entries int) {
	const head, entry = 8, 32
	pages := sharedata.NewRecord(f, "default", "order2:\x00")
	for page := range 256 {
		pages.Number(byte(page))
		if value, _ := pages.Read(nil); value != nil {
			entries += (len(value) - head) / entry
		}
	}
	return entries
}

// Shared data has as much of 10,000 requests that wait for a key as of one, and no more than the requests of
// 10,000 keys need. All of them are let go, in their order, and nothing of them stays.
func TestTenThousandWait(t *testing.T) {
	t.Parallel()
	const n = 10_000
	fast := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: second}, Max: 100, Burst: 1}
	p := newProcess(t)
	rule := delayed(rule.MaxDelay, n, fast)
	workers := []*fakeNode{p.startOf(-1, engine.Options{}, rule), p.startOf(-1, engine.Options{}, rule)}
	f := workers[0]
	f.send("ann")
	var waiting []*fakeRequest
	for i := range n {
		waiting = append(waiting, workers[i%2].paused("ann"))
	}
	must.Equal(t, f.inOrders(), 2, "the order has entries of 10,000 requests")
	_, verdict := f.request("ann")
	must.Equal(t, verdict, counter.Rejected, "the queue is full")
	next := 0
	for ; next < n && p.now < monday+2*n*second/100; p.run(10 * time.Millisecond) {
		for next < n && len(waiting[next].verdicts) > 0 {
			must.EqualOrEnd(t, waiting[next].verdicts[0], counter.Allowed, "request %d: %v", next, waiting[next].verdicts)
			next++
		}
		if next+1 < n && len(waiting[next+1].verdicts) > 0 {
			t.Fatalf("a request overtakes request %d", next)
		}
	}
	must.Equal(t, next, n, "were let go")
	must.AtMost(t, time.Duration(p.now-monday), n*time.Second/100+time.Second/10, "all were let go after")

	for i := range n {
		user := fmt.Sprint("user ", i)
		f.send(user)
		waiting[i] = f.paused(user)
	}
	must.Equal(t, f.inOrders(), n, "the order has entries of 10,000 keys")
	for _, r := range waiting[:n/2] {
		r.Leave() // as a listener that drains resets streams
	}
	p.run(20 * time.Millisecond)
	must.Equal(t, allowed(waiting[n/2:]), n/2, "of %d were let go", n/2)
	for _, f := range workers {
		if got := f.inOrders(); got != 0 || f.Waits() || f.Delayed() != 0 {
			t.Errorf("%d entries of the order stay, and %d requests", got, f.Delayed())
		}
	}
}

// A worker that dies holds up the requests of others until its entry ends. Its entry goes when others write
// the page. A worker whose ticks were late only has its turn again.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	rule := delayed(60*second, 20, smooth)
	dies, lives := p.startOf(-1, engine.Options{}, rule), p.startOf(-1, engine.Options{}, rule)
	dies.send("ann")
	dead := dies.pausedOften(3, "ann")
	waiting := lives.pausedOften(3, "ann")
	begin := p.now
	alone := func(d time.Duration) {
		for end := p.now + int64(d); p.now < end; p.pass(time.Millisecond) {
			lives.tick()
		}
	}
	for lives.still(waiting) == 3 && p.now-begin < 30*second {
		alone(time.Millisecond)
	}
	must.Between(t, time.Duration(p.now-begin), 9*time.Second, 11*time.Second, "a dead worker holds others up for")
	alone(30 * time.Millisecond)
	must.Equal(t, [2]int{lives.still(waiting), lives.inOrders()}, [2]int{0, 0}, "requests that wait, and entries of the order")
	// The worker had not died.
	lives.send("ann")
	behind := lives.pausedOften(2, "ann")
	dies.tick()
	p.run(550 * time.Millisecond)
	must.Equal(t, dies.still(dead), 0, "of the late worker wait")
	p.run(time.Second)
	must.Equal(t, [3]int{lives.still(behind), allowed(append(dead, behind...)), lives.inOrders()}, [3]int{0, 5, 0}, "requests that wait, that have passed, and entries of the order")
}

// The entry of a line is renewed for as long as requests wait, whether or not room comes.
func TestLongWaitsKeepTheirTurn(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	rule := delayed(rule.MaxDelay, 20, window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 4 * minute}, Max: 1})
	a, b := p.startOf(-1, engine.Options{}, rule), p.startOf(-1, engine.Options{}, rule)
	a.send("ann")
	first := a.paused("ann")
	_, verdict := b.request("ann")
	must.EqualOrEnd(t, verdict, counter.Rejected, "the window after the next is too far")
	for range 239 {
		p.run(time.Second)
		must.EqualOrEnd(t, b.Line(b.stored(0, "ann")), 1, "after %v another worker's line", time.Duration(p.now-monday))
	}
	p.run(1100 * time.Millisecond)
	must.Equal(t, allowed([]*fakeRequest{first}), 1, "let go")
}

// A late tick lets go all requests that ticks of every millisecond would have let go by then: a request counts at
// the time of its room. So the limit is kept by these times, and no room is lost.
func TestLateTicks(t *testing.T) {
	t.Parallel()
	for _, limit := range []window.Limit{
		smooth, {Shape: window.Shape{Kind: window.TokenBucket, Width: second}, Max: 7, Burst: 3},
		{Shape: window.Shape{Kind: window.FixedWindow, Width: second}, Max: 4},
		{Shape: window.Shape{Kind: window.FirstHitWindow, Width: second}, Max: 4},
		{Shape: window.Shape{Kind: window.SlidingBuckets, Width: second, Precision: window.LogPrecision}, Max: 4},
		{Shape: window.Shape{Kind: window.SlidingBuckets, Width: second, Precision: second / 4}, Max: 4},
		{Shape: window.Shape{Kind: window.SlidingWindow, Width: second}, Max: 4},
	} {
		random := rand.New(rand.NewPCG(3, uint64(limit.Kind)))
		punctual, late := newProcess(t), newProcess(t)
		rule := delayed(rule.MaxDelay, 10_000, limit)
		worlds := []*fakeProcess{punctual, late}
		var waiting [2][]*fakeRequest
		for _, p := range worlds {
			p.startOf(-1, engine.Options{}, rule)
		}
		passed, most := [2]int{}, 0
		for range 60 {
			for range random.IntN(25) {
				for gap, i := random.IntN(40), 0; i < 2; i++ {
					if i == 0 {
						punctual.run(time.Duration(gap) * time.Millisecond)
					} else {
						late.pass(time.Duration(gap) * time.Millisecond)
					}
					if r, verdict := worlds[i].nodes[0].request("ann"); verdict == counter.Unsure {
						waiting[i] = append(waiting[i], r)
					} else if verdict == counter.Allowed {
						passed[i]++
					}
				}
			}
			gap := time.Duration(random.IntN(3000)) * time.Millisecond
			punctual.run(gap)
			late.pass(gap)
			late.nodes[0].tick()
			a, b := passed[0]+allowed(waiting[0]), passed[1]+allowed(waiting[1])
			must.EqualOrEnd(t, a, b, "%v: after %v: let go by punctual ticks, and by late ticks", limit, time.Duration(late.now-monday))
			most = max(most, late.nodes[0].Delayed())
		}
		t.Logf("kind %d: %d and %d passed at once, %d and %d waited, up to %d at a time", limit.Kind, passed[0], passed[1], len(waiting[0]), len(waiting[1]), most)
	}
}

// A request that begins to wait does not put off the tick that lets another key's request go.
func TestTicksComeForTheFirst(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	f := p.startOf(-1, engine.Options{}, delayed(5*second, 20, smooth))
	f.send("ann")
	f.paused("ann")
	p.pass(60 * time.Millisecond)
	f.send("bob")
	f.paused("bob")
	must.Equal(t, f.tickMillis, 40, "a tick comes in ms")
}

// If the clock goes back, requests wait as if they had begun to wait just then, and no longer.
func TestDelayAsTheClockGoesBack(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{100 * time.Millisecond, 5 * time.Second, time.Hour} {
		p := newProcess(t)
		rule := delayed(2*second, 20, smooth)
		a, b := p.startOf(-1, engine.Options{}, rule), p.startOf(-1, engine.Options{}, rule)
		a.send("ann")
		waiting := a.pausedOften(10, "ann")
		waiting = append(waiting, b.pausedOften(10, "ann")...)
		p.run(510 * time.Millisecond)
		p.now -= int64(back)
		if back == time.Hour {
			waiting = append(waiting, a.paused("ann")) // before anybody has noticed
		}
		p.run(2100 * time.Millisecond)
		must.Equal(t, [2]int{a.still(waiting), a.inOrders()}, [2]int{0, 0}, "after %v back: requests that wait, and entries of the order", back)
		if got := allowed(waiting); got < 5 || back != 5*time.Second && got < len(waiting)-3 {
			t.Errorf("after %v back %d of %d have passed", back, got, len(waiting))
		}
	}
}
