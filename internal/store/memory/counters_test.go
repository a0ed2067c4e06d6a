package memory

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

// hit returns an item of a hit in a fixed window.
func hit(id uint64, now time.Time, width time.Duration) wire.Item {
	item := wire.Item{
		LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: uint64(width.Milliseconds())},
		Newest:       uint64(now.UnixNano()) / uint64(width), Hits: []int64{1},
	}
	binary.BigEndian.PutUint64(item.ID[:], id)
	return item
}

// pusher pushes as a sender to a store, whose clock it has.
type pusher struct {
	*testing.T
	store    *Store
	now      time.Time
	sequence uint64
}

func newPusher(t *testing.T, o Options) *pusher {
	p := &pusher{T: t, now: storetest.Epoch}
	o.Now = func() time.Time { return p.now }
	p.store = New(o)
	return p
}

func (p *pusher) push(items ...wire.Item) store.Outcome {
	p.Helper()
	p.sequence++
	return push(p.T, p.store, &wire.Push{Namespace: "ns", Sender: 1, Sequence: p.sequence, Floor: p.sequence, Items: items})
}

// The hits of a key count also in a full store whose other keys have all used more of their limits. It makes room for the next
// key, and not for itself.
func TestNewcomerCounts(t *testing.T) {
	for name, o := range map[string]Options{"number": {MaxCounters: 64}, "memory": {MaxMemory: 64 * oneWindow}} {
		p := newPusher(t, o)
		push := func(id uint64, hits int64) (total uint64) {
			item := hit(id, p.now, time.Hour)
			item.Limit, item.Hits[0] = 10, hits
			return p.push(item).Answer.Totals[0].Hits[0]
		}
		for id := range uint64(100) {
			push(id, 2)
		}
		evicted := p.store.Size().CountersEvicted
		must.Equal(t, push(100, 1), 1, "%s: hits after the first", name)
		must.Equal(t, p.store.Size().CountersEvicted, evicted+1, "%s: counters that made room", name)
		newcomer := hit(100, p.now, time.Hour).ID
		must.Equal(t, p.store.counters.shares.Of("ns").Of.victim().key.ID, newcomer, "%s: the next to make room", name)
		must.Equal(t, push(100, 1), 2, "%s: hits after the second", name)
	}
}

// Between any two counters that a reader visits, others expire, make room, and come again. It
// visits none twice, and visits all that exist from its beginning to its end.
func TestCountersAreReadWhilePushesGoOn(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			const stay, churn = 3000, 5000
			random := rand.New(rand.NewPCG(seed, 0))
			p := newPusher(t, Options{MaxCounters: stay + churn/2})
			brief := func() wire.Item { return hit(stay+random.Uint64N(churn), p.now, time.Second) }
			for _, id := range random.Perm(stay) {
				long := hit(uint64(id), p.now, time.Hour)
				long.Hits[0] = 100
				p.push(long, brief())
			}
			shown := make(map[wire.ID]bool)
			visits := 0
			must.OK(t, p.store.Counters(t.Context(), "ns", nil, func(c store.LimitCounter) error {
				must.EqualOrEnd(t, shown[c.ID], false, "%x is shown twice", c.ID)
				shown[c.ID] = true
				if visits++; visits%16 == 0 {
					p.now = p.now.Add(time.Duration(random.IntN(int(100 * time.Millisecond))))
					items := make([]wire.Item, random.IntN(64))
					for i := range items {
						items[i] = brief()
					}
					p.push(items...)
				}
				return nil
			}))
			for id := range uint64(stay) {
				must.EqualOrEnd(t, shown[hit(id, p.now, time.Hour).ID], true, "counter %d is shown", id)
			}
		})
	}
}

// Even with very many counters, a part reads a bounded number, and the store is free between parts.
func TestCountersAreReadInParts(t *testing.T) {
	p := newPusher(t, Options{})
	for id := range uint64(5 * partPlaces) {
		p.push(hit(id, p.now, time.Hour))
	}
	// Another namespace has none. Finding that out takes the same number of parts.
	for _, namespace := range []string{"ns", "none"} {
		r := p.store.read(namespace, nil)
		for part := 1; r.readPart(); part++ {
			if r.next != part*partPlaces || len(r.part) > partPlaces || !p.store.mu.TryLock() {
				t.Fatalf("part %d has %d counters and ends at %d, or the store is locked", part, len(r.part), r.next)
			}
			p.store.mu.Unlock()
		}
	}
}

// A part with counters of many windows ends sooner.
func TestPartsOfManyWindows(t *testing.T) {
	p := newPusher(t, Options{})
	const hits = 500
	for id := range uint64(100) {
		item := hit(id, p.now, time.Hour)
		item.Kind, item.Precision, item.Limit, item.Newest = uint8(window.SlidingBuckets), 1, hits, uint64(p.now.UnixNano())
		item.Hits, item.Ages = make([]int64, hits), make([]uint64, hits)
		for i := range item.Hits {
			item.Hits[i], item.Ages[i] = 1, uint64(i)
		}
		p.push(item)
	}
	r := p.store.read("ns", nil)
	for more, read := true, 0; more; {
		if more = r.readPart(); len(r.part) > partWindows/hits+1 {
			t.Fatalf("a part has %d counters of %d windows", len(r.part), hits)
		}
		if read += len(r.part); !more && read != 100 {
			t.Errorf("%d counters were read, want 100", read)
		}
	}
}
