package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// Ten processes of two workers each, in any order of gets, sets, ticks and answers: never above the
// limit, and when all is quiet the sums are the hits that have passed, and nobody holds anything
// back.
func TestTenNodes(t *testing.T) {
	for _, shape := range longest {
		for seed := range uint64(3) {
			w := newWorld(t, 10, 2, second/20, engine.Options{},
				users(of(shape, 60), limit(window.SlidingWindow, 70, 366*day)), all(of(shape, 90)))
			w.random = rand.New(rand.NewPCG(seed, 5))
			passed := w.interleave()
			w.quiet()
			must.Between(t, passed, 85, 90, "%+v, seed %d: passed of 90", shape, seed)
			w.wantSum(3*passed, "%+v, seed %d", shape, seed)
			for _, f := range w.nodes {
				w.wantNothingLeft("%+v, seed %d", shape, seed)
				for user := range 5 {
					must.Equal(t, f.leased(0, strconv.Itoa(user)), 0, "%+v, seed %d: hits are leased when all is quiet", shape, seed)
				}
				must.Equal(t, f.leased(1, ""), 0, "%+v, seed %d: hits are leased when all is quiet", shape, seed)
			}
		}
	}
}

// Thousands of hits in a window, leased by nodes that come and go quiet: never above the limit, and
// hardly below it.
func TestTenNodesLease(t *testing.T) {
	for _, shape := range longest {
		if shape.Precision == window.LogPrecision {
			continue // none has so large a limit
		}
		w := newWorld(t, 10, 2, second/2, engine.Options{}, all(of(shape, 2000)))
		passed := int64(0)
		for i := range 8000 {
			// All nodes, then one of them, then all.
			f := w.any()
			if i > 2000 && i < 5000 {
				f = w.nodes[i/1500]
			}
			count(&passed, f.send(""))
			if i%4 == 0 {
				w.advance(2 * time.Millisecond)
			}
		}
		must.Between(t, passed, 1950, 2000, "%+v: passed of 2000", shape)
		w.quiet()
		w.wantSum(passed, "%+v", shape)
	}
}

// The backend decides every request: ten nodes that hammer a key admit the limit, no hit more or
// less; if callouts are lost, the backend has the hits that passed.
func TestBackendDecidesAll(t *testing.T) {
	for _, shape := range longest {
		for _, loss := range []float64{0, 0.15} {
			w := newWorld(t, 10, 2, 0, engine.Options{}, all(of(shape, 100), limit(window.SlidingWindow, 120, 366*day)), users(of(shape, 30)))
			w.lossBefore, w.lossAfter = loss, loss
			passed := map[string]int64{}
			sum := int64(0)
			for i := range 600 {
				user := strconv.Itoa(i % 5)
				if w.any().send(user) {
					passed[user]++
					sum++
				}
				if i%3 == 0 {
					w.advance(time.Duration(w.random.IntN(20)) * time.Millisecond)
				}
			}
			if loss == 0 && sum != 100 {
				t.Errorf("%+v: passed %d, want 100", shape, sum)
			}
			for user, n := range passed {
				if loss == 0 && n > 30 {
					t.Errorf("%+v: passed %d of user %s, want 30 at most", shape, n, user)
				}
			}
			w.quiet()
			// A log over its limit, as local decisions can take it, forgets its oldest hits.
			if got := w.sum(); got != 3*sum && (sum <= 100 || shape.Precision != window.LogPrecision) {
				t.Errorf("%+v, loss %v: the backend has %d hits of three limits, want 3 × %d", shape, loss, got, sum)
			}
			w.wantNothingLeft("%+v, loss %v", shape, loss)
		}
	}
}

// A table too small for its keys forgets entries; the backend does not.
func TestBackendDecidesWhatTheTableForgets(t *testing.T) {
	w := newWorld(t, 1, 2, 0, engine.Options{Capacity: 20}, users(fixed(50)))
	passed := 0
	for i := range 60 * 100 {
		count(&passed, w.any().send(strconv.Itoa(i%100)))
		w.pass(time.Millisecond)
	}
	must.Equal(t, passed, 50*100, "passed")
	w.wantSum(50*100, "in the end")
}

