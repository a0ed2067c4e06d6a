package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// credited returns a node with a part of the limit of 1,000 of rule 0, of which five hits of ann's are advanced and not counted.
func credited(t *testing.T, others ...fakeRule) (*world, *fakeNode) {
	t.Helper()
	w := fleetOf(t, 1, append([]fakeRule{users(fixed(1000))}, others...)...)
	w.interval()
	for range 5 {
		w.nodes[0].wantAsked(0, "ann", counter.Allowed, false, "advance")
	}
	return w, w.nodes[0]
}

// unheard is [credited], with a check of ann's that waits, as its last request found no part.
func unheard(t *testing.T, others ...fakeRule) (*world, *fakeNode, []rule.Check) {
	t.Helper()
	w, f := credited(t, others...)
	checks := []rule.Check{f.check(0, "ann", 1)}
	f.DropPart()
	must.EqualOrEnd(t, f.Decide(checks, f.time(), &newRequest().Wait), counter.Unsure, "without a part")
	must.EqualOrEnd(t, checks[0].Unheard[0][0], 5, "hits that are not counted")
	return w, f, checks
}

// take decides a check that was another's before.
func (f *fakeNode) take(checks []rule.Check, at int, user string, cost uint64) counter.Verdict {
	checks[0].Ref = rule.Ref{Rule: f.rule(at), Cost: cost}
	checks[0].Key = f.key(at, user)
	return f.Decide(checks, f.time(), &newRequest().Wait)
}

// left is what a limit of a check has left, as people are told.
func left(f *fakeNode, d *rule.Check) uint64 { return d.Standing(0, f.time()).Remaining }

// A check's memory is used for many keys: what one has had advanced says nothing of the next, neither if that is counted where
// it stands, nor if its refusal is remembered.
func TestUnheardIsOfOneKey(t *testing.T) {
	w, f, checks := unheard(t, users(of(window.Shape{Kind: window.TokenBucket, Width: second}, 20)).here())
	for i := range uint64(3) {
		must.Equal(t, f.take(checks, 1, "eve", 1), counter.Allowed, "eve's hit %d", i)
		must.Equal(t, left(f, &checks[0]), 19-i, "left after eve's hit %d", i)
	}
	for f.take(checks, 1, "bob", 1) == counter.Allowed {
	}
	must.Equal(t, f.Remembers(&checks[0], f.time()), true, "bob's refusal is remembered")
	w.pass(150 * time.Millisecond)
	must.Equal(t, f.take(checks, 0, "ann", 1), counter.Unsure, "ann's hit")
	must.Equal(t, f.take(checks, 1, "bob", 1), counter.Allowed, "bob's hit, with room again")
}

// When a refused request will fit, its limits have room: what they are said to have left, and when they have more, agree with
// the time at which it is to come again.
func TestUnheardIsWaitedFor(t *testing.T) {
	w := fleetOf(t, 1, users(fixed(1000)))
	w.interval()
	f := w.nodes[0]
	for hit := range 6 {
		if f.wantAsked(0, "ann", counter.Allowed, false, "advance"); hit == 2 {
			w.interval()
			w.advance(time.Second) // these are counted
		}
	}
	checks := []rule.Check{f.check(0, "ann", 995)}
	must.Equal(t, f.DecideAlone(checks, f.time()), counter.Rejected, "6 of 1,000 are used, and 995 asked for")
	must.Equal(t, left(f, &checks[0]), 994, "left")
	at, ok := rule.RetryAt(checks, f.time())
	if next := checks[0].Standing(0, f.time()).Next; !ok || at-f.time() < max(next, second) {
		t.Errorf("a limit has room in %v, and the request will fit in %v", time.Duration(next), time.Duration(at-f.time()))
	}
}

