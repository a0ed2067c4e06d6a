package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/failure"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// failing has n callouts of a node fail, by requests for keys that nobody knows.
func (f *fakeNode) failing(n int) {
	f.process.t.Helper()
	for range n {
		r := f.paused(fmt.Sprint("failing", f.process.random.Uint64()))
		last := len(f.sent) - 1
		p := f.sent[last]
		f.sent = f.sent[:last]
		f.lose(p)
		f.still([]*fakeRequest{r})
		r.Leave()
	}
}

// The breaker opens for all workers of a process when some callouts have failed in a row. Then
// nobody waits, and one callout at a time tells whether the backend is back.
func TestBreaker(t *testing.T) {
	for _, how := range asking {
		w := newWorld(t, 2, 4, how.rate, engine.Options{}, users(fixed(how.limit)))
		often(5, w.advance, time.Second)
		failing := w.nodes[:4] // the last of them makes no callout before the breaker is open
		failing[0].failing(1)
		failing[1].failing(1)
		failing[2].paused("sue").Leave() // still closed
		failing[2].sent = nil
		failing[0].failing(1)
		must.Equal(t, failing[0].Tallies.Failed, 2, "failed pushes")
		for i, f := range failing {
			r, _ := f.request("ann")
			must.Equal(t, r.Waiting(), false, "worker %d of the process has a request wait though the breaker is open", i)
		}
		if r, _ := w.nodes[4].request("ann"); !r.Waiting() {
			t.Error("the breaker of another process is open")
		} else {
			w.deliver(w.nodes[4])
			r.Leave()
		}
		// One probe at a time, whoever it is, and none while it is out.
		probes := 0
		for range 400 {
			w.pass(5 * time.Millisecond)
			out := 0
			for _, f := range failing {
				r, _ := f.request("ann")
				must.EqualOrEnd(t, r.Waiting(), false, "a request waits though the breaker is open")
				f.tick()
				out += len(f.sent)
			}
			probes += out
			must.EqualOrEnd(t, out <= 1, true, "there is one probe at a time, of %d", out)
			for _, f := range failing {
				w.lossBefore = 1
				w.deliver(f)
			}
		}
		must.Between(t, probes, 2, 20, "probes in two seconds")
		w.lossBefore = 0
		often(200, w.advance, 50*time.Millisecond)
		for i, f := range failing {
			r, _ := f.request(fmt.Sprint("new", i))
			must.Equal(t, r.Waiting(), true, "worker %d asks, as the backend is back", i)
		}
	}
}

// Wishes that nobody waits for any more are not sent when the backend is back, and don't keep the
// tick busy while it is away.
func TestWishesOfAnOutage(t *testing.T) {
	for _, how := range asking {
		w, f := alone(t, how.rate, engine.Options{}, users(fixed(how.limit)))
		often(5, w.advance, time.Second)
		usual := f.tickMillis
		requests := f.pausedOften(40, "ann")
		f.loseAll()
		w.pass(time.Millisecond)
		f.tick()
		must.Equal(t, f.still(requests), 0, "requests wait while the breaker is open")
		must.Equal(t, f.Backlog().Unsent, 0, "asks are left")
		f.tick()
		must.Equal(t, f.tickMillis, usual, "milliseconds between ticks during an outage")
	}
}

// Callouts that are never answered, the most that may be out, hold nothing up for long.
func TestHangingCallouts(t *testing.T) {
	w, f := joined(t, second/10, engine.Options{}, users(long))
	for i := range 300 {
		f.charge(strconv.Itoa(i))
		w.pass(100 * time.Millisecond)
		f.tick()
		f.sent = nil
	}
	w.quiet()
	w.wantSum(300, "in the end")
	must.Equal(t, f.left(), "", "left")
}

