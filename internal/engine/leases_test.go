package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/model"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// The first hits of a key that nobody knows yet all pass, up to its limit, whichever nodes they
// come to, and none more.
func TestBurstOnAFreshKey(t *testing.T) {
	for _, hits := range []uint64{1, 5, 20, 100, 101, 250, 1000} {
		for _, nodes := range []int{1, 2, 10} {
			for _, shape := range longest {
				w := newWorld(t, nodes, 1, second, engine.Options{}, all(of(shape, hits)))
				w.advance(time.Second)
				passed := uint64(0)
				for i := range 2 * hits {
					count(&passed, w.any().send(""))
					if i%20 == 0 {
						w.advance(time.Millisecond)
					}
				}
				// Hits that others have leased come back meanwhile.
				for range 40 {
					w.advance(500 * time.Millisecond)
					for range hits / 10 {
						count(&passed, w.any().send(""))
					}
				}
				must.Equal(t, passed, hits, "%+v, limit %d, %d nodes: passed", shape, hits, nodes)
			}
		}
	}
}

// A key that the table forgets again and again, as there are too many others, passes no more than its
// limit: it has leases, which go back, and no other credit.
func TestLimitUnderChurn(t *testing.T) {
	for _, hits := range []uint64{20, 120} {
		for _, nodes := range []int{1, 2} {
			w := newWorld(t, nodes, 2, second/10, engine.Options{Capacity: 64}, users(limit(window.FixedWindow, hits, 30*day)))
			w.advance(time.Second)
			passed := uint64(0)
			for i := range 2 * int(hits) {
				for j := range 240 { // two hits each, or the key with more would stay
					w.any().send(strconv.Itoa(i*120 + j/2))
				}
				w.advance(time.Millisecond)
				// Others come before anybody has told the backend of it.
				count(&passed, w.any().send("ann"))
			}
			must.Equal(t, w.tallied(func(t *entry.Tallies) uint64 { return t.Evicted }) > 0, true, "counters were evicted")
			must.Between(t, passed, hits*9/10, hits, "limit %d, %d nodes: passed", hits, nodes)
		}
	}
}

// Limits of a second and of an hour together: leases of both end each with its window, and nothing
// is lost.
func TestLeasesOfDifferentWindows(t *testing.T) {
	w := newWorld(t, 3, 2, second/2, engine.Options{}, all(limit(window.FixedWindow, 300, second), fixed(2000)))
	passed, inSecond := 0, map[int64]int{}
	for range 12_000 {
		if w.any().send("") {
			passed++
			inSecond[w.now/second]++
		}
		w.advance(time.Millisecond)
	}
	for at, n := range inSecond {
		must.AtMost(t, n, 300, "passed in second %d", at-monday/second)
	}
	must.Between(t, passed, 1960, 2000, "passed of 2000")
	w.quiet()
	w.wantSum(int64(passed), "in the long window")
}

// A counter with a lease that has to make room gives the lease back.
func TestEvictedLeasesGoBack(t *testing.T) {
	for _, shape := range longest {
		capacity := 40
		if shape.Precision == window.LogPrecision {
			capacity = 4 // of large entries
		}
		w := newWorld(t, 1, 2, 5*second, engine.Options{Capacity: capacity}, users(of(shape, 300)))
		w.advance(time.Second)
		passed := int64(0)
		for i := range 3000 {
			count(&passed, w.any().send(strconv.Itoa(i%150)))
			w.advance(time.Millisecond)
		}
		must.Equal(t, w.tallied(func(t *entry.Tallies) uint64 { return t.Evicted }) > 0, true, "%+v: counters were evicted", shape)
		w.quiet()
		w.wantSum(passed, "%+v", shape)
		must.Equal(t, w.tallied(func(t *entry.Tallies) uint64 { return t.Lost }), 0, "%+v: lost hits", shape)
	}
}

// A bucket that is used steadily, and then by all nodes at once, gives no more than it holds.
func TestTokenBucketBurstAfterSteadyUse(t *testing.T) {
	for _, test := range []struct {
		width int64
		burst uint64
	}{{5 * second, 1000}, {minute, 1000}, {minute, 100}} {
		for _, part := range []float64{0.3, 0.9} {
			bucket := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: test.width}, Max: 1000, Burst: test.burst}
			w := newWorld(t, 10, 1, second, engine.Options{}, all(bucket))
			var passed []int64
			send := func() {
				if w.any().send("") {
					passed = append(passed, w.now)
				}
			}
			for next := w.now; w.now < monday+60*second; w.advance(time.Millisecond) {
				for ; w.now >= next; next += int64(float64(test.width) / 1000 / part) {
					send()
				}
			}
			for i := range 3000 {
				send()
				if i%20 == 0 {
					w.advance(time.Millisecond)
				}
			}
			if burst, most := float64(test.burst), most(bucket, passed); most > burst+1 || most < burst/2 {
				t.Errorf("window %v, burst %v, used to %v of the rate before: %v tokens were missing at most",
					time.Duration(test.width), burst, part, most)
			}
		}
	}
}

