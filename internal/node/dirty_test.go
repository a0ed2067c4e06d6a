package node

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/counter"
	"weir/internal/nightly"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Whatever is added, dropped, put off, left half visited or inherited: keys come in the order in
// which they were added, and none that is due is passed over because of a block that is thought to
// be calm.
func TestDirtyKeysAreVisitedInOrder(t *testing.T) {
	t.Parallel()
	type key struct {
		number int64 // in place of notBefore
		due    int64
		rule   *Rule
	}
	for seed := range nightly.Or[uint64](20, 4) {
		random := rand.New(rand.NewPCG(seed, 7))
		rules := make([]Rule, 5)
		list := &dirtyKeys{}
		var model []key
		now, number := monday, int64(0)
		add := func(to *dirtyKeys, n int) (added []key) {
			for range n {
				due := now + random.Int64N(8*second)
				r := &rules[random.IntN(len(rules))]
				number++
				to.add(sharedata.Address{}, r, counter.DueAt(due))
				last := &to.blocks[len(to.blocks)-1]
				last.keys[last.length-1].notBefore = number
				added = append(added, key{number, due >> 20 << 20, r})
			}
			return added
		}
		for range 300 {
			now += random.Int64N(second / 2)
			model = append(model, add(list, random.IntN(400))...)
			if random.IntN(20) == 0 {
				other := &dirtyKeys{}
				inherited := add(other, random.IntN(1000))
				list.inherit(other)
				model = append(model, inherited...)
			}
			whole := list.block == 0 && list.at == 0
			left := random.IntN(3000) // keys, after which the visit is left
			var visited []int64
			for ; left > 0 && list.more(); list.skip() {
				if list.block == 0 && list.at == 0 {
					visited = visited[:0] // another visit
				}
				if list.calm(now) {
					continue
				}
				for {
					d, ok := list.next()
					if !ok {
						break
					}
					if in := d.due.In(now); in > 0 {
						list.keep(*d, now, now+in-dueSlack)
						continue
					}
					if left--; left < 0 {
						break
					}
					visited = append(visited, d.notBefore)
					if i := slices.IndexFunc(model, func(k key) bool { return k.number == d.notBefore }); i < 0 || model[i].rule != list.rules[d.rule] {
						t.Fatalf("seed %d: key %d is not there, or of another rule", seed, d.notBefore)
					} else {
						model = slices.Delete(model, i, i+1)
					}
					list.forget()
				}
				if left < 0 {
					break
				}
			}
			if list.count != len(model) {
				t.Fatalf("seed %d: %d keys, want %d", seed, list.count, len(model))
			}
			if !slices.IsSorted(visited) {
				t.Fatalf("seed %d: out of order: %v", seed, visited)
			}
			if list.block == len(list.blocks) {
				list.rewind()
				for _, k := range model {
					if whole && k.due <= now {
						t.Fatalf("seed %d: key %d was due %v ago and not visited", seed, k.number, time.Duration(now-k.due))
					}
				}
			}
		}
	}
}

// Keys that come as fast as others are pushed have no key wait for ever, nor the list grow.
func TestVisitsEndWhileKeysCome(t *testing.T) {
	t.Parallel()
	list, r := &dirtyKeys{}, &Rule{}
	const kept = counter.Due(7)
	list.add(sharedata.Address{}, r, kept)
	for range 20 * dirtyBlockKeys {
		list.add(sharedata.Address{}, r, counter.DueAt(monday))
	}
	seen, most := 0, 0
	for range 2000 {
		for pushed := 0; pushed < dirtyBlockKeys; {
			if list.block == len(list.blocks) {
				list.rewind()
			}
			list.more()
			d, ok := list.next()
			switch {
			case !ok:
				list.skip()
			case d.due == kept:
				seen++
				list.keep(*d, monday, 0)
			default:
				pushed++
				list.forget()
				list.add(sharedata.Address{}, r, counter.DueAt(monday))
			}
		}
		most = max(most, len(list.blocks))
	}
	if seen < 50 || most > 60 || list.count != 20*dirtyBlockKeys+1 {
		t.Errorf("a key that stayed was visited %d times; there were %d blocks, and %d keys are left", seen, most, list.count)
	}
}

