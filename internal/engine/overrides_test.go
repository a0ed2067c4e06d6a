package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/backend/backendtest"
	"weir/internal/engine"
	"weir/internal/engine/link"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// override gives a user other limits of the rule 0, a number for each limit of an hour.
func override(user string, hits ...uint64) wire.Override {
	o := wire.Override{Rule: "rule-0", Values: []string{user}}
	for _, n := range hits {
		o.Limits = append(o.Limits, wire.OverrideLimit{Max: n, WidthMillis: uint64(hour / 1e6)})
	}
	return o
}

// override replaces the list of the namespace default.
func (w *world) override(list ...wire.Override) {
	w.t.Helper()
	backendtest.Set(w.t, w.store, "default", wire.List(list))
}

// limitOf is the limit by which a node decides a user.
func (f *fakeNode) limitOf(user string) uint64 {
	d := f.check(0, user, 0)
	return f.InForce(&d).Limits[0].Max
}

// wantLimits wants every node to decide a user by a limit.
func (w *world) wantLimits(user string, want uint64) {
	w.t.Helper()
	for i, f := range w.nodes {
		must.Equal(w.t, f.limitOf(user), want, "node %d decides %s by a limit of", i, user)
	}
}

// ticks lets time pass, a tick of a twentieth of an interval after the other.
func (w *world) ticks(d, interval time.Duration) {
	often(int(20*d/interval), w.advance, interval/20)
}

// A change reaches every worker of every process within an interval, whether or not there are
// requests, and for its key alone. It reaches new workers before their first request.
func TestOverridesReachEveryNode(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{0, time.Second, 10 * time.Second} {
		t.Run(fmt.Sprint(interval), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3, 3, int64(interval), engine.Options{}, users(fixed(5)), all(fixed(1000)))
			interval := max(interval, time.Second)
			for i, f := range w.nodes {
				if i < 3 || i == 4 {
					f.send("bob") // one process is busy, one is a little, and one is idle
				}
			}
			w.ticks(3*interval, interval)
			for change := range uint64(5) {
				w.override(override("ann", 100+change))
				for range 20 {
					w.nodes[0].send("bob")
					w.advance(interval / 20)
				}
				w.wantLimits("ann", 100+change)
				w.wantLimits("bob", 5)
				w.ticks(interval, interval)
			}
			f := w.processes[1].startOf(int64(interval), engine.Options{}, users(fixed(5)), all(fixed(1000)))
			f.CatchUp()
			w.wantLimits("ann", 104)
			w.override()
			w.ticks(interval, interval)
			w.wantLimits("ann", 5)
		})
	}
}

// Nodes tell the truth: those that tell a version decide by it.
func TestNodesTellWhatTheyKnow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, 3, second, engine.Options{}, users(fixed(5)))
	w.ticks(2*time.Second, time.Second)
	w.override(override("ann", 50), override("bob", 1, 2)) // the rule has one limit
	_, version, err := w.store.Overrides(t.Context(), "default", 0)
	must.OK(t, err)
	for i := range 120 {
		w.pass(25 * time.Millisecond)
		for k, f := range w.nodes { // workers tick in turns, each every tenth of a second
			if k%4 == i%4 {
				f.charge(fmt.Sprint("user ", i)) // so that there is a push
				f.tick()
				f.deliver()
			}
		}
		applied := must.Get(store.ReadApplied(t.Context(), w.store, "default"))(t)
		for _, said := range applied {
			for i, f := range w.nodes {
				if f.Table().ID() == said.Node && said.Version == version && (f.limitOf("ann") != 50 || said.Unfit != 1) {
					t.Fatalf("node %d is said to know the list, but %d that do not fit: it decides by %d", i, said.Unfit, f.limitOf("ann"))
				}
			}
		}
	}
	applied, err := store.ReadApplied(t.Context(), w.store, "default")
	if err != nil || len(applied) != 4 || slices.ContainsFunc(applied, func(a store.AppliedList) bool { return a.Version != version || a.Unfit != 1 }) {
		t.Errorf("applied lists %v, %v, want that all know it, and can't apply one", applied, err)
	}
}

