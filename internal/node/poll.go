package node

import "weir/internal/wire"

// A process that hears nothing from the backend polls: a worker asks what is new, and the backend answers
// when there is something, or after half a minute. The poll is no push: it has no place among those that
// wait for their answers, and its failure says nothing of the backend. Gateways on the way may end what
// takes long. So a question that is answered at once follows.

// polls reports whether the worker may poll in place of asking: it has nothing for the backend. If the
// process ends, what it had would go by the connection that the poll takes.
func (v *overrides) polls(now int64) bool {
	p := &v.polling
	paused := now < p.notBefore && p.notBefore-now <= longestPlain
	return !paused && v.link.seen != 0 && v.variants.owner != nil && !v.callouts.leaving && !v.link.open() && !v.pushes.unfinished()
}

// poll sends the poll.
func (v *overrides) poll(now int64) {
	known := v.callouts.known(true)
	if known.Version != v.news.shared.version {
		v.callouts.postEmpty() // which is answered at once, so that the next one tells soon that all workers know
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

// pollEnded notes that the poll was answered, or was not.
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
