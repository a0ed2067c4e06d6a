package engine_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// told is a request, and what it was told of its checks.
type told struct {
	fakeRequest
	node      *fakeNode
	at        int64
	retryAt   int64
	retries   bool
	remaining []uint64
	verdicts  []counter.Verdict // of the checks
	verdict   counter.Verdict   // Unsure while it waits
}

// Decided implements Request.
func (r *told) Decided(checks []rule.Check, now int64, verdict counter.Verdict) {
	r.fakeRequest.Decided(checks, now, verdict)
	r.hear(checks, now, verdict)
}

func (r *told) hear(checks []rule.Check, now int64, verdict counter.Verdict) {
	r.at, r.verdict = now, verdict
	r.retryAt, r.retries = rule.RetryAt(checks, now)
	for i := range checks {
		r.verdicts = append(r.verdicts, checks[i].Verdict)
		r.remaining = append(r.remaining, checks[i].Standing(0, now).Remaining)
	}
}

// bring brings a request of ann's of one hit of some of the rules.
func (f *fakeNode) bring(rules ...int) *told {
	r := &told{node: f, verdict: counter.Unsure}
	r.Request = r
	checks := make([]rule.Check, 0, len(rules))
	for _, rule := range rules {
		checks = append(checks, f.check(rule, "ann", 1))
	}
	if verdict := f.Decide(checks, f.time(), &r.Wait); verdict != counter.Unsure {
		r.hear(checks, f.time(), verdict)
	}
	return r
}

// passes brings a request of ann's, has what it waits for answered, and reports whether it passed.
func (f *fakeNode) passes(rules ...int) bool {
	r := f.bring(rules...)
	for rounds := 0; r.Waiting() && rounds < 10; rounds++ {
		f.deliver()
	}
	return r.verdict == counter.Allowed
}

// Whatever becomes of the backend, requests of local rules are decided by these alone, and wait for
// nothing.
func TestLocalRulesNeedNoBackend(t *testing.T) {
	for _, fallback := range []failure.Mode{failure.Local, failure.Allow, failure.Deny} {
		for _, rate := range []int64{0, second} {
			w, f := alone(t, rate, engine.Options{OnBackendFailure: fallback}, users(fixed(100)), users(fixed(3)).here(), all(fixed(4)).here())
			w.lossBefore = 1
			for range 20 {
				f.passes(0)
				w.advance(100 * time.Millisecond)
			}
			must.EqualOrEnd(t, f.BreakerOpen(), true, "the backend is not found to be away")
			before := f.Tallies
			for i, want := range []bool{true, true, true, false, false} {
				r := f.bring(1, 2)
				must.Equal(t, [2]bool{r.verdict == counter.Allowed, r.Waiting()}, [2]bool{want, false}, "fallback %d: request %d of local rules passes and waits", fallback, i)
			}
			must.Equal(t, [2]bool{f.passes(2), f.passes(2)}, [2]bool{true, false}, "fallback %d: the fourth and the fifth request of a local rule of four pass", fallback)
			must.Equal(t, [3]uint64{f.Tallies.Alone, f.Tallies.Waited, f.Tallies.Failed}, [3]uint64{before.Alone, before.Waited, before.Failed}, "fallback %d: alone, waited and failed", fallback)
			must.Equal(t, f.Overshoot(1), 0, "fallback %d: a local rule may overshoot by", fallback)
		}
	}
}

// While the backend is away, local rules decide what matches global rules, too: beside what is known
// of these, alone, or not at all.
func TestMixedRequestsWithoutABackend(t *testing.T) {
	for _, test := range []struct {
		fallback failure.Mode
		want     []bool
		local    uint64 // hits that the local rule has
		global   uint64
		verdicts []counter.Verdict // of the last request
	}{
		{failure.Local, []bool{true, true, false}, 2, 2, []counter.Verdict{counter.Rejected, counter.Allowed}},
		{failure.Allow, []bool{true, true, true, false, false}, 3, 0, []counter.Verdict{counter.Allowed, counter.Rejected}},
		{failure.Deny, []bool{false, false, false}, 0, 0, []counter.Verdict{counter.Rejected, counter.Allowed}},
	} {
		for _, rate := range []int64{0, second} {
			w, f := alone(t, rate, engine.Options{OnBackendFailure: test.fallback}, users(fixed(2)), users(fixed(3)).here())
			w.lossBefore = 1
			for !f.BreakerOpen() {
				f.bring(0).Leave()
				w.advance(100 * time.Millisecond)
			}
			what := fmt.Sprintf("fallback %d, rate %v", test.fallback, time.Duration(rate))
			known := f.stored(0, "ann").Counter.States[0].Hits[0].Sum()
			must.EqualOrEnd(t, known, 0, "%s: hits are known before", what)
			var last *told
			for i, want := range test.want {
				if last = f.bring(0, 1); last.Waiting() || (last.verdict == counter.Allowed) != want {
					t.Errorf("%s: request %d: %v", what, i, last.verdict)
				}
			}
			must.Same(t, last.verdicts, test.verdicts, "%s: the last request's verdicts are", what)
			for rule, want := range []uint64{test.global, test.local} {
				must.Equal(t, f.stored(rule, "ann").Counter.States[0].Hits[0].Sum(), want, "%s: rule %d has hits", what, rule)
			}
			w.quiet()
			w.wantSum(int64(test.global), "%s", what)
		}
	}
}