// Hits that a request gives back, as another of its limits is full by then, leave those that were advanced before, also those
// of an earlier configuration.
func TestUnheardStaysWithWhatIsGivenBack(t *testing.T) {
	w := fleetOf(t, 1, users(fixed(1000)), users(fixed(1)).here())
	p, old := w.processes[0], w.nodes[0]
	f := p.startOf(second, engine.Options{Before: old.Engine}, users(sliding(1000)), users(fixed(1)).here())
	for range 8 {
		for _, n := range w.nodes {
			n.ask("somebody")
		}
		w.advance(500 * time.Millisecond)
	}
	w.interval()
	for i, hits := range []int{2, 3} {
		for range hits {
			[]*fakeNode{f, old}[i].wantAsked(0, "ann", counter.Allowed, false, "advance")
		}
	}
	other, sets := p.startOf(second, f.options, f.counts...), 0
	p.before = func(n *fakeNode, op string) {
		if n != f || op != "set" {
			return
		}
		if sets++; sets == 1 {
			taken := []rule.Check{other.check(1, "bob", 1)}
			must.Equal(t, other.Decide(taken, other.time(), &newRequest().Wait), counter.Allowed, "another worker's hit")
		}
	}
	checks := []rule.Check{f.check(0, "ann", 1), f.check(1, "bob", 1)}
	must.Equal(t, f.Decide(checks, f.time(), &newRequest().Wait), counter.Rejected, "bob's limit of 1 is used")
	p.before = nil
	must.Equal(t, left(f, &checks[0]), 998, "left to ann")
	var hits int64
	old.Unpushed(func(_ wire.LimitCounter, n int64) { hits += n })
	must.Equal(t, hits, 3, "ann's hits by the earlier configuration")
	must.Equal(t, f.Advanced(&checks[0]), 5, "ann's hits that are not counted")
}

// A new window has all of its limit, though the last one's hits are not counted yet.
func TestUnheardEndsWithItsWindow(t *testing.T) {
	w := fleetOf(t, 1, users(limit(1, 1000, 30*second)))
	f := w.nodes[0]
	for f.time()%(30*second) < 29*second {
		w.advance(100 * time.Millisecond)
	}
	for range 3 {
		f.askOf(0, "ann")
	}
	checks := []rule.Check{f.check(0, "ann", 1001)}
	must.Equal(t, f.Decide(checks, f.time(), &newRequest().Wait), counter.Rejected, "1,001 hits")
	before := left(f, &checks[0])
	w.pass(time.Duration(30*second - f.time()%(30*second)))
	must.Equal(t, f.Decide(checks, f.time(), &newRequest().Wait), counter.Rejected, "1,001 hits of the next window")
	if left(f, &checks[0]) != 1000 || before == 1000 || f.Advanced(&checks[0]) == 0 {
		t.Errorf("%d are left at the end of a window, and %d at the start of the next", before, left(f, &checks[0]))
	}
}

// heard is a request that keeps what a limit of its first check has left, and how many of its checks are refused.
type heard struct {
	fakeRequest
	of      *fakeNode
	left    uint64
	refused int
}

// Decided implements Request.
func (r *heard) Decided(checks []rule.Check, now int64, verdict counter.Verdict) {
	r.fakeRequest.Decided(checks, now, verdict)
	r.left = left(r.of, &checks[0])
	for i := range checks {
		count(&r.refused, checks[i].Verdict == counter.Rejected)
	}
}

// A request that another rule refuses is told of hits that were advanced, whether the backend refuses it or too many wait.
func TestUnheardBesideARefusal(t *testing.T) {
	for name, other := range map[string]fakeRule{
		"by the backend": users(fixed(3)).at(0),
		"as others wait": delayed(minute, 1, limit(window.FixedWindow, 3, minute)).here(),
	} {
		t.Run(name, func(t *testing.T) {
			w := fleetOf(t, 1, users(fixed(1000)), other)
			w.interval()
			f := w.nodes[0]
			w.takeAll(f, 1, "bob", 0, 3)
			for range 4 {
				f.Decide([]rule.Check{f.check(1, "bob", 1)}, f.time(), &newRequest().Wait)
			}
			f.deliver()
			for range 5 {
				f.wantAsked(0, "ann", counter.Allowed, false, "advance")
			}
			checks, r := []rule.Check{f.check(0, "ann", 1), f.check(1, "bob", 1)}, &heard{of: f}
			r.Request = r
			verdict := f.Decide(checks, f.time(), &r.Wait)
			if r.left = left(f, &checks[0]); verdict == counter.Unsure {
				f.deliver()
				verdict = append(r.verdicts, verdict)[0]
			}
			must.Equal(t, verdict, counter.Rejected, "the request")
			must.Equal(t, [2]uint64{r.left, f.Advanced(&checks[0])}, [2]uint64{995, 5}, "left to ann, and her hits that are advanced")
		})
	}
}

