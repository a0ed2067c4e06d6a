package node

// leastNanos is what asking, and letting requests go, have of a tick in any case.
const leastNanos = tickNanos / 4

// Tick does what is due, for as long as a tick may take.
func (n *Node) Tick() {
	n.AddHeld(n.now())
	n.recent.Forget()
	if !n.local {
		n.synchronise()
	}
}

// synchronise is Tick of a node that has a backend.
func (n *Node) synchronise() {
	n.link.read()
	n.readExcess()
	n.share(uint64(n.link.shared.nodes))
	start := n.hostNow()
	deadline := start + tickNanos
	n.until = deadline
	done := n.settle(deadline)
	adopted := n.adoptOverrides(deadline)
	n.resend(start + n.link.offset)
	// Whoever waits for nothing comes before pushes, which could take all the time for as long as
	// they like.
	n.until = max(deadline, n.hostNow()+leastNanos)
	done = n.giveUpWaiting(n.until) && done
	n.decideReleased(n.until)
	if n.link.open() {
		n.dropWishes()
		n.probe()
		n.inquire()
	} else {
		n.inquire()
		n.PushCharges()
		if done {
			done = n.pushDue(start+n.link.offset, deadline)
		}
		n.until = max(deadline+askNanos, n.hostNow()+leastNanos)
		n.askAll()
	}
	n.decideReleased(n.until)
	n.until = 0
	n.tellSightings()
	soon := n.hostNow() + int64(n.tickMillis)*1e6
	n.hurry(!done || !adopted || n.news.hurries() || len(n.wishes)+len(n.released) > 0 || n.waiting.endsBy(soon))
}

// Answered takes in the end of a push: an answer or a failure. An answer is kept, and settled as
// far as there is time.
func (n *Node) Answered(t Ticket, outcome Outcome, answer []byte) {
	b := t.batch
	if b == nil {
		return // it was a report
	}
	if b.sender != t.sender || b.sequence != t.sequence || b.state != sent {
		return
	}
	deadline := n.hostNow() + tickNanos
	n.until = deadline
	more := false
	if n.takeIn(b, outcome, answer) {
		more = !n.settle(deadline) || n.crowded
		n.PushCharges()
		n.until = max(deadline, n.hostNow()+leastNanos)
		n.askAll()
	}
	n.decideReleased(n.until)
	n.until = 0
	n.hurry(n.hurried || more || n.news.hurries() || len(n.released) > 0)
}
