package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/counter"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// Store is where processes bring their counts together: weir serve, by [Dial], or a database, by Open of package stores. Its methods
// are the library's.
type Store interface {
	// Push applies a push once, however often it is called with it, and answers with the totals of its windows.
	Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error)
	// Counters visits the counters of a namespace.
	Counters(ctx context.Context, namespace string, widths []uint64, visit func(store.Counter) error) error
}

// place is where a counter is in the table.
type place struct {
	address sharedata.Address
	rule    *rule
}

// batch is a push with what its answer is for. Once it was sent it stays as it is until it is answered.
type batch struct {
	push *wire.Push
	keys []pushedKey
	// answers is how many bytes its answer takes at most on the wire, which a store holds it to.
	answers int
	// ends is the time from which none of its windows counts any more.
	ends int64
}

// pushedKey is a key whose limits have items from first on.
type pushedKey struct {
	place
	first int
	claim counter.Due
}

// orphan is what a counter that had to make room has for the store.
type orphan struct {
	item wire.Item
	ends int64 // when nobody wants it any more
}

// Sync pushes the hits that were counted since the last time, and adopts the store's totals for all counters that this process
// holds. Hits counted while it runs may have to wait for the next time. One Sync runs at a time; others wait.
//
// After an error nothing is lost: hits go on to count here, and the next Sync first repeats the push that has no answer, so that
// it counts once whether or not it had arrived. Without a store, Sync does nothing.
func (n *Namespace) Sync(ctx context.Context) error {
	if n.store == nil {
		return nil
	}
	n.syncing.Lock()
	defer n.syncing.Unlock()
	if err := n.sync(ctx); err != nil {
		return fmt.Errorf("ratelimit: namespace %q: sync: %w", n.name, err)
	}
	return nil
}

