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
