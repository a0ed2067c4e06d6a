package engine_test

import (
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/must"
)

// question brings a request that takes nothing. It reports whether the request passes, and how many hits
// the node knows to be left.
func (f *fakeNode) question(user string) (passed bool, left uint64) {
	passed = f.sendOf(user, 0)
	d := f.stored(0, user)
	return passed, d.Rule.Limits[0].Remaining(&d.Counter.States[0])
}

// chargeOf counts so many hits of each rule, whether or not there is room, and pushes what is to be pushed at once.
func (f *fakeNode) chargeOf(user string, cost uint64) {
	f.force(user, cost)
	f.PushCharges()
}

// A node that only asks whether there is room hears of the hits that another counts: within a sync_rate
// after they were pushed, and at 0 with each question.
func TestQuestionsHearOfOthers(t *testing.T) {
	const limit, cost, every = 1000, 300, 100 * time.Millisecond
	for _, shape := range longest {
		for _, rate := range []int64{0, second / 5, second} {
			w := newWorld(t, 2, 1, rate, engine.Options{}, charging(users(of(shape, limit))))
			asks, charges := w.nodes[0], w.nodes[1]
			w.advance(time.Second)
			passes := 0
			for range 100 {
				if passed, _ := asks.question("ann"); passed {
					passes++
					charges.chargeOf("ann", cost)
					w.deliver(charges)
				}
				w.advance(every)
			}
			// The last request that has room goes over the limit, and so do those within the time until the
			// charges are pushed and heard of.
			must.Between(t, passes, limit/cost+1, limit/cost+1+int(2*rate/int64(every)), "%s, rate %v: requests that pass", shape.Name(), time.Duration(rate))
			charges.advance(time.Second)
			passed, _ := charges.question("ann")
			must.Equal(t, passed, false, "%s, rate %v: a question passes at the node that charges", shape.Name(), time.Duration(rate))
		}
	}
}

// A question waits for the backend where the node has heard nothing of the key for a sync_rate, and tells
// what is left of the limit, whether others took hits or gave them back.
func TestQuestionsWaitWhereNothingIsKnown(t *testing.T) {
	const limit = 1000
	for _, shape := range longest {
		w := newWorld(t, 2, 1, second, engine.Options{}, charging(users(of(shape, limit))))
		asks, takes := w.nodes[0], w.nodes[1]
		w.advance(time.Second)
		var waits []bool
		ask := func(want uint64) {
			t.Helper()
			before := asks.Tallies.Waited
			_, left := asks.question("ann")
			waits = append(waits, asks.Tallies.Waited != before)
			must.Between(t, left, want-takes.leased(0, "ann"), want, "%s: hits that are left, less those that are leased", shape.Name())
		}
		ask(limit)
		c := takes.reserve("ann", 800)
		often(20, w.advance, 100*time.Millisecond)
		ask(200)
		w.advance(900 * time.Millisecond)
		ask(200)
		c.revise(100)
		often(20, w.advance, 100*time.Millisecond)
		ask(900)
		must.Same(t, waits, []bool{true, true, false, true}, "%s: questions wait", shape.Name())
	}
}

// Many questions of a key wait for one answer, and those of a backend that is away for none.
func TestQuestionsShareAnAnswer(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, users(fixed(1000)))
	f.sendOf("ann", 1)
	w.advance(2 * time.Second)
	w.advance(2 * time.Second)
	f.send("other") // it makes callouts that have no answer yet
	var requests []*fakeRequest
	for range 20 {
		r, verdict := f.requestOf("ann", 0)
		must.EqualOrEnd(t, verdict, counter.Unsure, "a question has the verdict")
		requests = append(requests, r)
	}
	f.tick()
	for range 5 {
		w.deliver(f)
	}
	must.Equal(t, [2]int{f.still(requests), allowed(requests)}, [2]int{0, 20}, "of 20 questions those that wait, and that pass")
}

// At a sync_rate of 0 a node's own charges count in its questions, whichever the backend hears of first.
func TestQuestionsCountOwnCharges(t *testing.T) {
	const limit, cost = 1000, 300
	for _, shape := range longest {
		w := newWorld(t, 1, 2, 0, engine.Options{}, charging(users(of(shape, limit))))
		w.advance(time.Second)
		passes := 0
		for range 200 {
			f := w.any()
			if passed, _ := f.question("ann"); passed {
				passes++
				f.chargeOf("ann", cost)
			}
		}
		must.Equal(t, passes, limit/cost+1, "%s: requests pass", shape.Name())
	}
}
