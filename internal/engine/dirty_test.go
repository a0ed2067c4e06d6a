package engine_test

import (
	"strconv"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/engine/pending"
	"weir/internal/must"
	"weir/internal/wire"
	"weir/window"
)

// Looking at keys that are not due takes time too, and ends in time.
func TestLooksAreShort(t *testing.T) {
	const blocks = 5
	n := newProcess(t).start(minute, fixed(1_000_000))
	n.advance(time.Second)
	for range 2 { // the first hit of a key is due at once
		n.advance(time.Second)
		n.advance(time.Second)
		n.chargeAll(blocks * pending.BlockKeys)
	}
	now := n.Now()
	for call := 1; call <= blocks; call++ {
		must.EqualOrEnd(t, n.PushDue(now, now), call == blocks, "after call %d without time done is", call)
	}
	must.Equal(t, n.Backlog().Keys, blocks*pending.BlockKeys, "keys wait")
}

// A node that leaves pushes at once what isn't due yet, calm blocks too.
func TestLeavingPushesCalmBlocks(t *testing.T) {
	const keys = 2*pending.BlockKeys + 50
	n := newProcess(t).start(minute, fixed(1_000_000))
	n.advance(time.Second)
	for range 2 {
		n.chargeAll(keys)
		n.advance(time.Second)
		n.advance(time.Second)
	}
	must.EqualOrEnd(t, n.Calm(), true, "the first block is calm, or nothing is tested")
	must.EqualOrEnd(t, n.Backlog().Keys, keys, "keys wait, or nothing is tested")
	n.Leave()
	must.Equal(t, n.Backlog().Keys, 0, "keys are left")
	must.Equal(t, n.Left(), false, "left with hits on their way")
	n.deliver()
	must.Equal(t, n.Left(), true, "left with everything answered: %+v", n.Backlog())
	must.Equal(t, n.process.sum(), 2*keys, "the backend has hits")
}

// A hit is pushed in time though a backend is slower than hits of other keys come.
func TestFloodKeepsNoKeyBack(t *testing.T) {
	w, f := joined(t, second, engine.Options{Capacity: 200_000}, users(sliding(1_000_000)))
	f.charge("ann")
	w.advance(time.Second / 10)
	w.advance(time.Second / 10)
	f.charge("ann") // whose push is not due when the others' are
	pending := func() bool { return f.stored(0, "ann").Counter.Pending() }
	must.EqualOrEnd(t, pending(), true, "the hit is not pending, and nothing is tested")
	sent := 0
	flood := func(n int) {
		for range n {
			f.charge(strconv.Itoa(sent))
			sent++
		}
	}
	flood(engine.MaxBatches * wire.MaxItems)
	ticks := 0
	for ; pending() && ticks < 200; ticks++ {
		flood(wire.MaxItems)
		w.pass(time.Second / 10)
		f.tick()
		if len(f.sent) > 0 {
			p := f.sent[0]
			f.sent = f.sent[1:]
			f.answer(p)
		}
	}
	must.AtMost(t, ticks, 50, "ticks after which it was pushed")
}

// busy is a process whose clock goes on with each access to shared data, so that work takes time.
func busy(w *world) {
	w.processes[0].before = func(*fakeNode, string) { w.now += 5_000 }
}

// Whoever pushes everything while no push can be sent looks at the keys of so many pushes as may be out, and is done: it
// does not try again and again.
func TestPushingAllInVainEnds(t *testing.T) {
	for name, push := range map[string]func(f *fakeNode){
		"a node that leaves": func(f *fakeNode) { f.Leave() },
		"others":             func(f *fakeNode) { f.PushAll() },
	} {
		w, f := joined(t, second, engine.Options{}, users(fixed(1_000_000)))
		f.chargeAll(5000)
		from, seen := w.now, 0
		w.processes[0].before = func(*fakeNode, string) {
			seen++
			w.now += second / 1000 // all of a tick's time
		}
		f.refuse = true
		push(f)
		first := seen
		push(f)
		f.PushAll()
		if took := time.Duration(w.now - from); f.Backlog().Pushes != engine.MaxBatches || seen > 1000 || seen-first > 100 {
			t.Errorf("%s: %+v after %v, %d accesses to shared data, and %d at first", name, f.Backlog(), took, seen, first)
		}
	}
}

