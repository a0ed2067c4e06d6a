// Package memory is a [store.Store] in the memory of one process. It is for a single backend whose
// counters need not outlive it.
package memory

import (
	"context"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
)

// DefaultMaxCounters is how many counters a store keeps unless it is told otherwise.
const DefaultMaxCounters = 1 << 20

// Options has what a store can be told. The zero value is good.
type Options struct {
	// MaxCounters is the most counters that are kept, DefaultMaxCounters if 0. If there are more,
	// those that expire soonest make room. The store keeps a sixteenth as many senders, but 1,024 at least.
	MaxCounters int
	// Now is the store's clock, time.Now if nil.
	Now func() time.Time
}

// Store is a [store.Store]. Use [New] to make one.
type Store struct {
	now func() time.Time

	mu       sync.Mutex
	counters *counters
	senders  *table[senderKey, sender]
	nodes    *nodes
}

var _ store.Store = (*Store)(nil)

type counterKey struct {
	namespace string
	wire.LimitCounter
}

type senderKey struct {
	namespace string
	id        uint64
}

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxCounters == 0 {
		o.MaxCounters = DefaultMaxCounters
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		now:      o.Now,
		counters: newCounters(max(1, o.MaxCounters)),
		senders:  newTable[senderKey, sender](max(1024, o.MaxCounters/16)),
		nodes:    newNodes(maxNodes),
	}
}

// Push implements [store.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if err := store.Check(p); err != nil {
		return store.Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Outcome{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(s.now().UnixNano())
	calendar := store.Calendar{NowNanos: now}
	// More than a push can add, so that what has expired does not pile up.
	s.counters.sweep(now, 2*parts(p)+8)
	s.senders.sweep(now, 2)

	out := store.Outcome{Answer: wire.Answer{NowNanos: now, Nodes: nodes, Totals: make([]wire.Total, len(p.Items))}}
	counters := &ledger{store: s, namespace: p.Namespace, calendar: calendar, out: &out}
	if !store.IsRead(p) {
		grants, known := s.note(p, calendar)
		if out.Duplicate = known; known {
			// What was granted then, or nothing if that is forgotten.
			for i := range p.Takes {
				g := granted{at: now}
				if i < len(*grants) {
					g = (*grants)[i]
				}
				out.Answer.Grants = append(out.Answer.Grants, calendar.Again(&p.Takes[i], g.units, g.at, counters))
			}
		} else {
			for i := range p.Items {
				counters.Add(&p.Items[i])
			}
			for i := range p.Takes {
				g := calendar.Decide(&p.Takes[i], nodes, counters)
				out.Answer.Grants = append(out.Answer.Grants, g)
				*grants = append(*grants, granted{units: g.Units, at: g.AtNanos})
			}
		}
	}
	for i := range p.Items {
		out.Answer.Totals[i] = counters.Total(&p.Items[i])
	}
	return out, nil
}

// parts is the most counters that a push can add.
func parts(p *wire.Push) int {
	n := len(p.Items)
	for i := range p.Takes {
		n += len(p.Takes[i].Rooms)
	}
	return n
}

// note notes a push, and returns where its grants are kept. known reports whether it was applied
// before, or is below its sender's floor.
func (s *Store) note(p *wire.Push, calendar store.Calendar) (grants *[]granted, known bool) {
	expires := calendar.NotedUntil(p)
	return s.senders.add(senderKey{p.Namespace, p.Sender}, calendar.NowNanos, expires).value.note(p.Sequence, p.Floor, len(p.Takes) > 0)
}

// ledger is the store's counters of a namespace at a time. The store is locked.
type ledger struct {
	store     *Store
	namespace string
	calendar  store.Calendar
	out       *store.Outcome
}

// Total implements [store.Ledger].
func (l *ledger) Total(item *wire.Item) wire.Total {
	contents := &store.Contents{}
	if e := l.store.counters.rows[counterKey{l.namespace, item.LimitCounter}]; e != nil {
		contents = &e.value.Contents
	}
	return l.calendar.Total(contents, item)
}

// Add implements [store.Ledger].
func (l *ledger) Add(item *wire.Item) {
	key := counterKey{l.namespace, item.LimitCounter}
	contents := &store.Contents{}
	e := l.store.counters.rows[key]
	if e != nil {
		contents = &e.value.Contents
	}
	expires, changed := l.calendar.Add(contents, item, l.out)
	if changed {
		l.store.counters.add(key, l.calendar.NowNanos, expires).value.Contents = *contents
	}
}

// Join implements [store.Store].
func (s *Store) Join(ctx context.Context, namespace string, node uint64) (nodes uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.join(nodeKey{namespace, node}, uint64(s.now().UnixNano())), nil
}

// Ping implements [store.Store]. There is nothing that could be out of reach.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }

// Size is how much a store keeps.
type Size struct {
	// Counters and Senders are in memory, those not yet swept included.
	Counters, Senders int
	// CountersEvicted and SendersEvicted made room for others before they expired.
	CountersEvicted, SendersEvicted uint64
}

// Size says how much the store keeps.
func (s *Store) Size() Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Size{len(s.counters.queue), len(s.senders.queue), s.counters.evicted, s.senders.evicted}
}
