package engine_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/engine/rule"
	"weir/internal/must"
	"weir/internal/wire"
)

// Wishes that are made before a lease is used up are bounded.
func TestEagerWishesAreBounded(t *testing.T) {
	n := newProcess(t).startOf(second, engine.Options{}, users(fixed(5000)), users(fixed(1)).at(0))
	n.advance(time.Second)
	for range engine.MaxAsking { // no more callouts are made
		n.Decide([]rule.Check{n.check(1, "ann", 1)}, n.time(), &newRequest().Wait)
	}
	for i := range engine.MaxUnsent + 100 {
		d := n.check(0, strconv.Itoa(i), 1)
		for range 10 {
			n.Force(&d, n.Now())
		}
		n.Look(&d, n.time())
		n.Prefetch(&d)
	}
	must.Equal(t, n.Backlog().Unsent, engine.MaxUnsent, "asks")
	checkAsked(t, n)
	// Those that are removed are found no more, and hide no others.
	for i, wish := range n.Unsent() {
		if i%3 == 0 {
			n.Forget(wish)
		}
	}
	for i, wish := range n.Unsent() {
		must.EqualOrEnd(t, n.Find(wish) == wish, i%3 != 0, "wish %d is found", i)
	}
}

// checkAsked sees whether just the asks of a node are found by their keys.
func checkAsked(t *testing.T, n *fakeNode) {
	t.Helper()
	for _, wish := range n.Unsent() {
		must.EqualOrEnd(t, n.Find(wish), wish, "a wish is not found by its key")
	}
	must.Equal(t, n.Listed(), n.Backlog().Unsent, "asks can be found")
}

// Takes that are kept to be used again don't keep the room that each of them ever needed.
func TestSpareTakesAreSmall(t *testing.T) {
	n := newProcess(t).start(second, sliding(5))
	n.advance(time.Second)
	for round := range 10 {
		for key := range 50 {
			for waiter := 0; waiter == 0 || key == round && waiter < 10*engine.MaxIdleParts; waiter++ {
				n.request(fmt.Sprint(round, key))
			}
		}
		for ticks := 0; n.Backlog().Waiting > 0; ticks++ {
			n.deliver()
			n.process.now += 1e6
			n.Tick()
			must.EqualOrEnd(t, ticks <= 1000, true, "requests go on: %+v", n.Backlog())
		}
		n.advance(time.Second)
	}
	spare := n.Spare()
	must.AtLeast(t, len(spare), 40, "takes that are kept")
	for _, s := range spare {
		keys, requests := s.Capacity()
		must.AtMost(t, max(keys, requests), engine.MaxIdleParts, "keys or requests that an ask keeps room for")
	}
	checkAsked(t, n)
}

// The asks of requests that have gone are not sent, and not kept without end, though all callouts
// that may be out are.
func TestWishesOfRequestsThatHaveGone(t *testing.T) {
	for _, rate := range []int64{0, second} {
		n := newProcess(t).start(rate, fixed(5))
		for i := range engine.MaxAsking {
			n.paused("first " + strconv.Itoa(i))
		}
		for i := range 10 * engine.LeastUnsent {
			user := strconv.Itoa(i)
			if i >= 10*engine.LeastUnsent-3 {
				user = "ann"
			}
			n.paused(user).Leave()
			n.Tick()
			must.EqualOrEnd(t, n.Backlog().Unsent <= engine.LeastUnsent, true, "rate %d: asks that nobody waits for are few", rate)
		}
		n.paused("ann")
		wished := 0
		for _, wish := range n.Unsent() {
			wished += int(wish.Wanted())
		}
		must.Equal(t, wished, 1, "rate %d: hits are wished for by one who waits for one", rate)
	}
}

