// Package memory is a [store.Store] in the memory of one process, for a single backend whose
// counters may be lost when it ends.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// DefaultMaxCounters is the most counters of a store by default.
const DefaultMaxCounters = 1 << 20

// leastSenders is how many senders a store of few counters keeps: a thousand proxies of four workers
// may change their configuration four times in the time that none is forgotten.
const leastSenders = 1 << 14

// Options configure a store. The zero value is ready to use.
type Options struct {
	// MaxCounters is the most counters that are kept, DefaultMaxCounters if 0. If there are more,
	// the namespace that has most makes room: the rule that has the most there loses the counters
	// that use the least of their limits. The store keeps one sender for each 16 counters, but
	// leastSenders at least.
	MaxCounters int
	// Now is the store's clock, time.Now if nil.
	Now func() time.Time
	// Tracked has the store note what changes, for [Store.Changes].
	Tracked bool
	// Granter bounds what takes get, if it is not nil. Then no sender may advance hits: the store does
	// not know all hits of a key.
	Granter store.Granter
}

// Store is a [store.Store]. [New] makes one.
type Store struct {
	now func() time.Time

	mu       sync.Mutex
	counters *counters
	senders  *fair[*sender]
	grants   grants
	nodes    *nodes
	// overrides are by namespace, told has the nodes' own words about them, and reports those of
	// senders about their keys.
	overrides map[string]overrides
	told      *fair[store.Told]
	reports   *fair[[]byte]
	accounts  accounts
	// changed are the records that have, nil if nobody asks.
	changed map[recordKey]struct{}
	fleets  map[string]*fleet // by namespace
	granter store.Granter
}

var _ store.Store = (*Store)(nil)

type counterKey struct {
	namespace string
	wire.LimitCounter
}

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxCounters == 0 {
		o.MaxCounters = DefaultMaxCounters
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		now:       o.Now,
		granter:   o.Granter,
		counters:  newCounters(max(1, o.MaxCounters)),
		senders:   newFair[*sender](max(leastSenders, o.MaxCounters/16)),
		nodes:     newNodes(maxNodes),
		overrides: map[string]overrides{},
		told:      newFair[store.Told](maxNodes),
		reports:   newFair[[]byte](maxReportBytes),
		accounts:  newAccounts(),
		fleets:    map[string]*fleet{},
		grants:    grants{max: max(leastGrantBytes, counterGrantBytes*o.MaxCounters)},
	}
	s.senders.spared = uint64(store.SenderLife)
	s.senders.forgotten = func(_ owned, of *sender) { s.grants.forgetSender(of) }
	if o.Tracked {
		s.track()
	}
	return s
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
	counters := &ledger{store: s, namespace: p.Namespace, calendar: calendar, out: &out, fleet: s.fleet(p, now)}
	if counters.fleet != nil {
		s.sweepFleet(p.Namespace, counters.fleet, now)
	}
	if !store.IsRead(p) {
		sender, err := s.sender(p, calendar)
		if err != nil {
			return store.Outcome{}, err
		}
		if out.Duplicate = sender.note(p.Sequence, p.Floor, &s.grants); out.Duplicate {
			s.again(p, sender, counters)
		} else {
			s.apply(ctx, p, sender, nodes, counters)
		}
		noteChange(s, senderKey{p.Namespace, p.Sender})
	} else if counters.fleet != nil && p.Advance.Told {
		counters.fleet.hear(p)
	}
	if p.Advance.Told && counters.fleet != nil {
		out.Answer.Near = counters.fleet.tell(p, now)
	}
	for i := range p.Items {
		out.Answer.Totals[i] = counters.Total(&p.Items[i])
	}
	return out, nil
}

// sender is the record of a push's sender.
func (s *Store) sender(p *wire.Push, calendar store.Calendar) (*sender, error) {
	row := s.senders.put(owned{p.Namespace, p.Sender}, calendar.NowNanos, calendar.NotedUntil(p), 1)
	if row == nil {
		return nil, fmt.Errorf("%w: %d are kept, and namespace %s has most of them", store.ErrFull, s.senders.most, p.Namespace)
	}
	if row.value.of == nil {
		row.value.of = &sender{namespace: p.Namespace, id: p.Sender}
	}
	return row.value.of, nil
}

// parts is the most counters that a push can add.
func parts(p *wire.Push) int {
	n := len(p.Items)
	for i := range p.Takes {
		n += len(p.Takes[i].Rooms)
	}
	return n
}

// apply applies a push, and remembers what its takes are granted.
func (s *Store) apply(ctx context.Context, p *wire.Push, sender *sender, nodes uint64, counters *ledger) {
	for i := range p.Items {
		counters.Add(&p.Items[i])
	}
	if counters.fleet != nil && p.Advance.Told {
		counters.fleet.hear(p)
	}
	if len(p.Takes) == 0 {
		return
	}
	granted := &pushGrants{sender: sender, sequence: p.Sequence, at: counters.calendar.NowNanos}
	for i := range p.Takes {
		counters.take, counters.room = &p.Takes[i], 0
		most := p.Takes[i].Most
		if s.granter != nil {
			most = s.granter.Most(ctx, counters.calendar, p.Namespace, &p.Takes[i], counters.contents)
		}
		g := counters.calendar.DecideUpTo(counters.takeFor(&p.Takes[i]), most, nodes, counters)
		if counters.fleet != nil && g.Units == 0 {
			counters.refuse(&p.Takes[i], &g)
		}
		counters.out.Answer.Grants = append(counters.out.Answer.Grants, g)
		granted.add(g.Units)
	}
	s.grants.keep(granted)
	noteChange(s, granted.key())
}

