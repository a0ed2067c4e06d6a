package engine_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/window"
)

func TestNodesKeepOneLimit(t *testing.T) {
	for _, l := range []window.Limit{
		fixed(10), sliding(10), limit(window.FirstHitWindow, 10, hour),
		{Shape: window.Shape{Kind: window.SlidingBuckets, Width: hour, Precision: 10 * minute}, Max: 10},
		{Shape: window.Shape{Kind: window.SlidingBuckets, Width: hour, Precision: window.LogPrecision}, Max: 10},
		{Shape: window.Shape{Kind: window.TokenBucket, Width: hour}, Max: 1, Burst: 10},
	} {
		w := newWorld(t, 2, 2, second/10, engine.Options{}, all(l))
		passed := 0
		for i := range 40 {
			if w.nodes[i%len(w.nodes)].send("") {
				passed++
			}
			w.advance(20 * time.Millisecond)
			w.advance(200 * time.Millisecond)
		}
		if passed != 10 || w.sum() != 10 {
			t.Errorf("%+v: passed %d, and the backend has %d, want 10", l, passed, w.sum())
		}
	}
}

// Whatever happens to callouts, the backend has what was admitted once all is quiet.
func TestHitsArriveExactlyOnce(t *testing.T) {
	w := newWorld(t, 2, 2, second/20, engine.Options{}, users(
		fixed(100), limit(window.SlidingWindow, 1000, day),
		window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: hour, Precision: minute}, Max: 200},
		window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: day, Precision: window.LogPrecision}, Max: 300},
		window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 366 * day}, Max: 1, Burst: 1000}))
	w.lossBefore, w.lossAfter = 0.15, 0.15
	passed := int64(0)
	for range 5000 {
		if w.any().send(strconv.Itoa(w.random.IntN(30))) {
			passed++
		}
		if w.random.IntN(3) == 0 {
			w.advance(time.Duration(w.random.IntN(20)) * time.Millisecond)
		}
		if len(w.zombies) > 0 && w.random.IntN(50) == 0 {
			// A push that its sender has given up on arrives after all. Twice.
			body := w.zombies[w.random.IntN(len(w.zombies))]
			w.apply(body)
			w.apply(body)
		}
	}
	w.lossBefore, w.lossAfter = 0, 0
	for range 200 {
		w.advance(100 * time.Millisecond)
	}
	if got := w.sum(); got != 5*passed {
		t.Errorf("the backend has %d hits of five limits, want 5 × %d", got, passed)
	}
	for _, f := range w.nodes {
		if left := f.left(); left != "" {
			t.Errorf("left when all is quiet: %s", left)
		}
	}
}

// A flood with a table too small for it evicts counters whose hits were not pushed yet. They arrive
// all the same.
func TestEvictedHitsArrive(t *testing.T) {
	w := newWorld(t, 1, 2, second/20, engine.Options{Capacity: 40}, users(sliding(100)))
	for i := range 2000 {
		w.any().send(fmt.Sprint("random", i))
		if i%10 == 0 {
			w.advance(time.Millisecond)
		}
	}
	for range 100 {
		w.advance(100 * time.Millisecond)
	}
	if w.tallied(func(t *entry.Tallies) uint64 { return t.Evicted }) == 0 {
		t.Error("nothing was evicted")
	}
	if got := w.sum(); got != 2000 {
		t.Errorf("the backend has %d hits, want 2000", got)
	}
}

// While the backend is away nodes go on by themselves, in bounded memory; what they counted arrives
// afterwards.
func TestBackendAway(t *testing.T) {
	w := newWorld(t, 2, 1, second/20, engine.Options{}, users(sliding(50)))
	w.lossBefore = 1
	passed := map[string]int64{}
	sent := int64(0)
	for i := range 6000 {
		user := strconv.Itoa(i % 40)
		if w.any().send(user) {
			passed[user]++
			sent++
		}
		w.advance(10 * time.Millisecond)
	}
	for user, n := range passed {
		if n != 100 {
			t.Errorf("user %s: passed %d, want 50 on each of two nodes", user, n)
		}
	}
	if w.sum() != 0 {
		t.Error("the backend was away, but has hits")
	}
	if w.pushes > 6000*10/1000*4 {
		t.Errorf("%d pushes to a backend that is away for a minute", w.pushes)
	}
	w.lossBefore = 0
	for range 200 {
		w.advance(100 * time.Millisecond)
	}
	if w.sum() != sent {
		t.Errorf("the backend has %d hits, want %d", w.sum(), sent)
	}
	if w.nodes[0].Tallies.Failed == 0 {
		t.Error("no failed push was counted")
	}
}

// A tick that has much to do stops after about a millisecond, and goes on in the next.
func TestTickIsShort(t *testing.T) {
	w := newWorld(t, 1, 1, second, engine.Options{}, users(sliding(5)))
	f := w.nodes[0]
	const keys = 5000
	for i := range keys {
		f.send(strconv.Itoa(i))
	}
	usual := f.tickMillis
	// Every access to shared data takes 10 µs now.
	w.processes[0].before = func(*fakeNode, string) { w.now += 10_000 }
	ticks := 0
	for ; w.sum() < keys; ticks++ {
		before := w.now
		f.tick()
		if took := w.now - before; took > 2*engine.TickNanos {
			t.Fatalf("tick %d took %d µs", ticks, took/1000)
		}
		if f.tickMillis != 1 && w.sum() == 0 && len(f.sent) == 0 {
			t.Fatalf("with much to do ticks come every %d ms", f.tickMillis)
		}
		w.deliver(f)
		if ticks > 10*keys {
			t.Fatal("the keys are never done")
		}
	}
	for range 200 {
		f.tick()
		w.deliver(f)
	}
	if f.tickMillis != usual {
		t.Errorf("with nothing to do ticks come every %d ms, before every %d", f.tickMillis, usual)
	}
}

// A key that nobody hits costs nothing, and a key that is hit all the time costs one push for each
// interval, and one for each lease, which lasts for two.
func TestPushesPerInterval(t *testing.T) {
	w := newWorld(t, 1, 4, second, engine.Options{}, users(sliding(100_000)))
	for i := range 10_000 { // ten seconds
		w.nodes[i%4].send("ann")
		w.advance(time.Millisecond)
	}
	for range 5 {
		w.advance(time.Second)
	}
	if pushes := w.pushes - w.questions; pushes > 10+10*2/3+5 {
		t.Errorf("%d pushes of one key by four workers in ten intervals", pushes)
	}
	for range 40 { // its lease goes back
		w.advance(time.Second)
	}
	before, questions := w.pushes, w.questions
	for range 20 {
		w.advance(time.Second)
	}
	// One worker of four asks what is new.
	if questions = w.questions - questions; questions != 20 {
		t.Errorf("%d questions in 20 intervals", questions)
	}
	if pushes := w.pushes - before - questions; pushes != 0 {
		t.Errorf("%d pushes of a key that nobody hits", pushes)
	}
}
