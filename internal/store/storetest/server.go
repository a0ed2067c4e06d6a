package storetest

import (
	"context"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// Counter returns a counter without buckets, named after id.
func Counter(kind window.Kind, id byte, width time.Duration) wire.LimitCounter {
	return wire.LimitCounter{ID: wire.ID{id}, Kind: uint8(kind), WidthMillis: uint64(width.Milliseconds())}
}

// Sender is the sender of [PushOne].
const Sender = 1<<64 - 2

// PushOne pushes a hit in the present window of each counter.
func PushOne(ctx context.Context, s store.Store, sequence uint64, now time.Time, counters ...wire.LimitCounter) (store.Outcome, error) {
	p := &wire.Push{Namespace: "ns", Sender: Sender, Sequence: sequence, Floor: sequence}
	for _, c := range counters {
		it := wire.Item{LimitCounter: c, Newest: uint64(now.UnixMilli()) / c.WidthMillis, Limit: 10, Hits: []int64{1}}
		switch kind := window.Kind(c.Kind); {
		case kind.Started():
			it.Newest = uint64(now.UnixNano())
		case kind.Bucketed():
			it.Newest, it.Ages = uint64(now.UnixNano())/c.Precision, []uint64{0}
		}
		p.Items = append(p.Items, it)
	}
	return s.Push(ctx, p, 1)
}

// WantTotal pushes a hit to a counter, and wants this total.
func WantTotal(t *testing.T, s store.Store, sequence uint64, now time.Time, c wire.LimitCounter, want uint64) store.Outcome {
	t.Helper()
	out, err := PushOne(t.Context(), s, sequence, now, c)
	if err != nil || out.Answer.Totals[0].Hits[0] != want {
		t.Fatalf("push %d: outcome %+v, error %v; want total %d", sequence, out, err, want)
	}
	return out
}

// Restart wants a store on a server to fail while that is down, and to have lost nothing afterwards.
func Restart(t *testing.T, s store.Store, stop, restart func()) {
	c, now := Counter(window.SlidingWindow, 1, 24*time.Hour), time.Now()
	WantTotal(t, s, 1, now, c, 1)
	stop()
	_, push := PushOne(t.Context(), s, 2, now, c)
	_, join := store.Join(t.Context(), s, "ns", 1)
	for name, err := range map[string]error{"push": push, "join": join, "ping": s.Ping(t.Context())} {
		must.Fails(t, err, "a %s while the server is down", name)
	}
	restart()
	// A push that was applied is still recorded, and any other is applied now.
	must.Equal(t, WantTotal(t, s, 1, now, c, 1).Duplicate, true, "the push that was applied is known")
	must.Equal(t, WantTotal(t, s, 2, now, c, 2).Duplicate, false, "the push that failed is known")
	// Connections that broke while idle cause no errors.
	restart()
	WantTotal(t, s, 3, now, c, 3)
	must.Is(t, s.Ping(t.Context()), nil, "ping")
}

// ServersClock wants a store to go by the clock of its server.
func ServersClock(t *testing.T, s store.Store, clock func() time.Time) {
	before := clock()
	out := must.Get(PushOne(t.Context(), s, 1, before, Counter(window.FirstHitWindow, 1, time.Hour)))(t)
	must.Between(t, out.Answer.NowNanos, uint64(before.UnixNano()), uint64(clock().UnixNano()), "answered at the server's clock")
	visited := 0
	must.OK(t, s.Counters(t.Context(), "ns", nil, func(store.LimitCounter) error { visited++; return nil }))
	must.Equal(t, visited, 1, "counters")
}
