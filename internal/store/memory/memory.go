// Package memory is a [store.Store] in the memory of a process. It is for a single backend whose
// counters may be lost when it ends.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// DefaultMaxCounters is the default of [Options.MaxCounters].
const DefaultMaxCounters = 1 << 20

// leastSenders is the bound of senders in a small store. In store.SenderLife, a thousand proxies
// with four workers can change their configuration four times before a sender is forgotten.
const leastSenders = 1 << 14

// senderBytes estimates the memory of a sender's record.
const senderBytes = 512

// Options configure a store. The zero value is ready to use.
type Options struct {
	// MaxCounters is the most counters that are kept; 0 means DefaultMaxCounters. In a full store
	// the namespace with the most counters makes room: its rule with the most counters loses those
	// that use the least of their limits. The store keeps one sender per 16 counters, but at least
	// leastSenders.
	MaxCounters int
	// MaxMemory bounds the memory that the store takes, in bytes; 0 means no bound. A quarter is for
	// records beside counters. Counters make room as in a store with MaxCounters, but those of the
	// namespace and of its rule that take the most memory.
	MaxMemory int
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
	// Random gives random numbers; nil means rand.Uint64.
	Random func() uint64
	// Tracked makes the store record changes for [Store.Changes].
	Tracked bool
	// Granter, unless nil, bounds the hits of takes. Then no sender may advance hits, because the
	// store does not know all hits of a key.
	Granter store.Granter
}

// Store is a [store.Store]. [New] makes one. It is safe for concurrent use.
type Store struct {
	now    func() time.Time
	random func() uint64

	mu       sync.Mutex
	counters *counters
	senders  *fair[*sender]
	grants   grants
	// overrides are by namespace, and notes by topic.
	overrides map[string]overrides
	notes     [store.Topics]*notes
	accounts  accounts
	// changed has the records that have changed; nil unless Options.Tracked is set.
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
	if o.Random == nil {
		o.Random = rand.Uint64
	}
	senders, grantBytes := max(leastSenders, o.MaxCounters/16), max(leastGrantBytes, counterGrantBytes*o.MaxCounters)
	if o.MaxMemory > 0 {
		senders, grantBytes = min(senders, o.MaxMemory/8/senderBytes), min(grantBytes, o.MaxMemory/8)
	}
	s := &Store{
		now:       o.Now,
		random:    o.Random,
		granter:   o.Granter,
		counters:  newCounters(max(1, o.MaxCounters)),
		senders:   newFair[*sender](max(1, senders)),
		overrides: map[string]overrides{},
		notes:     newNotes(),
		accounts:  newAccounts(),
		fleets:    map[string]*fleet{},
		grants:    grants{max: grantBytes},
	}
	s.counters.mostBytes = o.MaxMemory * 3 / 4
	s.senders.spared = uint64(store.SenderLife)
	s.senders.forgotten = func(_ owned, of *sender) { s.grants.forgetSender(of) }
	if o.Tracked {
		s.track()
	}
	return s
}