func (n *Namespace) sync(ctx context.Context) error {
	if err := n.send(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	known, orphans := n.known, n.orphans
	n.known, n.orphans = make(map[wire.ID]place, len(known)), nil
	n.mu.Unlock()
	defer func() {
		for id, p := range known {
			n.remember(id, p)
		}
		n.keep(orphans)
	}()

	now := n.now().UnixNano()
	n.forgetFetched(now)
	for len(orphans) > 0 {
		if err := n.room(ctx, 1); err != nil {
			return err
		}
		last := len(orphans) - 1
		n.batch.add(orphans[last].item, orphans[last].ends)
		orphans = orphans[:last]
	}
	h := n.hand(nil)
	defer n.hands.Put(h)
	for id, p := range known {
		if err := n.room(ctx, len(p.rule.counter.Limits)); err != nil {
			return err
		}
		delete(known, id)
		if n.claim(h, p, now) {
			n.remember(id, p)
		}
	}
	return n.send(ctx)
}

// room makes room for more items in the batch.
func (n *Namespace) room(ctx context.Context, items int) error {
	if n.batch.push != nil && (len(n.batch.push.Items)+items > wire.MaxItems || n.batch.answers > wire.MaxAnswer/2) {
		if err := n.send(ctx); err != nil {
			return err
		}
	}
	if n.batch.push == nil {
		n.sequence++
		// The batch before was answered, or will never be sent again: this is the lowest without an answer.
		n.batch.push = &wire.Push{Namespace: n.name, Sender: n.sender, Sequence: n.sequence, Floor: n.sequence}
	}
	return nil
}

func (b *batch) add(item wire.Item, ends int64) {
	b.push.Items = append(b.push.Items, item)
	b.answers += item.AnswerSize()
	b.ends = max(b.ends, ends)
}

// claim adds a key to the batch: its pending hits, which move in flight, or the question for its totals. It tells whether there
// is more to synchronise of the key later.
func (n *Namespace) claim(h *hand, p place, now int64) (again bool) {
	h.rule, h.address = p.rule, p.address
	for {
		if !n.fetch(h) {
			return false // it made room, and its hits were rescued
		}
		if h.cell.Pending() {
			if !h.cell.Claim(now) {
				return true // a batch that was given up has left hits in flight; they land after a while
			}
			if !n.write(h, now) {
				continue
			}
			break
		}
		if h.cell.Advance(now); h.cell.ForgetAt() <= now {
			return false
		}
		break // the answer also lands what a batch that was given up has left in flight
	}
	key := pushedKey{place: p, first: len(n.batch.push.Items), claim: h.cell.Sync().Claimed}
	n.batch.keys = append(n.batch.keys, key)
	for i := range h.cell.States {
		var push window.Push
		h.cell.Outgoing(i, &push)
		n.batch.add(newItem(h.cell.Sync().ID, &p.rule.counter.Limits[i], &push), h.cell.PushEnds(i))
	}
	return true
}

// newItem is a push of a limit on the wire. It takes the push's memory.
func newItem(id wire.ID, l *window.Limit, push *window.Push) wire.Item {
	return wire.Item{Counter: counterOf(id, l), Limit: l.Max, Newest: push.Newest, Hits: push.Hits, Ages: push.Ages}
}

func counterOf(id wire.ID, l *window.Limit) wire.Counter {
	return wire.Counter{
		ID: id, Kind: uint8(l.Kind), Ordinal: l.Ordinal, WidthMillis: uint64(l.Width / window.MinWidth), Precision: uint64(l.Precision),
	}
}

// send sends the batch, if there is one, and takes in its answer. A batch that gets none is kept for the next time.
func (n *Namespace) send(ctx context.Context) error {
	b := &n.batch
	if b.push == nil || len(b.push.Items) == 0 {
		return nil
	}
	outcome, err := n.store.Push(ctx, b.push, 1)
	if totals := len(outcome.Answer.Totals); err == nil && totals != len(b.push.Items) {
		err = fmt.Errorf("want an answer of %d totals, got %d", len(b.push.Items), totals)
	}
	switch {
	case err == nil:
		n.settle(b, &outcome.Answer)
	case errors.Is(err, store.ErrInvalid):
		// It never will be valid. That takes a store that disagrees about the format.
		for i := range b.push.Items {
			n.lose(&b.push.Items[i])
		}
	case n.now().UnixNano() < b.ends:
		return err
	}
	n.batch = batch{}
	return err
}

// settle takes the totals of an answer into the table.
func (n *Namespace) settle(b *batch, answer *wire.Answer) {
	h := n.hand(nil)
	defer n.hands.Put(h)
	for _, key := range b.keys {
		h.rule, h.address = key.rule, key.address
		n.amend(h, func() {
			for i := range h.cell.States {
				t := &answer.Totals[key.first+i]
				h.cell.Settle(i, key.claim, int64(answer.NowNanos), &window.Totals{Newest: t.Newest, Hits: t.Hits, Ages: t.Ages})
			}
			h.cell.Heard(int64(answer.NowNanos))
		})
	}
}

// amend changes a cell that is in the table, and tells whether it is.
func (n *Namespace) amend(h *hand, change func()) (found bool) {
	for n.fetch(h) {
		now := n.now().UnixNano()
		h.cell.Advance(now)
		change()
		if n.write(h, now) {
			return true
		}
	}
	return false
}

// remember has a counter synchronised from now on.
func (n *Namespace) remember(id wire.ID, p place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Where there is no place, a later hit remembers.
	if len(n.known) < knownPerCounter*n.capacity {
		n.known[id] = p
	}
	if n.fetched != nil {
		delete(n.fetched, id)
		n.waiting.Store(int64(len(n.fetched)))
	}
}

// rescue keeps what a counter that had to make room has for the store.
func (n *Namespace) rescue(payload []byte) {
	counter.Orphans(payload, func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		o := orphan{item: newItem(id, l, push), ends: ends}
		o.item.Hits, o.item.Ages = slices.Clone(push.Hits), slices.Clone(push.Ages)
		n.keep([]orphan{o})
		n.mu.Lock()
		p, known := n.known[id]
		delete(n.known, id)
		n.mu.Unlock()
		if !known {
			return
		}
		h := n.hand(p.rule)
		defer n.hands.Put(h)
		if h.address = p.address; n.fetch(h) {
			n.remember(id, p) // it has come back already
		}
	})
}

// keep keeps orphans for the next batch, as many as counters are kept.
func (n *Namespace) keep(orphans []orphan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	room := min(len(orphans), max(0, n.capacity-len(n.orphans)))
	n.orphans = append(n.orphans, orphans[:room]...)
	for i := range orphans[room:] {
		n.lose(&orphans[room+i].item)
	}
}

func (n *Namespace) lose(item *wire.Item) {
	for _, hits := range item.Hits {
		n.lost.Add(uint64(max(hits, 0)))
	}
}

// Lost is how many hits will never reach the store: those of counters that had to make room between two calls of Sync, beyond
// a number of such counters equal to the capacity, and those of pushes that the store has called invalid.
func (n *Namespace) Lost() uint64 { return n.lost.Load() }

// fetched is what the store has of a counter whose key was not seen here yet.
type fetched struct {
	wire.Counter
	windows []store.Window
	limit   uint64 // the last taker's, of a token bucket
}