// A cost above the limit is refused without asking; cost 0 asks, and takes nothing.
func TestBackendDecidesCosts(t *testing.T) {
	w, f := alone(t, 0, engine.Options{}, all(fixed(5)))
	for _, step := range []struct {
		cost uint64
		want bool
		sum  int64
	}{
		{0, true, 0}, {6, false, 0}, {math.MaxUint64, false, 0}, {5, true, 5}, {1, false, 5}, {0, true, 5},
	} {
		must.Equal(t, f.sendOf("", step.cost), step.want, "cost %d: passed", step.cost)
		w.wantSum(step.sum, "cost %d", step.cost)
	}
	must.Equal(t, len(f.sent), 0, "a push is out")
}

// Rejected hits count where the rule says so, and once, whoever decides.
func TestCountRejectedHits(t *testing.T) {
	for _, rate := range []int64{0, second / 10} {
		for _, processes := range []int{1, 2} {
			w := newWorld(t, processes, 1, rate, engine.Options{}, fakeRule{limits: []window.Limit{fixed(5)}, together: true, countRejected: true})
			passed := 0
			for range 12 {
				count(&passed, w.any().send(""))
				w.advance(10 * time.Millisecond)
			}
			w.quiet()
			// While hits that one node has leased are unused, another node may refuse.
			must.Between(t, passed, 6-processes, 5, "sync_rate %d, %d nodes: passed", rate, processes)
			w.wantSum(12, "sync_rate %d, %d nodes", rate, processes)
		}
	}
}

// asking are nodes whose requests wait: all, as the backend decides them, or those of a limit so
// small that nodes ask before each hit.
var asking = []struct {
	rate  int64
	limit uint64
}{{0, 50}, {second, 5}}

// A request waits for the timeout at most, whatever becomes of its callout; later answers do it no
// harm.
func TestWaitingHasADeadline(t *testing.T) {
	for _, how := range asking {
		w, f := alone(t, how.rate, engine.Options{}, users(fixed(how.limit)))
		requests := f.pausedOften(10, "ann")
		pushes := f.taken()
		w.pass(199 * time.Millisecond)
		f.tick()
		must.Equal(t, f.still(requests), 10, "of 10 wait before the timeout")
		must.Equal(t, f.Tallies.Late, 0, "before the timeout: %+v", f.Tallies)
		w.pass(2 * time.Millisecond)
		f.tick()
		must.Equal(t, f.still(requests), 0, "of 10 wait after the timeout")
		must.Equal(t, [2]uint64{f.Tallies.Late, f.Tallies.Alone}, [2]uint64{10, 10}, "decided late, and alone")
		for _, p := range pushes {
			f.answer(p)
		}
		f.still(requests)
		for _, r := range requests {
			r.Leave()
		}
		w.quiet()
		w.wantSum(int64(min(10, how.limit)), "once all have gone")
		must.Equal(t, f.left(), "", "left")
	}
}

// Requests of one worker that wait at the same time share callouts, and all get what there is.
func TestWaitingRequestsShareCallouts(t *testing.T) {
	for rate, pushes := range map[int64]int{0: 6, second: 12} {
		w, f := alone(t, rate, engine.Options{}, users(fixed(50)))
		w.pushes = 0
		requests := f.pausedOften(100, "ann")
		for f.still(requests) > 0 && w.pushes < 100 {
			w.pass(3 * time.Millisecond)
			w.deliver(f)
		}
		must.Equal(t, allowed(requests), 50, "passed of 100")
		must.AtMost(t, w.pushes, pushes, "callouts")
	}
}

// A request of several rules asks for all that they lack at once.
func TestRequestOfSeveralRulesAsksOnce(t *testing.T) {
	rule := users(sliding(5))
	w, f := joined(t, second, engine.Options{}, rule, rule, rule, rule, rule, rule)
	before := w.pushes
	if requests := f.pausedOften(1, "ann"); f.Backlog().Awaited != 1 {
		t.Errorf("%d callouts", f.Backlog().Awaited)
	} else if w.deliver(f); f.still(requests) != 0 || w.pushes-before != 1 || len(f.sent) != 0 {
		t.Errorf("%d wait after %d callouts, and %d are out", f.still(requests), w.pushes-before, len(f.sent))
	}
}