// More keys than maxDirty are remembered only if another list had them, whose blocks are not
// copied. When all are gone, so are their rules, which may be those of a configuration that was
// replaced.
func TestDirtyKeysAreBounded(t *testing.T) {
	list, other, r := &dirtyKeys{}, &dirtyKeys{}, &Rule{}
	for range maxDirty + 1000 {
		list.add(sharedata.Address{}, r, 0)
		other.add(sharedata.Address{}, r, 0)
	}
	if n := len(list.blocks); list.count != maxDirty || n != maxDirty/dirtyBlockKeys {
		t.Errorf("%d keys in %d blocks, want %d", list.count, n, maxDirty)
	}
	inheriting := mallocs(func() { list.inherit(other) })
	if list.add(sharedata.Address{}, r, 0); list.count != 2*maxDirty || other.count != 0 || inheriting > 10 {
		t.Errorf("%d keys, and %d that were left, after %d allocations; want %d", list.count, other.count, inheriting, 2*maxDirty)
	}
	for visited := 0; list.block < len(list.blocks); visited++ {
		if _, ok := list.next(); ok {
			list.forget()
		} else {
			list.skip()
		}
	}
	if list.rewind(); list.count != 0 || len(list.rules) != 0 || len(list.blocks) != 0 || list.rules[:1][0] != nil {
		t.Errorf("%d keys in %d blocks, and %d rules are left", list.count, len(list.blocks), len(list.rules))
	}
}

// A block is calm neither for a time before it was looked at, when the clock has jumped back, nor
// later than its first key is due.
func TestCalmIsBounded(t *testing.T) {
	t.Parallel()
	list, r := &dirtyKeys{}, &Rule{}
	list.add(sharedata.Address{}, r, counter.DueAt(monday+second))
	list.add(sharedata.Address{}, r, counter.DueAt(monday+2*second))
	for _, in := range []int64{second, 2 * second} {
		d, _ := list.next()
		list.keep(*d, monday, monday+in-dueSlack)
	}
	list.skip()
	list.rewind()
	for at, calm := range map[int64]bool{-1: false, 0: true, second - dueSlack - 1: true, second - dueSlack: false} {
		if list.calm(monday+at) != calm {
			t.Errorf("%v after it was looked at: calm is %v", time.Duration(at), !calm)
		}
	}
	heir := &dirtyKeys{}
	if heir.inherit(list); heir.calm(monday) {
		t.Error("calm by another's clock")
	}
}

// Looking at keys that are not due takes time too, and ends in time.
func TestLooksAreShort(t *testing.T) {
	const blocks = 5
	n := newProcess(t).start(minute, fixed(1_000_000))
	now := n.Now()
	for range blocks * dirtyBlockKeys {
		n.keys.dirty.add(sharedata.Address{}, &n.rules.list[0], counter.DueAt(now+10*second))
	}
	for call := 1; call <= blocks; call++ {
		if done := n.pushes.pushDue(now, now); done != (call == blocks) || !done && n.keys.dirty.block != call {
			t.Fatalf("call %d without time comes to block %d, and done is %v", call, n.keys.dirty.block, done)
		}
	}
}

