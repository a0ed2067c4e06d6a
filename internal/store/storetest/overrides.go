package storetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// wantOverrides wants a namespace's list, and returns its version.
func (b *bench) wantOverrides(namespace string, want []byte) (version uint64) {
	b.t.Helper()
	list, version, err := b.store.Overrides(b.t.Context(), namespace, 1)
	if err != nil || !bytes.Equal(list, want) {
		b.t.Fatalf("overrides %.80q, error %v, want %.80q", list, err, want)
	}
	return version
}

// setOverrides replaces a list, whose version is then the next.
func (b *bench) setOverrides(from uint64, list []byte) (version uint64) {
	b.t.Helper()
	version = must.Get(b.store.SetOverrides(b.t.Context(), "ns", from, list))(b.t)
	must.EqualOrEnd(b.t, version, store.NextVersion(from, b.clock.now()), "version of the list that was set")
	must.Equal(b.t, b.wantOverrides("ns", list), version, "version")
	return version
}

// The last list set is the list, and its version ascends, even if the clock jumps.
func testOverrides(t *testing.T, b *bench) {
	must.Equal(t, b.wantOverrides("ns", nil), 0, "version before there is a list")
	version := b.setOverrides(b.setOverrides(0, []byte("one")), []byte{0, 255, '\r', '\n'})
	b.clock.advance(-time.Hour)
	version = b.setOverrides(version, bytes.Repeat([]byte("x"), wire.MaxOverridesSize))
	b.clock.advance(2 * time.Hour)
	version = b.setOverrides(b.setOverrides(version, nil), []byte("five"))
	// A sender that knows the version gets no list.
	if list, same, err := b.store.Overrides(t.Context(), "ns", version); len(list) > 0 || same != version || err != nil {
		t.Errorf("got %q of version %d, error %v, want nothing new", list, same, err)
	}
	must.Equal(t, b.wantOverrides("another", nil), 0, "version of another namespace")
	// Lists are not listed as counters, and outlive them.
	b.list()
	b.clock.advance(400 * 24 * time.Hour)
	b.push([]wire.Item{b.item(Room(fixed, 1, 9, 1), 1)})
	b.wantOverrides("ns", []byte("five"))
}

// A list that has changed meanwhile is not replaced, and an invalid list replaces none.
func testOverridesChanged(t *testing.T, b *bench) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(ctx context.Context, namespace string, from uint64, list []byte, want error) {
		t.Helper()
		if _, err := b.store.SetOverrides(ctx, namespace, from, list); err == nil || !errors.Is(err, want) {
			t.Errorf("from %d: %v, want %v", from, err, want)
		}
	}
	refused(t.Context(), "ns", 7, []byte("x"), store.ErrChanged)
	b.wantOverrides("ns", nil)
	version := b.setOverrides(0, []byte("x"))
	for _, from := range []uint64{0, version - 1, version + 1} {
		refused(t.Context(), "ns", from, []byte("y"), store.ErrChanged)
	}
	refused(t.Context(), "ns", version, make([]byte, wire.MaxOverridesSize+1), store.ErrInvalid)
	refused(t.Context(), "a*", 0, nil, store.ErrInvalid)
	refused(ended, "ns", version, nil, context.Canceled)
	_, _, err := b.store.Overrides(ended, "ns", 0)
	must.Fails(t, err, "read with a context that has ended")
	b.wantOverrides("ns", []byte("x"))
}

// If several callers change a list at once, each change replaces a different list.
func testOverridesHammer(t *testing.T, b *bench) {
	const writers, changes = 8, 20
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for done := 0; done < changes; {
				list, version, err := b.store.Overrides(t.Context(), "ns", 0)
				if err == nil {
					_, err = b.store.SetOverrides(t.Context(), "ns", version, append(list, byte(writer)))
				}
				if err == nil {
					done++
				} else if !errors.Is(err, store.ErrChanged) {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	list, _, err := b.store.Overrides(t.Context(), "ns", 0)
	must.OK(t, err)
	must.EqualOrEnd(t, len(list), writers*changes, "changes")
	for writer := range writers {
		must.Equal(t, bytes.Count(list, []byte{byte(writer)}), changes, "changes of writer %d", writer)
	}
}
