package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/must"
	"weir/window"
)

// long has room for all hits of a test, in a window that outlasts it.
var long = limit(window.FixedWindow, 100_000, 30*day)

// An outage that outlasts the windows leaves nothing to send again, and nothing to try the backend
// with. Nodes go on with what comes next.
func TestOutageLongerThanTheWindow(t *testing.T) {
	w := newWorld(t, 1, 2, second/10, engine.Options{}, users(limit(window.SlidingWindow, 1000, second)))
	run := func(d time.Duration) (pushes int) {
		before := w.pushes
		for range d / (50 * time.Millisecond) {
			w.any().send("ann")
			w.advance(50 * time.Millisecond)
		}
		return w.pushes - before
	}
	run(2 * time.Second)
	w.lossBefore = 1
	run(5 * time.Second)
	w.lossBefore = 0
	run(10 * time.Second)
	must.AtLeast(t, run(10*time.Second), 20, "pushes in 100 intervals after an outage")
}

// Four workers that hit a key all the time push it once an interval, and ask for a lease before the
// last lease, which lasts for two intervals, is used up.
func TestPushesOfABusyKey(t *testing.T) {
	w := newWorld(t, 1, 4, second, engine.Options{}, users(limit(window.FixedWindow, 4000, 30*day)))
	for range 2000 {
		w.any().send("ann")
	}
	often(20, w.advance, 100*time.Millisecond)
	before, questions := w.pushes, w.questions
	next := make([]int64, len(w.nodes)) // each worker ticks in its own time
	for i := range 15_000 {
		w.pass(time.Millisecond)
		if i%10 == 0 {
			w.any().send("ann")
		}
		for k, f := range w.nodes {
			if w.now >= next[k] {
				f.tick()
				next[k] = w.now + int64(f.tickMillis)*1e6 + int64(k)
			}
			w.deliver(f)
		}
	}
	questions = w.questions - questions
	must.AtMost(t, w.pushes-before-questions, 15+15*2/3, "pushes of one key in 15 intervals")
	// All workers together ask what is new, where they have not heard.
	must.AtMost(t, questions, 15*4/3, "questions in 15 intervals")
}

// A key that nobody hits costs nothing. One worker of four asks what is new.
func TestPushesOfAnIdleKey(t *testing.T) {
	w := newWorld(t, 1, 4, second, engine.Options{}, users(sliding(100_000)))
	for i := range 1000 {
		w.nodes[i%4].send("ann")
		w.advance(time.Millisecond)
	}
	often(45, w.advance, time.Second) // its lease goes back
	before, questions := w.pushes, w.questions
	often(20, w.advance, time.Second)
	questions = w.questions - questions
	must.Equal(t, questions, 20, "questions in 20 intervals")
	must.Equal(t, w.pushes-before-questions, 0, "pushes of a key that nobody hits")
}

// Hits of evicted counters wait for the backend as long as anybody wants them. They are pushed then, or lost if it refuses them.
func TestOrphansOutlastAnOutage(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		w, f := alone(t, second/20, engine.Options{Capacity: 40}, users(long))
		w.lossBefore = 1
		for i := range 3000 {
			f.send(fmt.Sprint("r", i))
		}
		often(2*3600, w.advance, time.Second)
		w.lossBefore = 0
		answers := 0
		for range 100 {
			w.pass(time.Second)
			f.tick()
			for _, p := range f.taken() {
				if answers++; refuses && answers > 1 { // the first finds that the backend is back
					f.Answered(p.ticket, link.PushRefused, nil)
				} else {
					f.answer(p)
				}
			}
		}
		lost := uint64(3000)
		if !refuses {
			w.wantSum(3000, "in the end")
			lost = 0
		}
		must.Equal(t, f.Tallies.Pushed, 3000, "refused %v: pushed", refuses)
		must.Equal(t, f.Tallies.Lost, lost, "refused %v: lost", refuses)
	}
}

// The hits of evicted counters that wait are bounded, those of earlier configurations among them. The others are lost, and told.
func TestOrphansAreBounded(t *testing.T) {
	const most, capacity = 1 << 12, 40
	w, f := alone(t, second, engine.Options{Capacity: capacity}, users(long))
	w.lossBefore = 1
	sent, kept := 0, 0
	flood := func(f *fakeNode, n int) {
		for ; n > 0; n-- {
			f.send(fmt.Sprint("user ", sent))
			sent++
		}
	}
	flood(f, 5000)
	for range 4 {
		heir := f.process.startOf(second, f.options, f.counts...)
		flood(heir, 100)
		heir.Inherit(f.Engine)
		heir.Tallies.Lost += f.Tallies.Lost
		f = heir
		flood(f, 100)
		kept = f.Backlog().Evicted
		must.AtMost(t, kept, most, "evicted counters whose hits wait")
		must.Between(t, sent-kept-int(f.Tallies.Lost), 0, 2*capacity, "of %d hits those that neither wait nor are lost", sent)
	}
	must.Equal(t, kept, most, "evicted counters whose hits wait")
}