// Refused batches give their place among the callouts back, and so do those that are lost, or never
// answered.
func TestCalloutsThatFailLeaveRoomForOthers(t *testing.T) {
	for _, how := range asking {
		for name, end := range map[string]func(f *fakeNode, p fakePush){
			"refused":        func(f *fakeNode, p fakePush) { f.Answered(p.ticket, link.PushRefused, nil) },
			"lost":           (*fakeNode).lose,
			"never answered": func(*fakeNode, fakePush) {},
		} {
			w, f := joined(t, how.rate, engine.Options{}, users(fixed(how.limit)))
			for i := range 30 {
				r, _ := f.request(fmt.Sprint("u", i))
				for _, p := range f.taken() {
					end(f, p)
				}
				w.pass(300 * time.Millisecond)
				f.tick()
				must.AtMost(t, len(r.verdicts), 1, "%s: verdicts that a request was told", name)
				r.Leave()
			}
			often(200, w.advance, 100*time.Millisecond)
			must.Equal(t, f.Backlog().Awaited, 0, "%s: callouts are waited for", name)
			before := w.sum()
			if !f.send("bob") || w.sum() <= before && how.rate == 0 {
				t.Errorf("%s: nobody asks any more", name)
			}
			w.quiet()
			w.wantNothingLeft("%s", name)
		}
	}
}

// shortly has a call run that must not take much longer than a tick may.
func (w *world) shortly(what string, call func()) {
	w.t.Helper()
	start := w.now
	call()
	must.AtMost(w.t, time.Duration(w.now-start), 7*time.Millisecond/4, "%s took", what)
}

// While the most requests wait that may, further requests are decided as if the backend were away.
// They are counted. Those that wait, and ask again, are not among them.
func TestTooManyWait(t *testing.T) {
	for fallback, passed := range map[failure.Mode]int{failure.Local: 5, failure.Allow: 20, failure.Deny: 0} {
		for _, rate := range []int64{0, second} {
			w, f := joined(t, rate, engine.Options{OnBackendFailure: fallback}, users(fixed(5)))
			requests := f.pausedOften(engine.MaxWaiting, "ann")
			for range 20 {
				switch r, verdict := f.request("ann"); {
				case r.Waiting() || verdict == counter.Unsure:
					t.Fatal("a request waits though too many do")
				case verdict == counter.Allowed:
					passed--
				}
			}
			must.Equal(t, passed, 0, "fallback %d, sync rate %v: too few passed", fallback, time.Duration(rate))
			must.Equal(t, [3]uint64{f.Tallies.Crowded, f.Tallies.Alone, f.Tallies.Late}, [3]uint64{20, 20, 0}, "crowded, alone and late")
			for f.still(requests) > 0 {
				w.advance(time.Millisecond)
			}
			must.AtMost(t, allowed(requests), 5, "fallback %d, sync rate %v: of those that waited passed", fallback, time.Duration(rate))
			must.Equal(t, f.Tallies.Crowded, 20, "crowded in the end")
			passed = map[failure.Mode]int{failure.Local: 5, failure.Allow: 20, failure.Deny: 0}[fallback]
		}
	}
}

