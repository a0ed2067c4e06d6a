package node

// leastNanos is the time in a tick that is reserved for asks and waiting requests, in nanoseconds.
const leastNanos = tickNanos / 4

// Tick does the work that is due, for at most the time of a tick. The host calls it at the interval
// of TickEvery.
func (n *Node) Tick() {
	n.decider.addHeld(n.link.now())
	n.keys.recent.Forget()
	if n.rules.synced {
		n.synchronise()
	}
	if n.requests.lines != nil {
		n.requests.letGo()
	}
}

// synchronise is Tick for a node with a backend.
func (n *Node) synchronise() {
	n.link.read()
	n.rules.readExcess()
	n.rules.share(n.link.nodes())
	start := n.link.hostNow()
	deadline := start + tickNanos
	n.ticks.until = deadline
	done := n.answers.settle(deadline)
	adopted := n.overrides.adoptOverrides(deadline)
	n.callouts.resend(n.link.toBackend(start))
	// Requests that wait for nothing come before pushes, which could use up all the time again and
	// again.
	n.ticks.until = max(deadline, n.link.hostNow()+leastNanos)
	done = n.requests.giveUpWaiting(n.ticks.until) && done
	n.requests.decideReleased(n.ticks.until)
	if n.link.open() {
		n.asks.drop()
		n.pushes.probe()
		n.inquire()
	} else {
		n.inquire()
		n.pushes.pushCharges()
		if n.advances.tick() && !n.callouts.crammed() && n.link.enter(n.link.hostNow()) {
			n.callouts.postEmpty()
		}
		if done {
			done = n.pushes.pushDue(n.link.toBackend(start), deadline)
		}
		n.ticks.until = max(deadline+askNanos, n.link.hostNow()+leastNanos)
		n.asks.sendAll()
	}
	n.requests.decideReleased(n.ticks.until)
	n.ticks.until = 0
	if report := n.watch.dueReport(n.callouts.leaving); report != nil {
		n.callouts.host.Send(report, Ticket{})
	}
	n.tellUsage(n.callouts.leaving)
	soon := n.link.hostNow() + int64(n.ticks.millis)*1e6
	n.ticks.hurry(!done || !adopted || n.overrides.hurries() || len(n.asks.unsent)+len(n.waits.released) > 0 || n.waits.queue.endsBy(soon))
}

// inquire asks the backend for news if it is time.
func (n *Node) inquire() {
	if n.callouts.inquires() {
		return
	}
	quiet := !n.callouts.leaving && !n.pushes.unfinished()
	how := n.overrides.due(n.callouts.polled(n.link.hostNow()), quiet)
	if how == poll {
		known, ok := n.overrides.knownToPoll()
		if !ok {
			n.callouts.postEmpty()
		} else if !n.callouts.sendPoll(n.link.hostNow(), known) {
			n.overrides.pollEnded(false)
		}
		return
	}
	if now := n.link.hostNow(); how == question && !n.callouts.crammed() && n.link.enter(now) {
		n.overrides.asked(now + int64(n.ticks.millis)*1e6)
		n.callouts.postEmpty()
	}
}

// tellUsage sends the messages about usage that are due, or all.
func (n *Node) tellUsage(all bool) {
	for _, m := range n.accounts.dueMessages(all) {
		if !n.callouts.host.Send(m.body, Ticket{used: m, sender: m.sender, sequence: m.sequence}) {
			n.accounts.fail(m)
		}
	}
}

// Answered reports the end of a push: an answer or a failure. The node keeps the answer, and
// processes it as time permits.
func (n *Node) Answered(t Ticket, outcome Outcome, answer []byte) {
	b := t.batch
	if t.used != nil {
		// After a failure the next tick sends again. Otherwise a backend that fails at once would
		// be called without end.
		if n.accounts.answered(t.used, t.sender, t.sequence, outcome, answer) && n.callouts.leaving {
			n.tellUsage(true)
		}
		return
	}
	if b == nil {
		return // the push was a report
	}
	if b.sender != t.sender || b.sequence != t.sequence || b.state != sent {
		return
	}
	if b.patience > 0 {
		n.answers.takePoll(b, outcome, answer)
		n.ticks.hurry(n.ticks.hurried || n.overrides.hurries())
		return
	}
	deadline := n.link.hostNow() + tickNanos
	n.ticks.until = deadline
	more := false
	if n.answers.takeIn(b, outcome, answer) {
		more = !n.answers.settle(deadline) || n.pushes.crowded
		n.pushes.pushCharges()
		n.ticks.until = max(deadline, n.link.hostNow()+leastNanos)
		n.asks.sendAll()
	}
	n.requests.decideReleased(n.ticks.until)
	n.ticks.until = 0
	n.ticks.hurry(n.ticks.hurried || more || n.overrides.hurries() || len(n.waits.released) > 0)
}

const (
	// idleMillis is the time between ticks of a node without a backend that delays requests.
	idleMillis = 1000
	// tickNanos is how long a tick may work.
	tickNanos = int64(1e6)
)

// ticks says when a node's host calls it, and how long it may work.
type ticks struct {
	host Host
	// millis is the usual time between ticks. hurried means that they come every millisecond.
	millis  uint32
	hurried bool
	period  uint32 // that the host was last asked for
	// until is when the present callback of the host should end; 0 in callbacks of requests. Like
	// all deadlines it is by the host's clock, uncorrected.
	until int64
}

// hurry asks for ticks every millisecond while there is much to do.
func (t *ticks) hurry(more bool) {
	if t.hurried == more {
		return
	}
	millis := t.millis
	if t.hurried = more; more {
		millis = 1
	}
	t.every(millis)
}

// within asks for a tick within a time, and for no more ticks than that needs.
func (t *ticks) within(nanos int64) {
	if !t.hurried {
		t.every(uint32(max(1, min((nanos+1e6-1)/1e6, int64(t.millis)))))
	}
}

func (t *ticks) every(millis uint32) {
	if t.period != millis {
		t.period = millis
		t.host.TickEvery(millis)
	}
}
