package node

import (
	"weir/internal/wire"
	"weir/window"
)

const (
	// maxAsking bounds the callouts that requests wait for; more asks join the next callout.
	maxAsking = 4
	// maxCollected bounds the asks that are collected before a callout takes them along.
	maxCollected = 256
	// maxUnsent bounds the asks that are made before a lease is used up: of so many keys at once
	// some wait.
	maxUnsent = 4096
	// leastUnsent is how many unsent asks are kept without looking for those that nobody wants any more.
	leastUnsent = 64
	// askNanos is how long asks may be sent after pushes: if these left them no time,
	// requests would wait for them.
	askNanos = tickNanos / 2
)

// asks are questions for hits that only the backend can allow.
type asks struct {
	link     *link
	ticks    *ticks
	keys     *keys
	waits    *waits
	callouts *callouts
	pushes   *pushes

	unsent    []*ask // that no callout has taken along yet
	collect   int64  // [Options.Collect]
	sentAt    int64  // when a callout has last taken some along, by the host's time
	leases    *leaseAsks
	crowd     int    // from so many asks on, those are looked for that nobody wants
	openBatch *batch // that asks go into, and isn't sent before it is full or there are no more
	rooms     []wire.Room
}

// ofRequest is an ask for one request: for the hits of all its demands of a sort, or none.
func (a *asks) ofRequest(w turn, demands []Demand, of func(*Demand) bool) *ask {
	t := a.waits.newAsk(1, 1)
	t.turns = append(t.turns, w)
	for i := range demands {
		if d := &demands[i]; of(d) {
			t.parts = append(t.parts, a.keys.named(d))
		}
	}
	return t
}

// prefetch asks for more before the lease is used up.
func (a *asks) prefetch(d *Demand, now int64) {
	if len(a.unsent) < maxUnsent && a.link.connectedAt(now) && (a.callouts.away == 0 || !a.callouts.lost(a.keys.named(d).id)) {
		a.leaseAhead(d)
		a.sendAll()
	}
}

// lease asks for the hits of a request that waits, and for more ahead of others.
func (a *asks) lease(d *Demand, w turn) {
	t := a.leases.find(d, false)
	if t != nil {
		d.id = t.parts[0].id
	}
	switch {
	case t == nil:
		t = a.newLease(d, d.Cost, d.Counter.Asks(d.Cost))
		a.leases.add(t)
		a.add(t)
		a.leaseAhead(d)
	case !t.wanted():
		// Those who have gone need nothing.
		t.turns, t.least, t.most = t.turns[:0], d.Cost, d.Cost
	default:
		// Each of those that wait needs its hits.
		t.least, t.most = min(t.least, d.Cost), min(t.most+d.Cost, window.MaxHits)
	}
	t.join(w)
}

// wishAhead asks for a lease for requests to come, if the key is worth it.
func (a *asks) leaseAhead(d *Demand) {
	if most := d.Counter.Ahead(a.link.now()); most > 0 && a.leases.find(d, true) == nil {
		t := a.newLease(d, 1, most)
		t.ahead = true
		a.leases.add(t)
		a.add(t)
	}
}

// add keeps an ask until it can be sent. Where that takes long, nobody may wait for some asks any
// more. These are looked for whenever the asks have doubled since the last look.
func (a *asks) add(t *ask) {
	if len(a.unsent) >= max(a.crowd, leastUnsent) {
		a.dropUnwanted()
		a.crowd = 2 * len(a.unsent)
	}
	a.unsent = append(a.unsent, t)
}

// dropUnwanted forgets the asks that nobody waits for any more.
func (a *asks) dropUnwanted() {
	kept := a.unsent[:0]
	for _, t := range a.unsent {
		if t.wanted() {
			kept = append(kept, t)
		} else {
			a.forget(t)
			a.waits.recycle(t)
		}
	}
	clear(a.unsent[len(kept):])
	a.unsent = kept
}

// forget notes that an ask is not to be sent any more.
//
//go:noinline
func (a *asks) forget(t *ask) {
	if t.lease {
		a.leases.remove(t)
	}
}

// sendAll has callouts take the asks along, if not too many are out that somebody waits for, for as
// long as that may take. A callout that isn't full waits for the asks that there was no time for:
// only a few callouts may be out, so a small one would make all other asks wait. It decides no
// request, as one may be being decided: the ticks to come do so if a callout fails at once.
func (a *asks) sendAll() {
	if len(a.unsent) > 0 {
		start := a.link.hostNow()
		if a.collects(start) {
			a.ticks.hurry(true)
			return
		}
		deadline := a.ticks.until
		if deadline == 0 {
			deadline = start + askNanos
		}
		handled := 0
		for late := start >= deadline; handled < len(a.unsent) && a.callouts.asking < maxAsking && !late; late = a.link.late(handled, deadline) {
			if t := a.unsent[handled]; !t.wanted() {
				a.forget(t)
				a.waits.recycle(t)
			} else if a.lost(t) {
				a.forget(t)
				a.waits.release(t)
			} else if !a.fill(t, start+a.link.offset) {
				a.send()
				continue
			}
			handled++
		}
		rest := copy(a.unsent, a.unsent[handled:])
		clear(a.unsent[rest:])
		a.unsent = a.unsent[:rest]
	}
	if len(a.unsent) == 0 {
		a.send()
	}
	a.ticks.hurry(a.ticks.hurried || len(a.unsent)+len(a.waits.released) > 0)
}

