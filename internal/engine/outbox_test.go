package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/wire"
)

// Nobody calls the backend while the breaker is open, though questions of waiting requests are left, and the
// next tick decides these requests.
func TestNothingIsSentWhileTheBreakerIsOpen(t *testing.T) {
	for name, act := range map[string]func(f *fakeNode){
		"a request": func(f *fakeNode) {
			f.Decide([]rule.Check{f.check(1, "ann", 1)}, f.time(), &newRequest().Wait)
		},
		"a cost": func(f *fakeNode) {
			d := f.check(1, "ann", 1)
			f.Force(&d, f.time())
		},
		"a request alone": func(f *fakeNode) { f.DecideAlone([]rule.Check{f.check(0, "ann", 1)}, f.time()) },
	} {
		w, f := joined(t, 0, engine.Options{}, users(fixed(50)), users(fixed(1000)).here())
		requests := f.pausedOften(engine.MaxAsking+3, "ben")
		f.loseAll()
		must.EqualOrEnd(t, f.BreakerOpen(), true, "the breaker is open")
		must.EqualOrEnd(t, f.Backlog().Unsent > 0, true, "questions are left")
		act(f)
		must.Equal(t, len(f.sent), 0, "%s: pushes while the breaker is open", name)
		w.pass(time.Millisecond)
		f.tick()
		must.Equal(t, f.still(requests), 0, "%s: requests that wait a tick after the breaker has opened", name)
	}
}

// A question of a request that takes nothing finds out at once whether the backend is back.
func TestAskTestsTheBackend(t *testing.T) {
	w := newWorld(t, 1, 2, 0, engine.Options{}, users(fixed(50)))
	f, other := w.nodes[0], w.nodes[1]
	w.advance(time.Second)
	other.breakOff()
	f.ReadLink()
	w.pass(10 * time.Second)
	d := []rule.Check{f.check(0, "ann", 0)}
	f.Look(&d[0], f.time())
	must.Equal(t, f.Ask(d, &newRequest().Wait), false, "it waits")
	must.Equal(t, len(f.sent), 1, "pushes: the test")
}

// A grant that has gone back lets nothing pass, though the rule that had no room only marks.
func TestGrantThatWentBackAndMarks(t *testing.T) {
	marks := users(fixed(3)).at(second)
	marks.marks = true
	w := newWorld(t, 2, 1, 0, engine.Options{}, users(fixed(5)), marks)
	f := w.nodes[0]
	w.advance(time.Second)
	r := &charged{node: f, verdict: counter.Unsure}
	r.Request = r
	must.EqualOrEnd(t, f.Decide([]rule.Check{f.check(0, "ann", 1), f.check(1, "ann", 1)}, f.time(), &r.Wait), counter.Unsure, "the request does not wait")
	for round := 0; r.verdict == counter.Unsure && round < 20; round++ {
		f.answerAll()
		for range f.leased(1, "ann") { // others of this worker use up the lease
			if r.verdict == counter.Unsure {
				f.Decide([]rule.Check{f.check(1, "ann", 1)}, f.time(), &newRequest().Wait)
			}
		}
	}
	w.quiet()
	d := f.stored(0, "ann")
	if left := d.Rule.Limits[0].Remaining(&d.Counter.States[0]); r.verdict == counter.Allowed && left != 4 {
		t.Errorf("a request has passed the exact rule, and it has %d of 5 left", left)
	}
}