// During an outage the list of keys to push does not grow with time.
func TestDirtyListDuringAnOutage(t *testing.T) {
	w := newWorld(t, 1, 2, second, engine.Options{}, users(long))
	w.lossBefore = 1
	for range 3600 {
		for key := range 20 {
			w.any().send(strconv.Itoa(key))
		}
		w.advance(time.Second)
	}
	for i, f := range w.nodes {
		must.AtMost(t, f.Backlog().Keys, 40, "keys that worker %d remembers, of 20", i)
	}
}

// A node whose clock is off counts in the windows of the backend's time, once the backend has told
// it.
func TestClockOff(t *testing.T) {
	for _, off := range []time.Duration{0, -1500 * time.Millisecond, 2 * time.Second, 11 * time.Minute, -3 * time.Hour} {
		w, f := alone(t, second/10, engine.Options{}, all(limit(window.FixedWindow, 100, second)))
		w.processes[0].off = int64(off)
		most := int64(0)
		for i := range 200 {
			w.pass(50 * time.Millisecond)
			f.send("")
			f.tick()
			w.deliver(f)
			if i > 50 {
				most = max(most, w.sum())
			}
		}
		must.AtLeast(t, most, 15, "clock off by %v: of 20 hits a window the backend has at most", off)
	}
}

// A worker that has had no answer yet keeps to the time that the others have learnt.
func TestClockOfANewWorker(t *testing.T) {
	w := newWorld(t, 1, 1, second/10, engine.Options{}, all(limit(window.FixedWindow, 5, minute)))
	p, first := w.processes[0], w.nodes[0]
	exchange := func() {
		w.pass(50 * time.Millisecond)
		p.off = 90 * second
		first.tick()
		w.deliver(first)
	}
	passed := 0
	for range 3 {
		count(&passed, first.send(""))
		exchange()
	}
	fresh := p.startOf(second/10, engine.Options{}, first.counts...)
	for range 10 {
		for _, f := range []*fakeNode{fresh, first} {
			count(&passed, f.send(""))
		}
		exchange()
	}
	must.AtMost(t, passed, 6, "passed of 5, with one before the first answer, in a window of the wrong clock")
}

// Whatever order requests, ticks and answers of several workers take, between every get and every
// set: sums are exact.
func TestAnyInterleaving(t *testing.T) {
	for _, shape := range longest {
		if shape.Precision == window.LogPrecision {
			continue // none has so large a limit
		}
		for _, loss := range []float64{0, 0.15} {
			for seed := range uint64(8) {
				processes := int(seed%2) + 1
				w := newWorld(t, processes, 3, second/50, engine.Options{}, users(of(shape, 1_000_000)), all(of(shape, 200)))
				w.random = rand.New(rand.NewPCG(seed, 9))
				w.lossBefore, w.lossAfter = loss, loss
				passed := w.interleave()
				// Hits that were on their way back, or granted in a lost callout, are there for
				// others by now.
				for range 300 {
					count(&passed, w.any().send("0"))
					w.advance(100 * time.Millisecond)
				}
				often(100, w.advance, 500*time.Millisecond)
				if processes == 1 && passed != 200 {
					t.Errorf("%+v, loss %v, seed %d: passed %d, want 200", shape, loss, seed, passed)
				}
				w.wantSum(2*passed, "%+v, loss %v, seed %d", shape, loss, seed)
				for _, f := range w.nodes {
					must.Equal(t, f.Unfinished(), false, "%+v, loss %v, seed %d: something is left when all is quiet", shape, loss, seed)
				}
			}
		}
	}
}

// interleave has other workers of a process do something between each worker's gets and sets, then
// waits until all is quiet.
func (w *world) interleave() (passed int64) {
	busy := map[*fakeNode]bool{}
	user := func() string { return strconv.Itoa(w.random.IntN(5)) }
	for _, p := range w.processes {
		p.before = func(me *fakeNode, op string) {
			other := w.any()
			if op != "set" || busy[me] || w.random.IntN(3) != 0 || other == me || busy[other] || other.process != me.process {
				return
			}
			busy[me] = true
			defer delete(busy, me)
			switch w.random.IntN(3) {
			case 0:
				count(&passed, other.send(user()))
			case 1:
				w.pass(3 * time.Millisecond)
				other.tick()
			case 2:
				w.deliver(other)
			}
		}
	}
	for range 600 {
		count(&passed, w.any().send(user()))
		if w.random.IntN(3) == 0 {
			w.advance(time.Duration(w.random.IntN(10)) * time.Millisecond)
		}
	}
	for _, p := range w.processes {
		p.before = nil
	}
	w.lossBefore, w.lossAfter = 0, 0
	often(400, w.advance, 500*time.Millisecond)
	return passed
}