// collects reports whether asks that have yet to be sent wait for more of them to come. The next tick
// sends them.
func (a *asks) collects(now int64) bool {
	ago := now - a.sentAt
	return a.collect > 0 && a.openBatch == nil && 0 <= ago && ago < a.collect && len(a.unsent) < maxCollected
}

// fill has the open batch take an ask along. It reports false if that has no room for it.
func (a *asks) fill(t *ask, now int64) bool {
	b := a.openBatch
	if b == nil {
		b = a.callouts.newBatch()
		a.openBatch = b
	}
	for a.pushes.hasty && b.fits(t) && a.pushes.nextOrphan() {
		a.pushes.addOrphan(b) // a request may ask again for what it gives back
	}
	if len(b.asks) > 0 && !b.fits(t) {
		return false
	}
	a.claimAlong(b, t, now)
	a.encode(b, t, now)
	a.forget(t)
	return true
}

// claimAlong adds what an ask's key has pending to its batch, so that the backend decides with it,
// and no push of its own is needed.
func (a *asks) claimAlong(b *batch, t *ask, now int64) {
	if !t.lease {
		return
	}
	d := a.keys.at(t.parts[0].Rule, t.parts[0].address)
	if a.keys.read(d, now); !d.slot.Found() || !d.Counter.Pending() {
		return
	}
	if !d.Counter.Identified() {
		d.Counter.Identify(t.parts[0].id)
	}
	if !d.Counter.Claim(now) || !a.keys.write(d, now) {
		return // then another worker has it, or it is pushed later
	}
	a.pushes.addClaimed(b, d)
}

// send sends the open batch, if there is one.
func (a *asks) send() {
	if b := a.openBatch; b != nil {
		a.openBatch = nil
		a.sentAt = a.link.hostNow()
		b.asking = true
		a.callouts.asking++
		a.callouts.post(b)
	}
}

// putOff closes the open batch, if there is one, without sending it. Nobody waits for it any more.
func (a *asks) putOff() {
	if b := a.openBatch; b != nil {
		a.openBatch = nil
		b.close()
		b.state, b.retryAt = failed, 0
		for _, t := range b.asks {
			a.waits.release(t)
		}
	}
}

// drop drops all asks, as the backend can't be asked, or nobody wants them any more.
func (a *asks) drop() {
	if a.keys.local {
		return
	}
	a.putOff()
	clear(a.leases[:])
	for _, t := range a.unsent {
		a.waits.release(t)
	}
	clear(a.unsent)
	a.unsent = a.unsent[:0]
}

// newLease makes an ask for hits for the entry of a demand's key.
func (a *asks) newLease(d *Demand, least, most uint64) *ask {
	t := a.waits.newAsk(least, most)
	t.lease = true
	part := a.keys.named(d)
	part.Cost = 1
	t.parts = append(t.parts, part)
	return t
}

// encode adds an ask to a batch.
func (a *asks) encode(b *batch, t *ask, now int64) {
	a.rooms = a.rooms[:0]
	for i := range t.parts {
		part := &t.parts[i]
		for j := range part.Rule.Limits {
			l := &part.Rule.Limits[j]
			room := wire.Room{
				LimitCounter: counterOf(part.id, l, l.WidthAt(now)), Limit: l.Max, Burst: l.Burst, Cost: part.Cost,
				CountRejected: !t.lease && part.Rule.CountRejected,
			}
			if b.advance.Told {
				room.Tag = part.Rule.roomTag()
			}
			a.rooms = append(a.rooms, room)
			b.ends = max(b.ends, now+int64(room.AgainNanos()))
		}
	}
	wanted := wire.Take{Least: t.least, Most: t.most, Lease: t.ahead, Rooms: a.rooms}
	b.reserve()
	b.body = wire.AppendTake(b.body, &wanted)
	b.answers += wanted.AnswerSize()
	b.rooms += len(a.rooms)
	b.asks = append(b.asks, t)
}

// lost reports whether the partition of any of an ask's keys is away.
func (a *asks) lost(t *ask) bool {
	for i := range t.parts {
		if a.callouts.lost(t.parts[i].id) {
			return true
		}
	}
	return false
}

// lostAny reports whether the partition of any of these demands is away, of those that the backend is to
// be asked for.
//
//go:noinline
func (a *asks) lostAny(demands []Demand, of func(*Demand) bool) bool {
	for i := range demands {
		if d := &demands[i]; of(d) && a.callouts.lost(a.keys.named(d).id) {
			return true
		}
	}
	return false
}
