package engine_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/must"
	"weir/internal/store"
)

// polls reports whether a poll of the node is out.
func (f *fakeNode) polls() bool {
	return slices.ContainsFunc(f.sent, func(p fakePush) bool { return p.ticket.Patience() > 0 })
}

// idlers is processes that nobody sends requests to, and that have found out what there is.
func idlers(t *testing.T, processes, workers int) *world {
	t.Helper()
	w := newWorld(t, processes, workers, second, engine.Options{}, users(fixed(1000)))
	w.holds = true
	w.ticks(3*time.Second, time.Second)
	return w
}

// wantKnown changes ann's limit often, and wants all nodes to know it within a time.
func (w *world) wantKnown(within time.Duration) {
	w.t.Helper()
	for change := range uint64(8) {
		w.override(override("ann", 100+change))
		w.ticks(within, time.Second)
		w.wantLimits("ann", 100+change)
		w.ticks(2*time.Second, time.Second)
		w.wantTold()
		w.ticks(time.Duration(w.random.IntN(40_000))*time.Millisecond, time.Second)
	}
}

// wantTold wants all processes to have told that they know the list.
func (w *world) wantTold() {
	w.t.Helper()
	_, version, err := w.store.Overrides(w.t.Context(), "default", 1)
	must.OK(w.t, err)
	applied := must.Get(store.ReadApplied(w.t.Context(), w.store, "default"))(w.t)
	must.EqualOrEnd(w.t, len(applied), len(w.processes), "processes that have told")
	for _, said := range applied {
		must.Equal(w.t, said.Version, version, "a process has told of version")
	}
}

// A process that has nothing to do asks twice a minute, however many workers it has. It hears of a change
// within an interval all the same.
func TestIdleProcessesPoll(t *testing.T) {
	t.Parallel()
	w := idlers(t, 2, 4)
	before := w.pushes
	w.ticks(10*time.Minute, time.Second)
	must.Between(t, (w.pushes-before)/2, 18, 24, "times that a process has asked in 10 minutes")
	w.wantKnown(time.Second)
}

// A poll that began before all workers know a list would tell late that they do.
func TestPollsTellWhatIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 3, second/10, engine.Options{}, users(fixed(1000)))
	w.holds = true
	w.ticks(3*time.Second, time.Second/10)
	for change := range uint64(8) {
		w.override(override("ann", 100+change))
		w.ticks(time.Second, time.Second/10)
		w.wantTold()
	}
}

// Requests find the connection free by which their hits go if the process ends: a worker that has
// something for the backend does not poll.
func TestBusyWorkersDoNotPoll(t *testing.T) {
	t.Parallel()
	w := idlers(t, 1, 1)
	f := w.nodes[0]
	w.ticks(time.Minute, time.Second)
	for _, p := range f.taken() { // the poll: it is lost, so that the next poll goes by the state of then
		f.lose(p)
	}
	f.send("bob")
	f.send("bob")
	for f.leased(0, "bob") > 0 {
		w.ticks(time.Second, time.Second)
		must.EqualOrEnd(t, f.leased(0, "bob") > 0 && f.polls(), false, "a worker that has a lease polls")
	}
	w.ticks(20*time.Second, time.Second)
	must.Equal(t, f.polls(), true, "it does not poll when it has none")
}

// If the worker that polls is gone, another one notices.
func TestPollingWorkerDies(t *testing.T) {
	t.Parallel()
	w := idlers(t, 1, 3)
	for range 2 {
		for i, f := range w.nodes {
			if f.polls() {
				w.nodes = append(w.nodes[:i:i], w.nodes[i+1:]...)
				break
			}
		}
		w.ticks(time.Second, time.Second)
		w.wantKnown(time.Second)
	}
	must.Equal(t, len(w.nodes), 1, "workers are left, as others polled")
}

// A gateway may let nothing pass that takes long. Then processes ask as those do that can't poll, and
// the backend does not seem to be away.
func TestPollsAreCut(t *testing.T) {
	t.Parallel()
	w := idlers(t, 1, 2)
	w.holds, w.cuts = false, true
	w.wantKnown(time.Second)
	for i, f := range w.nodes {
		must.Equal(t, f.BreakerOpen(), false, "node %d: the breaker is open", i)
		must.Equal(t, f.Tallies.Failed, 0, "node %d: failures", i)
	}
	before := w.pushes
	w.ticks(10*time.Minute, time.Second)
	must.AtLeast(t, w.pushes-before, 500, "times that the process has asked in 10 minutes without polls")
	w.holds, w.cuts = true, false
	w.ticks(3*time.Minute, time.Second)
	before = w.pushes
	w.ticks(10*time.Minute, time.Second)
	must.AtMost(t, w.pushes-before, 24, "times that the process has asked in 10 minutes, as it may poll again")
}

// An answer that was kept back says nothing of the time, but that a clock was set.
func TestPollsAndClocks(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Minute} {
		w := newWorld(t, 1, 2, second, engine.Options{Timeout: int64(timeout)}, users(fixed(1000)))
		p := w.processes[0]
		p.off, w.holds = int64(-20*time.Second), true
		off := func() time.Duration { return time.Duration(w.now - w.nodes[0].time()) }
		for range 10 {
			w.ticks(time.Minute, time.Second)
			must.AtMost(t, off().Abs(), 100*time.Millisecond, "timeout %v: it is off by", timeout)
		}
		p.off = int64(2 * time.Minute)
		w.ticks(3*time.Minute, time.Second)
		must.AtMost(t, off().Abs(), 100*time.Millisecond, "timeout %v: after the clock was set it is off by", timeout)
		w.wantKnown(time.Second)
	}
}

// A node that leaves does not wait for its poll, and makes none.
func TestLeavingDoesNotPoll(t *testing.T) {
	t.Parallel()
	w := idlers(t, 1, 1)
	f := w.nodes[0]
	must.EqualOrEnd(t, f.polls(), true, "it does not poll")
	f.Leave()
	must.Equal(t, f.Left(), true, "it does not wait for its poll")
	f.loseAll()
	w.ticks(2*time.Minute, time.Second)
	must.Equal(t, f.polls(), false, "it polls though it has left")
}