// A key keeps its counter when its limit moves: hits that were taken count, and what is leased is
// not passed beyond what the backend has counted.
func TestOverridesKeepCounters(t *testing.T) {
	t.Parallel()
	for _, shape := range longest {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3, 2, second, engine.Options{}, users(of(shape, 300)))
			move := func(limit uint64) {
				o := override("ann", limit)
				o.Limits[0].WidthMillis = uint64(shape.Width / 1e6)
				w.override(o)
				w.ticks(time.Second, time.Second)
			}
			passed := int64(0)
			send := func(intervals int) {
				for range 20 * intervals {
					for range 20 {
						count(&passed, w.any().send("ann"))
					}
					w.advance(50 * time.Millisecond)
				}
			}
			send(1)
			// Leased hits are counted: none of them passes above the limit.
			counted := w.sum()
			move(50)
			send(5)
			must.AtMost(t, passed, max(50, counted), "passed, of those that were counted before")
			w.ticks(30*time.Second, time.Second)
			before := passed
			move(200)
			send(30)
			// A bucket keeps the time at which it is full. A log keeps no more hits than the limit: those
			// that a lower one has forgotten do not count again under a higher one.
			switch {
			case shape.Kind.Refills():
				return
			case shape.IsLog():
				must.AtMost(t, passed, before+200, "passed of the higher limit, and %d before", before)
				return
			case passed != max(before, 200):
				t.Errorf("%d passed of the higher limit, want 200", passed)
			}
			w.quiet()
			w.wantSum(passed, "as many as passed")
		})
	}
}

// A lease that a lower limit leaves no room for goes back, though nobody asks for the key any more:
// at once, or by halves if nothing is leased of such a limit.
func TestLeasesOfALowerLimit(t *testing.T) {
	t.Parallel()
	for limit, within := range map[uint64]time.Duration{200: 2500 * time.Millisecond, 100: 9 * time.Second} {
		w := newWorld(t, 3, 2, second, engine.Options{}, users(fixed(10_000)))
		passed := int64(0)
		for range 20 * 5 {
			for range 10 {
				count(&passed, w.any().send("ann"))
			}
			w.advance(50 * time.Millisecond)
		}
		must.EqualOrEnd(t, w.sum() != passed, true, "hits are leased")
		w.override(override("ann", limit))
		w.ticks(within, time.Second)
		must.Equal(t, w.sum(), passed, "%d: hits that have passed, at the backend", limit)
	}
}

// An override ends by itself, at all nodes at once, whatever their clocks say.
func TestOverridesEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 2, second, engine.Options{}, users(fixed(5)))
	for i, p := range w.processes {
		p.off = int64(i-1) * 5 * second
	}
	o := override("ann", 50)
	o.Until = uint64((w.now + 10*second) / 1e6)
	w.override(o)
	w.ticks(9*time.Second, time.Second)
	w.wantLimits("ann", 50)
	for _, f := range w.nodes {
		f.send("ann") // the key is there, and is looked after
	}
	w.ticks(1100*time.Millisecond, time.Second)
	w.wantLimits("ann", 5)
	passed := 0
	for range 20 {
		count(&passed, w.any().send("ann"))
	}
	must.Equal(t, passed, 0, "passed of 5 after 6")
}

// While answers are lost nodes go on by what they know. A store that has lost its memory takes the
// overrides with it.
func TestOverridesAndLostAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 2, second, engine.Options{}, users(fixed(5)))
	w.lossBefore, w.lossAfter = 0.3, 0.3
	w.override(override("ann", 50))
	w.ticks(20*time.Second, time.Second)
	w.wantLimits("ann", 50)
	w.lossBefore = 1
	w.override(override("ann", 60))
	w.ticks(20*time.Second, time.Second)
	w.wantLimits("ann", 50)
	w.lossBefore, w.lossAfter = 0, 0
	w.ticks(8*time.Second, time.Second) // the breaker has paused
	w.wantLimits("ann", 60)
	w.store = emptyStore(w)
	w.ticks(3*time.Second, time.Second)
	w.wantLimits("ann", 5)
	w.override(override("ann", 70))
	w.ticks(time.Second, time.Second)
	w.wantLimits("ann", 70)
}

