package backend_test

import (
	"testing"
	"time"

	"weir/internal/backend"
	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// A store with so many workers that it may have dropped some says since when it knows all gaps.
func TestGapsAreKnownSince(t *testing.T) {
	begun := time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)
	now := begun
	clock := func() time.Time { return now }
	b := backend.New(memory.New(memory.Options{Now: clock}))
	b.Now = clock
	const few = store.MaxTellers - store.MaxTellers/16
	for sender := range uint64(few + 1) {
		if sender == few {
			if _, since, err := b.Gaps(t.Context(), "shop", 0, wire.MaxUsedDay); err != nil || !since.IsZero() {
				t.Fatalf("since %v, error %v; want none", since, err)
			}
		}
		must.Get(b.Push(t.Context(), wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: sender + 1, Sequence: 1})))(t)
		now = now.Add(time.Millisecond)
	}
	if _, since, err := b.Gaps(t.Context(), "shop", 0, wire.MaxUsedDay); err != nil || !since.Equal(begun) {
		t.Errorf("since %v, error %v; want %v", since, err, begun)
	}
}

// A gap is one of the days that it touches.
func TestGapsOfDays(t *testing.T) {
	const day = 20_000
	heard := time.Unix(day*86400, 0).Add(24*time.Hour - store.NodeLife/2)
	now := heard
	clock := func() time.Time { return now }
	b := backend.New(memory.New(memory.Options{Now: clock}))
	b.Now = clock
	must.Get(b.Push(t.Context(), wire.AppendUsed(nil, &wire.Used{Namespace: "shop", Sender: 7, Sequence: 1, AtNanos: uint64(heard.UnixNano())})))(t)
	for _, test := range []struct {
		after    time.Duration
		from, to uint32
		want     int
	}{
		{store.NodeLife, 0, day + 9, 0}, {store.NodeLife + 1, 0, day - 1, 0}, {store.NodeLife + 1, 0, day, 1}, {store.NodeLife + 1, day, day, 1},
		{store.NodeLife + 1, day + 1, day + 1, 1}, {store.NodeLife + 1, day + 2, day + 9, 0},
	} {
		now = heard.Add(test.after)
		gaps, _, err := b.Gaps(t.Context(), "shop", test.from, test.to)
		if err != nil || len(gaps) != test.want || len(gaps) == 1 && (gaps[0].Sender != 7 || !gaps[0].From.Equal(heard) || gaps[0].To.Sub(heard) != store.NodeLife) {
			t.Errorf("%+v: %+v, %v", test, gaps, err)
		}
	}
}
