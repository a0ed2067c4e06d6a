package sim

import (
	"errors"
	"testing"

	"weir/internal/must"
	"weir/window"
)

// fixedTrip is a network in which each direction takes 2 ms.
var fixedTrip = Network{Trip: 2 * Millisecond}

// asking returns a world whose engines ask the backend for every request. It admits two requests of
// each key.
func asking(t *testing.T) *World {
	t.Helper()
	w := must.Get(New(Options{
		Places: 2, Workers: 2, Network: fixedTrip, Capacity: 100,
		Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: Minute}, Max: 2},
	}))(t)
	w.Advance(Monday + Second) // all workers have ticked
	return w
}

// A request waits until its engine decides it, when the answer comes.
func TestRequestsWait(t *testing.T) {
	w := asking(t)
	var passed []int64
	w.Passed = func(*Request) { passed = append(passed, w.Now-Monday-Second) }
	sent := w.Sent
	w.Request(0, 0, []byte("ann"), 0)
	w.Advance(w.Now + Millisecond)
	w.Request(0, 1, []byte("ann"), 0)
	w.Request(1, 0, []byte("bob"), 0)
	must.Equal(t, w.nodes[0].workers[0].waiting+w.nodes[0].workers[1].waiting, 2, "requests that wait at the first node")
	must.Equal(t, len(passed), 0, "requests that have passed")
	w.Advance(w.Now + Millisecond)
	w.Request(1, 1, []byte("ann"), 0) // the third
	w.Advance(w.Now + Second)
	must.Same(t, passed, []int64{4 * Millisecond, 5 * Millisecond, 5 * Millisecond}, "requests passed at")
	if w.Requests != 4 || w.Waits.Requests != 4 || w.Waits.Longest != 4*Millisecond || w.Sent-sent < 4 {
		t.Errorf("got %d requests, %+v, %d callouts", w.Requests, w.Waits, w.Sent-sent)
	}
	must.Report(t, errors.Join(w.NobodyWaits(), w.Failure()))
}

// The world notices requests that wait for ever, and an engine that leaves while requests wait.
func TestForgottenRequests(t *testing.T) {
	w := asking(t)
	w.Request(0, 0, []byte("ann"), 0)
	must.Equal(t, w.NobodyWaits() != nil, true, "somebody has noticed a request that waits")
	w.Drain(0) // decides the request
	w.Advance(w.Now + Second)
	must.Report(t, errors.Join(w.NobodyWaits(), w.Failure()))
	must.Equal(t, w.Waits.Requests, 1, "requests that have waited")
	w.nodes[1].workers[0].waiting++
	w.Drain(1)
	must.Equal(t, w.Failure() != nil, true, "somebody has noticed that an engine has left while a request waited")
}

// A draining node gets no more requests, and ends when all of its hits are pushed.
func TestDrain(t *testing.T) {
	w := must.Get(New(Options{
		Places: 1, Workers: 1, Network: fixedTrip, Capacity: 100, SyncRate: 100 * Second,
		Limit: window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: Minute}, Max: 1000},
	}))(t)
	w.Advance(Monday + Second)
	v := w.nodes[0].workers[0]
	w.Request(0, 0, []byte("ann"), 0)
	w.Advance(w.Now + 10*Millisecond)
	w.Drain(0)
	w.Request(0, 0, []byte("ann"), 0)
	must.Equal(t, w.Requests, 1, "requests")
	w.Advance(w.Now + Second)
	if hits, err := w.Backend.Sum("default"); !v.dead || hits != 1 || err != nil {
		t.Errorf("it has ended: %v; the backend has %d hits (%v)", v.dead, hits, err)
	}
	must.Report(t, w.Failure())
}

// The oracle finds the worst use of streams of hits whose worst use is known.
func TestOracle(t *testing.T) {
	const s = Second
	for _, test := range []struct {
		name  string
		limit window.Limit
		hits  []int64 // from Monday
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
		o := NewOracle(test.limit)
		worst := 0.0
		for _, at := range test.hits {
			worst = max(worst, o.Admit(Monday+at))
		}
		must.Equal(t, worst, test.worst, "%s", test.name)
	}
}