// One backend of several hears of a change later than others. Its old news does not undo the
// change.
func TestOldNewsOfAnotherBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 2, second, engine.Options{}, users(fixed(5)))
	w.override(override("ann", 50))
	w.ticks(time.Second, time.Second)
	list, version, err := w.store.Overrides(t.Context(), "default", 0)
	must.OK(t, err)
	w.override(override("ann", 60))
	w.ticks(time.Second, time.Second)
	w.wantLimits("ann", 60)
	for range 10 {
		w.pass(100 * time.Millisecond)
		for _, f := range w.nodes {
			f.tick()
			for _, p := range f.taken() {
				push := must.Get(wire.DecodePush(p.body))(t)
				f.Answered(p.ticket, link.PushAnswered, wire.AppendAnswer(nil, &wire.Answer{
					NowNanos: uint64(w.now), Nodes: 1, Overrides: wire.OverridesFor(push, list, version),
				}))
			}
		}
		w.wantLimits("ann", 60)
	}
}

// A long list comes in parts, and is taken in little by little.
func TestLongListOfOverrides(t *testing.T) {
	w := newWorld(t, 2, 4, second, engine.Options{}, users(fixed(5)), all(fixed(1000)))
	var list []wire.Override
	const count = 10_000
	for i := range count {
		list = append(list, override(fmt.Sprintf("user %06d", i), uint64(i+10)))
	}
	must.AtLeast(t, len(wire.List(list)), 4*wire.MaxPart, "bytes of a long list")
	w.override(list...)
	w.processes[0].before = func(*fakeNode, string) { w.now += 100 } // so that ticks have to end
	w.ticks(time.Second, time.Second)
	often(1000, w.advance, time.Millisecond) // as hosts do that are asked to hurry
	for i, f := range w.nodes {
		applied, unfit := f.Overrides()
		must.Equal(t, [2]int{applied, unfit}, [2]int{count, 0}, "node %d: applied, and unfit", i)
	}
	for _, i := range []int{0, 1, 5000, count - 1} {
		w.wantLimits(fmt.Sprintf("user %06d", i), uint64(i+10))
	}
	w.wantLimits("another", 5)
	f := w.nodes[0]
	must.AtMost(t, testing.AllocsPerRun(100, func() { f.limitOf("user 000007") }), 3, "allocations to find an override, and a test's own")
}

// One worker brings a long list for its process, part by part, and the others leave it to that one.
func TestOneWorkerBringsTheList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 4, second/10, engine.Options{}, users(fixed(5)))
	w.holds = true
	w.ticks(3*time.Second, time.Second/10)
	var list []wire.Override
	for i := range 20_000 {
		list = append(list, override(fmt.Sprintf("user %06d", i), 10))
	}
	parts := len(wire.List(list))/wire.MaxPart + 1
	w.override(list...)
	before := w.pushes
	often(parts+2, w.advance, 50*time.Millisecond)
	w.wantLimits("user 000000", 10)
	must.AtLeast(t, parts, 8, "parts of a list")
	must.AtMost(t, w.pushes-before, parts+4, "questions for %d parts of a list", parts)
}

// An override that does not fit its rule does nothing, and counts.
func TestUnfitOverrides(t *testing.T) {
	t.Parallel()
	burst := override("ann", 5)
	burst.Limits[0].Burst = 7
	width := override("ann", 5)
	width.Limits[0].WidthMillis++
	values, none := override("ann", 5), override("ann", 5)
	values.Values = append(values.Values, "x")
	none.Values = nil
	for name, o := range map[string]wire.Override{
		"limits": override("ann", 5, 5), "burst": burst, "window": width, "values": values, "no values": none,
	} {
		f := newWorld(t, 1, 1, second, engine.Options{}, users(fixed(100))).nodes[0]
		f.process.override(o, override("bob", 7))
		f.process.ticks(time.Second, time.Second)
		f.process.wantLimits("ann", 100)
		f.process.wantLimits("bob", 7)
		applied, unfit := f.Overrides()
		must.Equal(t, [2]int{applied, unfit}, [2]int{1, 1}, "%s: applied, and unfit", name)
	}
	// Those of rules that others have are none of its business.
	f := newWorld(t, 1, 1, second, engine.Options{}, users(fixed(100))).nodes[0]
	other := override("ann", 5)
	other.Rule = "rule 7"
	f.process.override(other)
	f.process.ticks(time.Second, time.Second)
	applied, unfit := f.Overrides()
	must.Equal(t, [2]int{applied, unfit}, [2]int{0, 0}, "another rule: applied, and unfit")
}

