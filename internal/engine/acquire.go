package engine

import (
	"slices"

	"weir/internal/engine/claim"
	"weir/internal/engine/entry"
	"weir/internal/engine/feed"
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

const (
	// maxAsking bounds the callouts that requests wait for. Further asks join the next callout.
	maxAsking = 4
	// maxCollected bounds the asks that are collected for one callout.
	maxCollected = 256
	// maxUnsent bounds the asks made before a lease is used up: if there are more keys, some
	// requests wait.
	maxUnsent = 4096
	// leastUnsent is how many unsent asks may gather before those without requests are dropped.
	leastUnsent = 64
	// askNanos is how long sending asks may take in a tick after pushes have used up their time, so
	// that requests do not wait for pushes.
	askNanos = tickNanos / 2
)

// acquires are questions for hits that only the backend can allow.
type acquires struct {
	link    *link.Link
	entries *entry.Entries
	waits   *waits
	outbox  *outbox
	claims  *claim.Claims

	unsent    []*ask // not yet in a callout
	collect   int64  // [Options.Collect]
	sentAt    int64  // when a callout last took some, by the host's clock
	quick     bool   // the last answer came about as soon as collecting ends, so the next sends what is collected
	crowd     int    // number of asks at which unwanted asks are dropped
	openBatch *batch // being filled with asks
	rooms     []wire.Room
}

// prefetch asks for more hits before the lease is used up.
func (a *acquires) prefetch(d *rule.Check) {
	if len(a.unsent) < maxUnsent && a.link.Reach() != link.Away {
		a.leaseAhead(d)
	}
}

// askBehind asks whether a full key has room again, for requests to come. It reports whether it
// could. While the breaker is open, it could not: the configuration says how to decide such requests.
func (a *acquires) askBehind(d *rule.Check) bool {
	if len(a.unsent) >= maxUnsent || a.link.Reach() != link.Near {
		return false
	}
	t := a.waits.leases.find(d, false, 1)
	if t == nil {
		t = a.newLease(d, 1, d.Counter.Asks(1), false, 1)
	}
	return t != nil && !a.lost(t)
}

// together asks for the hits of the checks that of selects, for all of them or none, for a waiting request.
func (a *acquires) together(checks []rule.Check, of func(*rule.Check) bool, w turn) {
	t := a.waits.newAsk(1, 1)
	t.turns = append(t.turns, w)
	for i := range checks {
		if d := &checks[i]; of(d) {
			t.parts = append(t.parts, a.entries.Save(d))
		}
	}
	a.add(t)
}

// lease asks for the hits of a waiting request, and for more ahead of others. If the backend had not all
// of them because hits for requests to come are on their way here, the request waits for these. asked is
// false then.
func (a *acquires) lease(d *rule.Check, w turn) (asked bool) {
	if d.Cost == 0 {
		a.look(d, w)
		return true
	}
	if t := a.waits.leases.underWay(d); t != nil && w.wait.rounds > 0 && w.wait.joins < maxJoins {
		t.relies = max(t.relies, d.Cost)
		t.join(w)
		return false
	}
	t := a.waits.leases.find(d, false, 1)
	if t != nil {
		d.ID = t.parts[0].ID
	}
	lacks := d.Counter.Lacks(d.Cost)
	switch {
	case t == nil:
		t = a.newLease(d, lacks, d.Counter.Asks(d.Cost), false, 1)
		a.leaseAhead(d)
	case !t.wanted():
		// all of its requests have left.
		t.turns, t.least, t.most, t.relies = t.turns[:0], lacks, d.Cost, 0
	default:
		// each waiting request needs its hits.
		t.least, t.most = min(t.least, lacks), min(t.most+d.Cost, window.MaxHits)
	}
	t.relies = max(t.relies, d.Cost-lacks)
	t.join(w)
	return true
}

// look asks for the totals of a key, for a request that takes nothing from it.
//
//go:noinline
func (a *acquires) look(d *rule.Check, w turn) {
	d.Heard = true
	t := a.waits.leases.find(d, false, 0)
	if t == nil {
		t = a.newLease(d, 1, 1, false, 0)
	}
	t.join(w)
}

// leaseAhead asks for a lease for requests to come, if the key is worth it.
func (a *acquires) leaseAhead(d *rule.Check) {
	most := d.Counter.Ahead(a.link.Now())
	if d.Listed {
		most = max(most, d.Counter.Stands())
	}
	if most > 0 && a.waits.leases.find(d, true, 1) == nil {
		a.newLease(d, 1, most, true, 1)
	}
}

// add keeps an ask until it can be sent. If that takes long, the requests of some asks leave. Such
// asks are dropped whenever the number of asks has doubled since the last time.
func (a *acquires) add(t *ask) {
	if len(a.unsent) >= max(a.crowd, leastUnsent) {
		a.unsent = slices.DeleteFunc(a.unsent, func(t *ask) bool {
			wanted := t.wanted()
			if !wanted {
				a.waits.recycle(t)
			}
			return !wanted
		})
		a.crowd = 2 * len(a.unsent)
	}
	a.unsent = append(a.unsent, t)
}

// sendAll sends the asks in callouts, within the limits on time and on open callouts. A callout
// that isn't full waits for the asks that there was no time for: only a few callouts may be open,
// so a small one would delay all other asks. It decides no request: the waits of those whose callout
// fails at once are over.
func (a *acquires) sendAll(deadline int64) {
	if len(a.unsent) > 0 {
		start := a.outbox.host.Now()
		if ago := start - a.sentAt; a.outbox.asking > 0 && a.openBatch == nil && 0 <= ago && ago < a.collect && len(a.unsent) < maxCollected {
			return // they wait for more: the answer to a callout sends them, or a tick
		}
		handled := 0
		for ended := start >= deadline; handled < len(a.unsent) && a.outbox.asking < maxAsking && !ended; ended = late(a.outbox.host, handled, deadline) {
			if t := a.unsent[handled]; !t.wanted() {
				a.waits.recycle(t)
			} else if !t.probes && a.lost(t) {
				a.waits.release(t)
			} else if !a.fill(t, a.link.ToBackend(start)) {
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
}

// fill adds an ask to the open batch. It returns false if the ask does not fit.
func (a *acquires) fill(t *ask, now int64) bool {
	b := a.openBatch
	if b == nil {
		b = a.outbox.newBatch(feed.None)
		a.openBatch = b
	}
	var key *rule.Ref
	if t.lease {
		key = &t.parts[0]
	}
	if !a.claims.Along(key, t.relies > 0, now, func() claim.Push {
		if !b.fits(t) {
			return nil
		}
		return b
	}) && len(b.asks) > 0 {
		return false
	}
	a.encode(b, t, now)
	t.sent = true
	return true
}

// send sends the open batch, if there is one.
func (a *acquires) send() {
	if b := a.openBatch; b != nil {
		a.openBatch = nil
		a.sentAt = a.outbox.host.Now()
		b.asking = true
		a.outbox.asking++
		a.outbox.post(b)
	}
}

// drop drops all asks, because the backend can't be reached or the node ends.
func (a *acquires) drop() {
	if a.waits.leases == nil {
		return // there is no backend
	}
	if b := a.openBatch; b != nil { // it stays, and no request waits for it
		a.openBatch = nil
		b.state, b.retryAt = failed, 0
		for _, t := range b.asks {
			a.waits.release(t)
		}
	}
	clear(a.waits.leases[:])
	for _, t := range a.unsent {
		a.waits.release(t)
	}
	clear(a.unsent)
	a.unsent = a.unsent[:0]
	a.outbox.acquit(^wire.PartitionSet(0)) // nothing is to tell any more
}

// newLease makes an ask for hits for the entry of a check's key, ahead of requests or for them; at a cost
// of 0 for totals only. It returns nil if the key's partition is away,
// for which no request waits.
func (a *acquires) newLease(d *rule.Check, least, most uint64, ahead bool, cost uint64) *ask {
	part := a.entries.Save(d)
	if a.outbox.away.Has(part.ID) {
		return nil
	}
	t := a.addLease(&part, least, most, cost)
	t.ahead = ahead
	return t
}

// addLease adds an ask for hits for the entry of a key.
func (a *acquires) addLease(part *rule.Ref, least, most, cost uint64) *ask {
	t := a.waits.newAsk(least, most)
	t.lease = true
	t.parts = append(t.parts, *part)
	t.parts[0].Cost = cost
	a.waits.leases.add(t)
	a.add(t)
	return t
}

// probe asks each of an ask's partitions for a key's totals, as an answer lacked the ask: that tells which of them is away.
//
//go:noinline
func (a *acquires) probe(t *ask) {
	for i, left := 0, t.partitions(); i < len(t.parts); i++ {
		if of := wire.PartitionOf(t.parts[i].ID); left&of != 0 {
			left &^= of
			a.addLease(&t.parts[i], 1, 1, 0).probes = true
		}
	}
}

// encode adds an ask to a batch.
func (a *acquires) encode(b *batch, t *ask, now int64) {
	a.rooms = a.rooms[:0]
	for i := range t.parts {
		part := &t.parts[i]
		for j := range part.Rule.Limits {
			l := &part.Rule.Limits[j]
			room := wire.Room{
				LimitCounter: rule.CounterOf(part.ID, l, l.WidthAt(now)), Limit: l.Max, Burst: l.Burst, Cost: part.Cost,
				CountRejected: !t.lease && part.Rule.CountRejected,
			}
			if b.head.Advance.Present {
				room.Tag = a.outbox.credit.Tag(part.Rule)
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

// lost reports whether the partition of any key of an ask is away.
func (a *acquires) lost(t *ask) bool { return a.outbox.away != 0 && a.outbox.away&t.partitions() != 0 }

// ask is a question for hits, for a key's entry or for one request.
type ask struct {
	parts []rule.Ref
	least uint64
	most  uint64
	// relies is how many hits of the lease its requests need besides.
	relies uint64
	// lease means that the hits go to the key's entry.
	lease bool
	// ahead means that they are for requests to come, and not for waiting requests.
	ahead bool
	// probes means that the answer is to tell whether the partition is there, and probed that one was to tell of each of
	// the ask's.
	probes, probed bool
	sent           bool // it is on its way, or answered in part
	next           *ask // in a list of leaseAsks
	turns          []turn
	// settled means that the answer was taken in, and granted that it gave hits. The counts are of
	// the waiting requests that go on. done means that the answer had this part and lacked
	// others.
	settled   bool
	done      bool
	granted   bool
	whole     bool // it gave all that was asked for
	grantedAt int64
	resumed   int
}

// pass lets those checks pass that the ask was granted for.
func (t *ask) pass(checks []rule.Check) {
	parts := t.parts // in the order of the checks
	for i := range checks {
		if d := &checks[i]; len(parts) > 0 && d.Address == parts[0].Address {
			d.Grant(t.grantedAt)
			parts = parts[1:]
		}
	}
}

// partitions are those of its keys.
func (t *ask) partitions() (of wire.PartitionSet) {
	for i := range t.parts {
		of |= wire.PartitionOf(t.parts[i].ID)
	}
	return of
}

func (t *ask) rooms() (n int) {
	for i := range t.parts {
		n += len(t.parts[i].Rule.Limits)
	}
	return n
}

// answerSize is the most bytes that the answer to an ask takes.
func (t *ask) answerSize() int {
	size := wire.GrantSize
	for i := range t.parts {
		limits := t.parts[i].Rule.Limits
		for j := range limits {
			size += wire.RoomSize(&limits[j])
		}
	}
	return size
}

// join makes a request, if there is one, wait for an ask. It reuses the places of requests that
// have left, so the places are at most twice the waiting requests.
//
//go:noinline
func (t *ask) join(w turn) {
	if w.wait == nil {
		return
	}
	if len(t.turns) == cap(t.turns) {
		kept := 0
		for _, other := range t.turns {
			if other.waits() {
				t.turns[kept] = other
				kept++
			}
		}
		if t.turns = t.turns[:kept]; 2*kept >= cap(t.turns) {
			t.turns = append(make([]turn, 0, 2*kept+1), t.turns...)
		}
	}
	w.wait.asked++
	t.turns = append(t.turns, w)
}

// wanted reports whether an unsent ask is still of use, that is, not all of its requests have left.
func (t *ask) wanted() bool {
	for _, w := range t.turns {
		if w.waits() {
			return true
		}
	}
	return len(t.turns) == 0
}

// needs is the total cost of the requests that wait for a lease.
//
//go:noinline
func (t *ask) needs() (hits uint64) {
	for _, w := range t.turns {
		for i := range w.wait.kept {
			if k := &w.wait.kept[i]; w.waits() && k.Address == t.parts[0].Address {
				hits = min(hits+k.Cost, window.MaxHits)
			}
		}
	}
	return hits
}

// leaseAsks finds asks for leases by the addresses of their keys, in short lists: there may be one
// for each waiting request. A Go map would make the module 15 KB larger, since the plugin has no
// other.
type leaseAsks [1024]*ask

// list returns the head of the list for an address.
func (w *leaseAsks) list(address sharedata.Address) **ask {
	return &w[address.Hash()%uint64(len(w))]
}

// find returns the ask for a check's key that is not sent yet, either ahead of requests or by them, and
// either for hits or, at a cost of 0, for totals; nil if there is none.
func (w *leaseAsks) find(d *rule.Check, ahead bool, cost uint64) *ask {
	for t := *w.list(d.Address); t != nil; t = t.next {
		if t.is(d, ahead, cost) && !t.sent {
			return t
		}
	}
	return nil
}

// underWay returns the ask for hits ahead of requests for a check's key that has no answer yet; nil if
// there is none.
func (w *leaseAsks) underWay(d *rule.Check) *ask {
	for t := *w.list(d.Address); t != nil; t = t.next {
		if t.is(d, true, 1) && t.sent && !t.settled {
			return t
		}
	}
	return nil
}

// needs is the total cost of the requests that wait for hits of a check's key.
func (w *leaseAsks) needs(d *rule.Check) (hits uint64) {
	for t := *w.list(d.Address); t != nil; t = t.next {
		if t.is(d, false, 1) && !t.settled {
			hits = min(hits+t.needs(), window.MaxHits)
		}
	}
	return hits
}

func (t *ask) is(d *rule.Check, ahead bool, cost uint64) bool {
	part := &t.parts[0]
	return part.Address == d.Address && part.Cost == cost && t.ahead == ahead && part.Rule.Is(d.Rule)
}

//go:noinline
func (w *leaseAsks) add(t *ask) {
	first := w.list(t.parts[0].Address)
	t.next, *first = *first, t
}

func (w *leaseAsks) remove(t *ask) {
	for at := w.list(t.parts[0].Address); *at != nil; at = &(*at).next {
		if *at == t {
			*at = t.next
			return
		}
	}
}