// A bucket whose tokens come back faster than an answer needs lets requests pass all the same.
func TestTokensThatComeBackBeforeTheAnswer(t *testing.T) {
	w := newWorld(t, 2, 1, second, engine.Options{},
		all(window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: second}, Max: 1000, Burst: 15}))
	w.advance(time.Second)
	f := w.nodes[0]
	f.settle = func(f *fakeNode) {
		hear := f.late()
		w.pass(20 * time.Millisecond)
		hear()
	}
	for i := range 300 {
		must.EqualOrEnd(t, f.send(""), true, "request %d was refused by a bucket that is full", i)
		w.pass(30 * time.Millisecond)
		if i%10 == 0 {
			f.tick()
		}
	}
}

// Hits of sliding logs and sub-buckets leave the window a window after they have passed, and not after
// the backend has granted them, however seldom nodes push.
func TestLeasesOfBucketsLeaveInTime(t *testing.T) {
	for _, test := range []struct {
		max                    uint64
		width, precision, rate int64
		nodes                  int
	}{
		{400, 3 * second, 3 * second / 5, 5 * second, 5},
		{400, 10 * second, 2 * second, 5 * second, 5},
		{2000, 3 * second, window.LogPrecision, 5 * second, 2},
		{2000, 3 * second, window.LogPrecision, 5 * second, 5},
		{2000, second, window.LogPrecision, second, 5},
	} {
		m := &model.Counter{Limit: model.Limit{Algorithm: model.SubBuckets, Max: test.max, Window: test.width, Precision: test.precision}}
		shape := window.Shape{Kind: window.SlidingBuckets, Width: test.width, Precision: test.precision}
		w := newWorld(t, test.nodes, 1, test.rate, engine.Options{}, all(of(shape, test.max)))
		passed, above := 0, 0
		send := func(f *fakeNode) {
			if f.send("") {
				passed++
				if !m.Fits(w.now, 1) {
					above++
				}
				m.Take(w.now, 1)
			}
		}
		for w.now < monday+40*test.width {
			f := w.any()
			switch most := int(test.max); w.random.IntN(4) {
			case 0: // a burst at this node and others
				for range w.random.IntN(most) {
					send(f)
					send(w.any())
				}
			case 1: // a slow client
				for range w.random.IntN(20) {
					send(f)
					w.advance(time.Duration(test.width / 100))
				}
			case 2: // nothing
				w.advance(time.Duration(w.random.Int64N(test.width)))
			default: // a fast client
				for range w.random.IntN(most) {
					send(f)
					if w.random.IntN(10) == 0 {
						w.advance(time.Duration(test.width / 1000))
					}
				}
			}
		}
		must.Equal(t, above, 0, "%+v: passed above the limit", test)
		must.AtLeast(t, passed, 10*int(test.max), "%+v: passed", test)
	}
}

// A worker that counts rejected hits of a key has them pushed though hits are leased, which they do not
// come out of: nobody else may have the key in a list.
func TestRejectedHitsBesideALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2, second, engine.Options{}, fakeRule{limits: []window.Limit{fixed(10)}, countRejected: true})
	gone, stays := w.nodes[0], w.nodes[1]
	gone.requestOf("ann", 3)
	late := gone.taken()
	w.pass(250 * time.Millisecond) // its timeout, and a little
	gone.tick()
	gone.deliver()
	gone.answer(late[0])
	d := stays.stored(0, "ann")
	full := window.Totals{Newest: d.Rule.Limits[0].Number(&d.Counter.States[0]), Hits: []uint64{20}}
	d.Counter.Learn(0, w.now, &full)
	d.Counter.Granted(0, 1, 4, 0, false, w.now, 1) // a request of 4 has just been refused
	must.EqualOrEnd(t, stays.Write(d, w.now), true, "written")
	must.EqualOrEnd(t, d.Counter.Leased(), 3, "leased, which came too late")
	before := w.sum()
	if stays.send("ann") || len(stays.taken()) != 0 || stays.leased(0, "ann") != 3 {
		t.Fatal("want it rejected without a question, beside the lease")
	}
	often(20, stays.advance, time.Second)
	// A push of it gives back the lease, too.
	must.Equal(t, w.sum()-before, 1-3, "the backend has heard of hits, want 1 and 3 that go back")
}