// A request that a local rule refuses is not asked for.
func TestRefusedHereIsNotAsked(t *testing.T) {
	w, f := alone(t, 0, engine.Options{}, users(fixed(10)), users(fixed(3)).here())
	passed := 0
	for range 3 {
		count(&passed, f.passes(0, 1))
	}
	asked := w.pushes
	for range 20 {
		must.EqualOrEnd(t, f.bring(0, 1).verdict, counter.Rejected, "a request without room here")
	}
	must.Equal(t, [2]int{passed, w.pushes - asked}, [2]int{3, 0}, "passed of 3, and questions more")
	w.wantSum(3, "in the end")
}

// Requests that wait for the backend take nothing else. If others have taken that when the grant is
// there, it goes back: nothing is lost, and clients are told the truth of that time.
func TestGrantWithoutRoomElsewhere(t *testing.T) {
	for _, shape := range append([]window.Shape{{Kind: window.FixedWindow, Width: hour}}, longest...) {
		w, f := alone(t, 0, engine.Options{}, users(of(shape, 5)), users(limit(window.FixedWindow, 1, minute)).here())
		lucky, late := f.bring(0, 1), f.bring(0, 1)
		if !lucky.Waiting() || !late.Waiting() || f.stored(1, "ann").Counter.States[0].Hits[0].Sum() != 0 {
			t.Fatalf("%+v: requests do not wait, or have taken what is here already", shape)
		}
		f.deliver()
		f.deliver()
		must.Equal(t, [2]counter.Verdict{lucky.verdict, late.verdict}, [2]counter.Verdict{counter.Allowed, counter.Rejected}, "%+v: verdicts", shape)
		must.Same(t, late.verdicts, []counter.Verdict{counter.Allowed, counter.Rejected}, "%+v: verdicts that the second is told", shape)
		must.Same(t, late.remaining, []uint64{4, 0}, "%+v: what remains, as the second is told", shape)
		must.Equal(t, late.retries, true, "%+v: the second is to come back", shape)
		must.Equal(t, late.retryAt-late.at, minute, "%+v: ns until the second is to come back", shape)
		f.advance(time.Second)
		w.quiet()
		if got := w.sum(); got != 1 && shape.Kind != window.TokenBucket || got > 1 {
			t.Errorf("%+v: the backend has %d hits, want 1", shape, got)
		}
		w.wantNothingLeft("%+v", shape)
		// All that is left is there.
		w.pass(time.Minute)
		for i := range 4 {
			must.Equal(t, f.passes(0), true, "%+v: of four that are left the %dth is refused", shape, i+1)
		}
		must.Equal(t, f.passes(0), false, "%+v: one more than the limit passes", shape)
	}
}

// A lease that others use up while the backend is asked is asked for again.
func TestLeaseRunsDryMeanwhile(t *testing.T) {
	w, f := alone(t, 0, engine.Options{}, users(fixed(10)), users(fixed(50)).at(second))
	r := f.bring(0, 1)
	f.deliver() // the lease of what it needs; now it asks for the rest
	must.EqualOrEnd(t, r.Waiting(), true, "it waits")
	must.EqualOrEnd(t, f.leased(1, "ann"), 1, "leased")
	must.EqualOrEnd(t, f.bring(1).verdict, counter.Allowed, "another")
	must.EqualOrEnd(t, f.leased(1, "ann"), 0, "leased, as another has used it")
	f.deliver()
	must.EqualOrEnd(t, r.Waiting(), true, "does not wait again: %v", r.verdict)
	for range 4 {
		f.deliver()
	}
	must.Equal(t, r.verdict, counter.Allowed, "verdict")
	must.Equal(t, len(r.fakeRequest.verdicts), 1, "times that it was told")
	w.quiet()
	often(10, w.advance, time.Minute) // what is left of the lease goes back
	w.wantSum(3, "1 of the first rule and 2 of the second")
}

// A request that is gone, or that was decided alone, when its grant comes takes nothing here.
func TestGrantForNobody(t *testing.T) {
	for name, end := range map[string]func(f *fakeNode, r *told){
		"gone":    func(_ *fakeNode, r *told) { r.Leave() },
		"decided": func(f *fakeNode, _ *told) { f.process.pass(time.Second); f.tick() },
	} {
		w, f := alone(t, 0, engine.Options{OnBackendFailure: failure.Deny}, users(fixed(10)), users(fixed(5)).here())
		r := f.bring(0, 1)
		pushes := f.taken()
		end(f, r)
		for _, p := range pushes {
			f.answer(p)
		}
		w.quiet()
		if here := f.stored(1, "ann").Counter.States[0].Hits[0].Sum(); r.Waiting() || here != 0 || w.sum() != 0 {
			t.Errorf("%s: waits %v, %d hits here, %d in the backend", name, r.Waiting(), here, w.sum())
		}
	}
}

