package memory_test

import (
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

func open(_ testing.TB, now func() time.Time) store.Store {
	return memory.New(memory.Options{Now: now})
}

func TestStore(t *testing.T)      { storetest.Run(t, open) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }

// A neighbour displaces nothing of a namespace that uses less than its share, even in a very small
// store.
func TestNeighbours(t *testing.T) {
	storetest.Neighbours(t, func(_ testing.TB, now func() time.Time) store.Store {
		return memory.NewTiny(memory.Options{Now: now})
	})
}

// pushOne pushes a hit of a new counter in a fixed window of this width, and returns its total.
func pushOne(t *testing.T, s *memory.Store, sequence uint64, id byte, now time.Time, width time.Duration) uint64 {
	t.Helper()
	out := must.Get(s.Push(t.Context(), &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence,
		Items: []wire.Item{{
			LimitCounter: wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(window.FixedWindow), WidthMillis: uint64(width.Milliseconds())},
			Newest:       uint64(now.UnixNano()) / uint64(width),
			Hits:         []int64{1},
		}}}, 1))(t)
	return out.Answer.Totals[0].Hits[0]
}

// If limits are unknown and hits equal, the least recently hit counter makes room.
func TestFullStoreForgetsWhatWasHitLeastRecently(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := memory.New(memory.Options{MaxCounters: 3, Now: func() time.Time { return now }})
	for i, width := range []time.Duration{time.Hour, time.Second, time.Minute, 2 * time.Hour} {
		pushOne(t, s, uint64(i+1), byte(i), now, width)
	}
	wantSize(t, s, memory.Size{CounterBytes: 3 * memory.OneWindow, Counters: 3, Senders: 1, CountersEvicted: 1})
	must.Equal(t, pushOne(t, s, 5, 1, now, time.Second), 2, "the counter of a second has hits")
	must.Equal(t, pushOne(t, s, 6, 0, now, time.Hour), 1, "hits of the hour's counter, which begins again")
}

func TestExpiredCountersAreSwept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	for i := range 30 {
		pushOne(t, s, uint64(i+1), byte(i), now, time.Second)
	}
	wantSize(t, s, memory.Size{CounterBytes: 30 * memory.OneWindow, Counters: 30, Senders: 1})
	now = now.Add(time.Hour)
	for i := range 3 {
		pushOne(t, s, uint64(i+1), byte(i), now, time.Second)
	}
	wantSize(t, s, memory.Size{CounterBytes: 3 * memory.OneWindow, Counters: 3, Senders: 1})
}

// Counters with hits only from takes are swept like others.
func TestTakenCountersAreSwept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	for sequence := range uint64(5) {
		take := wire.Take{Least: 1, Most: 1}
		for i := range 100 {
			take.Rooms = append(take.Rooms, wire.Room{Limit: 1, Cost: 1, LimitCounter: wire.LimitCounter{
				ID: wire.ID{byte(sequence), byte(i)}, Kind: uint8(window.FixedWindow), WidthMillis: 1000,
			}})
		}
		p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence + 1, Floor: sequence + 1, Takes: []wire.Take{take}}
		must.EqualOrEnd(t, must.Get(s.Push(t.Context(), p, 1))(t).Answer.Grants[0].Units, 1, "")
		// Only the latest push's grants are remembered.
		wantSize(t, s, memory.Size{CounterBytes: 100 * memory.OneWindow, Counters: 100, Senders: 1, GrantBytes: 257})
		now = now.Add(time.Minute)
	}
}

// wantSize wants a store to have a size.
func wantSize(t *testing.T, s *memory.Store, want memory.Size) {
	t.Helper()
	must.Equal(t, s.Size(), want, "")
}