// Keys that are used no more have no lease after a while, however the last of their streams were
// charged, and by whichever worker.
func TestLeasesOfChargedKeysComeBack(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, 2, 2, second, engine.Options{}, charging(users(limit(window.FixedWindow, 1_000_000, 300*day))))
		w.random = rand.New(rand.NewPCG(seed, 8))
		random := rand.New(rand.NewPCG(seed, 9))
		type running struct {
			*charged
			cost uint64
			ends int64
		}
		var streams []running
		want := int64(0)
		for range 400 {
			c := w.any().reserve(fmt.Sprint("user", random.IntN(30)), 1+random.Uint64N(2000))
			cost := 20 + random.Uint64N(3000)
			streams = append(streams, running{c, cost, w.now + random.Int64N(3*second)})
			want += int64(cost)
			if random.IntN(4) == 0 {
				w.advance(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
			}
		}
		for left := len(streams); left > 0; {
			w.advance(100 * time.Millisecond)
			for i := range streams {
				if s := &streams[i]; s.charged != nil && w.now >= s.ends {
					s.revise(s.cost)
					s.charged, left = nil, left-1
				}
			}
		}
		often(200, w.advance, 100*time.Millisecond)
		w.wantSum(want, "seed %d: 20 s after the last stream", seed)
	}
}

// A question that has a key's pending hits along moves the key's due time, by which the worker finds it: the
// lease goes back all the same when nobody uses it.
func TestQuestionBesideALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1, second, engine.Options{}, charging(users(limit(window.FixedWindow, 1_000_000, 300*day))))
	f := w.nodes[0]
	var last *charged
	for range 5 {
		w.advance(time.Second)
		last = f.reserve("ann", 100)
	}
	w.pass(time.Second)
	last.revise(1)
	d := f.stored(0, "ann")
	must.EqualOrEnd(t, d.Counter.Pending() && d.Counter.Leased() > 0, true, "hits are pending beside a lease")
	f.question("ann")
	d = f.stored(0, "ann")
	must.EqualOrEnd(t, !d.Counter.Pending() && d.Counter.Leased() > 0, true, "the hits are pushed beside the question, and the lease stays")
	w.quiet()
	w.wantSum(401, "when the key is not used any more")
}

// A process that ends hears no answers any more: its workers leave one after the other, each with
// its last pushes, while others still have some on their way. The process's leased hits go back all
// the same, but for grants that it has not heard of.
func TestLeasesOfAProcessThatEnds(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(t, 1, 3, second, engine.Options{}, charging(users(limit(window.FixedWindow, 1_000_000, 300*day))))
		w.random = rand.New(rand.NewPCG(seed, 10))
		random := rand.New(rand.NewPCG(seed, 11))
		want := int64(0)
		var streams []*charged
		for range 200 {
			c := w.any().reserve(fmt.Sprint("user", random.IntN(8)), 1+random.Uint64N(2000))
			want += int64(c.charges[0].Cost)
			streams = append(streams, c)
			if random.IntN(4) == 0 {
				w.advance(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
			}
		}
		granted := int64(0)
		end := func(f *fakeNode) { // its pushes arrive, and their answers don't
			for _, p := range f.taken() {
				for _, g := range must.Get(wire.DecodeAnswer(w.apply(p.body)))(t).Grants {
					granted += int64(g.Units)
				}
			}
		}
		w.pass(time.Second)
		for _, i := range random.Perm(len(streams))[:50] {
			before, cost := streams[i].charges[0].Cost, random.Uint64N(4000)
			streams[i].revise(cost)
			want += int64(cost) - int64(before)
			if f := w.any(); random.IntN(8) == 0 {
				f.tick()
				if random.IntN(2) == 0 {
					end(f)
				}
			}
		}
		for _, i := range random.Perm(len(w.nodes)) {
			f := w.nodes[i]
			f.Retry(f.time())
			f.Leave()
			end(f)
		}
		w.wantSum(want+granted, "seed %d", seed)
	}
}

// If these hits do not come in time, the refusal stands: the request is not decided as if the backend were away.
func TestRefusalStandsIfNoHitsCome(t *testing.T) {
	_, f := alone(t, second, engine.Options{}, users(fixed(440)))
	first, _ := f.requestOf("ann", 220)
	f.answer(f.taken()[0])
	r, _ := f.requestOf("ann", 220)
	pushes := f.taken()
	must.EqualOrEnd(t, [2]int{len(first.verdicts), len(pushes)}, [2]int{1, 2}, "verdicts of the first, and pushes: for hits to come and those of the request")
	f.process.apply(pushes[0].body)
	f.Answered(pushes[1].ticket, link.PushAnswered, f.process.apply(pushes[1].body))
	often(10, f.advance, time.Second)
	must.Same(t, r.verdicts, []counter.Verdict{counter.Rejected}, "verdicts")
	must.Equal(t, f.Tallies.Alone, 0, "decided alone")
}

