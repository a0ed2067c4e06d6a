package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

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

// setOverrides replaces a list.
func (b *bench) setOverrides(from uint64, list []byte) (version uint64) {
	b.t.Helper()
	version, err := b.store.SetOverrides(b.t.Context(), "ns", from, list)
	if err != nil {
		b.t.Fatalf("set overrides: %v", err)
	}
	b.wantOverrides("ns", list)
	return version
}

// The last list set is the list, and its version ascends, even if the clock jumps.
func testOverrides(t *testing.T, b *bench) {
	if v := b.wantOverrides("ns", nil); v != 0 {
		t.Errorf("version %d before there is a list, want 0", v)
	}
	first := b.setOverrides(0, []byte("one"))
	if want := uint64(epoch.UnixMicro()); first != want {
		t.Errorf("version %d, want the time, %d", first, want)
	}
	second := b.setOverrides(first, []byte{0, 255, '\r', '\n'})
	if second != first+1 {
		t.Errorf("version %d at the same time, want %d", second, first+1)
	}
	b.clock.advance(-time.Hour)
	third := b.setOverrides(second, bytes.Repeat([]byte("x"), wire.MaxOverridesSize))
	if third != second+1 {
		t.Errorf("version %d of a clock that was set back, want %d", third, second+1)
	}
	b.clock.advance(2 * time.Hour)
	fourth := b.setOverrides(third, nil)
	if want := uint64(b.clock.now().UnixMicro()); fourth != want {
		t.Errorf("version %d, want the time, %d", fourth, want)
	}
	// A sender that knows the version gets no list.
	b.setOverrides(fourth, []byte("five"))
	_, fifth, err := b.store.Overrides(t.Context(), "ns", 0)
	if err != nil {
		t.Fatal(err)
	}
	if list, version, err := b.store.Overrides(t.Context(), "ns", fifth); len(list) > 0 || version != fifth || err != nil {
		t.Errorf("got %q of version %d, error %v, want nothing new", list, version, err)
	}
	if v := b.wantOverrides("another", nil); v != 0 {
		t.Errorf("another namespace has version %d, want none", v)
	}
	// Lists are not listed as counters, and outlive them.
	if got := b.counters("ns"); len(got) != 0 {
		t.Errorf("counters %+v, want none", got)
	}
	b.clock.advance(400 * 24 * time.Hour)
	b.push(items(item(fixed, 1, minute, b.clock.now(), 1)), totals(1))
	b.wantOverrides("ns", []byte("five"))
}

// A list that has changed meanwhile is not replaced, and an invalid list replaces none.
func testOverridesChanged(t *testing.T, b *bench) {
	set := func(namespace string, from uint64, list []byte) error {
		_, err := b.store.SetOverrides(t.Context(), namespace, from, list)
		return err
	}
	if err := set("ns", 7, []byte("x")); !errors.Is(err, store.ErrChanged) {
		t.Errorf("a list that there is not: %v, want it to have changed", err)
	}
	b.wantOverrides("ns", nil)
	version := b.setOverrides(0, []byte("x"))
	for _, from := range []uint64{0, version - 1, version + 1} {
		if err := set("ns", from, []byte("y")); !errors.Is(err, store.ErrChanged) {
			t.Errorf("from %d: %v, want it to have changed", from, err)
		}
	}
	if err := set("ns", version, make([]byte, wire.MaxOverridesSize+1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a list that is too long: %v", err)
	}
	if err := set("a*", 0, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a namespace that is none: %v", err)
	}
	b.wantOverrides("ns", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.store.SetOverrides(ctx, "ns", version, nil); err == nil {
		t.Error("set with a context that has ended")
	}
	if _, _, err := b.store.Overrides(ctx, "ns", 0); err == nil {
		t.Error("read with a context that has ended")
	}
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
				if err != nil {
					t.Error(err)
					return
				}
				switch _, err = b.store.SetOverrides(t.Context(), "ns", version, append(list, byte(writer))); {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	list, _, err := b.store.Overrides(t.Context(), "ns", 0)
	if err != nil || len(list) != writers*changes {
		t.Fatalf("%d changes, error %v, want %d", len(list), err, writers*changes)
	}
	for writer := range writers {
		if n := bytes.Count(list, []byte{byte(writer)}); n != changes {
			t.Errorf("%d changes of writer %d, want %d", n, writer, changes)
		}
	}
}

// told wants these reports of nodes.
func (b *bench) told(namespace string, want ...store.Told) {
	b.t.Helper()
	got, err := b.store.Told(b.t.Context(), namespace)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b store.Told) int { return cmp.Compare(a.Node, b.Node) })
	if !slices.Equal(got, want) {
		b.t.Errorf("told %v, want %v", got, want)
	}
}

// A node's report is known until the node sends another, or is silent for long.
func testTold(t *testing.T, b *bench) {
	tell := func(namespace string, node, version, unfit uint64) store.Told {
		t.Helper()
		told := store.Told{Node: node, Version: version, Unfit: unfit}
		if err := b.store.Heard(t.Context(), namespace, told); err != nil {
			t.Fatal(err)
		}
		return told
	}
	b.told("ns")
	high := uint64(1<<64 - 1)
	one, two := tell("ns", 1, 0, 0), tell("ns", high, 1<<60, 3)
	other := tell("other", 1, 5, 0)
	b.told("ns", one, two)
	b.told("other", other)
	b.clock.advance(store.HeardLife - time.Second)
	one = tell("ns", 1, 9, 1)
	b.told("ns", one, two)
	b.clock.advance(time.Second)
	b.told("ns", one)
	b.told("other")
	b.clock.advance(store.HeardLife - time.Second)
	b.told("ns")
	// Invented nodes are bounded, and don't prevent known nodes from reporting.
	node := uint64(0)
	for ; node < store.MaxNodes; node++ {
		tell("ns", node, 1, 0)
	}
	tell("ns", node, 1, 0)
	tell("ns", 0, 2, 0)
	got, err := b.store.Told(t.Context(), "ns")
	if err != nil || len(got) != store.MaxNodes || !slices.Contains(got, store.Told{Node: 0, Version: 2}) {
		t.Errorf("%d have told, error %v, want %d", len(got), err, store.MaxNodes)
	}
	if slices.ContainsFunc(got, func(t store.Told) bool { return t.Node == node }) {
		t.Error(fmt.Sprint("node ", node, " was noted beyond the bound"))
	}
}