// Many requests may wait for one key. Whatever becomes of its callouts they go on a little at a
// time, each once, and soon.
func TestManyRequestsGoOnALittleAtATime(t *testing.T) {
	const waiting = 3000
	answered := func(f *fakeNode, p fakePush, answer []byte) { f.Answered(p.ticket, link.PushAnswered, answer) }
	for name, test := range map[string]struct {
		end    func(f *fakeNode, p fakePush, answer []byte) // nil if none ends
		limit  uint64
		others int // requests for a key each
	}{
		"answered":               {answered, 100_000, 0},
		"answered with few hits": {answered, 20, 3000},
		"lost":                   {func(f *fakeNode, p fakePush, _ []byte) { f.lose(p) }, 100_000, 0},
		"never answered":         {nil, 100_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := joined(t, second, engine.Options{}, users(sliding(test.limit)))
			var requests []*fakeRequest
			for len(requests) < waiting {
				if r, _ := f.request("ann"); r.Waiting() {
					requests = append(requests, r)
				}
			}
			for i := range test.others {
				if r, _ := f.request(strconv.Itoa(i)); r.Waiting() {
					requests = append(requests, r)
				}
			}
			busy(w)
			from := w.now
			for rounds := 0; f.Backlog().Waiting > 0; rounds++ {
				for _, p := range f.taken() {
					if answer := w.apply(p.body); test.end != nil {
						w.shortly("an answer", func() { test.end(f, p, answer) })
					}
				}
				w.pass(time.Millisecond)
				w.shortly("a tick", f.tick)
				must.EqualOrEnd(t, rounds <= 1000, true, "%d requests go on", f.Backlog().Waiting)
			}
			for _, r := range requests {
				must.EqualOrEnd(t, len(r.verdicts), 1, "a request was told %v", r.verdicts)
			}
			// Each of them takes 10 µs or 20, which is from 30 to 60 ms of ticks that work for half
			// of the time.
			must.AtMost(t, time.Duration(w.now-from), time.Duration(f.options.Timeout)+150*time.Millisecond, "all went on after")
		})
	}
}

// A backend that answers in a fifth of the timeout answers in time, though many requests wait, each
// for its own key: callouts take many asks along, even if a tick has time for a few.
func TestManyWishesShareCallouts(t *testing.T) {
	const requests = 4000
	w, f := joined(t, second, engine.Options{}, users(sliding(3)))
	busy(w)
	for i := range requests {
		f.paused(strconv.Itoa(i))
	}
	type flying struct {
		fakePush
		at int64
	}
	var out []flying
	pushes := 0
	for f.Backlog().Waiting > 0 {
		for _, p := range f.taken() {
			out = append(out, flying{p, w.now + f.options.Timeout/5})
			pushes++
		}
		for len(out) > 0 && out[0].at <= w.now {
			w.shortly("an answer", func() { f.answer(out[0].fakePush) })
			out = out[1:]
		}
		w.pass(time.Millisecond)
		w.shortly("a tick", f.tick)
	}
	// The first asks go alone, and then it takes 20 ms to take in what a thousand asked for.
	must.AtMost(t, pushes, 12, "callouts")
	must.AtMost(t, f.Tallies.Alone, requests/5, "of %d requests were decided alone", requests)
	w.quiet()
	w.wantSum(requests, "when all is quiet")
	w.wantNothingLeft("when all is quiet")
}

// A request that was granted a hit is not refused for what an answer has told that was given later,
// and read before.
func TestAnswersChangePlaces(t *testing.T) {
	f := newProcess(t).start(second, fixed(20))
	for range 19 {
		must.EqualOrEnd(t, f.send("ann"), true, "refused within the limit")
	}
	requests := f.pausedOften(2, "ann")
	pushes := f.taken()
	must.EqualOrEnd(t, len(pushes), 2, "pushes of two requests")
	granted, full := f.process.apply(pushes[0].body), f.process.apply(pushes[1].body)
	f.Answered(pushes[1].ticket, link.PushAnswered, full)
	f.Answered(pushes[0].ticket, link.PushAnswered, granted)
	must.Equal(t, [2]int{f.still(requests), allowed(requests)}, [2]int{0, 1}, "of two requests for the last hit those that wait, and that passed")
}

