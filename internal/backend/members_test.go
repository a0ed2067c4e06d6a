package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/store/memory"
	"weir/internal/wire"
)

// A namespace that makes up nodes takes no room from a namespace that has less, and there are no
// more nodes than there may be.
func TestMembersAreBounded(t *testing.T) {
	m := members[int]{most: 10}
	for node := range uint64(4) {
		m.put(member{"ns", node}, 1)
	}
	for node := range uint64(100) {
		m.put(member{"evil", node}, 2)
		m.put(member{"ns", node % 4}, 1)
	}
	for node := range uint64(4) {
		if v, known := m.get(member{"ns", node}); v != 1 || !known {
			t.Errorf("node %d: %d, known %v", node, v, known)
		}
	}
	if m.count != 10 || m.shares.Of("evil").Size() != 6 {
		t.Errorf("%d members, %d of them evil", m.count, m.shares.Of("evil").Size())
	}
	m.put(member{"another", 1}, 3)
	m.sweep(func(v int) bool { return v == 2 })
	m.delete(member{"another", 2})
	if m.delete(member{"another", 1}); m.count != 4 || m.shares.Of("evil") != nil || m.shares.Of("another") != nil {
		t.Errorf("%d members are left, want 4", m.count)
	}
}

// A list is kept while it is used: read lately, or read now, or waited for.
func TestListsAreForgotten(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	before := now.Add(-keepLists)
	o := overrides{lists: map[string]*list{"unused": {at: before}, "read": {at: before.Add(1)}, "reading": {at: before, reading: true}, "waited": {at: before, polls: 1}}}
	o.sweep(now)
	must.Same(t, slices.Sorted(maps.Keys(o.lists)), []string{"read", "reading", "waited"}, "lists")
	o.sweep(now.Add(keepLists - 1))
	must.Equal(t, len(o.lists), 3, "lists before it is looked again")
	o.sweep(now.Add(keepLists))
	must.Same(t, slices.Sorted(maps.Keys(o.lists)), []string{"reading", "waited"}, "lists later")
}

// unreadable is a store whose lists can't be read for a while.
type unreadable struct {
	store.Store
	fails bool
}

func (u *unreadable) Overrides(ctx context.Context, namespace string, known uint64) ([]byte, uint64, error) {
	if u.fails {
		return nil, 0, errors.New("away")
	}
	return u.Store.Overrides(ctx, namespace, known)
}

// While the store of lists is away, nodes hear of the list that was known, as long as some ask for it and an hour
// longer.
func TestListsOutliveTheirStore(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	clock := func() time.Time { return now }
	kept := &unreadable{Store: memory.New(memory.Options{Now: clock})}
	b := New(kept)
	b.overrides.now = clock
	version := must.Get(b.By(nil).ForceOverrides(t.Context(), "shop", overrideTo(10, "ann")))(t)
	hears(t, b)
	kept.fails = true
	for _, after := range []time.Duration{time.Second, keepLists} {
		now = now.Add(after)
		must.Equal(t, hears(t, b).Version, version, "the version that nodes hear of")
	}
	before := now.Add(-keepLost)
	o := overrides{lists: map[string]*list{
		"lost": {at: before.Add(1), known: true, lost: true}, "asked for": {at: before, used: before.Add(2), known: true, lost: true}, "never known": {at: before, lost: true},
	}}
	o.sweep(now)
	must.Same(t, slices.Sorted(maps.Keys(o.lists)), []string{"asked for", "lost"}, "lists")
	o.sweep(now.Add(keepLists))
	must.Equal(t, len(o.lists), 0, "lists later")
}

// hears pushes to a backend as a node of the namespace "shop", and returns what the answer says about its list.
func hears(t *testing.T, b *Backend) wire.Overrides {
	t.Helper()
	push := wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 1, Floor: 1, Known: wire.Known{Asks: true}}
	return must.Get(b.Push(t.Context(), wire.AppendPush(nil, &push)))(t).Answer.Overrides
}

// Nodes of a namespace hear of its list, too, if the backend keeps those of as many others as it may.
func TestListsOfManyNamespaces(t *testing.T) {
	b := New(memory.New(memory.Options{}))
	for i := range maxLists {
		b.overrides.lists[fmt.Sprint(i)] = &list{at: time.Now()}
	}
	version := must.Get(b.By(nil).ForceOverrides(t.Context(), "shop", overrideTo(10, "ann")))(t)
	if told := hears(t, b); !told.Known || told.Version != version || len(told.Part) == 0 {
		t.Errorf("a node is told %+v, want version %d", told, version)
	}
	must.Equal(t, len(b.overrides.lists), maxLists, "lists that are kept")
}
