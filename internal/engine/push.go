package engine

import (
	"weir/internal/engine/claim"
	"weir/internal/engine/credit"
	"weir/internal/engine/feed"
	"weir/internal/engine/jitter"
	"weir/internal/engine/ledger"
	"weir/internal/engine/link"
	"weir/internal/engine/pending"
	"weir/internal/engine/rule"
)

// pushes sends counted hits to the backend.
type pushes struct {
	_ [0]func() // keeps Go from generating an equality function

	link    *link.Link
	rules   *rule.Set
	outbox  *outbox
	credit  *credit.Credit
	pending *pending.Pending
	ledger  *ledger.Ledger
	claims  *claim.Claims

	crowded bool // due keys wait because too many batches are unanswered
	all     bool // everything is due
}

// pushDue claims the keys that are due, and sends them. It returns false if time ran out. It
// returns true if they have to wait for answers, since hurrying would not help.
func (p *pushes) pushDue(now, deadline int64) (done bool) {
	var b *batch
	handled := 0
	p.crowded = false
	done = p.claims.Due(now, p.all, func() bool { return p.outbox.host.Now() >= deadline }, func() claim.Push {
		if b = p.room(b); b == nil || late(p.outbox.host, handled, deadline) {
			p.crowded = b == nil
			return nil // time or room is over
		}
		handled++
		return b
	})
	p.outbox.send(b)
	return done || p.crowded
}

// retire puts the remaining advanced hits in pushes, with the notice that the worker has no part
// any more.
func (p *pushes) retire() {
	for more := p.credit.End() || p.ledger.Unpushed() > 0; more; {
		b := p.outbox.newBatch(feed.None)
		more = !p.claims.OnCredit(0, true, func() claim.Push {
			if b.full() {
				return nil
			}
			return b
		})
		b.ends = max(b.ends, p.link.Now()+jitter.LongestPause)
		p.outbox.seal(b)
		b.state = failed
	}
}

// pushAll is [Engine.PushAll].
func (p *pushes) pushAll() (done bool) {
	for _, b := range p.outbox.batches {
		if b.state == failed {
			p.outbox.post(b)
		}
	}
	p.all = true // in this visit
	start := p.outbox.host.Now()
	for !p.pushDue(p.link.ToBackend(start), start+tickNanos) && p.outbox.host.Now() < start+leaveNanos {
	}
	p.all = p.rules.Leaving
	_, evicted := p.pending.Unpushed()
	return !p.crowded && p.outbox.away == 0 && evicted+p.ledger.Unpushed() == 0
}

// room returns a batch with room for another key: b, or a new batch after sending a full b. It is
// nil if too many batches are unanswered.
func (p *pushes) room(b *batch) *batch {
	if b != nil && !b.full() {
		return b
	}
	p.outbox.send(b)
	if p.outbox.crammed() {
		return nil
	}
	return p.outbox.newBatch(feed.None)
}

// unfinished reports whether the backend has yet to hear of any hits.
func (p *pushes) unfinished() bool {
	keys, evicted := p.pending.Unpushed()
	return keys+evicted+p.ledger.Unpushed()+len(p.outbox.batches) > 0
}

// leaveNanos is how long a node that is no longer wanted waits for the backend's answers, in
// nanoseconds.
const leaveNanos = int64(5e9)

// pushCharges is [Engine.PushCharges].
func (p *pushes) pushCharges() {
	var b *batch
	p.claims.Hasty(func() claim.Push {
		if b = p.room(b); b == nil {
			return nil
		}
		return b
	})
	p.outbox.send(b)
}
