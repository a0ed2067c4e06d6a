package backend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
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
	must.Equal(t, m.count, 10, "members")
	must.Equal(t, m.shares.Of("evil").Size(), 6, "evil members")
	m.put(member{"another", 1}, 3)
	m.sweep(func(v int) bool { return v == 2 })
	m.delete(member{"another", 2})
	if m.delete(member{"another", 1}); m.count != 4 || m.shares.Of("evil") != nil || m.shares.Of("another") != nil {
		t.Errorf("%d members are left, want 4", m.count)
	}
}

// joins is a store that says how many nodes joined it, ever.
type joins struct {
	store.Store
	nodes []uint64
	err   error
	asked int
}

// hit is the push of a node that counts.
func hit() []wire.Item {
	return []wire.Item{{LimitCounter: wire.LimitCounter{Kind: uint8(window.FixedWindow), WidthMillis: 1000}, Newest: 1, Hits: []int64{1}}}
}

// Note counts as if nobody who asks had joined.
func (j *joins) Note(_ context.Context, _ store.Topic, _ string, note store.Note) (uint64, error) {
	if note.Asks {
		j.asked++
		return uint64(len(j.nodes)) + 1, j.err
	}
	if j.err != nil {
		return 0, j.err
	}
	j.nodes = append(j.nodes, note.Member)
	return uint64(len(j.nodes)), nil
}

// The store is asked once a second for each node and namespace, whatever the number of pushes.
func TestMembershipAsksOnceASecond(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	store := &joins{}
	m := membership{now: func() time.Time { return now }}
	push := func(namespace string, node, want uint64) {
		t.Helper()
		must.EqualOrEnd(t, must.Get(m.count(t.Context(), store, &wire.Push{Namespace: namespace, Sequence: 1, Floor: 1, Node: node, Items: hit()}))(t), want, "nodes")
	}
	for range 3 {
		push("a", 7, 1)
		push("a", 8, 2)
		push("b", 7, 3)
	}
	now = now.Add(time.Second - 1)
	push("a", 7, 1)
	now = now.Add(1)
	push("a", 7, 4)
	push("a", 7, 4)
	push("b", 7, 5)
	must.Same(t, store.nodes, []uint64{7, 8, 7, 7, 7}, "joined")
	// While the store fails, what was known lasts, as the counters may be elsewhere. Each new node is one
	// more. Nothing is known of a new namespace.
	now = now.Add(time.Second)
	store.err = errors.New("out of order")
	push("a", 7, 4)
	push("a", 9, 5)
	now = now.Add(time.Second)
	push("a", 9, 5)
	push("a", 10, 6)
	_, err := m.count(t.Context(), store, &wire.Push{Namespace: "c", Sequence: 1, Floor: 1, Node: 9, Items: hit()})
	must.Is(t, err, store.err, "")
	now = now.Add(time.Second)
	store.err = nil
	push("a", 7, 6)
	push("a", 9, 7)
	// A namespace that nobody pushes to any more is not remembered for long.
	now = now.Add(2 * time.Minute)
	push("a", 7, 8)
	must.Equal(t, m.joined.count, 1, "nodes remembered")
}

// A node that only reads has the nodes counted once a second, and is none of them before its first
// hit.
func TestWhoOnlyReadsDoesNotJoin(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	store := &joins{nodes: []uint64{1, 2}}
	m := membership{now: func() time.Time { return now }}
	push := func(want uint64, items ...wire.Item) {
		t.Helper()
		must.EqualOrEnd(t, must.Get(m.count(t.Context(), store, &wire.Push{Namespace: "a", Sequence: 1, Floor: 1, Node: 7, Items: items}))(t), want, "nodes")
	}
	for range 3 {
		push(3)
	}
	must.Equal(t, len(store.nodes), 2, "joined: %v", store.nodes)
	must.Equal(t, store.asked, 1, "times asked")
	push(3, hit()...)
	push(3)
	push(3, hit()...)
	now = now.Add(time.Second)
	push(4)
	if want := []uint64{1, 2, 7}; !slices.Equal(store.nodes, want) || store.asked != 2 {
		t.Errorf("joined %v, asked %d times; want %v, and 2", store.nodes, store.asked, want)
	}
}

// A push that no store takes changes nothing: its node does not join.
func TestInvalidPushJoinsNothing(t *testing.T) {
	store := &joins{}
	m := membership{now: time.Now}
	for _, p := range []*wire.Push{
		{Namespace: "*", Sequence: 1, Floor: 1},
		{Namespace: "a", Sequence: 1, Floor: 1, Takes: []wire.Take{{Least: 1, Most: 1}}},
	} {
		must.Get(m.count(t.Context(), store, p))(t) // the store says what is wrong
	}
	must.Equal(t, len(store.nodes), 0, "joined: %v", store.nodes)
	must.Equal(t, m.joined.count, 0, "known to have joined")
}

// More nodes than are remembered cost more, and are still counted. Of more than half as many, those of the last second are
// remembered.
func TestMembershipIsBounded(t *testing.T) {
	now := time.Unix(1_767_225_600, 0)
	store := &joins{}
	m := membership{now: func() time.Time { return now }}
	for node := range uint64(maxMembers + 10) {
		if node == maxMembers/2 {
			now = now.Add(time.Second) // and all stay
		}
		must.EqualOrEnd(t, must.Get(m.count(t.Context(), store, &wire.Push{Namespace: "a", Sequence: 1, Floor: 1, Node: node, Items: hit()}))(t), node+1, "nodes")
	}
	must.Equal(t, m.joined.count, maxMembers, "nodes remembered")
	now = now.Add(time.Second)
	must.Get(m.count(t.Context(), store, &wire.Push{Namespace: "b", Sequence: 1, Floor: 1, Items: hit()}))(t)
	must.Equal(t, m.joined.count, 1, "nodes remembered a second later")
}
