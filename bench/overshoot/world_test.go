package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/internal/counter"
	"weir/window"
)

// fixedTrip is a network whose ways take 2 ms each.
var fixedTrip = network{trip: 2 * millisecond}

// asking is a world whose engines ask the backend for every request. It admits two of each key.
func asking(t *testing.T) *world {
	t.Helper()
	w, err := newWorld(worldOptions{
		places: 2, workers: 2, network: fixedTrip, capacity: 100,
		limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: minute}, Max: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.advance(monday + second) // all have ticked
	return w
}

// A request waits until its engine decides it, when the answer is there.
func TestRequestsWait(t *testing.T) {
	w := asking(t)
	var passed []int64
	w.passed = func() { passed = append(passed, w.now-monday-second) }
	sent := w.sent
	w.request(0, 0, []byte("ann"))
	w.advance(w.now + millisecond)
	w.request(0, 1, []byte("ann"))
	w.request(1, 0, []byte("bob"))
	if waiting := w.nodes[0].workers[0].waiting + w.nodes[0].workers[1].waiting; waiting != 2 || len(passed) != 0 {
		t.Errorf("%d requests wait at the first node, %d have passed", waiting, len(passed))
	}
	w.advance(w.now + millisecond)
	w.request(1, 1, []byte("ann")) // the third
	w.advance(w.now + second)
	if !slices.Equal(passed, []int64{4 * millisecond, 5 * millisecond, 5 * millisecond}) {
		t.Errorf("requests passed at %d", passed)
	}
	if w.requests != 4 || w.waits.requests != 4 || w.waits.longest != 4*millisecond || w.sent-sent < 4 {
		t.Errorf("got %d requests, %+v, %d callouts", w.requests, w.waits, w.sent-sent)
	}
	if err := errors.Join(w.nobodyWaits(), w.failure()); err != nil {
		t.Error(err)
	}
}

// Requests of a process that ends are gone, and its callouts are answered to nobody.
func TestCrash(t *testing.T) {
	w := asking(t)
	var passed []int64
	w.passed = func() { passed = append(passed, w.now-monday-second) }
	w.request(0, 0, []byte("ann"))
	pushes := w.backend.pushes
	w.kill(0)
	w.request(0, 0, []byte("ann")) // to nobody
	w.start(0)
	w.advance(w.now + millisecond)
	w.request(0, 0, []byte("ann"))
	w.advance(w.now + 10*millisecond)
	if !slices.Equal(passed, []int64{5 * millisecond}) || w.requests != 2 || w.waits.requests != 1 {
		t.Errorf("%d requests came, %d have waited; they passed at %d", w.requests, w.waits.requests, passed)
	}
	if w.backend.pushes < pushes+2 {
		t.Error("the push of the process that has ended did not come")
	}
	w.advance(w.now + second)
	passed = nil
	w.request(1, 0, []byte("ann")) // the third
	w.advance(w.now + second)
	if err := errors.Join(w.nobodyWaits(), w.failure()); err != nil || len(passed) != 0 {
		t.Errorf("%d have passed (%v)", len(passed), err)
	}
	w.kill(0)
	w.kill(1)
	w.advance(w.now + second)
	if len(w.queue) != 0 {
		t.Errorf("%d things are to happen in a world without nodes", len(w.queue))
	}
}

// Requests that wait for ever are noticed, and so is an engine that leaves them behind.
func TestForgottenRequests(t *testing.T) {
	w := asking(t)
	w.request(0, 0, []byte("ann"))
	if w.nobodyWaits() == nil {
		t.Error("nobody noticed a request that waits")
	}
	w.drain(0) // decides it
	w.advance(w.now + second)
	if err := errors.Join(w.nobodyWaits(), w.failure()); err != nil || w.waits.requests != 1 {
		t.Errorf("%d requests have waited (%v)", w.waits.requests, err)
	}
	w.nodes[1].workers[0].waiting++
	w.drain(1)
	if w.failure() == nil {
		t.Error("nobody noticed that an engine has left while a request waited")
	}
}

// To decide a request that does not wait is a fault.
func TestDecidedTwice(t *testing.T) {
	w := asking(t)
	w.request(0, 0, []byte("ann"))
	w.advance(w.now + second)
	if err := w.failure(); err != nil {
		t.Fatal(err)
	}
	w.nodes[0].workers[0].idle[0].Decided(nil, 0, counter.Allowed)
	if w.failure() == nil || w.waits.requests != 1 {
		t.Error("nobody noticed")
	}
}

// Workers of a node have a table in common, those of two nodes have none.
func TestSharedData(t *testing.T) {
	w := asking(t)
	id := func(place, worker int) uint64 { return w.nodes[place].workers[worker].node.Table().ID() }
	if id(0, 0) != id(0, 1) || id(0, 0) == id(1, 0) {
		t.Errorf("got tables %x and %x in one node, %x in another", id(0, 0), id(0, 1), id(1, 0))
	}
}

// A node that drains gets no more requests, and is gone when all that it has counted is pushed.
func TestDrain(t *testing.T) {
	w, err := newWorld(worldOptions{
		places: 1, workers: 1, network: fixedTrip, capacity: 100, syncRate: 100 * second,
		limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: minute}, Max: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.advance(monday + second)
	v := w.nodes[0].workers[0]
	w.request(0, 0, []byte("ann"))
	w.advance(w.now + 10*millisecond)
	w.drain(0)
	w.request(0, 0, []byte("ann"))
	if w.requests != 1 {
		t.Errorf("%d requests", w.requests)
	}
	w.advance(w.now + second)
	if hits, err := w.backend.sum("default"); !v.dead || hits != 1 || err != nil {
		t.Errorf("it has ended: %v; the backend has %d hits (%v)", v.dead, hits, err)
	}
	if err := w.failure(); err != nil {
		t.Error(err)
	}
}

// Callouts are lost as often as the network says, before and after they were applied, and what is late is as good as lost.
func TestNetwork(t *testing.T) {
	c := &clock{now: monday}
	random := rand.New(rand.NewPCG(1, 1))
	n := network{trip: 10 * millisecond, jitter: 5 * millisecond, lostBefore: 0.1, lostAfter: 0.2}
	const callouts = 20_000
	applied, answered, refused := 0, 0, 0
	for range callouts {
		sent, at := c.now, int64(0)
		n.carry(c, random, 100*millisecond, func() { applied, at = applied+1, c.now }, func(ok bool) {
			if ok {
				answered++
				if at == 0 || at-sent < 5*millisecond || at-sent > 15*millisecond || c.now-at < 5*millisecond || c.now-at > 15*millisecond {
					t.Fatalf("applied after %d, answered after %d", at-sent, c.now-sent)
				}
			} else if refused++; c.now-sent != 100*millisecond {
				t.Fatalf("given up after %d", c.now-sent)
			}
		})
		c.advance(c.now + second)
	}
	near := func(got int, share float64) bool { return math.Abs(float64(got)/callouts-share) < 0.01 }
	if !near(applied, 0.9) || !near(answered, 0.7) || answered+refused != callouts {
		t.Errorf("%d applied, %d answered, %d not, of %d", applied, answered, refused, callouts)
	}
	n.lostBefore, n.lostAfter = 0, 0
	var order []string
	n.carry(c, random, 3*millisecond, func() { order = append(order, "applied") }, func(ok bool) { order = append(order, fmt.Sprint(ok)) })
	c.advance(c.now + second)
	if !slices.Equal(order, []string{"false", "applied"}) {
		t.Errorf("a late callout: %q", order)
	}
}

// A timer keeps to the period that it had last, from when it was started last.
func TestTimer(t *testing.T) {
	c := &clock{now: monday}
	var ticks []int64
	timer := &timer{clock: c, period: 100}
	timer.do = func() {
		if ticks = append(ticks, c.now-monday); len(ticks) == 2 {
			timer.period = 10
			timer.start(10)
		}
	}
	timer.start(70)
	c.advance(monday + 198)
	timer.period = 7
	timer.start(7)
	c.advance(monday + 215)
	timer.stop()
	c.advance(monday + 1000)
	if !slices.Equal(ticks, []int64{70, 170, 180, 190, 205, 212}) {
		t.Errorf("ticks at %d", ticks)
	}
}

// An engine has the ticks that it asks for.
func TestTickEvery(t *testing.T) {
	w := asking(t)
	v := w.nodes[0].workers[0]
	v.TickEvery(25)
	if v.timer.period != 25*millisecond || !slices.ContainsFunc(w.queue, func(e event) bool { return e.at == w.now+25*millisecond }) {
		t.Errorf("it ticks every %d ns", v.timer.period)
	}
}

// The worst that was ever in use, of streams of hits whose worst is known.
func TestOracle(t *testing.T) {
	const s = second
	for _, test := range []struct {
		name  string
		limit window.Limit
		hits  []int64 // from monday
		worst float64
	}{
		{"fixed: four before a boundary of windows and three behind it",
			window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 10 * s}, Max: 4}, []int64{6 * s, 7 * s, 8 * s, 9 * s, 10 * s, 11 * s, 12 * s}, 1},
		{"fixed: five in one window",
			window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 10 * s}, Max: 4}, []int64{0, 1, 2, 3, 10*s - 1, 10 * s}, 1.25},
		{"first hit: the window is the hit's own",
			window.Limit{Shape: window.Shape{Kind: window.FirstHitWindow, Width: 10 * s}, Max: 2}, []int64{5 * s, 10 * s, 15*s - 1, 15 * s}, 1.5},
		{"sliding: three weigh 0.75 a quarter into the next window, with two more",
			window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: 8 * s}, Max: 4}, []int64{0, 1, 2, 10 * s, 10 * s}, (3*0.75 + 2) / 4},
		{"sub-buckets: the first has left when the last comes",
			window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 10 * s, Precision: 5 * s}, Max: 2}, []int64{4 * s, 6 * s, 9 * s, 11 * s}, 1.5},
		{"log: more than the limit is not forgotten",
			window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 10 * s, Precision: window.LogPrecision}, Max: 2}, []int64{0, 1, 2, 3, 10 * s}, 2},
		{"bucket: four at once of two, and one when three are back",
			window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 2 * s}, Max: 1, Burst: 2}, []int64{0, 0, 0, 0, 6 * s}, 2},
	} {
		o := newOracle(test.limit)
		worst := 0.0
		for _, at := range test.hits {
			worst = max(worst, o.admit(monday+at))
		}
		if worst != test.worst {
			t.Errorf("%s: got %g, want %g", test.name, worst, test.worst)
		}
	}
}
