package node

// leastNanos is the time in a tick that is reserved for asks and waiting requests, in nanoseconds.
const leastNanos = tickNanos / 4

// Tick does the work that is due, for at most the time of a tick. The host calls it at the interval
// of TickEvery.
func (n *Node) Tick() {
	n.decider.addHeld(n.link.now())
	n.keys.recent.Forget()
	if !n.keys.local {
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
	n.rules.share(uint64(n.link.shared.nodes))
	start := n.link.hostNow()
	deadline := start + tickNanos
	n.ticks.until = deadline
	done := n.answers.settle(deadline)
	adopted := n.overrides.adoptOverrides(deadline)
	n.callouts.resend(start + n.link.offset)
	// Requests that wait for nothing come before pushes, which could use up all the time again and
	// again.
	n.ticks.until = max(deadline, n.link.hostNow()+leastNanos)
	done = n.requests.giveUpWaiting(n.ticks.until) && done
	n.requests.decideReleased(n.ticks.until)
	if n.link.open() {
		n.asks.drop()
		n.pushes.probe()
		n.overrides.inquire()
	} else {
		n.overrides.inquire()
		n.pushes.pushCharges()
		if n.advances.tick() && !n.callouts.crammed() && n.link.enter(n.link.hostNow()) {
			n.callouts.postEmpty()
		}
		if done {
			done = n.pushes.pushDue(start+n.link.offset, deadline)
		}
		n.ticks.until = max(deadline+askNanos, n.link.hostNow()+leastNanos)
		n.asks.sendAll()
	}
	n.requests.decideReleased(n.ticks.until)
	n.ticks.until = 0
	n.watch.tellSightings()
	n.accounts.tell(n.callouts.leaving)
	soon := n.link.hostNow() + int64(n.ticks.millis)*1e6
	n.ticks.hurry(!done || !adopted || n.overrides.news.hurries() || len(n.asks.unsent)+len(n.waits.released) > 0 || n.waits.queue.endsBy(soon))
}

// Answered reports the end of a push: an answer or a failure. The node keeps the answer, and
// processes it as time permits.
func (n *Node) Answered(t Ticket, outcome Outcome, answer []byte) {
	b := t.batch
	if t.used != nil {
		// After a failure the next tick sends again. Otherwise a backend that fails at once would
		// be called without end.
		if n.accounts.answered(t, outcome, answer) && n.callouts.leaving {
			n.accounts.tell(true)
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
		n.ticks.hurry(n.ticks.hurried || n.overrides.news.hurries())
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
	n.ticks.hurry(n.ticks.hurried || more || n.overrides.news.hurries() || len(n.waits.released) > 0)
}