// A node that leaves pushes at once what isn't due yet, calm blocks too.
func TestLeavingPushesCalmBlocks(t *testing.T) {
	const keys = 2*dirtyBlockKeys + 50
	n := newProcess(t).start(minute, fixed(1_000_000))
	n.advance(time.Second)
	for range 2 {
		for i := range keys {
			n.charge(strconv.Itoa(i))
		}
		n.advance(time.Second)
		n.advance(time.Second)
	}
	if !n.keys.dirty.calm(n.Now()) || n.keys.dirty.count != keys {
		t.Fatalf("%d keys wait, and nothing is tested", n.keys.dirty.count)
	}
	n.Leave()
	if n.keys.dirty.count != 0 || n.Left() {
		t.Errorf("%d keys are left, and nothing is on its way", n.keys.dirty.count)
	}
	if n.deliver(); !n.Left() {
		t.Errorf("left with everything answered: %+v", n.Backlog())
	}
	if got := n.process.sum(); got != 2*keys {
		t.Errorf("the backend has %d hits, want %d", got, 2*keys)
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

// A hit is pushed in time though a backend is slower than hits of other keys come.
func TestFloodKeepsNoKeyBack(t *testing.T) {
	w := newWorld(t, 1, 1, second, Options{Capacity: 200_000}, users(sliding(1_000_000)))
	f := w.nodes[0]
	w.advance(time.Second)
	f.charge("ann")
	w.advance(time.Second / 10)
	w.advance(time.Second / 10)
	f.charge("ann") // whose push is not due when the others' are
	pending := func() bool { return f.stored(0, "ann").Counter.Pending() }
	if !pending() {
		t.Fatal("the hit is not pending, and nothing is tested")
	}
	sent := 0
	flood := func(n int) {
		for range n {
			f.charge(strconv.Itoa(sent))
			sent++
		}
	}
	flood(maxBatches * wire.MaxItems)
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
	if ticks > 50 {
		t.Errorf("pushed after %d ticks", ticks)
	}
}

// busy is a process whose clock goes on with each access to shared data, so that work takes time.
func busy(w *world) {
	w.processes[0].before = func(*fakeNode, string) { w.now += 5_000 }
}

// No callback works for much longer than a tick may, however many keys are due, and all of them are
// pushed as soon as ticks come.
func TestTicksAreShort(t *testing.T) {
	const keys = 5000
	w := newWorld(t, 1, 1, second, Options{}, users(limit(window.SlidingWindow, 1000, 4*second)))
	f := w.nodes[0]
	w.advance(time.Second)
	for range 2 {
		for i := range keys {
			f.charge(strconv.Itoa(i))
		}
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
			if ticks > 1000 {
				t.Fatalf("%d keys are left", f.Backlog().Keys)
			}
		}
		if longest > 5*time.Millisecond/4 {
			t.Errorf("a callback took %v", longest)
		}
		if took := time.Duration(w.now - due); took > time.Second {
			t.Errorf("%d keys took %v", keys, took)
		}
		w.processes[0].before = nil
		w.advance(2 * time.Second)
	}
	if got := w.sum(); got != 2*keys {
		t.Errorf("the backend has %d hits, want %d", got, 2*keys)
	}
}

// Many requests may wait at once. Their asks are sent a little at a time too.
func TestWishesAreSentALittleAtATime(t *testing.T) {
	w := newWorld(t, 1, 1, second, Options{}, users(sliding(3)))
	f := w.nodes[0]
	w.advance(time.Second)
	for i := range 1000 {
		f.paused(strconv.Itoa(i))
	}
	if n := f.Backlog().Unsent; n < 900 {
		t.Fatalf("%d asks wait to be sent, and nothing is tested", n)
	}
	busy(w)
	timed := func(what string, call func()) {
		start := w.now
		call()
		if took := time.Duration(w.now - start); took > 2*time.Duration(tickNanos) {
			t.Errorf("%s took %v", what, took)
		}
	}
	for rounds := 0; f.Backlog().Waiting > 0; rounds++ {
		for _, p := range f.taken() {
			timed("an answer", func() { f.answer(p) })
		}
		timed("a tick", f.tick)
		if rounds > 1000 {
			t.Fatalf("%d requests wait for ever", f.Backlog().Waiting)
		}
	}
	if got := w.sum(); got != 1000 {
		t.Errorf("the backend has %d hits, want 1000", got)
	}
}

// While keys wait for a place among the batches, the next answer brings the next tick.
func TestAnswersHurryTheNextTick(t *testing.T) {
	w := newWorld(t, 1, 1, second, Options{}, users(limit(window.SlidingWindow, 1000, 4*second)))
	f := w.nodes[0]
	w.advance(time.Second)
	const keys = (maxBatches + 1) * wire.MaxItems
	for i := range keys {
		f.charge(strconv.Itoa(i))
	}
	f.tick()
	if n := len(f.sent); n != maxBatches || f.tickMillis == 1 {
		t.Fatalf("%d callouts, ticks each %d ms; want %d, and no hurry while none is answered", n, f.tickMillis, maxBatches)
	}
	first := f.sent[0]
	f.sent = f.sent[1:]
	f.answer(first)
	if f.tickMillis != 1 {
		t.Errorf("ticks each %d ms after an answer, want 1", f.tickMillis)
	}
}

// A push takes the memory for its keys from pushes before, once there were some; with leases, whose
// keys are asked for at each interval, too.
func TestPushesAllocateNothingForAKey(t *testing.T) {
	for name, hit := range map[string]func(f *fakeNode, user string){
		"pushes": (*fakeNode).charge, "leases": func(f *fakeNode, user string) { f.send(user) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, second, Options{}, users(limit(window.SlidingWindow, 1_000_000, 4*second)))
			f := w.nodes[0]
			w.advance(time.Second)
			const keys = 1500
			items := 0
			for round := range 40 {
				warm := round >= 20
				for i := range keys {
					hit(f, strconv.Itoa(i))
				}
				for range 20 {
					w.now += second / 10
					pushing := mallocs(f.tick)
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
						settling := mallocs(func() { f.Answered(p.ticket, PushAnswered, answer) })
						if warm && settling > 20 {
							t.Errorf("round %d: an answer allocates %d times", round, settling)
						}
					}
				}
			}
			if items < 5*keys {
				t.Errorf("%d items were pushed of %d keys", items, keys)
			}
		})
	}
}