// A grant whose answer is on its way while another request passes without the backend is worth no
// more than what both leave: one process alone keeps its limit, whatever is lost.
func TestGrantsBesideWhatPassesAlone(t *testing.T) {
	for _, workers := range []int{1, 2} {
		w := newWorld(t, 1, workers, 0, engine.Options{}, users(fixed(10)), all(fixed(100)))
		asks, alone := w.nodes[0], w.nodes[workers-1]
		first, _ := asks.requestOf("ann", 6)
		granted := asks.taken()[0]
		answer := w.apply(granted.body)
		second, _ := alone.requestOf("ann", 6)
		alone.lose(alone.taken()[0])
		w.pass(250 * time.Millisecond) // its timeout, and a little
		alone.tick()
		asks.Answered(granted.ticket, link.PushAnswered, answer)
		must.Equal(t, allowed([]*fakeRequest{first, second}), 1, "%d workers: requests of 6 hits passed a limit of 10", workers)
		w.quiet()
		must.Equal(t, w.sum(), 12, "%d workers: hits of two rules that the backend has", workers)
	}
}

// A node alone passes a small limit's hits one by one, whatever becomes of the pushes by which leased
// hits move to the bucket of their own time: none of it makes two hits of one.
func TestSmallLimitsWhilePushesAreOut(t *testing.T) {
	t.Parallel()
	for _, precision := range []int64{window.LogPrecision, second} {
		for _, applied := range []bool{false, true} {
			l := of(window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: precision}, 5)
			w, f := alone(t, second, engine.Options{}, users(l))
			passed := 0
			for range 6 {
				r, _ := f.requestOf("ann", 1)
				for _, p := range f.taken() {
					answer := w.apply(p.body)
					w.pass(150 * time.Millisecond)
					f.Answered(p.ticket, link.PushAnswered, answer)
				}
				passed += allowed([]*fakeRequest{r})
				w.pass(1800 * time.Millisecond)
				f.tick()
				for _, p := range f.taken() {
					if applied {
						w.apply(p.body)
					}
				}
			}
			must.Equal(t, passed, 5, "precision %d, pushes applied: %v: requests passed a limit of 5", precision, applied)
		}
	}
}

// Requests of a log come one after the other, faster than answers can be told apart by their time. Each
// is told what remains, and all of the limit passes.
func TestLogsInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2, second, engine.Options{}, users(of(window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, 5)))
	for i := range uint64(6) {
		f := w.nodes[i%2]
		r := f.bring(0)
		for _, p := range f.taken() {
			answer := w.apply(p.body)
			w.pass(100 * time.Microsecond)
			f.Answered(p.ticket, link.PushAnswered, answer)
		}
		want, left := counter.Allowed, 4-min(i, 4)
		if i == 5 {
			want = counter.Rejected
		}
		must.Equal(t, r.verdict, want, "request %d: verdict", i)
		must.Equal(t, r.remaining[0], left, "request %d: remaining", i)
		w.pass(100 * time.Microsecond)
	}
}

// A used hit of a log moves to its own time by a push. While the push and a question are out, either may reach
// the backend first, and either answer the node. If an older answer comes last, it only raises totals: the hit
// counts at both times, and the node shows a hit fewer until the next answer. It never shows more.
func TestLogsWhoseAnswersCross(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		asksFirst, answersFirst bool // the question, before the push
		fewer                   uint64
	}{{true, true, 0}, {true, false, 1}, {false, true, 0}, {false, false, 0}} {
		w := newWorld(t, 1, 2, second, engine.Options{}, users(of(window.Shape{Kind: window.SlidingBuckets, Width: minute, Precision: window.LogPrecision}, 5)))
		a, b := w.nodes[0], w.nodes[1]
		check := func(request string, r *told, left, fewer uint64) {
			t.Helper()
			must.Equal(t, r.verdict, counter.Allowed, "%+v, %s request: verdict", test, request)
			must.Between(t, r.remaining[0], left-fewer, left, "%+v, %s request: remaining", test, request)
		}
		first := a.bring(0)
		for _, p := range a.taken() {
			answer := w.apply(p.body)
			w.pass(3 * time.Millisecond) // the hit is used later than it was granted
			a.Answered(p.ticket, link.PushAnswered, answer)
		}
		check("first", first, 4, 0)
		w.pass(time.Second + 100*time.Millisecond)
		a.tick()
		moves := a.taken()
		next := b.bring(0)
		question := b.taken()[0]
		var answer []byte
		var moved [][]byte
		ask := func() { answer = w.apply(question.body) }
		push := func() {
			for _, p := range moves {
				moved = append(moved, w.apply(p.body))
			}
		}
		hear := func() { b.Answered(question.ticket, link.PushAnswered, answer) }
		learn := func() {
			for i, p := range moves {
				a.Answered(p.ticket, link.PushAnswered, moved[i])
			}
		}
		if !test.asksFirst {
			ask, push = push, ask
		}
		if !test.answersFirst {
			hear, learn = learn, hear
		}
		for _, step := range []func(){ask, push, hear, learn} {
			step()
			w.pass(3 * time.Millisecond)
		}
		check("crossing", next, 3, test.fewer)
		for _, left := range []uint64{2, 1, 0} {
			r := b.bring(0)
			b.answerAll()
			check("later", r, left, 0)
			w.pass(3 * time.Millisecond)
		}
	}
}

