package memory

import (
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wire"
	"weir/window"
)

func open(_ testing.TB, now func() time.Time) store.Store {
	return New(Options{Now: now})
}

func TestStore(t *testing.T)      { storetest.Run(t, open) }
func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }

// A neighbour displaces nothing of a namespace that uses less than its share, even in a very small
// store.
func TestNeighbours(t *testing.T) {
	storetest.Neighbours(t, func(_ testing.TB, now func() time.Time) store.Store {
		s := New(Options{Now: now, MaxCounters: 48})
		s.senders.most, s.grants.max = 16, 2<<10
		s.notes[store.Changes].most = 16 << 10
		s.notes[store.Nodes].most, s.notes[store.AppliedLists].most, s.notes[store.Reports].most = 16, 16, 16<<10
		return s
	})
}

// oneWindow is the memory of a counter with a window.
const oneWindow = counterBytes + windowBytes*9/8

// If limits are unknown and hits equal, the least recently hit counter makes room.
func TestFullStoreForgetsWhatWasHitLeastRecently(t *testing.T) {
	p := newPusher(t, Options{MaxCounters: 3})
	for i, width := range []time.Duration{time.Hour, time.Second, time.Minute, 2 * time.Hour} {
		p.push(hit(uint64(i), p.now, width))
	}
	wantSize(t, p.store, Size{CounterBytes: 3 * oneWindow, Counters: 3, Senders: 1, CountersEvicted: 1})
	must.Equal(t, p.push(hit(1, p.now, time.Second)).Answer.Totals[0].Hits[0], 2, "the counter of a second has hits")
	must.Equal(t, p.push(hit(0, p.now, time.Hour)).Answer.Totals[0].Hits[0], 1, "hits of the hour's counter, which begins again")
}

func TestExpiredCountersAreSwept(t *testing.T) {
	p := newPusher(t, Options{})
	for i := range uint64(30) {
		p.push(hit(i, p.now, time.Second))
	}
	wantSize(t, p.store, Size{CounterBytes: 30 * oneWindow, Counters: 30, Senders: 1})
	p.now, p.sequence = p.now.Add(time.Hour), 0 // its sender, too, is forgotten
	for i := range uint64(3) {
		p.push(hit(i, p.now, time.Second))
	}
	wantSize(t, p.store, Size{CounterBytes: 3 * oneWindow, Counters: 3, Senders: 1})
}

// Counters with hits only from takes are swept like others.
func TestTakenCountersAreSwept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := New(Options{Now: func() time.Time { return now }})
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
		wantSize(t, s, Size{CounterBytes: 100 * oneWindow, Counters: 100, Senders: 1, GrantBytes: 257})
		now = now.Add(time.Minute)
	}
}

// wantSize wants a store to have a size.
func wantSize(t *testing.T, s *Store, want Size) {
	t.Helper()
	must.Equal(t, s.Size(), want, "")
}
