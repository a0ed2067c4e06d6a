package memory

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// shapes are counters of all kinds, with the hits that a key has.
var shapes = map[string]struct {
	counter wire.LimitCounter
	hits    int // in so many windows or buckets
}{
	"fixed_window":             {wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: 3_600_000}, 1},
	"sliding_window":           {wire.LimitCounter{Kind: uint8(window.SlidingWindow), WidthMillis: 3_600_000}, 2},
	"first_hit":                {wire.LimitCounter{Kind: uint8(window.FirstHitWindow), WidthMillis: 3_600_000}, 1},
	"token_bucket":             {wire.LimitCounter{Kind: uint8(window.TokenBucket), WidthMillis: 3_600_000}, 1},
	"sliding_window, 64 parts": {wire.LimitCounter{Kind: uint8(window.SlidingBuckets), WidthMillis: 3_600_000, Precision: uint64(time.Hour) / 60}, 60},
	"sliding_log of 30":        {wire.LimitCounter{Kind: uint8(window.SlidingBuckets), WidthMillis: 3_600_000, Precision: 1}, 30},
	"sliding_log of 1000":      {wire.LimitCounter{Kind: uint8(window.SlidingBuckets), WidthMillis: 3_600_000, Precision: 1}, 500},
}

// A store takes no more memory than it may, whatever its counters are, and not much less.
func TestMaxMemory(t *testing.T) {
	for name, shape := range shapes {
		now := time.Unix(1_767_225_600, 0)
		const most = 8 << 20
		before := inUse()
		s := New(Options{Now: func() time.Time { return now }, MaxMemory: most})
		flood(t, s, tenant, shape.counter, shape.hits, 100_000/(1+shape.hits/10), &now)
		took := inUse() - before
		if counters := most / 4 * 3; took > most || took < counters/2 || s.Size().CounterBytes > counters {
			t.Errorf("%s: %d counters take %d bytes and seem to take %d, of %d", name, s.Size().Counters, took, s.Size().CounterBytes, most)
		}
		// A key that is removed leaves nothing.
		for len(s.counters.queue) > 0 {
			s.counters.remove(s.counters.queue[0])
		}
		must.Equal(t, s.counters.bytes, 0, "%s: bytes of no counter", name)
	}
}

// A counter that grows makes room, too.
func TestCountersGrow(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	s := New(Options{Now: func() time.Time { return now }, MaxMemory: 1 << 20})
	one := shapes["sliding_log of 30"]
	flood(t, s, tenant, one.counter, 1, 2000, &now)
	kept := s.Size().Counters
	flood(t, s, tenant, one.counter, 500, 100, &now)
	if size := s.Size(); size.CounterBytes > 3<<18 || size.Counters >= kept || size.CountersEvicted == 0 {
		t.Errorf("%d counters were kept, and now %+v", kept, size)
	}
}

// Where memory is bounded, a namespace or rule loses nothing while it has less than its part of that, and
// of the number of counters.
func TestMemoryIsShared(t *testing.T) {
	type keys struct {
		of      wire.LimitCounter
		hits, n int
	}
	fixed, log := shapes["fixed_window"].counter, shapes["sliding_log of 30"].counter
	for name, test := range map[string]struct {
		options     Options
		kept, flood keys
	}{
		"large counters take the memory": {Options{MaxMemory: 1 << 20}, keys{fixed, 1, 500}, keys{log, 500, 200}},
		"small counters take the number": {Options{MaxMemory: 8 << 20, MaxCounters: 1000}, keys{log, 500, 60}, keys{fixed, 1, 3000}},
	} {
		for _, flooded := range []string{tenant, "another"} {
			t.Run(name+" in "+flooded, func(t *testing.T) {
				now := time.Unix(1_767_225_600, 0)
				test.options.Now = func() time.Time { return now }
				s, kept := New(test.options), 0
				flood(t, s, tenant, test.kept.of, test.kept.hits, test.kept.n, &now)
				flood(t, s, flooded, test.flood.of, test.flood.hits, test.flood.n, &now)
				must.OK(t, s.Counters(t.Context(), tenant, nil, func(c store.LimitCounter) error {
					if c.Kind == test.kept.of.Kind {
						kept++
					}
					return nil
				}))
				must.Equal(t, kept, test.kept.n, "counters are kept")
				must.Equal(t, s.Size().CountersEvicted > 0, true, "the store is full")
			})
		}
	}
}

func inUse() int {
	runtime.GC()
	runtime.GC() // what finalizers have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

var sequence uint64

const tenant = "a-namespace-of-a-tenant"

// flood pushes keys of a namespace with so many hits each, one after the other.
func flood(t testing.TB, s *Store, namespace string, of wire.LimitCounter, hits, keys int, now *time.Time) {
	t.Helper()
	for key := range keys {
		item := wire.Item{LimitCounter: of, Limit: uint64(hits)}
		binary.BigEndian.PutUint64(item.ID[:], uint64(key)*0x9e3779b97f4a7c15)
		number, step := uint64(now.UnixNano()), of.WidthMillis*1_000_000/uint64(2*hits+2)
		switch kind := window.Kind(of.Kind); {
		case kind.Bucketed():
			item.Newest = number / of.Precision
			if of.Precision > 1 {
				step = 1
			}
			for i := range uint64(hits) {
				item.Hits, item.Ages = append(item.Hits, 1), append(item.Ages, i*step)
			}
		case kind.Started():
			item.Newest, item.Hits = number, []int64{1}
		default:
			item.Newest = number / (of.WidthMillis * 1_000_000)
			for range hits {
				item.Hits = append(item.Hits, 1)
			}
		}
		sequence++
		p := &wire.Push{Namespace: strings.Clone(namespace), Sender: 1, Sequence: sequence, Floor: sequence, Items: []wire.Item{item}}
		must.Get(s.Push(t.Context(), p, 1))(t)
	}
}