// A request whose answer leaves a doubt, and comes so late that it can't ask again, is told how its own key stands.
func TestLateDoubtIsOfItsOwnKey(t *testing.T) {
	w, f := joined(t, 0, engine.Options{}, users(fixed(5)))
	must.EqualOrEnd(t, f.send("bob"), true, "bob's hit, whose check is used again")
	f.force("ann", 3)
	f.PushCharges()
	w.takeAll(f, 0, "ann", 0, 2)
	checks, r := []rule.Check{f.check(0, "ann", 1)}, &heard{of: f}
	r.Request = r
	must.EqualOrEnd(t, f.Decide(checks, f.time(), &r.Wait), counter.Unsure, "ann's hit")
	w.pass(time.Second)
	for _, p := range f.taken() {
		if takes(p) { // the backend has not heard of the 3
			f.answer(p)
		}
	}
	must.Equal(t, len(r.verdicts), 1, "ann's request is told verdicts")
	must.Equal(t, r.left, 0, "left to ann")
	must.Equal(t, r.refused, 1, "limits refuse it")
}

// What a request was granted may end with its window before the answer is here. If the partition is away by then, so that it can't ask
// again, the backend has not refused it: the configuration decides about it. What the request was granted by another rule it uses then,
// or it goes back.
func TestGrantedAndAsksNoMore(t *testing.T) {
	t.Parallel()
	for fallback, want := range map[failure.Mode]struct {
		passed int
		left   uint64 // of the other rule's 5 hits
	}{failure.Local: {1, 4}, failure.Allow: {1, 4}, failure.Deny: {0, 5}} {
		t.Run(failure.Names[fallback], func(t *testing.T) {
			w, f := joined(t, second, engine.Options{OnBackendFailure: fallback}, users(limit(window.FixedWindow, 5, minute)), all(fixed(5)))
			s, user, other := part(w), "0", ""
			for i := 0; partition(f.id(0, user)) == 0; i++ {
				user = strconv.Itoa(i)
			}
			for i := 0; f.id(0, other).Partition() != f.id(0, user).Partition(); i++ {
				other = fmt.Sprint("other ", i)
			}
			w.pass(time.Duration(minute - w.now%minute - second/20))
			r := f.paused(user)
			hear := f.late()
			w.pass(time.Second / 10)
			d := f.check(0, other, 1)
			s.fails = [2]wire.Missing{wire.NotApplied, wire.NotApplied}
			f.Force(&d, f.time())
			f.tick()
			f.answerAll()
			s.fails = [2]wire.Missing{}
			must.Equal(t, f.Away(), wire.PartitionOf(f.id(0, user)), "partitions that are away")
			hear()
			must.Equal(t, f.still([]*fakeRequest{r}), 0, "requests wait")
			must.Equal(t, allowed([]*fakeRequest{r}), want.passed, "requests pass")
			must.Equal(t, f.Tallies.Alone, 1, "requests are decided alone")
			w.quiet()
			must.Equal(t, left(f, f.stored(1, user)), want.left, "left of the other rule")
			w.wantNothingLeft("when all is quiet")
		})
	}
}