// Fetch loads the namespace's counters from the store, so that a process that has just started knows what the others have
// counted. Of counters whose keys it has yet to see, as many as its capacity wait for them; for the others, the first Sync after
// their first hit asks. After an error all is as before, but for counters that are in use here. Without a store, Fetch does
// nothing.
func (n *Namespace) Fetch(ctx context.Context) error {
	if n.store == nil {
		return nil
	}
	n.syncing.Lock()
	defer n.syncing.Unlock()
	waiting := map[wire.ID][]fetched{}
	h := n.hand(nil)
	defer n.hands.Put(h)
	err := n.store.Counters(ctx, n.name, nil, func(c store.Counter) error {
		if !n.counts(c.Counter) || n.update(h, &c) {
			return nil
		}
		if _, ok := waiting[c.ID]; ok || len(waiting) < n.capacity {
			waiting[c.ID] = append(waiting[c.ID], fetched{Counter: c.Counter, windows: slices.Clone(c.Windows), limit: c.Limit})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ratelimit: namespace %q: fetch: %w", n.name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fetched = waiting
	n.waiting.Store(int64(len(waiting)))
	return nil
}

// counts tells whether a rule of the namespace counts by that kind and width.
func (n *Namespace) counts(c wire.Counter) bool {
	return slices.ContainsFunc(n.rules, func(r *rule) bool { return r.find(c) >= 0 })
}

// find is the place of the rule's limit that a counter is of; -1 if there is none.
func (r *rule) find(c wire.Counter) int {
	return slices.IndexFunc(r.counter.Limits, func(l window.Limit) bool { return counterOf(c.ID, &l) == c })
}

// update takes a counter of the store in where it is in use, and tells whether it is.
func (n *Namespace) update(h *hand, c *store.Counter) bool {
	n.mu.Lock()
	p, ok := n.known[c.ID]
	n.mu.Unlock()
	if !ok {
		return false
	}
	h.rule, h.address = p.rule, p.address
	return n.amend(h, func() { h.join(c.Counter, c.Windows) })
}

// welcome gives a key that is seen for the first time what the store had of it.
func (n *Namespace) welcome(h *hand) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.fetched[counter.Identity(h.key)] {
		h.join(f.Counter, f.windows)
	}
}

// join takes the store's windows into the hand's cell. Those of hits in flight are left: nobody knows whether the store has them.
func (h *hand) join(c wire.Counter, windows []store.Window) {
	i := h.rule.find(c)
	if i < 0 || h.cell.States[i].InFlight() {
		return
	}
	l, s := &h.rule.counter.Limits[i], &h.cell.States[i]
	totals := window.Totals{Newest: l.Number(s), Hits: make([]uint64, 2)}
	if l.Kind == window.SlidingBuckets {
		totals.Hits = totals.Hits[:0]
		slices.SortFunc(windows, func(a, b store.Window) int { return cmp.Compare(b.Number, a.Number) })
		if len(windows) > 0 {
			totals.Newest = windows[0].Number
		}
	}
	for _, w := range windows {
		hits := uint64(max(0, w.Hits))
		switch l.Kind {
		case window.FirstHitWindow, window.TokenBucket:
			totals.Newest, totals.Hits[0] = w.Number, hits
		case window.SlidingBuckets:
			totals.Hits = append(totals.Hits, hits)
			totals.Ages = append(totals.Ages, totals.Newest-w.Number)
		default:
			if age := totals.Newest - w.Number; age < uint64(len(totals.Hits)) {
				totals.Hits[age] = hits
			}
		}
	}
	l.Settle(s, false, false, &totals)
}

// forgetFetched forgets counters whose windows have ended before their key was seen.
func (n *Namespace) forgetFetched(now int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, counters := range n.fetched {
		if !slices.ContainsFunc(counters, func(f fetched) bool {
			return slices.ContainsFunc(f.windows, func(w store.Window) bool {
				if window.Kind(f.Kind) == window.TokenBucket {
					return int64(store.TokensExpireNanos(f.Counter, f.limit, w)) > now
				}
				return int64(store.ExpiresNanos(f.Counter, w.Number)) > now
			})
		}) {
			delete(n.fetched, id)
		}
	}
	n.waiting.Store(int64(len(n.fetched)))
}

// Run synchronises every [NamespaceOptions.SyncRate] until ctx is done, and returns its error. Hits counted since the last round
// are not pushed then; a last [Namespace.Sync] with another context does that.
func (n *Namespace) Run(ctx context.Context) error {
	ticker := time.NewTicker(n.syncRate)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if err := n.Sync(ctx); err != nil && ctx.Err() == nil && n.onSyncError != nil {
				n.onSyncError(err)
			}
		}
	}
}
