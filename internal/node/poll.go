package node

import "weir/internal/wire"

// A process that hears nothing from the backend polls: a worker asks for news, and the backend
// answers when there are any, or after half a minute. A poll does not count as a push: no push
// waits for it, and its failure says nothing about the backend. A gateway on the way may cut off a
// long wait, so after a failure the worker asks a question that is answered at once.

// polls reports whether the worker may poll: it must have nothing for the backend. If the process
// ended, its last hits would need the connection that the poll occupies.
func (v *overrides) polls(now int64) bool {
	p := &v.polling
	paused := now < p.notBefore && p.notBefore-now <= longestPlain
	return !paused && v.link.seen != 0 && v.variants.owner != nil && !v.callouts.leaving && !v.link.open() && !v.pushes.unfinished()
}

// poll sends the poll.
func (v *overrides) poll(now int64) {
	known := v.callouts.known(true)
	if known.Version != v.news.shared.version {
		v.callouts.postEmpty() // answered at once, so that the next push soon says that all workers know
		return
	}
	b := &v.polling.batch
	*b = batch{
		sender: v.callouts.worker, sequence: b.sequence + 1, body: b.body[:0], inquires: true, state: sent, sentAt: now,
		patience: wire.LongestPoll + pollSlack,
	}
	known.Within = uint64(max(1, v.asksEvery()/3/1e6))
	b.body = wire.AppendPushHeader(b.body, &wire.Push{
		Namespace: v.callouts.namespace, Node: v.callouts.id, Sender: b.sender, Sequence: b.sequence, Floor: b.sequence, Known: known,
	}, 0)
	if !v.link.host.Send(b.body, Ticket{batch: b, sender: b.sender, sequence: b.sequence}) {
		v.pollEnded(false)
	}
}

// pollEnded records the end of the poll.
func (v *overrides) pollEnded(answered bool) {
	p := &v.polling
	if p.batch.state = filling; answered {
		p.failures = 0
		return
	}
	p.notBefore = v.link.hostNow() + min(v.asksEvery()<<min(p.failures, 10), longestPlain)
	p.failures++
	v.news.update(func(r *sharedNews) bool {
		r.asked = 0
		return true
	})
}
