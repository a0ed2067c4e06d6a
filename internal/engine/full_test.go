package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/jitter"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
)

// fill has a node know that a user's key is full, as far as a question of its own can tell.
func (w *world) fill(t *testing.T, f *fakeNode, user string) {
	t.Helper()
	w.takeAll(f, 0, user, 0, 1000)
	verdict, _ := f.ask(user)
	must.EqualOrEnd(t, verdict, counter.Rejected, "a full key")
	w.pass(3 * time.Second)
}

// A backend that decides each request is asked about each, even if an earlier configuration leased hits of
// the key and was refused.
func TestExactRulesRefuseNothingUnasked(t *testing.T) {
	w := newWorld(t, 1, 1, second, engine.Options{}, users(fixed(1000)))
	w.fill(t, w.nodes[0], "ann")
	f := w.processes[0].start(0, fixed(1000))
	w.giveBack(f, "ann", 10)
	f.wantAsked(0, "ann", counter.Allowed, true, "")
	must.Equal(t, f.leased(0, "ann"), 0, "hits are leased")
}

// The list of full keys is no reason to refuse a request where a node has heard since that there is room,
// as after a reset. A window may be long, and requests few.
func TestFullKeysThatHaveRoomAgain(t *testing.T) {
	for name, room := range map[string]int64{"all": 1000, "a part": 50} {
		w := fleetOf(t, 3, users(fixed(1000)))
		f := w.nodes[2]
		w.now = (w.now/hour + 1) * hour
		w.hear(t, 3)
		w.giveBack(f, "ann", -1000)
		w.hear(t, 3)
		w.giveBack(f, "ann", room)
		refused := 0
		for range 20 {
			if verdict, _ := f.ask("ann"); verdict != counter.Allowed {
				refused++
			}
			w.hear(t, 30)
		}
		must.AtMost(t, refused, 1, "%s is back: of 20 requests were refused", name)
	}
}

// While the breaker is open, the configuration decides about requests, also about those for keys that were
// full.
func TestFullKeysWhileTheBackendIsAway(t *testing.T) {
	w, f := alone(t, second, engine.Options{OnBackendFailure: failure.Allow}, users(fixed(1000)))
	w.fill(t, f, "ann")
	f.breakOff()
	must.EqualOrEnd(t, f.BreakerOpen(), true, "the breaker is closed")
	w.pass(2 * time.Duration(jitter.LongestPause))
	for i := range 3 {
		must.Equal(t, f.Decide([]rule.Check{f.check(0, "ann", 1)}, f.time(), &newRequest().Wait) != counter.Rejected, true, "request %d is not refused", i)
	}
	must.AtMost(t, len(f.taken()), 1, "callouts that test whether the backend is back")
}

// breakOff loses callouts until the breaker is open.
func (f *fakeNode) breakOff() {
	for i := 0; i < 20 && !f.BreakerOpen(); i++ {
		f.Decide([]rule.Check{f.check(0, fmt.Sprint("somebody ", i), 1)}, f.time(), &newRequest().Wait)
		f.loseAll()
		f.process.pass(10 * time.Millisecond)
	}
}

// A refusal behind which the node asks says to come again at once while others may still give back leases.
// After some refusals in a row it says when the window ends, like the refusals in the pauses. Room for one more
// hit is not later than that.
func TestRefusalsOfKeysThatStayFull(t *testing.T) {
	w, f := alone(t, second, engine.Options{}, users(fixed(1000)))
	w.fill(t, f, "ann")
	var soon []bool
	for range 6 {
		d, now := []rule.Check{f.check(0, "ann", 1)}, f.time()
		must.EqualOrEnd(t, f.Decide(d, now, &newRequest().Wait), counter.Rejected, "a full key")
		must.EqualOrEnd(t, d[0].Asks, true, "it asks")
		at, ok := rule.RetryAt(d, now)
		if soon = append(soon, at == now); !ok || at != now && at != (now/hour+1)*hour {
			t.Errorf("come again after %v, %t", time.Duration(at-now), ok)
		}
		must.Equal(t, d[0].Standing(0, now).Next, max(at-now, 1), "there is room after, told to come again after %v", time.Duration(at-now))
		f.deliver()
		w.pass(15 * time.Second)
	}
	must.Same(t, soon, []bool{true, true, true, false, false, false}, "come again at once")
}

// A refusal says when to come again by its own decision, and not by that of the request before.
func TestRefusalsOfReusedDemands(t *testing.T) {
	w, f := alone(t, second, engine.Options{OnBackendFailure: failure.Deny}, users(fixed(1000)))
	w.fill(t, f, "ann")
	d := []rule.Check{f.check(0, "ann", 1)}
	must.EqualOrEnd(t, f.Decide(d, f.time(), &newRequest().Wait), counter.Rejected, "a full key")
	must.EqualOrEnd(t, d[0].Asks, true, "it asks")
	f.breakOff()
	now := f.time()
	must.EqualOrEnd(t, f.Decide(d, now, &newRequest().Wait), counter.Rejected, "without the backend")
	if at, ok := rule.RetryAt(d, now); !ok || at != (now/hour+1)*hour {
		t.Errorf("come again after %v, %t; want the end of the window", time.Duration(at-now), ok)
	}
}
