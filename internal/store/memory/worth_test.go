package memory

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store/storetest"
	"weir/internal/wire"
)

// sent returns a push as a store behind HTTP gets it, without fields that are not sent.
func sent(t *testing.T, p *wire.Push) *wire.Push {
	t.Helper()
	p.Namespace, p.Floor = "ns", p.Sequence
	return must.Get(wire.DecodePush(wire.AppendPush(nil, p)))(t)
}

// A flood of keys of an hourly rule, with a hit each, does not reset counters at their limit, of
// any algorithm, or a counter that is more than half used.
func TestFullCountersOutliveAFlood(t *testing.T) {
	for _, full := range storetest.Rooms(5, 1) {
		for _, flood := range storetest.Rooms(5, 1) {
			t.Run(fmt.Sprintf("%s under %s", full.Shape().Name(), flood.Shape().Name()), func(t *testing.T) {
				const most = 64
				s := New(Options{MaxCounters: most, Now: storetest.AtEpoch})
				var sequence uint64
				take := func(room wire.Room, units uint64) (got uint64) {
					sequence++
					take := wire.Take{Least: 1, Most: units, Rooms: []wire.Room{room}}
					return push(t, s, sent(t, &wire.Push{Sender: 1, Sequence: sequence, Takes: []wire.Take{take}})).Answer.Grants[0].Units
				}
				flood.WidthMillis, flood.Limit, flood.Burst = 3_600_000, 100, flood.Burst*20
				if flood.Precision > 1 {
					flood.Precision *= 60
				}
				floods := func(n uint64) {
					for range n {
						binary.BigEndian.PutUint64(flood.ID[:], 1000+sequence)
						must.EqualOrEnd(t, take(flood, 1), 1, "the flood is refused")
					}
				}
				floods(most)
				full.ID, full.Ordinal = wire.ID{1}, 1
				half := full
				half.ID = wire.ID{2}
				must.EqualOrEnd(t, take(full, 5), 5, "an idle key gives")
				must.EqualOrEnd(t, take(half, 3), 3, "an idle key gives")
				floods(8 * most)
				must.Equal(t, take(full, 1), 0, "the flood has reset a full counter")
				must.Equal(t, take(half, 5), 2, "a counter that has room for 2 gives")
				must.Equal(t, s.Size().Counters, most, "counters")
				must.Equal(t, s.Size().CountersEvicted, 8*most+2, "counters evicted")
			})
		}
	}
}

// A flood of keys at their limit does not reset a counter below its limit of another rule or
// namespace: the largest makes room.
func TestAFloodOfAnotherRule(t *testing.T) {
	for _, room := range storetest.Rooms(5, 1) {
		for _, from := range []string{"another rule", "another namespace"} {
			t.Run(room.Shape().Name()+" from "+from, func(t *testing.T) {
				const most = 64
				s := New(Options{MaxCounters: most, Now: storetest.AtEpoch})
				var sequence uint64
				take := func(namespace string, room wire.Room, units uint64) (got uint64) {
					sequence++
					p := sent(t, &wire.Push{Sender: 1, Sequence: sequence, Takes: []wire.Take{{Least: 1, Most: units, Rooms: []wire.Room{room}}}})
					p.Namespace = namespace
					return push(t, s, p).Answer.Grants[0].Units
				}
				flood, flooded := room, "ns"
				if from == "another rule" {
					flood.Limit, flood.Burst = 1, min(flood.Burst, 1)
				} else {
					flooded = "another"
				}
				floods := func(n uint64) {
					for range n {
						binary.BigEndian.PutUint64(flood.ID[:], 1000+sequence)
						must.EqualOrEnd(t, take(flooded, flood, flood.Limit), flood.Limit, "the flood is refused")
					}
				}
				floods(most)
				for id := range uint64(most/2 - 1) {
					room.ID = wire.ID{1, byte(id)}
					must.EqualOrEnd(t, take("ns", room, 4), 4, "an idle key has no room")
				}
				floods(8 * most)
				reset := 0
				for id := range uint64(most/2 - 1) {
					room.ID = wire.ID{1, byte(id)}
					if take("ns", room, 5) != 1 {
						reset++
					}
				}
				must.Equal(t, reset, 0, "counters of %d that the flood has reset", most/2-1)
				checkGroups(t, s, most)
			})
		}
	}
}

// The number of groups is bounded for any limits, and groups without counters are removed.
func TestGroupsAreBounded(t *testing.T) {
	p := newPusher(t, Options{})
	const more = maxGroups + 100
	for id := range uint64(more) {
		item := hit(id, p.now, time.Minute)
		item.Limit = id + 1
		p.push(item)
		if id%3 == 0 {
			p.push(item)
		}
	}
	if g := p.store.counters.shares.Of("ns").Of; g.rest.size != 100 || len(g.heap) != maxGroups+1 {
		t.Errorf("%d groups, and %d counters without one of their own", len(g.heap), g.rest.size)
	}
	checkGroups(t, p.store, more)
	p.now = p.now.Add(time.Hour)
	for p.store.Size().Counters > 1 {
		p.push(hit(more, p.now, time.Minute))
	}
	checkGroups(t, p.store, 1)
	if g := p.store.counters.shares.Of("ns").Of; len(g.heap) != 1 || g.rest != nil {
		t.Errorf("%d groups of a counter", len(g.heap))
	}
}