// Two nodes that stay below a token bucket's rate each, but not together, keep to it together.
func TestTokenBucketOfTwoNodes(t *testing.T) {
	bucket := func(rate uint64, width int64, burst uint64) window.Limit {
		return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: width}, Max: rate, Burst: burst}
	}
	for _, test := range []struct {
		limit    window.Limit
		rate     int64
		pause    time.Duration
		requests int
		most     int
	}{
		{bucket(10, second, 10), second, 111 * time.Millisecond, 540, 640},
		{bucket(100, minute, 10), second / 2, 999 * time.Millisecond, 600, 1030},
		{bucket(100, minute, 10), 5 * second, 999 * time.Millisecond, 600, 1040},
	} {
		w := newWorld(t, 2, 1, test.rate, engine.Options{}, all(test.limit))
		passed := 0
		for range test.requests {
			for _, f := range w.nodes {
				count(&passed, f.send(""))
			}
			w.advance(test.pause)
		}
		must.Between(t, passed, test.most*9/10, test.most, "%+v, sync_rate %v: passed of %d", test.limit, time.Duration(test.rate), 2*test.requests)
	}
}

// Keys up to the capacity fit, however large their entries are.
func TestLargeEntriesShareAPage(t *testing.T) {
	for _, limits := range []int{1, 3, 8} {
		rule := fakeRule{}
		for i := range limits {
			rule.limits = append(rule.limits, of(window.Shape{Kind: window.SlidingBuckets, Width: int64(366-i) * day, Precision: window.LogPrecision}, 367))
		}
		w := newWorld(t, 1, 1, -1, engine.Options{Capacity: 2}, rule)
		passed := map[string]int{}
		for i := range 1000 {
			user := []string{"ann", "bob"}[i%2]
			if w.now += 1703 * second; w.nodes[0].send(user) {
				passed[user]++
			}
		}
		must.Equal(t, [2]int{passed["ann"], passed["bob"]}, [2]int{367, 367}, "%d logs: passed", limits)
	}
}

// The backend knows hits that it granted before an outage, and nobody heard of, when it is back, as
// long as anybody asks for them: nothing is counted twice, and nothing stays counted that nobody
// used.
func TestOutageAfterGrants(t *testing.T) {
	for _, shape := range longest {
		for _, outage := range []time.Duration{time.Minute, 12 * time.Minute, 23 * time.Hour} {
			for _, rate := range []int64{0, second} {
				w := newWorld(t, 2, 2, rate, engine.Options{}, all(of(shape, 200)))
				w.advance(time.Second)
				passed := int64(0)
				send := func(n int) {
					for range n {
						count(&passed, w.any().send(""))
						w.advance(20 * time.Millisecond)
					}
				}
				send(50)
				w.lossAfter = 1 // taken, and not heard of
				send(20)
				w.lossAfter, w.lossBefore = 0, 1
				often(int(outage/(10*time.Second)), w.advance, 10*time.Second)
				w.lossBefore = 0
				often(20, w.advance, time.Second) // until the backend is found to be back
				send(50)
				for _, f := range w.nodes {
					f.Leave()
				}
				w.quiet()
				w.wantSum(passed, "%+v, sync rate %v, %v", shape, time.Duration(rate), outage)
				must.AtLeast(t, passed, 100, "%+v, sync rate %v, %v: passed", shape, time.Duration(rate), outage)
			}
		}
	}
}

// Hits of evicted counters whose windows have ended keep no place from others. They count no more, so they are not lost.
func TestOrphansEndWithTheirWindows(t *testing.T) {
	w, f := alone(t, second, engine.Options{Capacity: 40}, users(limit(window.FixedWindow, 100_000, minute)))
	w.lossBefore = 1
	flood := func(name string, n int) {
		for i := range n {
			f.send(fmt.Sprint(name, i))
		}
	}
	flood("user ", 5000)
	must.Equal(t, f.Backlog().Evicted, 1<<12, "evicted counters whose hits wait")
	lost := f.Tallies.Lost
	w.pass(3 * time.Minute)
	f.tick()
	flood("other ", 1000)
	must.Equal(t, f.Tallies.Lost, lost, "hits lost")
	must.Between(t, f.Backlog().Evicted, 900, 1000+80, "evicted counters whose hits wait, of 1,000 users")
}