// Limits of an override are for those of the same window, whatever their order; of several of one
// window in theirs.
func TestOverrideOfSeveralLimits(t *testing.T) {
	t.Parallel()
	of := []window.Limit{
		limit(window.FixedWindow, 1, minute), limit(window.TokenBucket, 2, hour), limit(window.SlidingWindow, 3, hour),
	}
	limits, fits := wire.Fit(of, []wire.OverrideLimit{
		{Max: 20, WidthMillis: uint64(hour / 1e6)}, {Max: 10, WidthMillis: uint64(minute / 1e6)}, {Max: 30, WidthMillis: uint64(hour / 1e6)},
	})
	if !fits || limits[0].Max != 10 || limits[1].Max != 20 || limits[1].Burst != 20 || limits[2].Max != 30 || of[0].Max != 1 {
		t.Errorf("got %+v, %v", limits, fits)
	}
	limits, fits = wire.Fit(of[1:2], []wire.OverrideLimit{{Max: 0, WidthMillis: uint64(hour / 1e6)}})
	if !fits || limits[0].Max != 0 || limits[0].Burst != 1 {
		t.Errorf("a bucket of none: got %+v, %v", limits, fits)
	}
}

// Without the backend each node may admit as much as the largest override says.
func TestOverridesOvershoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 1, second, engine.Options{}, users(fixed(10)))
	for _, f := range w.nodes {
		f.send("bob")
	}
	w.override(override("ann", 700), override("zoe", 20))
	w.ticks(10*time.Second, time.Second)
	for i, f := range w.nodes {
		must.Equal(t, f.Overshoot(0), 0, "node %d: while the backend is there", i)
	}
	w.lossBefore = 1
	for range 40 {
		w.any().send("bob")
		w.advance(time.Second)
	}
	for i, f := range w.nodes {
		must.Equal(t, f.Overshoot(0), 1400, "node %d: before anybody has used the override", i)
	}
	passed := 0
	for range 40 {
		for range 100 {
			count(&passed, w.any().send("ann"))
		}
		w.advance(time.Second)
	}
	bound := uint64(0)
	for _, f := range w.nodes {
		bound = max(bound, f.Overshoot(0))
	}
	must.Equal(t, bound, 1400, "bound")
	must.Between(t, uint64(passed), 701, 700+bound, "passed of 700, up to the bound")
}

// A node that takes over the keys of a node with other rules goes by its own.
func TestOverridesAndInheritedKeys(t *testing.T) {
	t.Parallel()
	w, old := alone(t, second, engine.Options{}, users(fixed(1000)), users(fixed(1000)))
	w.override(override("ann", 2000))
	w.ticks(time.Second, time.Second)
	for range 50 {
		old.send("ann")
		w.advance(100 * time.Millisecond)
	}
	must.Equal(t, old.leased(1, "ann") > 0, true, "hits are leased")
	heir := w.processes[0].startOf(second, engine.Options{}, users(fixed(1000)))
	heir.CatchUp()
	heir.Inherit(old.Engine)
	w.nodes = []*fakeNode{heir}
	w.wantLimits("ann", 2000)
	w.override()
	w.quiet()
	w.wantLimits("ann", 1000)
	w.wantNothingLeft("when all is quiet")
}

// emptyStore is a store that has lost its memory.
func emptyStore(w *world) store.Store {
	return memory.New(memory.Options{Now: func() time.Time { return time.Unix(0, w.now) }})
}

// A backend that tells of a list, and does not give it, is not asked more often than there are ticks.
func TestListThatNobodyGives(t *testing.T) {
	t.Parallel()
	w, f := alone(t, second, engine.Options{}, users(fixed(5)))
	asked := 0
	next := w.now
	for end := w.now + 10*second; w.now < end; w.pass(time.Millisecond) {
		if w.now < next {
			continue
		}
		f.tick()
		next = w.now + int64(f.tickMillis)*1e6
		for _, p := range f.taken() {
			asked++
			f.Answered(p.ticket, link.PushAnswered, wire.AppendAnswer(nil, &wire.Answer{
				NowNanos: uint64(w.now), Nodes: 1, Overrides: wire.Overrides{Known: true, Version: 7, Size: 100, From: 50},
			}))
		}
	}
	most := int(10_000 / f.TickMillis())
	must.Between(t, asked, most/4, most+2, "times asked in ten seconds")
	f.process.wantLimits("ann", 5)
}