// Whoever pushes everything first takes in all answers: also later hits of keys whose answers had no time yet go.
func TestPushingAllAfterALongAnswer(t *testing.T) {
	w, f := joined(t, second, engine.Options{}, users(fixed(1_000_000)))
	f.chargeAll(2000)
	f.PushAll()
	busy(w)
	w.deliver(f)
	must.Equal(t, f.Backlog().Pushes > 0, true, "some answers had no time yet")
	w.processes[0].before = nil
	f.chargeAll(2000)
	must.Equal(t, f.PushAll(), true, "all are pushed")
	w.deliver(f)
	w.wantSum(4000, "after all was pushed")
}

// No callback works for much longer than a tick may, however many keys are due, and all of them are
// pushed as soon as ticks come.
func TestTicksAreShort(t *testing.T) {
	const keys = 5000
	w, f := joined(t, second, engine.Options{}, users(limit(window.SlidingWindow, 1000, 4*second)))
	usual := f.tickMillis
	for range 2 {
		f.chargeAll(keys)
		busy(w)
		longest := time.Duration(0)
		timed := func(call func()) {
			start := w.now
			call()
			longest = max(longest, time.Duration(w.now-start))
		}
		due := w.now
		for ticks := 0; f.Unfinished(); ticks++ {
			w.now += int64(f.tickMillis) * 1e6
			timed(f.tick)
			for _, p := range f.taken() {
				timed(func() { f.answer(p) })
			}
			must.EqualOrEnd(t, ticks <= 1000, true, "%d keys that are left go", f.Backlog().Keys)
		}
		must.AtMost(t, longest, 5*time.Millisecond/4, "a callback took")
		must.AtMost(t, time.Duration(w.now-due), time.Second, "%d keys took", keys)
		w.processes[0].before = nil
		w.advance(2 * time.Second)
	}
	must.Equal(t, f.tickMillis, usual, "milliseconds between ticks with nothing to do")
	w.wantSum(2*keys, "in the end")
}

// While keys wait for a place among the batches, the next answer brings the next tick.
func TestAnswersHurryTheNextTick(t *testing.T) {
	_, f := joined(t, second, engine.Options{}, users(limit(window.SlidingWindow, 1000, 4*second)))
	const keys = (engine.MaxBatches + 1) * wire.MaxItems
	f.chargeAll(keys)
	f.tick()
	must.EqualOrEnd(t, len(f.sent), engine.MaxBatches, "callouts")
	must.EqualOrEnd(t, f.tickMillis != 1, true, "no hurry while none is answered")
	first := f.sent[0]
	f.sent = f.sent[1:]
	f.answer(first)
	must.Equal(t, f.tickMillis, 1, "ticks each ms after an answer")
}

// A push takes the memory for its keys from pushes before, once there were some; with leases, whose
// keys are asked for at each interval, too.
func TestPushesAllocateNothingForAKey(t *testing.T) {
	for name, hit := range map[string]func(f *fakeNode, user string){
		"pushes": (*fakeNode).charge, "leases": func(f *fakeNode, user string) { f.send(user) },
	} {
		t.Run(name, func(t *testing.T) {
			w, f := joined(t, second, engine.Options{}, users(limit(window.SlidingWindow, 1_000_000, 4*second)))
			const keys = 1500
			items := 0
			for round := range 40 {
				warm := round >= 20
				for i := range keys {
					hit(f, strconv.Itoa(i))
				}
				for range 20 {
					w.now += second / 10
					pushing, _ := must.Allocated(f.tick)
					pushes := f.taken()
					// A few for each push are the fake's.
					if most := 20*len(pushes) + 20; warm && pushing > most {
						t.Errorf("round %d: a tick with %d pushes allocates %d times", round, len(pushes), pushing)
					}
					for _, p := range pushes {
						if push, err := wire.DecodePush(p.body); err == nil && warm {
							items += len(push.Items)
						}
						answer := w.apply(p.body)
						settling, _ := must.Allocated(func() { f.Answered(p.ticket, link.PushAnswered, answer) })
						if warm && settling > 20 {
							t.Errorf("round %d: an answer allocates %d times", round, settling)
						}
					}
				}
			}
			must.AtLeast(t, items, 5*keys, "items pushed of %d keys", keys)
		})
	}
}
