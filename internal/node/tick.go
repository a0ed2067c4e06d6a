package node

// leastNanos is the part of a tick that asking, and letting requests go, have in any case.
const leastNanos = tickNanos / 4

// Tick does what is due, for as long as a tick may take.
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

// synchronise is Tick of a node that has a backend.
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
	// Requests that wait for nothing come before pushes, which could take all the time for as long
	// as they like.
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

// Answered takes in the end of a push: an answer or a failure. An answer is kept, and settled as
// far as there is time.
func (n *Node) Answered(t Ticket, outcome Outcome, answer []byte) {
	b := t.batch
	if t.used != nil {
		// After a failure the next tick tells again: a backend that fails at once would be asked without end.
		if n.accounts.answered(t, outcome, answer) && n.callouts.leaving {
			n.accounts.tell(true)
		}
		return
	}
	if b == nil {
		return // it was a report
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