// An answer with a grant for more than was asked, with another number of grants or of rooms, is
// none.
func TestOddGrants(t *testing.T) {
	for _, how := range asking {
		w, f := joined(t, how.rate, engine.Options{OnBackendFailure: failure.Deny}, users(fixed(how.limit)))
		requests := f.pausedOften(1, "ann")
		p := f.taken()[0]
		good := must.Get(wire.DecodeAnswer(w.apply(p.body)))(t)
		must.EqualOrEnd(t, len(good.Grants), 1, "grants")
		total := good.Grants[0].Totals[0]
		many := func(n int) (totals []wire.Total) {
			for range n {
				totals = append(totals, total)
			}
			return totals
		}
		odd := []wire.Answer{
			{Nodes: 1},
			{Nodes: 1, Grants: []wire.Grant{good.Grants[0], good.Grants[0]}},
			{Nodes: 1, Grants: []wire.Grant{{Units: 1}}},
			{Nodes: 1, Grants: []wire.Grant{{Units: 1, Totals: many(9)}}},
			{Nodes: 1, Grants: []wire.Grant{{Units: 1 << 63, AtNanos: uint64(w.now), Totals: many(1)}}},
			{Nodes: 1, Totals: many(3), Grants: good.Grants},
		}
		for i := range odd {
			odd[i].NowNanos = uint64(w.now)
			f.Answered(p.ticket, link.PushAnswered, wire.AppendAnswer(nil, &odd[i]))
			must.Equal(t, f.still(requests), 0, "answer %d: wait", i)
			var again []fakePush
			for n := 0; n < 100 && len(again) == 0; n++ {
				w.pass(100 * time.Millisecond)
				f.tick()
				again = slices.DeleteFunc(f.taken(), asked)
			}
			must.EqualOrEnd(t, len(again), 1, "answer %d: pushes that are sent again", i)
			must.EqualOrEnd(t, string(again[0].body), string(p.body), "answer %d: the push is as it was", i)
			p = again[0]
		}
		f.answer(p)
		requests[0].Leave()
		w.quiet()
		w.wantSum(0, "of requests that were refused")
		must.Equal(t, f.left(), "", "left")
	}
}

// A totals' content that no backend has, a time or a window far off, or numbers beyond all bounds,
// neither panic nor keep anybody waiting.
func TestAbsurdGrants(t *testing.T) {
	for _, shape := range longest {
		for _, rate := range []int64{0, second} {
			w, f := joined(t, rate, engine.Options{}, all(of(shape, 5)))
			for i, number := range []uint64{0, 1, 1<<63 - 1, 1 << 63, 1<<64 - 1, uint64(w.now), uint64(w.now) + 1e15} {
				r, _ := f.request("")
				waited := r.Waiting()
				for _, p := range f.taken() {
					push := must.Get(wire.DecodePush(p.body))(t)
					answer := wire.Answer{NowNanos: number, Nodes: number}
					total := wire.Total{Newest: number, Hits: []uint64{number, number}}
					if shape.Precision != 0 {
						total.Ages = []uint64{0, number | 1}
					}
					for range push.Items {
						answer.Totals = append(answer.Totals, total)
					}
					for _, take := range push.Takes {
						answer.Grants = append(answer.Grants, wire.Grant{Units: take.Most, AtNanos: number, Totals: []wire.Total{total}})
					}
					f.Answered(p.ticket, link.PushAnswered, wire.AppendAnswer(nil, &answer))
				}
				w.pass(time.Second)
				f.tick()
				if waited && f.still([]*fakeRequest{r}) != 0 {
					t.Errorf("%+v, number %d: a request waits for ever", shape, i)
				}
				r.Leave()
			}
		}
	}
}

// An answer too long for one tick is settled in the next, which comes soon.
func TestLongAnswersAreSettledSoon(t *testing.T) {
	w, f := joined(t, 0, engine.Options{}, users(fixed(50)))
	f.pausedOften(4, "first")
	var requests []*fakeRequest
	for i := range 400 {
		requests = append(requests, f.paused(strconv.Itoa(i)))
	}
	w.deliver(f)
	f.tick()
	must.EqualOrEnd(t, f.tickMillis != 1, true, "ticks come slowly, or nothing is tested")
	w.processes[0].before = func(*fakeNode, string) { w.now += 10_000 }
	w.deliver(f)
	must.EqualOrEnd(t, f.still(requests) > 0, true, "some are not settled at once, or nothing is tested")
	must.Equal(t, f.tickMillis, 1, "milliseconds to the next tick")
	for range 100 {
		f.tick()
		w.deliver(f)
	}
	must.Equal(t, f.still(requests), 0, "wait")
}

// A refusal that a node remembers ends when another worker's lease has arrived.
func TestRememberedRefusalEndsWithALease(t *testing.T) {
	w := newWorld(t, 2, 2, second, engine.Options{}, users(fixed(5)))
	other, mine, neighbour := w.nodes[0], w.nodes[2], w.nodes[3]
	w.advance(time.Second)
	for range 5 {
		other.send("ann")
	}
	must.EqualOrEnd(t, mine.send("ann"), false, "more than the limit")
	// The other node's hits go, and the neighbour gets a lease of the process's entry.
	w.pass(100 * time.Millisecond)
	d := neighbour.stored(0, "ann")
	for i := range d.Counter.States {
		d.Counter.States[i].Hits[0].Lease = 3
	}
	must.EqualOrEnd(t, neighbour.Write(d, w.now), true, "not written")
	w.pass(11 * time.Millisecond)
	must.Equal(t, mine.send("ann"), true, "refused from memory though the entry has a lease by now")
}