// Of several windows, each has what was advanced in it, and the hits of a sliding window's last wear off as others do.
func TestUnheardOfSeveralWindows(t *testing.T) {
	const short = 30 * second
	w := fleetOf(t, 1, users(limit(window.FixedWindow, 200, short), limit(window.SlidingWindow, 200, short), fixed(1000)))
	f := w.nodes[0]
	for f.time()%short < short-second {
		f.ask("somebody else") // it keeps its part
		w.advance(500 * time.Millisecond)
	}
	for range 5 {
		f.wantAsked(0, "ann", counter.Allowed, false, "advance")
	}
	w.pass(time.Duration(short - f.time()%short + short/2))
	checks := []rule.Check{f.check(0, "ann", 198)}
	must.Equal(t, f.DecideAlone(checks, f.time()), counter.Rejected, "197 of the sliding window are left")
	for i, want := range []uint64{200, 197, 995} {
		must.Equal(t, checks[0].Standing(i, f.time()).Remaining, want, "left of limit %d", i)
	}
	at, ok := rule.RetryAt(checks, f.time())
	if next := checks[0].Standing(1, f.time()).Next; !ok || at-f.time() != 3*second || next != 3*second {
		t.Errorf("198 fit in %v, and the limit has room in %v, want 3s", time.Duration(at-f.time()), time.Duration(next))
	}
	checks[0].Cost = 197
	must.Equal(t, f.DecideAlone(checks, f.time()), counter.Allowed, "197 hits")
}

// Hits that would fit if none were advanced fit once these count no more.
func TestUnheardOfLargeRequests(t *testing.T) {
	_, f, _ := unheard(t)
	for cost := uint64(996); cost <= 1000; cost++ {
		checks := []rule.Check{f.check(0, "ann", cost)}
		must.Equal(t, f.DecideAlone(checks, f.time()), counter.Rejected, "%d hits", cost)
		at, ok := rule.RetryAt(checks, f.time())
		if next := checks[0].Standing(0, f.time()).Next; !ok || at%hour != 0 || next != at-f.time() {
			t.Errorf("%d hits fit in %v, and the limit has more in %v", cost, time.Duration(at-f.time()), time.Duration(next))
		}
	}
}

// The answer to a push of hits may come after a later one, whose totals have them too. Meanwhile a client is told that less
// remains, as they may be others' hits, and never more; and what remains once both are here.
func TestAnswersThatOvertake(t *testing.T) {
	for name, take := range map[string]func(f *fakeNode){
		"on credit": func(f *fakeNode) {
			for range 4 {
				f.wantAsked(0, "ann", counter.Allowed, false, "advance")
			}
		},
		"in the table": func(f *fakeNode) { f.force("ann", 4) },
	} {
		for _, apart := range []time.Duration{0, 10 * time.Millisecond} {
			t.Run(fmt.Sprint(name, ", answers apart by ", apart), func(t *testing.T) {
				w := fleetOf(t, 1, users(fixed(1000)))
				w.interval()
				f := w.nodes[0]
				take(f)
				w.pass(1100 * time.Millisecond)
				f.tick()
				hear := f.late()
				w.pass(apart)
				f.DropPart()
				r, verdict := f.request("ann")
				must.EqualOrEnd(t, verdict, counter.Unsure, "without a part")
				f.answerAll()
				must.EqualOrEnd(t, f.still([]*fakeRequest{r}), 0, "the request waits")
				must.Equal(t, left(f, f.stored(0, "ann")), 1000-4-4-1, "left with the later answer")
				hear()
				must.Equal(t, left(f, f.stored(0, "ann")), 1000-4-1, "left with both")
			})
		}
	}
}