// Push implements [store.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push, nodes uint64) (store.Outcome, error) {
	if err := cmp.Or(store.Check(p), ctx.Err()); err != nil {
		return store.Outcome{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(s.now().UnixNano())
	calendar := store.Calendar{NowNanos: now}
	// Remove more rows than a push can add, so that expired rows do not pile up.
	s.counters.sweep(now, 2*parts(p)+8)
	s.senders.sweep(now, 2)

	out := store.Outcome{Answer: wire.Answer{NowNanos: now, Nodes: nodes, Totals: make([]wire.Total, len(p.Items))}}
	counters := &ledger{store: s, namespace: p.Namespace, calendar: calendar, out: &out, fleet: s.fleet(p, now)}
	if counters.fleet != nil {
		s.sweepFleet(p.Namespace, counters.fleet, calendar)
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
	} else if counters.fleet != nil && p.Advance.Present {
		counters.fleet.hear(p)
	}
	if p.Advance.Present && counters.fleet != nil {
		out.Answer.Near = counters.fleet.tell(p, now)
	}
	for i := range p.Items {
		out.Answer.Totals[i] = counters.Total(&p.Items[i])
	}
	return out, nil
}

// sender returns the record of a push's sender.
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

// parts bounds the counters that a push can add.
func parts(p *wire.Push) int {
	n := len(p.Items)
	for i := range p.Takes {
		n += len(p.Takes[i].Rooms)
	}
	return n
}

// apply applies a push, and remembers the grants of its takes.
func (s *Store) apply(ctx context.Context, p *wire.Push, sender *sender, nodes uint64, counters *ledger) {
	for i := range p.Items {
		if s.granter != nil {
			s.granter.Returns(ctx, counters.calendar, p.Namespace, &p.Items[i], counters.contents(p.Items[i].LimitCounter))
		}
		counters.Add(&p.Items[i])
	}
	if counters.fleet != nil && p.Advance.Present {
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
		counters.refuse(&p.Takes[i], &g)
		counters.out.Answer.Grants = append(counters.out.Answer.Grants, g)
		granted.add(g.Units)
	}
	s.grants.keep(granted)
	noteChange(s, granted.key())
}

// again answers the takes of a known push with their first grants, or with nothing if these are
// forgotten.
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

// ledger reads and adds the hits of a namespace for a push. The store must be locked.
type ledger struct {
	store     *Store
	namespace string
	calendar  store.Calendar
	out       *store.Outcome
	// take is the take being decided, if any, and room the next of its rooms to add hits.
	take *wire.Take
	room int
	// fleet belongs to the namespace; nil if there is none.
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

// contents returns the contents of a counter, or empty contents. The caller must not change them.
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
	l.store.counters.fit(e, l.calendar.NowNanos)
	if l.fleet != nil {
		l.fleet.see(item.LimitCounter, &e.value.Contents, used, l.calendar)
	}
	noteChange(l.store, key)
}

// quota returns how many hits fit the limit of an item at once; 0 if that is not known.
func (l *ledger) quota(item *wire.Item, known uint64) uint64 {
	bursts := window.Kind(item.Kind).Bursts()
	// A take adds the hits of its rooms in their order.
	for ; l.take != nil && l.room < len(l.take.Rooms); l.room++ {
		if room := &l.take.Rooms[l.room]; room.LimitCounter == item.LimitCounter {
			if bursts {
				return room.Burst
			}
			return room.Limit
		}
	}
	// An item has no burst, which usually equals the limit, and some items have no limit.
	if item.Limit == 0 || bursts && known != 0 {
		return known
	}
	return item.Limit
}

// Ping implements [store.Store]. It always succeeds, since nothing can refuse a hit.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }

// Size tells how much a store holds.
type Size struct {
	// CounterBytes estimates the memory of the counters.
	CounterBytes int
	// Counters and Senders include those that have expired but are not removed yet.
	Counters, Senders int
	// CountersEvicted and SendersEvicted made room for others before they expired. SendersRefused
	// counts the pushes of new senders that found no room.
	CountersEvicted, SendersEvicted, SendersRefused uint64
	// GrantBytes estimates the memory of the senders' grants.
	GrantBytes int
	// GrantsDropped counts the pushes whose grants made room for others. If such a push is sent
	// again, its takes get nothing.
	GrantsDropped uint64
}

// Size returns how much the store holds.
func (s *Store) Size() Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Size{
		Counters: len(s.counters.queue), CounterBytes: s.counters.bytes, CountersEvicted: s.counters.evicted,
		Senders: len(s.senders.queue), SendersEvicted: s.senders.evicted, SendersRefused: s.senders.refused,
		GrantBytes: s.grants.bytes, GrantsDropped: s.grants.dropped,
	}
}

// sender is a sender's record of applied pushes. Only sequences in [floor, floor+MaxAhead) matter,
// so the record's size is bounded for any pushes.
type sender struct {
	namespace string
	id        uint64
	floor     uint64
	// applied has a bit for each sequence, from the word of the floor on. Most senders have a few
	// unanswered pushes, and need one word.
	applied []uint64
	// grants has the remembered grants of its pushes.
	grants senderGrants
}

// note records a push, and reports whether it was known: applied before, or below the floor.
// store.Check has bounded the distance from its floor to its sequence.
func (s *sender) note(sequence, floor uint64, all *grants) (known bool) {
	if sequence < s.floor {
		return true
	}
	if floor > s.floor {
		for seq := s.floor; seq < min(floor, s.floor+store.MaxAhead); seq++ {
			all.forget(s.grants.of(seq))
		}
		passed := min(floor/64-s.floor/64, uint64(len(s.applied)))
		s.applied = s.applied[:copy(s.applied, s.applied[passed:])]
		s.floor = floor
	}
	word, bit := sequence/64-s.floor/64, uint64(1)<<(sequence%64)
	if word >= uint64(len(s.applied)) {
		// Allocate exactly the words needed.
		s.applied = append(make([]uint64, 0, word+1), s.applied...)[:word+1]
	}
	known = s.applied[word]&bit != 0
	s.applied[word] |= bit
	return known
}