// A request that passes uncounted after its grant has gone back has nothing to give back.
func TestGrantThatWentBackIsNotCharged(t *testing.T) {
	w := newWorld(t, 2, 1, 0, engine.Options{OnBackendFailure: failure.Allow}, users(fixed(5)))
	f, other := w.nodes[0], w.nodes[1]
	w.advance(time.Second)
	for range 4 {
		other.send("ann")
	}
	w.quiet()
	d := f.check(0, "ann", 1)
	f.Force(&d, f.time())
	f.PushCharges()
	charge := f.taken()
	r := &charged{node: f, verdict: counter.Unsure}
	r.Request = r
	must.EqualOrEnd(t, f.Decide([]rule.Check{f.check(0, "ann", 1)}, f.time(), &r.Wait), counter.Unsure, "the request does not wait")
	question := f.taken()
	w.processes[0].before = func(_ *fakeNode, op string) {
		if op == "set" {
			w.now += second // its time ends while the answer is taken in
		}
	}
	f.answer(question[0])
	w.processes[0].before = nil
	for _, p := range charge {
		f.lose(p)
	}
	w.quiet()
	before := w.sum()
	must.EqualOrEnd(t, r.verdict, counter.Allowed, "or nothing is tested")
	f.Charges.Revise(&r.charges[0], 0, f.time())
	w.quiet()
	must.Equal(t, w.sum(), before, "hits after a request gave back what it had not taken")
}

// A push that was refused stays refused, though a callout of it that hung ends, too.
func TestRefusedTwice(t *testing.T) {
	w, f := joined(t, 0, engine.Options{}, users(fixed(50)))
	f.charge("ann")
	f.PushCharges()
	hung := f.taken()
	for range 2 {
		w.pass(6 * time.Second)
		f.tick()
	}
	again := 0
	for _, p := range f.taken() {
		if string(p.body) != string(hung[0].body) {
			f.lose(p)
			continue
		}
		again++
		f.Answered(p.ticket, link.PushRefused, nil)
		f.Answered(hung[0].ticket, link.PushRefused, nil)
	}
	if kept, different := f.Idle(); again == 0 || kept != different {
		t.Errorf("sent again %d times; %d pushes are kept for reuse, of which %d are different", again, kept, different)
	}
}

// A request whose question was answered, and that asks once more, waits for that answer, though the rest of
// the first push fails meanwhile.
func TestAnsweredPartEndsNoLaterWait(t *testing.T) {
	w := newWorld(t, 1, 1, 0, engine.Options{Collect: second / 20}, users(fixed(5)), users(fixed(50)).at(second))
	s := part(w)
	f := w.nodes[0]
	w.advance(time.Second)
	var ann, ben string
	for i := 0; ann == "" || ben == ""; i++ {
		user := fmt.Sprint("user", i)
		switch exact, leases := partition(f.id(0, user)), partition(f.id(1, user)); {
		case exact == 0 && leases == 0:
			ann = user
		case exact == 1:
			ben = user
		}
	}
	f.Decide([]rule.Check{f.check(0, ann, 1)}, f.time(), &newRequest().Wait) // a callout, whose answer others wait for
	under := f.taken()
	a, b := newRequest(), newRequest()
	if f.Decide([]rule.Check{f.check(0, ann, 1), f.check(1, ann, 1)}, f.time(), &a.Wait) != counter.Unsure ||
		f.Decide([]rule.Check{f.check(0, ben, 1)}, f.time(), &b.Wait) != counter.Unsure {
		t.Fatal("the requests do not wait")
	}
	for _, p := range under {
		f.answer(p)
	}
	s.fails[0] = wire.NotApplied
	first := f.taken()
	must.EqualOrEnd(t, len(first), 1, "pushes with both questions")
	f.answer(first[0])
	w.pass(60 * time.Millisecond)
	f.tick()
	var own []fakePush // ann's second question
	lost := 0
	for range 8 {
		for _, p := range f.taken() {
			if string(p.body) == string(first[0].body) {
				lost++
				f.lose(p)
			} else {
				own = append(own, p)
			}
		}
		if lost == 0 {
			w.pass(10 * time.Millisecond)
			f.tick()
		}
	}
	must.EqualOrEnd(t, lost > 0 && len(own) > 0, true, "%d pushes were lost, and %d questions are on their way, or nothing is tested", lost, len(own))
	w.pass(time.Millisecond)
	must.Equal(t, len(a.verdicts), 0, "decided before")
	f.tick()
	must.Equal(t, len(a.verdicts), 0, "decided while its answer is on its way (%d alone)", f.Tallies.Late)
}