// The backend grants hits for requests to come, and then refuses a request that it has not all hits for. The
// refusal comes first. The request waits for the hits that are on their way, and passes with them.
func TestRefusedWhileHitsCome(t *testing.T) {
	for _, limit := range []window.Limit{fixed(440), sliding(440)} {
		_, f := alone(t, second, engine.Options{}, users(limit))
		first, _ := f.requestOf("ann", 220)
		f.answer(f.taken()[0])
		must.Same(t, first.verdicts, []counter.Verdict{counter.Allowed}, "verdicts of an unused limit")
		r, verdict := f.requestOf("ann", 220)
		pushes := f.taken()
		must.EqualOrEnd(t, verdict, counter.Unsure, "the request")
		must.EqualOrEnd(t, len(pushes), 2, "pushes: for hits to come and those of the request")
		answers := [][]byte{f.process.apply(pushes[0].body), f.process.apply(pushes[1].body)}
		f.Answered(pushes[1].ticket, link.PushAnswered, answers[1])
		must.EqualOrEnd(t, len(r.verdicts), 0, "%d before the hits have come", r.verdicts)
		f.Answered(pushes[0].ticket, link.PushAnswered, answers[0])
		f.deliver()
		must.Same(t, r.verdicts, []counter.Verdict{counter.Allowed}, "verdicts of a limit with room")
	}
}

// All that is left fits, though a part of it is leased here and another part is on its way for requests to come:
// whichever answer comes first, and whatever else is in flight.
func TestAllThatIsLeft(t *testing.T) {
	log := sliding(900)
	log.Kind, log.Precision = window.SlidingBuckets, window.LogPrecision
	bucket := limit(window.TokenBucket, 1, 300*day)
	bucket.Burst = 900
	for _, limit := range []window.Limit{fixed(900), sliding(900), log, bucket} {
		for first := range 2 {
			_, f := alone(t, second, engine.Options{}, users(limit))
			left := uint64(900)
			take := func(cost uint64) (*fakeRequest, counter.Verdict) {
				left -= cost
				return f.requestOf("ann", cost)
			}
			take(800)
			f.answer(f.taken()[0])
			late := f.taken()[0]
			answers := [][]byte{f.process.apply(late.body)}
			take(1)
			for pushes := f.taken(); len(pushes) > 0; pushes = f.taken() {
				f.answer(pushes[0])
			}
			r, _ := take(left)
			pushes := append(f.taken(), late)
			must.EqualOrEnd(t, len(pushes), 2, "%v: pushes, want hits to come and those of the request", limit.Kind)
			f.process.pass(time.Millisecond) // the answers are of different times
			answers = append([][]byte{f.process.apply(pushes[0].body)}, answers...)
			for _, i := range []int{first, 1 - first} {
				f.Answered(pushes[i].ticket, link.PushAnswered, answers[i])
				f.process.pass(2 * time.Millisecond)
				f.tick() // hits that go back are on their way now
			}
			f.deliver()
			must.Same(t, r.verdicts, []counter.Verdict{counter.Allowed}, "%v, answer %d first: verdicts of a limit with room", limit.Kind, first)
		}
	}
}

// A key may be full by hits that are on their way to this node: a request that the backend refuses for them waits for
// them, in whatever order the answers come, unless it is refused anyway. What a refusal counts is counted once.
func TestFullByWhatIsOnItsWay(t *testing.T) {
	for name, test := range map[string]struct {
		rules []fakeRule
		waits bool
	}{
		"one rule":            {[]fakeRule{users(fixed(1000))}, true},
		"rejected hits count": {[]fakeRule{func() fakeRule { r := users(fixed(1000)); r.countRejected = true; return r }()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, second, engine.Options{}, test.rules...)
			f := w.nodes[0]
			w.advance(time.Second)
			for len(f.sent) == 0 {
				f.ask("ann")
			}
			ahead := f.taken()
			r, verdict := f.request("ann")
			for verdict == counter.Allowed {
				r, verdict = f.request("ann")
			}
			asked := f.taken()
			must.EqualOrEnd(t, [2]int{len(ahead), len(asked)}, [2]int{1, 1}, "pushes ahead of requests, and of one")
			late := w.apply(ahead[0].body)
			left := 1000 - uint64(w.sum())
			must.EqualOrEnd(t, w.takeAll(f, 0, "ann", 0, left), left, "another sender does not get all that is left")
			f.answer(asked[0])
			f.answerAll()
			must.EqualOrEnd(t, len(r.verdicts) == 0, test.waits, "waits while hits are on their way")
			if f.Answered(ahead[0].ticket, link.PushAnswered, late); test.waits && !slices.Equal(r.verdicts, []counter.Verdict{counter.Allowed}) {
				t.Errorf("verdicts %d once they are there, want allowed", r.verdicts)
			}
		})
	}
}
