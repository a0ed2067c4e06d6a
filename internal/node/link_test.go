package node

import (
	"testing"
	"time"
)

// Pauses double up to a bound, and differ.
func TestBreakerPauses(t *testing.T) {
	p := newProcess(t)
	l := newLink(p, "default", nil, p.random.Uint64, 200e6, nil)
	seen := map[int64]bool{}
	for failure := range 40 {
		p.now += minute
		l.failed(p.now, p.now)
		if failure < breakAfter-1 {
			if l.open() {
				t.Fatalf("open after %d failures", failure+1)
			}
			continue
		}
		pause := l.shared.retryAt - p.now
		usual := min(shortestPause<<min(failure-breakAfter+1, 20), longestPause)
		if pause < usual/2 || pause > 3*usual/2 {
			t.Errorf("failure %d: a pause of %v, want about %v", failure+1, time.Duration(pause), time.Duration(usual))
		}
		seen[pause] = true
	}
	if len(seen) < 30 {
		t.Errorf("of 38 pauses %d differ", len(seen))
	}
	l.answered(p.now, p.now+1, p.now, 1)
	if l.open() || !l.connected(p.now) {
		t.Error("open after an answer")
	}
}

// Callouts that were sent before the breaker opened say nothing new, and a clock that went back
// holds nothing up.
func TestBreakerAndOldNews(t *testing.T) {
	p := newProcess(t)
	l := newLink(p, "default", nil, p.random.Uint64, 200e6, nil)
	sentAt := p.now
	p.now += second
	for range 20 {
		l.failed(p.now, sentAt)
	}
	if l.shared.failures != breakAfter {
		t.Errorf("%d failures, want %d: the others are of callouts from before", l.shared.failures, breakAfter)
	}
	p.now -= 60 * minute
	if !l.connected(p.now) || !l.enter(p.now) {
		t.Error("a clock that went back by an hour keeps the breaker open")
	}
	if l.enter(p.now) {
		t.Error("two probes")
	}
	p.now += 201e6
	if !l.enter(p.now) {
		t.Error("a probe that is not answered keeps others away")
	}
}

func TestClockCorrection(t *testing.T) {
	var c link
	for i, step := range []struct{ sent, received, backend, offset int64 }{
		{0, 10e6, 5e6, 0},                  // agrees
		{1e9, 1e9 + 10e6, 1e9 + 9e6, 0},    // within the round trip
		{2e9, 2e9 + 10e6, 5e9, 3e9 - 5e6},  // 3 s behind the backend
		{3e9, 3e9 + 500e6, 9e9, 3e9 - 5e6}, // a slow answer says less than the one before
		{70e9, 70e9 + 500e6, 73e9, 2.75e9}, // but that is old by now
		{80e9, 79e9, 73e9, 2.75e9},         // the clock was set meanwhile
		{90e9, 90e9 + 10e6, 90e9 + 5e6, 0}, // agrees again
	} {
		if c.see(step.sent, step.received, step.backend); c.offset != step.offset {
			t.Errorf("step %d: offset %d, want %d", i, c.offset, step.offset)
		}
	}
}

// A batch that has begun is sent or forgotten, though another worker was faster to look whether the
// backend is back.
func TestGreetingWhileTheBreakerIsOpen(t *testing.T) {
	p := newProcess(t)
	n, other := p.start(0, fixed(5)), p.start(0, fixed(5))
	fail := func() { other.link.failed(p.now, p.now) }
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
	for _, b := range n.callouts.batches {
		if b.state == filling {
			t.Error("a batch was begun, and neither sent nor forgotten")
		}
	}
}

// A node that leaves doesn't wait longer because the backend's clock was set back.
func TestLeavingByTheHostsClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1, second, Options{}, users(fixed(1000)))
	f := w.nodes[0]
	f.charge("ann")
	f.Leave()
	w.advance(0)
	f.link.offset -= hour
	f.charge("ann")
	w.lossBefore = 1
	for range leaveNanos/second + 1 {
		w.advance(time.Second)
	}
	if !f.Left() {
		t.Errorf("a node has not left after %v", time.Duration(leaveNanos))
	}
}
