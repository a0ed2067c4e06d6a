package node

import (
	"weir/internal/wire"
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

// asks are questions for hits that only the backend can allow.
type asks struct {
	link     *link
	ticks    *ticks
	keys     *keys
	waits    *waits
	callouts *callouts
	pushes   *pushes

	wishes    []*take // that no callout has taken along yet
	wished    *leaseWishes
	crowd     int    // as many wishes as this are looked through for those that nobody wants
	openBatch *batch // that wishes go into, and isn't sent before it is full or there are no more
	rooms     []wire.Room
}

// wholeRequest is a take for one request: of the hits of all its demands of a sort, or none.
func (a *asks) wholeRequest(w waiting, demands []Demand, of func(*Demand) bool) *take {
	t := a.waits.newTake(1, 1)
	t.waiters = append(t.waiters, w)
	for i := range demands {
		if d := &demands[i]; of(d) {
			t.parts = append(t.parts, a.keys.named(d))
		}
	}
	return t
}

// prefetch asks for more before the lease is used up.
func (a *asks) prefetch(d *Demand, now int64) {
	if len(a.wishes) < maxEager && a.link.connectedAt(now) {
		a.wishAhead(d)
		a.askAll()
	}
}

// wish asks for the hits of a request that waits, and for more ahead of others.
func (a *asks) wish(d *Demand, w waiting) {
	t := a.wished.find(d, false)
	if t != nil {
		d.id = t.parts[0].id
	}
	switch {
	case t == nil:
		t = a.newLease(d, d.Cost, d.Counter.Asks(d.Cost))
		a.wished.add(t)
		a.addWish(t)
		a.wishAhead(d)
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
func (a *asks) wishAhead(d *Demand) {
	if most := d.Counter.Ahead(a.link.now()); most > 0 && a.wished.find(d, true) == nil {
		t := a.newLease(d, 1, most)
		t.ahead = true
		a.wished.add(t)
		a.addWish(t)
	}
}

// addWish keeps a wish until it can be asked for. Where that takes long, others may have lost those
// who waited: they are looked for whenever there are twice as many wishes as were wanted the last
// time.
func (a *asks) addWish(t *take) {
	if len(a.wishes) >= max(a.crowd, leastWishes) {
		a.dropUnwanted()
		a.crowd = 2 * len(a.wishes)
	}
	a.wishes = append(a.wishes, t)
}

// dropUnwanted forgets the wishes that nobody waits for any more.
func (a *asks) dropUnwanted() {
	kept := a.wishes[:0]
	for _, t := range a.wishes {
		if t.wanted() {
			kept = append(kept, t)
		} else {
			a.unwish(t)
			a.waits.recycle(t)
		}
	}
	clear(a.wishes[len(kept):])
	a.wishes = kept
}

// unwish notes that a take is no wish any more.
//
//go:noinline
func (a *asks) unwish(t *take) {
	if t.lease {
		a.wished.remove(t)
	}
}

// askAll has callouts take the wishes along, if not too many are out that somebody waits for, for
// as long as that may take. A callout that isn't full waits for the wishes that there was no time
// for: as there may be few of them, small ones would make all others wait. It decides no request,
// as one may be being decided: the ticks to come do so if a callout fails at once.
func (a *asks) askAll() {
	if len(a.wishes) > 0 {
		start := a.link.hostNow()
		deadline := a.ticks.until
		if deadline == 0 {
			deadline = start + askNanos
		}
		handled := 0
		for late := start >= deadline; handled < len(a.wishes) && a.callouts.asking < maxAsking && !late; late = a.link.late(handled, deadline) {
			if t := a.wishes[handled]; !t.wanted() {
				a.unwish(t)
				a.waits.recycle(t)
			} else if !a.takeAlong(t, start+a.link.offset) {
				a.ask()
				continue
			}
			handled++
		}
		rest := copy(a.wishes, a.wishes[handled:])
		clear(a.wishes[rest:])
		a.wishes = a.wishes[:rest]
	}
	if len(a.wishes) == 0 {
		a.ask()
	}
	a.ticks.hurry(a.ticks.hurried || len(a.wishes)+len(a.waits.released) > 0)
}

// takeAlong has the open batch take a wish along. It reports false if that has no room for it.
func (a *asks) takeAlong(t *take, now int64) bool {
	b := a.openBatch
	if b == nil {
		b = a.callouts.newBatch()
		a.openBatch = b
	}
	for a.pushes.hasty && len(a.keys.orphans) > 0 && b.fits(t) {
		a.pushes.addOrphan(b) // a request may ask again for what it gives back
	}
	if len(b.takes) > 0 && !b.fits(t) {
		return false
	}
	a.claimAlong(b, t, now)
	a.addTake(b, t, now)
	a.unwish(t)
	return true
}

// claimAlong adds what a wish's key has pending to its batch, so that the backend decides with it,
// and no push of its own is needed.
func (a *asks) claimAlong(b *batch, t *take, now int64) {
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

// ask sends the open batch, if there is one.
func (a *asks) ask() {
	if b := a.openBatch; b != nil {
		a.openBatch = nil
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
		for _, t := range b.takes {
			a.waits.release(t)
		}
	}
}

// dropWishes drops all wishes, as the backend can't be asked, or nobody wants them any more.
func (a *asks) dropWishes() {
	if a.keys.local {
		return
	}
	a.putOff()
	clear(a.wished[:])
	for _, t := range a.wishes {
		a.waits.release(t)
	}
	clear(a.wishes)
	a.wishes = a.wishes[:0]
}

// newLease makes a take of hits for the entry of a demand's key.
func (a *asks) newLease(d *Demand, least, most uint64) *take {
	t := a.waits.newTake(least, most)
	t.lease = true
	part := a.keys.named(d)
	part.Cost = 1
	t.parts = append(t.parts, part)
	return t
}

// addTake adds a wish to a batch.
func (a *asks) addTake(b *batch, t *take, now int64) {
	a.rooms = a.rooms[:0]
	for i := range t.parts {
		part := &t.parts[i]
		for j := range part.Rule.Limits {
			l := &part.Rule.Limits[j]
			room := wire.Room{
				LimitCounter: counterOf(part.id, l, l.WidthAt(now)), Limit: l.Max, Burst: l.Burst, Cost: part.Cost,
				CountRejected: !t.lease && part.Rule.CountRejected,
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
	b.takes = append(b.takes, t)
}
