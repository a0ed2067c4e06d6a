package memory

import (
	"bytes"
	"slices"
	"testing"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// recorded returns the records of a store with some of each kind.
func recorded(t testing.TB, o Options) []Record {
	t.Helper()
	s := New(o)
	nanos := uint64(o.Now().UnixNano())
	counter := wire.LimitCounter{ID: wire.ID{1}, Kind: uint8(window.SlidingWindow), WidthMillis: 60_000}
	tokens := wire.LimitCounter{ID: wire.ID{2}, Kind: uint8(window.TokenBucket), WidthMillis: 60_000}
	p := &wire.Push{
		Namespace: "shop", Sender: 7, Sequence: 70, Floor: 3,
		Items: []wire.Item{{LimitCounter: counter, Newest: store.NumberAt(counter, nanos), Hits: []int64{5, 4}}},
		Takes: []wire.Take{{Least: 1, Most: 9, Rooms: []wire.Room{{LimitCounter: tokens, Limit: 7, Burst: 7, Cost: 1}}}},
	}
	must.Get(s.Push(t.Context(), p, 1))(t)
	must.Get(store.Join(t.Context(), s, "shop", 1))(t)
	must.Get(s.SetOverrides(t.Context(), "shop", 0, []byte("list")))(t)
	records := s.Changes()
	slices.SortFunc(records, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
	must.EqualOrEnd(t, len(records), 6, "records, want 2 counters, a sender, its grants, a node and a list")
	return records
}

// FuzzRestore reads records that no store has written. A store that accepts them works.
func FuzzRestore(f *testing.F) {
	o := Options{Now: noon, Tracked: true, MaxCounters: 2}
	for _, r := range recorded(f, o) {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := New(o)
		if s.Restore(func(yield func(_, _ []byte) bool) { yield(key, value) }) != nil {
			return
		}
		_, err := s.Push(t.Context(), store.NewTrial().Next(), 1)
		must.Report(t, err)
		must.AtMost(t, s.Size().Counters, 2, "counters")
	})
}

// A record that was cut short, or has surplus bytes, is an error.
func TestRestoreParts(t *testing.T) {
	o := Options{Now: noon, Tracked: true}
	restore := func(key, value []byte) error {
		return New(o).Restore(func(yield func(_, _ []byte) bool) { yield(key, value) })
	}
	for _, r := range recorded(t, o) {
		must.Is(t, restore(r.Key, r.Value), nil, "%q", r.Key)
		for n := range r.Key {
			// Without its last part, the key of grants is the key of their sender, whose record has
			// another form.
			must.Equal(t, restore(r.Key[:n], r.Value) != nil, true, "%q: an error for %d bytes of the key", r.Key, n)
		}
		if r.Key[0] != 'c' {
			continue
		}
		for n := range r.Value {
			must.Equal(t, restore(r.Key, r.Value[:n]) != nil, true, "%q: an error for %d bytes of %x", r.Key, n, r.Value)
		}
		must.Equal(t, restore(r.Key, append(r.Value, 0)) != nil, true, "%q: an error for a byte more", r.Key)
	}
}