// checkGroups checks that all counters are in groups of their namespaces, and that the first group
// of each is the largest.
func checkGroups(t *testing.T, s *Store, want int) {
	t.Helper()
	found := 0
	for _, namespace := range []string{"ns", "another"} {
		own := s.counters.shares.Of(namespace)
		if own == nil {
			continue
		}
		for i, of := range own.Of.heap {
			found += of.size
			if of.index != i || of.size == 0 || of.size > own.Of.heap[0].size || of != own.Of.rest && own.Of.byKey[of.key] != of {
				t.Fatalf("a group of %d counters is out of place", of.size)
			}
		}
	}
	must.EqualOrEnd(t, found, want, "counters have groups")
}

// If a counter has hits only from items, its limit is unknown. Counters with many hits stay.
func TestCountersOfUnknownLimits(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const most = 64
	s := New(Options{MaxCounters: most, Now: func() time.Time { return now }})
	many := hit(1, now, time.Minute)
	many.Hits[0] = 5
	push(t, s, sent(t, &wire.Push{Sender: 1, Sequence: 1, Items: []wire.Item{many}}))
	for id := range uint64(8 * most) {
		push(t, s, sent(t, &wire.Push{Sender: 1, Sequence: 2 + id, Items: []wire.Item{hit(100+id, now, time.Hour)}}))
	}
	out := push(t, s, sent(t, &wire.Push{Sender: 1, Sequence: 1000, Items: []wire.Item{many}}))
	must.Equal(t, out.Answer.Totals[0].Hits[0], 10, "hits")
}

// Ranks ascend with the use, and a full counter has the highest.
func TestRanks(t *testing.T) {
	for _, quota := range []uint64{0, 1, 2, 3, 5, 10, 1000, 1e9, wire.MaxHits} {
		last := uint8(0)
		for _, used := range []uint64{0, 1, 2, 3, 5, 9, 10, 100, 500, 999, 1000, 1e6, 1e9, wire.MaxHits} {
			rank := rankOf(used, quota)
			if rank < last || rank > lastRank || quota != 0 && (used >= quota) != (rank == lastRank) && used < 1e9 {
				t.Errorf("%d of %d: rank %d after %d", used, quota, rank, last)
			}
			last = rank
		}
	}
	order := []uint8{rankOf(0, 10), rankOf(1, 1000), rankOf(1, 100), rankOf(1, 0), rankOf(1, 5), rankOf(5, 0), rankOf(4, 5), rankOf(5, 5)}
	must.Equal(t, slices.IsSorted(order), true, "the ranks ascend: %v", order)
	must.Equal(t, len(slices.Compact(order)), 8, "different ranks")
}

// After any changes, each row is exactly once in the list of its rank in its group, in the order of
// the latest hits, and the lowest rank has the victim.
func TestRanksHoldEachCounterOnce(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		p := newPusher(t, Options{MaxCounters: 40})
		hitAt := make(map[wire.ID]uint64)
		widths := []time.Duration{time.Second, time.Minute, time.Hour}
		for range 500 {
			p.now = p.now.Add(time.Duration(random.IntN(int(time.Second / 4))))
			id := random.Uint64N(80)
			item := hit(id, p.now, widths[id%3])
			item.Limit, item.Hits[0] = 10*random.Uint64N(5), random.Int64N(20)-5
			if out := p.push(item); out.Applied != 0 || out.Returned != 0 {
				hitAt[item.ID] = p.sequence
			}
			checkGroups(t, p.store, len(p.store.counters.queue))
			if own := p.store.counters.shares.Of("ns"); own != nil {
				for _, g := range own.Of.heap {
					checkRanks(t, &g.ranks, hitAt, g.size)
				}
			}
		}
	}
}

func checkRanks(t *testing.T, r *ranks, hitAt map[wire.ID]uint64, want int) {
	t.Helper()
	found := 0
	must.EqualOrEnd(t, len(r.lists), bits.OnesCount64(r.occupied), "lists of ranks %b", r.occupied)
	for rank := range uint8(lastRank + 1) {
		if r.occupied>>rank&1 == 0 {
			continue
		}
		list := &r.lists[r.at(rank)]
		must.EqualOrEnd(t, list.first != nil, true, "rank %d has counters", rank)
		var before *counterRow
		for e := list.first; e != nil; before, e = e, e.value.next {
			if found++; e.value.before != before || e.value.rank != rank {
				t.Fatalf("a counter of rank %d is in the list of %d, or behind another", e.value.rank, rank)
			}
			if before != nil && hitAt[before.key.ID] >= hitAt[e.key.ID] {
				t.Fatalf("rank %d is out of order", rank)
			}
		}
		must.EqualOrEnd(t, list.last, before, "rank %d has another end", rank)
	}
	must.EqualOrEnd(t, found, want, "counters have ranks")
	if want > 0 && r.lowest() == nil {
		t.Fatal("no victim")
	}
}
