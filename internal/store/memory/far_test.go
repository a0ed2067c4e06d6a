package memory

import (
	"context"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/wire"
)

// The list of a store's next life is later than each that was told before, even if the clock was set back
// and many keys were near.
func TestVersionsOfTheNextLife(t *testing.T) {
	now := time.Unix(1_767_571_260, 0)
	clock := func() time.Time { return now }
	k := &keptStore{t: t, now: clock, kept: map[string][]byte{}}
	last := uint64(0)
	for life, keys := range []int{0, 3, reservedVersions + 3} {
		k.start()
		push := wire.Push{Namespace: "default", Sender: 1, Sequence: uint64(life + 1), Advance: wire.Advance{Present: true, Wants: true, Settled: true}}
		out := must.Get(k.Push(context.Background(), &push, 1))(t)
		if got := out.Answer.Near.Version; got <= last {
			t.Errorf("life %d: version %d, and %d was told before", life, got, last)
		}
		f := k.fleets["default"]
		for range keys {
			f.next()
		}
		last = f.version
		k.keep()
		now = now.Add(-time.Hour)
	}
	s := New(Options{Now: clock, Tracked: true})
	for key, value := range k.kept {
		must.OK(t, s.Restore(func(yield func(key, value []byte) bool) { yield([]byte(key), value) }))
	}
	must.AtLeast(t, s.fleets["default"].version, last, "the version, after another was told")
}
