package filter

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"weir/internal/wire"
)

// A hit is pushed in time though a backend is slower than hits of other keys come.
func TestFloodKeepsNoKeyBack(t *testing.T) {
	w := newWorld(t, 1, 1, `{"capacity": 200000, `+synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000000, "window": "1h"}]}`)[1:])
	v := w.vms[0]
	v.settle = nil
	w.advance(time.Second)
	v.send("x-user", "ann")
	w.advance(time.Second / 10)
	w.advance(time.Second / 10)
	v.send("x-user", "ann") // whose push is not due when the others' are
	pending := func() bool { return v.entry(0, "ann").cell.Pending() }
	if !pending() {
		t.Fatal("the hit is not pending, and nothing is tested")
	}
	users := 0
	flood := func(n int) {
		for range n {
			v.send("x-user", fmt.Sprint(users))
			users++
		}
	}
	flood(maxBatches * wire.MaxItems)
	ticks := 0
	for ; pending() && ticks < 200; ticks++ {
		flood(wire.MaxItems)
		w.pass(time.Second / 10)
		v.tick()
		if len(v.callouts) > 0 {
			c := v.callouts[0]
			v.callouts = v.callouts[1:]
			v.answer(c, 200, w.apply(c.body))
		}
	}
	if ticks > 50 {
		t.Errorf("pushed after %d ticks", ticks)
	}
}

// A plugin context that goes pushes at once what isn't due yet, calm blocks too.
func TestLeavingPushesCalmBlocks(t *testing.T) {
	const keys = 2*256 + 50 // in two blocks and a part
	w := newWorld(t, 1, 1, synced("60", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000000, "window": "1h"}]}`))
	v := w.vms[0]
	w.advance(time.Second)
	for range 2 {
		for i := range keys {
			v.send("x-user", fmt.Sprint(i))
		}
		w.advance(time.Second)
		w.advance(time.Second)
	}
	if n := v.plugin.node.Backlog().Keys; n != keys || w.sum() != keys {
		t.Fatalf("%d keys wait, and the backend has %d hits: nothing is tested", n, w.sum())
	}
	v.done()
	w.deliver(v)
	if got := w.sum(); got != 2*keys {
		t.Errorf("the backend has %d hits, want %d", got, 2*keys)
	}
}

const (
	// maxBatches are the pushes that may be out at once, beside those that requests wait for.
	maxBatches = 8
	// tickNanos is how long a tick may work.
	tickNanos = int64(1e6)
)

// busy is a proxy whose clock goes on with each access to shared data, so that work takes time.
func busy(w *world) {
	w.proxies[0].before = func(v *fakeVM, _ string) {
		v.now += 5_000
		w.now = v.now
	}
}

// No callback works for much longer than a tick may, however many keys are due, and all of them are pushed as soon as ticks come.
func TestTicksAreShort(t *testing.T) {
	const keys = 5000
	w := newWorld(t, 1, 1, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "4s"}]}`))
	v := w.vms[0]
	w.advance(time.Second)
	for range 2 {
		for i := range keys {
			v.send("x-user", fmt.Sprint(i))
		}
		busy(w)
		longest := time.Duration(0)
		timed := func(callback func()) {
			start := w.now
			callback()
			longest = max(longest, time.Duration(w.now-start))
		}
		due := w.now
		for ticks := 0; v.plugin.node.Unfinished(); ticks++ {
			w.now += int64(v.tickMillis) * 1e6
			v.now = w.now
			timed(v.tick)
			callouts := v.callouts
			v.callouts = nil
			for _, c := range callouts {
				answer := w.apply(c.body)
				timed(func() { v.answer(c, 200, answer) })
			}
			if ticks > 1000 {
				t.Fatalf("%d keys are left", v.plugin.node.Backlog().Keys)
			}
		}
		if longest > 5*time.Millisecond/4 {
			t.Errorf("a callback took %v", longest)
		}
		if took := time.Duration(w.now - due); took > time.Second {
			t.Errorf("%d keys took %v", keys, took)
		}
		w.proxies[0].before = nil
		w.advance(2 * time.Second)
	}
	if got := w.sum(); got != 2*keys {
		t.Errorf("the backend has %d hits, want %d", got, 2*keys)
	}
}

// Many requests may wait at once. What they ask for is sent a little at a time too.
func TestWishesAreSentALittleAtATime(t *testing.T) {
	w := newWorld(t, 1, 1, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 3, "window": "1h"}]}`))
	v := w.vms[0]
	v.settle = nil
	w.advance(time.Second)
	for i := range 1000 {
		if v.pause("x-user", fmt.Sprint(i)) == nil {
			t.Fatal("a request does not wait")
		}
	}
	if n := v.plugin.node.Backlog().Wishes; n < 900 {
		t.Fatalf("%d wishes wait to be sent, and nothing is tested", n)
	}
	busy(w)
	for rounds := 0; v.plugin.node.Backlog().Waiting > 0; rounds++ {
		callouts := v.callouts
		v.callouts = nil
		for _, c := range callouts {
			answer := w.apply(c.body)
			start := w.now
			v.answer(c, 200, answer)
			if took := time.Duration(w.now - start); took > 2*time.Duration(tickNanos) {
				t.Errorf("an answer took %v", took)
			}
		}
		start := w.now
		v.tick()
		if took := time.Duration(w.now - start); took > 2*time.Duration(tickNanos) {
			t.Errorf("a tick took %v", took)
		}
		if rounds > 1000 {
			t.Fatalf("%d requests wait for ever", v.plugin.node.Backlog().Waiting)
		}
	}
	if got := w.sum(); got != 1000 {
		t.Errorf("the backend has %d hits, want 1000", got)
	}
}