// again answers the takes of a push that is known with what they were granted then, or with nothing
// if that is forgotten.
func (s *Store) again(p *wire.Push, sender *sender, counters *ledger) {
	granted := sender.grants.of(p.Sequence)
	if granted == nil {
		granted = &pushGrants{at: counters.calendar.NowNanos}
	}
	granted.each(len(p.Takes), func(i int, units uint64) {
		g := counters.calendar.Again(&p.Takes[i], units, granted.at, counters)
		counters.out.Answer.Grants = append(counters.out.Answer.Grants, g)
	})
}

// ledger is the store's counters of a namespace at a time. The store is locked.
type ledger struct {
	store     *Store
	namespace string
	calendar  store.Calendar
	out       *store.Outcome
	// take is the take that is being decided, if any, and room the next of its rooms to add hits.
	take *wire.Take
	room int
	// fleet is the namespace's; nil if it has none.
	fleet *fleet
}

// Total implements [store.Ledger].
func (l *ledger) Total(item *wire.Item) wire.Total {
	contents := l.contents(item.LimitCounter)
	if l.store.granter != nil {
		contents = l.store.granter.Whole(l.calendar, l.namespace, item, contents)
	}
	return l.calendar.Total(contents, item)
}

// contents are those of a counter, which are empty if there is none. They are not to be changed.
func (l *ledger) contents(of wire.LimitCounter) *store.Contents {
	if e := l.store.counters.rows[counterKey{l.namespace, of}]; e != nil {
		return &e.value.Contents
	}
	return &store.Contents{}
}

// Look calls look with the store's time and a function that reads the counters of a namespace,
// while nothing changes. look must neither keep nor modify these counters.
func (s *Store) Look(namespace string, look func(c store.Calendar, contents func(wire.LimitCounter) *store.Contents)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &ledger{store: s, namespace: namespace}
	look(store.Calendar{NowNanos: uint64(s.now().UnixNano())}, l.contents)
}

// Namespaces returns the namespaces that have counters, in no order.
func (s *Store) Namespaces() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.counters.shares.All() {
		names = append(names, name)
	}
	return names
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
	if !changed {
		return
	}
	if e == nil {
		e = l.store.counters.insert(key, l.calendar.NowNanos, expires)
		e.value.Contents = *contents
	} else {
		l.store.counters.prolong(e, expires)
	}
	used := l.calendar.Used(contents, item.LimitCounter)
	l.store.counters.place(e, used, l.quota(item, e.value.quota))
	if l.fleet != nil {
		l.fleet.see(item.LimitCounter, used, l.calendar.NowNanos)
	}
	noteChange(l.store, key)
}

// quota is how many hits fit the limit of an item at once, as far as that is known.
func (l *ledger) quota(item *wire.Item, known uint64) uint64 {
	bursts := window.Kind(item.Kind).Bursts()
	// Rooms add their hits in their order.
	for ; l.take != nil && l.room < len(l.take.Rooms); l.room++ {
		if room := &l.take.Rooms[l.room]; room.LimitCounter == item.LimitCounter {
			if bursts {
				return room.Burst
			}
			return room.Limit
		}
	}
	// Items have no burst, which is the limit as a rule; and not all have a limit.
	if item.Limit == 0 || bursts && known != 0 {
		return known
	}
	return item.Limit
}

// Join implements [store.Store].
func (s *Store) Join(ctx context.Context, namespace string, node uint64) (nodes uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := owned{namespace, node}
	noteChange(s, nodeKey(key))
	return s.nodes.join(key, uint64(s.now().UnixNano())), nil
}

// Nodes implements [store.Store].
func (s *Store) Nodes(ctx context.Context, namespace string, node uint64) (nodes uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes.count(owned{namespace, node}, uint64(s.now().UnixNano())), nil
}

// Ping implements [store.Store]. It always succeeds, since nothing can refuse a hit.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }

// Size is how much a store holds.
type Size struct {
	// Counters and Senders are in memory, those not yet swept included.
	Counters, Senders int
	// CountersEvicted and SendersEvicted made room for others before they expired. SendersRefused
	// are pushes that were not taken, as none of their namespace could make room.
	CountersEvicted, SendersEvicted, SendersRefused uint64
	// GrantBytes are about what the memory of the senders' grants takes.
	GrantBytes int
	// GrantsDropped are pushes whose grants made room for those of others. A sender that still has
	// no answer to such a push gets nothing.
	GrantsDropped uint64
}

// Size returns how much the store holds.
func (s *Store) Size() Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Size{
		Counters: len(s.counters.queue), CountersEvicted: s.counters.evicted,
		Senders: len(s.senders.queue), SendersEvicted: s.senders.evicted, SendersRefused: s.senders.refused,
		GrantBytes: s.grants.bytes, GrantsDropped: s.grants.dropped,
	}
}