// Each rule's keys are pushed as often as it says, and ticks are those of the fastest.
func TestIntervalsOfTheirOwn(t *testing.T) {
	bucket := limit(window.FixedWindow, 100_000, day)
	w, f := alone(t, -1, engine.Options{}, users(bucket).at(10*second), users(bucket).at(second/10), users(bucket))
	must.Between(t, f.TickMillis(), 10, 12, "ms between ticks, those of a tenth of 100 ms")
	items := map[wire.ID]int{}
	count := func() {
		for _, p := range f.taken() {
			push := must.Get(wire.DecodePush(p.body))(t)
			for i := range push.Items {
				items[push.Items[i].ID]++
			}
			f.answer(p)
		}
	}
	f.charge("ann")
	for range 2000 { // 20 s
		f.charge("ann")
		w.pass(10 * time.Millisecond)
		f.tick()
		count()
	}
	slow, fast, local := items[f.id(0, "ann")], items[f.id(1, "ann")], items[f.id(2, "ann")]
	if slow < 2 || slow > 4 || fast < 150 || fast > 220 || local != 0 {
		t.Errorf("pushed %d times in 20 s at an interval of 10 s, %d times at 100 ms, and %d times without a backend", slow, fast, local)
	}
}

// A node of local rules only has no backend.
func TestAllLocalHasNoBackend(t *testing.T) {
	w, f := alone(t, -1, engine.Options{}, users(fixed(3)), all(fixed(5)))
	for range 6 {
		f.send("ann")
		w.advance(time.Second)
	}
	if f.Synchronises() || f.TickMillis() != 0 || w.pushes+len(f.reports) != 0 {
		t.Errorf("synchronises %v, ticks every %d ms, %d pushes", f.Synchronises(), f.TickMillis(), w.pushes)
	}
}

// A rule that gets a backend brings its hits along; a rule that loses its backend leaves its hits
// there, and goes on from the totals that it knows.
func TestRuleChangesItsRate(t *testing.T) {
	for _, shape := range longest[:5] {
		for _, rate := range []int64{0, second} {
			what := fmt.Sprintf("%+v, rate %v", shape, time.Duration(rate))
			other := users(fixed(1000)).at(second)
			moving := users(of(shape, 20))
			w := newWorld(t, 1, 1, -1, engine.Options{}, other, moving.here())
			replace := func(rule fakeRule) *fakeNode {
				old := w.nodes[len(w.nodes)-1]
				heir := old.process.startOf(-1, engine.Options{}, other, rule)
				old.Retry(old.time())
				heir.Inherit(old.Engine)
				old.sent = nil
				w.nodes = w.nodes[len(w.nodes)-1:]
				return heir
			}
			pass := func(f *fakeNode, n int) (passed int) {
				for range n {
					count(&passed, f.passes(1))
					w.advance(50 * time.Millisecond)
				}
				return passed
			}
			must.Equal(t, pass(w.nodes[0], 5), 5, "%s: of 5 passed here", what)
			w.wantSum(0, "%s, without a backend", what)
			f := replace(moving.at(rate))
			must.Equal(t, pass(f, 4), 4, "%s: of 4 passed with a backend", what)
			w.quiet()
			often(10, w.advance, time.Minute) // what is left of a lease goes back
			w.wantSum(9, "%s, of which 5 were counted without a backend", what)
			f = replace(moving.here())
			w.quiet()
			must.Equal(t, pass(f, 20), 11, "%s: passed without a backend again, of 20", what)
			w.quiet()
			w.wantSum(9, "%s, without a backend again", what)
			w.wantNothingLeft("%s", what)
		}
	}
}

// A lease goes back as soon as its rule has no backend any more, and what is left of it at home
// serves no more hits than the limit.
func TestLeaseOfARuleThatLosesItsBackend(t *testing.T) {
	other := users(fixed(1000)).at(second)
	w, f := alone(t, -1, engine.Options{}, other, users(long).at(second))
	for range 40 {
		f.passes(1)
		w.advance(50 * time.Millisecond)
	}
	leased := f.leased(1, "ann")
	must.EqualOrEnd(t, leased > 0, true, "hits are leased")
	heir := f.process.startOf(-1, engine.Options{}, other, users(long).here())
	heir.Inherit(f.Engine)
	f.sent = nil
	w.nodes = []*fakeNode{heir}
	often(20, w.advance, 100*time.Millisecond)
	w.wantSum(40, "of which %d were leased", leased)
	must.Equal(t, heir.leased(1, "ann"), 0, "leased hits that are left")
	w.wantNothingLeft("in the end")
}
