package memory_test

import (
	"encoding/binary"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
	"weir/window"
)

// grown fills a store with a number of counters with a window of an hour and a hit each.
func grown(b *testing.B, s *memory.Store, counters int) {
	b.Helper()
	for first := 0; first < counters; first += wire.MaxItems {
		must.Get(s.Push(b.Context(), hourly(uint64(first/wire.MaxItems+1), first, min(wire.MaxItems, counters-first)), 1))(b)
	}
}

// hourly returns a push of a hit in each of n counters with a window of an hour.
func hourly(sequence uint64, first, n int) *wire.Push {
	hour := uint64(time.Hour)
	p := &wire.Push{Namespace: "ns", Sender: 1, Sequence: sequence, Floor: sequence, Items: make([]wire.Item, n)}
	for i := range p.Items {
		p.Items[i] = wire.Item{
			LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: hour / 1e6},
			Newest:       uint64(time.Now().UnixNano()) / hour, Hits: []int64{1},
		}
		binary.BigEndian.PutUint64(p.Items[i].ID[:], uint64(first+i))
	}
	return p
}

// BenchmarkPushFull measures pushes of 100 new counters each to a full store.
func BenchmarkPushFull(b *testing.B) {
	const most = 1 << 17
	s := memory.New(memory.Options{MaxCounters: most})
	grown(b, s, most)
	b.ReportAllocs()
	for i := uint64(1); b.Loop(); i++ {
		must.Get(s.Push(b.Context(), hourly(1<<20+i, most+int(i)*100, 100), 1))(b)
	}
}

// BenchmarkPushWhileListed measures pushes of a counter while a million are listed, and the slowest
// of them.
func BenchmarkPushWhileListed(b *testing.B) {
	s := memory.New(memory.Options{})
	grown(b, s, 1<<20)
	listed := make(chan error)
	done := make(chan struct{})
	go func() {
		for {
			if err := s.Counters(b.Context(), "ns", nil, func(store.LimitCounter) error { return nil }); err != nil {
				listed <- err
				return
			}
			select {
			case <-done:
				listed <- nil
				return
			default:
			}
		}
	}()
	var slowest time.Duration
	for i := uint64(1); b.Loop(); i++ {
		start := time.Now()
		must.Get(s.Push(b.Context(), hourly(1<<20+i, 0, 1), 1))(b)
		slowest = max(slowest, time.Since(start))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1e3, "slowest-ms/push")
	close(done)
	must.OK(b, <-listed)
}

// BenchmarkTakeOfLogs measures a take of full logs, one for each limit that a request may have. The
// store is locked meanwhile.
func BenchmarkTakeOfLogs(b *testing.B) {
	now := time.Unix(1_767_225_600, 0)
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	take := wire.Take{Least: 1, Most: 1}
	sequence := uint64(0)
	push := func(p *wire.Push) {
		sequence++
		p.Namespace, p.Sender, p.Sequence, p.Floor = "ns", 1, sequence, sequence
		must.Get(s.Push(b.Context(), p, 1))(b)
	}
	for id := range byte(100) {
		c := wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(window.SlidingBuckets), WidthMillis: 60_000, Precision: 1}
		item := wire.Item{LimitCounter: c, Limit: 505, Newest: uint64(now.UnixNano())}
		for age := range uint64(505) {
			item.Hits, item.Ages = append(item.Hits, 1), append(item.Ages, age)
		}
		push(&wire.Push{Items: []wire.Item{item}})
		take.Rooms = append(take.Rooms, wire.Room{LimitCounter: c, Limit: 505, Cost: 1})
	}
	for b.Loop() {
		push(&wire.Push{Takes: []wire.Take{take}})
	}
}
