package engine_test

import (
	"strconv"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/must"
	"weir/window"
)

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
	w.wantSum(5*passed, "in the end")
	w.wantNothingLeft("when all is quiet")
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
	must.Equal(t, w.sum(), 0, "the backend was away, but has hits")
	if w.pushes > 6000*10/1000*4 {
		t.Errorf("%d pushes to a backend that is away for a minute", w.pushes)
	}
	w.lossBefore = 0
	for range 200 {
		w.advance(100 * time.Millisecond)
	}
	must.Equal(t, w.sum(), sent, "the backend has hits")
	if w.nodes[0].Tallies.Failed == 0 {
		t.Error("no failed push was counted")
	}
}

// A key that nobody hits costs nothing. One worker of four asks what is new.
func TestPushesOfAnIdleKey(t *testing.T) {
	w := newWorld(t, 1, 4, second, engine.Options{}, users(sliding(100_000)))
	for i := range 1000 {
		w.nodes[i%4].send("ann")
		w.advance(time.Millisecond)
	}
	for range 45 { // its lease goes back
		w.advance(time.Second)
	}
	before, questions := w.pushes, w.questions
	for range 20 {
		w.advance(time.Second)
	}
	if questions = w.questions - questions; questions != 20 {
		t.Errorf("%d questions in 20 intervals", questions)
	}
	must.Equal(t, w.pushes-before-questions, 0, "pushes of a key that nobody hits")
}
