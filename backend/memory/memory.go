// Package memory is a [backend.Store] in the memory of one process, for one backend that needs not outlive its counters.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/backend"
	"weir/window"
	"weir/wire"
)

// Options has what a store can be told. The zero value is good.
type Options struct {
	// MaxCounters is the most counters that are kept, 1,048,576 if 0. When there are more, those that expire soonest make
	// room. As many senders are remembered as fit in a sixteenth of that, but 1,024 at least.
	MaxCounters int
	// Now is the store's clock, time.Now if nil.
	Now func() time.Time
}

// Store is a [backend.Store], and a [prometheus.Collector] of its size. Use [New] to make one.
type Store struct {
	now func() time.Time

	mu       sync.Mutex
	counters *table[counterKey, counter]
	senders  *table[senderKey, sender]
}

var (
	_ backend.Store        = (*Store)(nil)
	_ prometheus.Collector = (*Store)(nil)
)

type counterKey struct {
	namespace string
	wire.Counter
}

// counter is what a counter has: the windows of the clock, one that started with its first hit, buckets of a precision,
// newest first, or a token bucket that is not full, and its limit.
type counter struct {
	limit   uint64
	windows []backend.Window
}

type senderKey struct {
	namespace string
	id        uint64
}

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxCounters == 0 {
		o.MaxCounters = 1 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		now:      o.Now,
		counters: newTable[counterKey, counter](max(1, o.MaxCounters)),
		senders:  newTable[senderKey, sender](max(1024, o.MaxCounters/16)),
	}
}

