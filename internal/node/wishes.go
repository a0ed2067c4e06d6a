package node

import (
	"weir/internal/counter"
	"weir/window"
)

const (
	// maxAsking bounds the callouts that requests wait for; more wishes join the next one.
	maxAsking = 4
	// maxEager bounds the wishes that are made before a lease is used up: of so many keys at once
	// some wait.
	maxEager = 4096
	// leastWishes is how many wishes are kept without looking for those that nobody wants any more.
	leastWishes = 64
	// askNanos is how long wishes may be taken along after pushes: if these left them no time,
	// requests would wait for them.
	askNanos = tickNanos / 2
)

// wholeRequest is a take for one request: of all hits that it is unsure of, or none.
func (n *Node) wholeRequest(w waiting, demands []Demand) *take {
	t := n.newTake(1, 1)
	t.waiters = append(t.waiters, w)
	for i := range demands {
		if d := &demands[i]; d.Verdict == counter.Unsure {
			t.parts = append(t.parts, claimant{address: d.address, rule: d.Rule, id: n.identity(d), cost: d.Cost})
		}
	}
	return t
}

// prefetch asks for more before the lease is used up.
func (n *Node) prefetch(d *Demand, now int64) {
	if len(n.wishes) < maxEager && n.connected(now) {
		n.wishAhead(d)
		n.askAll()
	}
}

// wish asks for the hits of a request that waits, and for more ahead of others.
func (n *Node) wish(d *Demand, w waiting) {
	t := n.wished.find(d, false)
	if t != nil {
		d.id, d.named = t.parts[0].id, true
	}
	switch {
	case t == nil:
		t = n.newLease(d, d.Cost, d.Counter.Asks(d.Cost))
		n.wished.add(t)
		n.addWish(t)
		n.wishAhead(d)
	case !t.wanted():
		// Those who have gone need nothing.
		t.waiters, t.least, t.most = t.waiters[:0], d.Cost, d.Cost
	default:
		// Each of those that wait needs its hits.
		t.least, t.most = min(t.least, d.Cost), min(t.most+d.Cost, window.MaxHits)
	}
	t.join(w)
}

// wishAhead asks for a lease for requests to come, if the key is worth it.
func (n *Node) wishAhead(d *Demand) {
	if most := d.Counter.Ahead(n.now()); most > 0 && n.wished.find(d, true) == nil {
		t := n.newLease(d, 1, most)
		t.ahead = true
		n.wished.add(t)
		n.addWish(t)
	}
}

// addWish keeps a wish until it can be asked for. Where that takes long, others may have lost those
// who waited: they are looked for whenever there are twice as many wishes as were wanted the last
// time.
func (n *Node) addWish(t *take) {
	if len(n.wishes) >= max(n.crowd, leastWishes) {
		n.dropUnwanted()
		n.crowd = 2 * len(n.wishes)
	}
	n.wishes = append(n.wishes, t)
}

// dropUnwanted forgets the wishes that nobody waits for any more.
func (n *Node) dropUnwanted() {
	kept := n.wishes[:0]
	for _, t := range n.wishes {
		if t.wanted() {
			kept = append(kept, t)
		} else {
			n.unwish(t)
			n.recycle(t)
		}
	}
	clear(n.wishes[len(kept):])
	n.wishes = kept
}

// unwish notes that a take is no wish any more.
//
//go:noinline
func (n *Node) unwish(t *take) {
	if t.lease {
		n.wished.remove(t)
	}
}

// askAll has callouts take the wishes along, if not too many are out that somebody waits for, for
// as long as that may take. A callout that isn't full waits for the wishes that there was no time
// for: as there may be few of them, small ones would make all others wait. It decides no request,
// as one may be being decided: the ticks to come do so if a callout fails at once.
func (n *Node) askAll() {
	if len(n.wishes) > 0 {
		start := n.hostNow()
		deadline := n.until
		if deadline == 0 {
			deadline = start + askNanos
		}
		handled := 0
		for late := start >= deadline; handled < len(n.wishes) && n.asking < maxAsking && !late; late = n.late(handled, deadline) {
			if t := n.wishes[handled]; !t.wanted() {
				n.unwish(t)
				n.recycle(t)
			} else if !n.takeAlong(t, start+n.link.offset) {
				n.ask()
				continue
			}
			handled++
		}
		rest := copy(n.wishes, n.wishes[handled:])
		clear(n.wishes[rest:])
		n.wishes = n.wishes[:rest]
	}
	if len(n.wishes) == 0 {
		n.ask()
	}
	n.hurry(n.hurried || len(n.wishes)+len(n.released) > 0)
}

// takeAlong has the open batch take a wish along. It reports false if that has no room for it.
func (n *Node) takeAlong(t *take, now int64) bool {
	b := n.openBatch
	if b == nil {
		b = n.newBatch()
		n.openBatch = b
	}
	for n.hasty && len(n.orphans) > 0 && b.fits(t) {
		n.addOrphan(b) // a request may ask again for what it gives back
	}
	if len(b.takes) > 0 && !b.fits(t) {
		return false
	}
	n.claimAlong(b, t, now)
	n.addTake(b, t, now)
	n.unwish(t)
	return true
}

// claimAlong adds what a wish's key has pending to its batch, so that the backend decides with it,
// and no push of its own is needed.
func (n *Node) claimAlong(b *batch, t *take, now int64) {
	if !t.lease {
		return
	}
	d := n.at(t.parts[0].rule, t.parts[0].address)
	if n.read(d, now); !d.slot.Found() || !d.Counter.Pending() {
		return
	}
	if !d.Counter.Identified() {
		d.Counter.Identify(t.parts[0].id)
	}
	if !d.Counter.Claim(now) || !n.write(d, now) {
		return // then another worker has it, or it is pushed later
	}
	n.addClaimed(b, d)
}

// ask sends the open batch, if there is one.
func (n *Node) ask() {
	if b := n.openBatch; b != nil {
		n.openBatch = nil
		b.asking = true
		n.asking++
		n.post(b)
	}
}

// putOff closes the open batch, if there is one, without sending it. Nobody waits for it any more.
func (n *Node) putOff() {
	if b := n.openBatch; b != nil {
		n.openBatch = nil
		b.close()
		b.state, b.retryAt = failed, 0
		for _, t := range b.takes {
			n.release(t)
		}
	}
}

// dropWishes drops all wishes, as the backend can't be asked, or nobody wants them any more.
func (n *Node) dropWishes() {
	if n.local {
		return
	}
	n.putOff()
	clear(n.wished[:])
	for _, t := range n.wishes {
		n.release(t)
	}
	clear(n.wishes)
	n.wishes = n.wishes[:0]
}