// The answer to a push that gives hits back may come after a later one, which lacks them already. Once both are here, a client is told
// what remains, whatever others have taken and given back meanwhile; and before, never more.
func TestAnswersOvertakeHitsThatGoBack(t *testing.T) {
	for _, shape := range longest {
		for _, others := range []struct{ take, back uint64 }{{0, 0}, {3, 0}, {0, 3}} {
			for _, apart := range []time.Duration{0, 10 * time.Millisecond} {
				w := newWorld(t, 2, 1, second, engine.Options{}, users(of(shape, 1000)))
				w.advance(time.Second)
				f, other := w.nodes[0], w.nodes[1]
				for _, n := range []*fakeNode{other, f} {
					n.force("ann", 9)
					w.interval()
				}
				d, of := f.check(0, "ann", 0), other.check(0, "ann", 0)
				f.Charges.GiveBack(&d, 5, f.time())
				other.force("ann", others.take)
				other.Charges.GiveBack(&of, others.back, other.time())
				w.pass(1100 * time.Millisecond)
				f.tick()
				hear := f.late()
				w.pass(apart)
				other.tick()
				other.answerAll()
				r, verdict := f.request("ann")
				must.EqualOrEnd(t, verdict, counter.Unsure, "a request without a lease")
				f.answerAll()
				must.EqualOrEnd(t, f.still([]*fakeRequest{r}), 0, "requests wait")
				want := 1000 - 9 - 9 + 5 - others.take + others.back - 1
				must.AtMost(t, left(f, f.stored(0, "ann")), want, "%+v, others %+v, answers apart by %v: left with the later answer", shape, others, apart)
				hear()
				must.Equal(t, left(f, f.stored(0, "ann")), want, "%+v, others %+v, answers apart by %v: left with both", shape, others, apart)
			}
		}
	}
}

// A configuration that takes the place of another knows the hits that passed on credit by it, of all limits that both have,
// until the backend has counted them: while both run, and after the old one has gone.
func TestUnheardByTheNextConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		next          fakeRule
		gone          bool
		left, counted []uint64 // of each limit, before the hits are counted and after that
	}{
		"beside the old one":        {users(fixed(1000)), false, []uint64{995}, []uint64{995}},
		"after the old one":         {users(fixed(1000)), true, []uint64{995}, []uint64{995}},
		"a larger limit":            {users(fixed(2000)), false, []uint64{1995}, []uint64{1995}},
		"another limit before":      {users(sliding(1000), fixed(1000)), true, []uint64{1000, 995}, []uint64{1000, 995}},
		"a limit of another window": {users(limit(window.FixedWindow, 1000, day)), false, []uint64{1000}, []uint64{1000}},
		"no backend any more":       {users(fixed(1000)).here(), false, []uint64{1000}, []uint64{995}},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := credited(t)
			n := f.process.startOf(second, engine.Options{Before: f.Engine}, test.next)
			if test.gone {
				n.Inherit(f.Engine)
			}
			for _, left := range [][]uint64{test.left, test.counted} {
				checks := []rule.Check{n.check(0, "ann", 3000)}
				must.Equal(t, n.DecideAlone(checks, n.time()), counter.Rejected, "3,000 hits")
				for i, want := range left {
					must.Equal(t, checks[0].Standing(i, n.time()).Remaining, want, "left of limit %d", i)
				}
				w.interval()
			}
		})
	}
}

// A configuration that takes the place of another keeps no memory of it once that has gone: not for as long as it has no backend,
// and otherwise until the backend has counted what the other has left.
func TestTheEarlierConfigurationIsForgotten(t *testing.T) {
	for name, test := range map[string]struct {
		next     fakeRule
		inherits bool
	}{
		"by one without a backend": {users(fixed(1000)).here(), false},
		"by its heir":              {users(fixed(1000)), true},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := credited(t)
			n := f.process.startOf(second, engine.Options{Before: f.Engine}, test.next)
			if n.options.Before = nil; test.inherits {
				n.Inherit(f.Engine)
				n.deliver()
			}
			gone := weak.Make(f.Engine)
			f.Engine, f.sent, w.nodes = nil, nil, []*fakeNode{n}
			often(4, w.advance, time.Second)
			runtime.GC()
			must.Equal(t, gone.Value() == nil, true, "the earlier configuration's memory is free")
			runtime.KeepAlive(n)
		})
	}
}