// Push implements [backend.Store].
func (s *Store) Push(ctx context.Context, p *wire.Push) (backend.Outcome, error) {
	if err := backend.Check(p); err != nil {
		return backend.Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return backend.Outcome{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(s.now().UnixNano())
	clock := backend.Clock{NowNanos: now}
	// More than a push can add, so that what has expired does not pile up.
	s.counters.sweep(now, 2*len(p.Items)+8)
	s.senders.sweep(now, 2)

	out := backend.Outcome{Answer: wire.Answer{NowNanos: now, Totals: make([]wire.Total, len(p.Items))}}
	if !backend.IsRead(p) {
		if s.record(p, now) {
			s.apply(p, clock, &out)
		} else {
			out.Duplicate = true
		}
	}
	for i := range p.Items {
		out.Answer.Totals[i] = s.total(p.Namespace, &p.Items[i], clock)
	}
	return out, nil
}

// record tells whether the push is new, and remembers it.
func (s *Store) record(p *wire.Push, now uint64) bool {
	// The record outlives every window that takes hits of this push, so that a copy that comes when it is gone finds no
	// window that counts.
	expires := now + uint64(backend.SenderLife)
	clock := backend.Clock{NowNanos: now}
	for i := range p.Items {
		if len(p.Items[i].Hits) > 0 {
			expires = max(expires, clock.Settled(&p.Items[i]))
		}
	}
	return s.senders.add(senderKey{p.Namespace, p.Sender}, now, expires).value.record(p.Sequence, p.Floor)
}

func (s *Store) apply(p *wire.Push, clock backend.Clock, out *backend.Outcome) {
	for i := range p.Items {
		item := &p.Items[i]
		key := counterKey{p.Namespace, item.Counter}
		switch window.Kind(item.Kind) {
		case window.FirstHitWindow:
			s.addFirstHit(key, item, clock, out)
		case window.SlidingBuckets:
			s.addBuckets(key, item, clock, out)
		case window.TokenBucket:
			s.addTokens(key, item, clock, out)
		default:
			s.addClock(key, item, clock, out)
		}
	}
}

func (s *Store) addFirstHit(key counterKey, item *wire.Item, clock backend.Clock, out *backend.Outcome) {
	hits := item.Hits[0]
	if hits == 0 {
		return
	}
	start, ok := clock.FirstHit(item.Counter, item.Newest)
	out.Count(hits, ok)
	if !ok {
		return
	}
	e := s.counters.add(key, clock.NowNanos, backend.ExpiresNanos(item.Counter, start))
	if live, ok := firstHit(e.value.windows, item.Counter, clock); ok {
		start, hits = min(start, live.Number), backend.Sum(hits, live.Hits)
	}
	e.value.windows = append(e.value.windows[:0], backend.Window{Number: start, Hits: hits})
}

func (s *Store) addClock(key counterKey, item *wire.Item, clock backend.Clock, out *backend.Outcome) {
	span := clock.Span(item.Counter)
	for age, hits := range item.Hits {
		number := item.Newest - uint64(age)
		if hits == 0 {
			continue
		}
		ok := number >= span.Oldest && number <= span.Newest
		out.Count(hits, ok)
		if !ok {
			continue
		}
		c := &s.counters.add(key, clock.NowNanos, backend.ExpiresNanos(item.Counter, number)).value
		at := slices.IndexFunc(c.windows, func(w backend.Window) bool { return w.Number == number })
		if at < 0 {
			c.windows = append(readable(c.windows, span), backend.Window{Number: number})
			at = len(c.windows) - 1
		}
		c.windows[at].Hits = backend.Sum(c.windows[at].Hits, hits)
	}
}

// readable removes the windows that can't be read any more, in place.
func readable(windows []backend.Window, span backend.Span) []backend.Window {
	return slices.DeleteFunc(windows, func(w backend.Window) bool { return w.Number < span.Kept || w.Number > span.Newest })
}

func (s *Store) addBuckets(key counterKey, item *wire.Item, clock backend.Clock, out *backend.Outcome) {
	span := clock.Span(item.Counter)
	var pushed []backend.Window
	for i, hits := range item.Hits {
		number := item.Newest - item.Ages[i]
		if hits == 0 {
			continue
		}
		ok := number >= span.Oldest && number <= span.Newest
		out.Count(hits, ok)
		if ok {
			pushed = append(pushed, backend.Window{Number: number, Hits: hits})
		}
	}
	if len(pushed) == 0 {
		return
	}
	c := &s.counters.add(key, clock.NowNanos, backend.ExpiresNanos(item.Counter, pushed[0].Number)).value
	c.windows = backend.KeptBuckets(item.Counter, item.Limit, merge(readable(c.windows, span), pushed))
}

// merge adds the hits of two lists of buckets, newest first, and leaves out buckets without any.
func merge(a, b []backend.Window) []backend.Window {
	merged := make([]backend.Window, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var next backend.Window
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Number > b[0].Number:
			next, a = a[0], a[1:]
		case len(a) == 0 || b[0].Number > a[0].Number:
			next, b = b[0], b[1:]
		default:
			next = backend.Window{Number: a[0].Number, Hits: backend.Sum(a[0].Hits, b[0].Hits)}
			a, b = a[1:], b[1:]
		}
		if next.Hits != 0 {
			merged = append(merged, next)
		}
	}
	return merged
}

func (s *Store) addTokens(key counterKey, item *wire.Item, clock backend.Clock, out *backend.Outcome) {
	hits := item.Hits[0]
	if hits == 0 {
		return
	}
	bucket, ok := clock.TakeTokens(item, s.windows(key))
	out.Count(hits, ok)
	if !ok {
		return
	}
	expires := clock.NowNanos
	if len(bucket) > 0 {
		expires = backend.TokensExpireNanos(item.Counter, item.Limit, bucket[0])
	}
	s.counters.add(key, clock.NowNanos, expires).value = counter{limit: item.Limit, windows: bucket}
}

// windows are those that a counter has.
func (s *Store) windows(key counterKey) []backend.Window {
	if e := s.counters.entries[key]; e != nil {
		return e.value.windows
	}
	return nil
}

// total is what a push's item is answered with.
func (s *Store) total(namespace string, item *wire.Item, clock backend.Clock) wire.Total {
	windows := s.windows(counterKey{namespace, item.Counter})
	switch window.Kind(item.Kind) {
	case window.SlidingBuckets:
		return clock.BucketTotal(item, windows)
	case window.TokenBucket:
		return clock.TokenTotal(item, windows)
	}
	t := wire.Total{Newest: item.Newest, Hits: make([]uint64, len(item.Hits))}
	if window.Kind(item.Kind) == window.FirstHitWindow {
		if live, ok := firstHit(windows, item.Counter, clock); ok {
			t.Newest, t.Hits[0] = live.Number, uint64(max(0, live.Hits))
		}
		return t
	}
	span := clock.Span(item.Counter)
	for _, w := range windows {
		age := item.Newest - w.Number
		if w.Number <= item.Newest && age < uint64(len(t.Hits)) && w.Number >= span.Kept && w.Number <= span.Newest {
			t.Hits[age] = uint64(max(0, w.Hits))
		}
	}
	return t
}

// firstHit is the window among a counter's that lives.
func firstHit(windows []backend.Window, c wire.Counter, clock backend.Clock) (backend.Window, bool) {
	if len(windows) == 0 {
		return backend.Window{}, false
	}
	_, ok := clock.FirstHit(c, windows[0].Number)
	return windows[0], ok
}

// Counters implements [backend.Store].
func (s *Store) Counters(ctx context.Context, namespace string, visit func(backend.Counter) error) error {
	for chunk := range slices.Chunk(s.keys(namespace), 256) {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, c := range s.live(namespace, chunk) {
			if err := visit(c); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (s *Store) keys(namespace string) []wire.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []wire.Counter
	for key := range s.counters.entries {
		if key.namespace == namespace {
			keys = append(keys, key.Counter)
		}
	}
	return keys
}

// live copies those of the counters that have a window that counts.
func (s *Store) live(namespace string, keys []wire.Counter) []backend.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	clock := backend.Clock{NowNanos: uint64(s.now().UnixNano())}
	var live []backend.Counter
	for _, c := range keys {
		e := s.counters.entries[counterKey{namespace, c}]
		if e == nil {
			continue
		}
		found := backend.Counter{Counter: c, Limit: e.value.limit, Windows: slices.Clone(e.value.windows)}
		if found.Windows = clock.Counting(found); len(found.Windows) > 0 {
			live = append(live, found)
		}
	}
	return live
}

// Ping implements [backend.Store]. There is nothing that could be out of reach.
func (s *Store) Ping(ctx context.Context) error { return ctx.Err() }

var (
	countersDesc = prometheus.NewDesc("weir_memory_counters", "Counters in memory, those not yet swept included.", nil, nil)
	sendersDesc  = prometheus.NewDesc("weir_memory_senders", "Senders remembered, those not yet swept included.", nil, nil)
	evictedDesc  = prometheus.NewDesc("weir_memory_evicted_total",
		"Records that made room for others before they expired.", []string{"record"}, nil)
)

// Describe implements [prometheus.Collector].
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	ch <- countersDesc
	ch <- sendersDesc
	ch <- evictedDesc
}

// Collect implements [prometheus.Collector].
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	counters, senders := len(s.counters.queue), len(s.senders.queue)
	countersEvicted, sendersEvicted := s.counters.evicted, s.senders.evicted
	s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(countersDesc, prometheus.GaugeValue, float64(counters))
	ch <- prometheus.MustNewConstMetric(sendersDesc, prometheus.GaugeValue, float64(senders))
	ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(countersEvicted), "counter")
	ch <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(sendersEvicted), "sender")
}