// While keys wait for a place among the batches, the next answer brings the next tick.
func TestAnswersHurryTheNextTick(t *testing.T) {
	w := newWorld(t, 1, 1, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000, "window": "4s"}]}`))
	v := w.vms[0]
	w.advance(time.Second)
	const keys = (maxBatches + 1) * wire.MaxItems
	for i := range keys {
		v.send("x-user", fmt.Sprint(i))
	}
	v.tick()
	if n := len(v.callouts); n != maxBatches || v.tickMillis == 1 {
		t.Fatalf("%d callouts, ticks each %d ms; want %d, and no hurry while none is answered", n, v.tickMillis, maxBatches)
	}
	first := v.callouts[0]
	v.callouts = v.callouts[1:]
	v.answer(first, 200, w.apply(first.body))
	if v.tickMillis != 1 {
		t.Errorf("ticks each %d ms after an answer, want 1", v.tickMillis)
	}
}

// mallocs is how often a function allocates.
func mallocs(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.Mallocs - before.Mallocs)
}

// What a push takes for each key is memory of pushes before, once there were some; with leases too.
func TestPushesAllocateNothingForAKey(t *testing.T) {
	for name, ticks := range map[string][]int{"pushes": {20, 20}, "pushes with wishes": {9, 80}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, synced("1", `{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000000, "window": "4s"}]}`))
			v := w.vms[0]
			w.advance(time.Second)
			const keys = 1500
			v.request, v.response = map[string][]byte{}, nil
			values := make([][]byte, keys)
			for i := range values {
				values[i] = fmt.Append(nil, i)
			}
			items, takes := 0, 0
			for round := range 40 {
				warm := round >= 20
				for _, value := range values {
					v.request["x-user"] = value
					v.stream()
				}
				for range ticks[round%2] {
					w.now += second / 10
					v.now = w.now
					pushing := mallocs(v.tick)
					callouts := v.callouts
					v.callouts = nil
					// A few for each callout are the fake proxy's.
					if most := 20*len(callouts) + 20; warm && pushing > most {
						t.Errorf("round %d: a tick with %d callouts allocates %d times", round, len(callouts), pushing)
					}
					for _, c := range callouts {
						if push, err := wire.DecodePush(c.body); err == nil && warm {
							items += len(push.Items)
							takes += len(push.Takes)
						}
						answer := w.apply(c.body)
						if settling := mallocs(func() { v.answer(c, 200, answer) }); warm && settling > 20 {
							t.Errorf("round %d: an answer allocates %d times", round, settling)
						}
					}
				}
			}
			if items < 10*keys || takes < keys && ticks[0] != ticks[1] {
				t.Errorf("%d items and %d takes were pushed of %d keys", items, takes, keys)
			}
		})
	}
}