// Nodes of one process and namespace keep one limit, and nodes of another namespace have nothing to
// do with it.
func TestNodesOfOneProcess(t *testing.T) {
	for _, rate := range []int64{0, second} {
		p := newProcess(t)
		a, b := p.start(rate, fixed(10)), p.start(rate, fixed(10))
		other := p.startOf(rate, engine.Options{Namespace: "other"}, users(fixed(10)))
		passed := map[*fakeNode]int{}
		for range 20 {
			for _, n := range []*fakeNode{a, b, other} {
				r, verdict := n.request("ann")
				if verdict == counter.Unsure {
					n.advance(time.Millisecond)
					verdict = r.verdicts[0]
				}
				if verdict == counter.Allowed {
					passed[n]++
				}
			}
		}
		if passed[a] == 0 || passed[b] == 0 || passed[a]+passed[b] != 10 || passed[other] != 10 {
			t.Errorf("rate %d: passed %d and %d of 10, and %d of 10 in another namespace", rate, passed[a], passed[b], passed[other])
		}
	}
}

// Requests that have gone leave room for others to wait, and none of them is kept for as long as one
// before them waits, be it for a callout of its own or for a lease that many wait for.
func TestThoseWhoHaveGoneTakeNoRoom(t *testing.T) {
	for _, rate := range []int64{0, second} {
		_, f := alone(t, rate, engine.Options{Timeout: hour}, users(fixed(1)))
		first := []*fakeRequest{f.paused("ann")}
		for i := range engine.MaxAsking { // no more callouts are made
			first = append(first, f.paused(fmt.Sprint(i)), f.paused("bob"))
		}
		for range 2 * engine.MaxWaiting {
			f.paused("bob").Leave()
		}
		must.Equal(t, f.Backlog().Waiting, len(first), "at a rate of %v requests wait", time.Duration(rate))
		must.AtMost(t, f.Backlog().Unsent, engine.LeastUnsent, "at a rate of %v asks are kept", time.Duration(rate))
		for _, wish := range f.Unsent() {
			_, n := wish.Capacity()
			must.AtMost(t, n, 4*len(first), "at a rate of %v requests that a wish of %d keeps room for", time.Duration(rate), len(first))
		}
		often(100, f.advance, 50*time.Millisecond)
		must.Equal(t, f.still(first), 0, "at a rate of %v requests wait for ever", time.Duration(rate))
	}
}

// While a callout is under way, asks wait for its answer together, unless that takes long or there are very
// many. An ask waits for nothing while none is under way.
func TestAsksAreCollected(t *testing.T) {
	n := newProcess(t).startOf(second, engine.Options{Collect: 1e6}, users(fixed(30)))
	n.advance(time.Second)
	want := func(what string, want ...int) (sent []fakePush) {
		t.Helper()
		var asks []int
		for _, p := range n.taken() {
			if push := must.Get(wire.DecodePush(p.body))(t); len(push.Takes) > 0 {
				asks, sent = append(asks, len(push.Takes)), append(sent, p)
			}
		}
		must.Same(t, asks, want, "%s: asks of callouts", what)
		return sent
	}
	n.paused("before")
	n.answer(want("before", 1)[0]) // at once: the answers to come are waited for
	n.paused("alone")
	first := want("one alone", 1)
	for i := range 10 {
		n.paused(fmt.Sprint("soon ", i))
	}
	want("soon after it")
	n.Tick()
	want("a tick in the same millisecond")
	must.Equal(t, n.tickMillis != 1, true, "ticks do not hurry, as an answer comes")
	for _, p := range first {
		n.answer(p)
	}
	for _, p := range want("its answer", 10) {
		n.answer(p)
	}
	n.paused("at once")
	first = want("none under way", 1)
	n.paused("late")
	want("another under way")
	n.process.now += 1e6
	n.Tick()
	n.process.now += 9e6
	for _, p := range append(first, want("a millisecond later", 1)...) {
		n.answer(p) // late: no answer is waited for
	}
	n.Tick()
	n.paused("slow")
	first = want("slow", 1)
	n.paused("after a slow answer")
	must.Equal(t, n.tickMillis, 1, "ms to the tick")
	want("after a slow answer")
	n.process.now += 1e6
	n.Tick()
	want("the tick", 1)
	n.answer(first[0])
	for i := range engine.MaxCollected {
		n.paused(fmt.Sprint("many ", i))
	}
	want("very many", engine.MaxCollected)
	n.process.now -= 5e9
	n.paused("after the clock was set back")
	want("after the clock was set back", 1)
}