// A single callout that is lost, or ends too late, has a request decided alone while the breaker is
// closed. The bound says so, in all workers of the process, for as long as its hit counts.
func TestOvershootOfOneLostCallout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fallback failure.Mode
		want     uint64
	}{{failure.Local, 10}, {failure.Allow, window.MaxHits}, {failure.Deny, 0}} {
		w := newWorld(t, 3, 2, 0, engine.Options{OnBackendFailure: test.fallback}, users(fixed(5)), users(limit(window.FixedWindow, 5, day)), users(fixed(5)).here())
		for _, f := range w.nodes {
			f.send("bob")
		}
		w.advance(time.Second)
		f := w.nodes[0]
		f.send("bob") // so that it hears of the others
		bounds := func(when string, want ...uint64) {
			t.Helper()
			w.advance(time.Second)
			for _, f := range w.processes[0].nodesHere() {
				for i := range want {
					must.Equal(t, f.Overshoot(i), want[i], "fallback %d, %s: rule %d may overshoot by", test.fallback, when, i)
				}
			}
		}
		bounds("before", 0, 0, 0)
		f.paused("ann")
		f.loseAll()
		must.EqualOrEnd(t, f.BreakerOpen(), false, "the breaker is open")
		must.EqualOrEnd(t, f.Tallies.Alone, 1, "decided alone")
		bounds("once a request was decided alone", test.want, test.want, 0)
		w.pass(time.Hour - 4*time.Second)
		bounds("within the hour", test.want, test.want, 0)
		w.pass(4 * time.Second)
		bounds("after the hour", 0, test.want, 0)
		w.pass(24 * time.Hour)
		bounds("after the day", 0, 0, 0)
	}
}

// Nodes that go do not take along what they have passed: the bound stays that of all who may have.
func TestOvershootKeepsTheMostNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, 1, 0, engine.Options{}, users(limit(window.FixedWindow, 5, day)))
	for range 2 {
		for _, f := range w.nodes {
			f.send("bob")
		}
		w.advance(time.Second)
	}
	w.lossBefore = 1
	for _, f := range w.nodes {
		f.send("ann")
	}
	w.lossBefore = 0
	for _, f := range w.nodes[1:] {
		f.Leave()
	}
	w.advance(time.Second)
	w.nodes = w.nodes[:1]
	often(600, w.advance, time.Second)
	must.Equal(t, [2]uint64{w.nodes[0].Nodes(), w.nodes[0].Overshoot(0)}, [2]uint64{1, 15}, "nodes, and the bound")
}

// A log forgets hits that are above its limit. If some above are grants that were answered too late,
// they leave room when they go back, even where there is one node. The bound has told so.
func TestOvershootOfLogs(t *testing.T) {
	t.Parallel()
	w, f := alone(t, 0, engine.Options{}, users(of(window.Shape{Kind: window.SlidingBuckets, Width: hour, Precision: window.LogPrecision}, 10)))
	var requests []*fakeRequest
	ask := func() {
		r, _ := f.requestOf("ann", 1)
		requests = append(requests, r)
	}
	for range 5 {
		ask()
		w.advance(time.Second)
	}
	for range 5 {
		ask()
	}
	hear := f.late()
	w.pass(250 * time.Millisecond) // their timeout, and a little
	f.tick()
	w.advance(2 * time.Second)
	hear()
	w.advance(2 * time.Second)
	for range 10 {
		ask()
		w.advance(time.Second)
	}
	must.Between(t, uint64(allowed(requests)), 11, 10+f.Overshoot(0), "requests that passed a limit of 10, up to the overshoot bound")
}

// A batch that has begun is sent or forgotten, though another worker was faster to look whether the
// backend is back.
func TestGreetingWhileTheBreakerIsOpen(t *testing.T) {
	p := newProcess(t)
	n, other := p.start(0, fixed(5)), p.start(0, fixed(5))
	for i := range 3 {
		other.paused(fmt.Sprint(i))
	}
	out := other.taken()
	fail := func() {
		other.lose(out[0])
		out = out[1:]
	}
	fail()
	fail()
	gets := 0
	p.before = func(*fakeNode, string) {
		// Between this node's look at the breaker and its push another one finds the backend away.
		if gets++; gets == 2 {
			p.before = nil
			fail()
		}
	}
	n.Tick()
	for _, p := range n.Pushes() {
		must.Equal(t, p.Filling, false, "a batch was begun, and neither sent nor forgotten")
	}
}

// A node that leaves doesn't wait longer because the backend's clock was set back.
func TestLeavingByTheHostsClock(t *testing.T) {
	t.Parallel()
	w, f := alone(t, second, engine.Options{}, users(fixed(1000)))
	f.charge("ann")
	f.Leave()
	w.advance(0)
	f.Shift(-hour)
	f.charge("ann")
	w.lossBefore = 1
	often(int(engine.LeaveNanos/second)+1, w.advance, time.Second)
	must.Equal(t, f.Left(), true, "a node has not left after %v", time.Duration(engine.LeaveNanos))
}
