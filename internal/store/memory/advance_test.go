package memory

import (
	"maps"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/store"
	"weir/internal/store/advancetest"
)

// TestAdvance kills the process of every other store now and then, before or after what a push has changed is
// kept, and another one restores what is.
func TestAdvance(t *testing.T) {
	advancetest.Run(t, nightly.Or(3000, 300), func(t *testing.T, seed uint64, now func() time.Time) advancetest.Store {
		if seed%2 == 0 {
			s := New(Options{Now: now})
			return advancetest.Store{Store: func() store.Store { return s }}
		}
		k := &keptStore{t: t, now: now, kept: map[string][]byte{}}
		k.start()
		return advancetest.Store{Store: func() store.Store { return k.Store }, Keep: k.keep, Start: k.start}
	})
}

// keptStore is a store that outlives its process.
type keptStore struct {
	*Store
	t    *testing.T
	now  func() time.Time
	kept map[string][]byte // records
}

func (k *keptStore) start() {
	k.Store = New(Options{Now: k.now, Tracked: true})
	must.OK(k.t, k.Restore(func(yield func(key, value []byte) bool) {
		for _, key := range slices.Sorted(maps.Keys(k.kept)) {
			if !yield([]byte(key), k.kept[key]) {
				return
			}
		}
	}))
}

// keep keeps what has changed.
func (k *keptStore) keep() {
	for _, r := range k.Changes() {
		if k.kept[string(r.Key)] = r.Value; r.Value == nil {
			delete(k.kept, string(r.Key))
		}
	}
}

func TestFleets(t *testing.T) {
	senders := make([]int, 70)
	for i := range senders {
		senders[i] = i + 1
	}
	advancetest.Fleets(t, senders, func(_ *testing.T, now func() time.Time) (store.Store, func() int) {
		s := New(Options{Now: now})
		return s, func() int { return len(s.fleets["ns"].Limits) }
	})
}
