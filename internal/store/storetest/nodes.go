package storetest

import (
	"sync"
	"testing"
	"time"

	"weir/internal/must"
	"weir/internal/store"
	"weir/internal/wire"
)

// nodes wants a number of active nodes once these have joined, at least of the last of them, and asks for one.
func (b *bench) nodes(namespace string, node, want uint64, join ...uint64) {
	b.t.Helper()
	for i, joins := range join {
		if got, err := store.Join(b.t.Context(), b.store, namespace, joins); err != nil || i == len(join)-1 && got != want {
			b.t.Fatalf("%s: %d nodes with %d, error %v; want %d", namespace, got, joins, err, want)
		}
	}
	must.EqualOrEnd(b.t, must.Get(store.CountNodes(b.t.Context(), b.store, namespace, node))(b.t), want, "%s: nodes with %d", namespace, node)
}

func testNodes(t *testing.T, b *bench) {
	for i, node := range []uint64{0, 1, 1<<64 - 1, 1 << 53, 1<<53 + 1, 1<<63 + 1} {
		b.nodes("ns", node, uint64(i+1))
		b.nodes("ns", node, uint64(i+1), node, node)
	}
	// Other namespaces have other nodes.
	b.nodes("n", 1, 1, 1, 1)
	b.nodes("ns2", 2, 1, 2)
	b.nodes("ns2", 1, 2)
	// Nodes that don't join again are forgotten, each at its own time.
	b.clock.advance(store.NodeLife - time.Second)
	b.nodes("ns", 1, 6, 1)
	b.nodes("ns", 2, 7, 2, 2)
	b.clock.advance(time.Second - time.Millisecond)
	b.nodes("ns", 1, 7, 1)
	b.nodes("n", 3, 2, 3)
	b.clock.advance(2 * time.Millisecond)
	b.nodes("ns", 1, 2, 1)
	b.nodes("n", 3, 1, 3)
	b.nodes("ns2", 3, 1, 3)
	b.clock.advance(store.NodeLife - 2*time.Millisecond)
	b.nodes("ns", 7, 2, 7)
	b.clock.advance(time.Hour)
	b.nodes("ns", 7, 1, 7)
	// Nodes are not listed as counters.
	b.list()
	b.push([]wire.Item{b.item(Room(fixed, 1, 9, 1), 1)})
	b.nodes("ns", 7, 1, 7)
	// Nodes that join at once are all counted.
	b.crowd("crowd", 0, 20, 20)
	b.nodes("crowd", 0, 20, 0)
}

// crowd has nodes join once, several at the same time.
func (b *bench) crowd(namespace string, first, end uint64, workers uint64) {
	var joins sync.WaitGroup
	for worker := range workers {
		joins.Go(func() {
			for node := first + worker; node < end; node += workers {
				if got, err := store.Join(b.t.Context(), b.store, namespace, node); err != nil || got < 1 || got > end {
					b.t.Errorf("%d nodes, error %v; want 1 to %d", got, err, end)
				}
			}
		})
	}
	joins.Wait()
}

// Nodes that join once count for a short time. Nodes that join again count longer.
func testNodesOnce(_ *testing.T, b *bench) {
	b.nodes("ns", 1, 1, 1)
	b.clock.advance(store.Newcomer - time.Millisecond)
	b.nodes("ns", 1, 2, 1, 2)
	b.crowd("ns", 1000, 1100, 1)
	b.nodes("ns", 1, 102)
	b.clock.advance(store.Newcomer - time.Millisecond)
	b.nodes("ns", 1, 102, 2)
	for _, step := range []struct {
		after time.Duration
		want  uint64 // with node 1
		joins []uint64
	}{
		{time.Millisecond, 2, nil},
		{store.NodeLife - store.Newcomer - time.Millisecond, 2, nil},
		{time.Millisecond, 2, nil}, // node 1 is not active any more
		{0, 2, []uint64{1}},
		{store.Newcomer, 1, nil},
		{0, 2, []uint64{2, 1}}, // a forgotten node is new again
		{store.Newcomer, 1, nil},
	} {
		b.clock.advance(step.after)
		b.nodes("ns", 1, step.want, step.joins...)
	}
}

// More nodes than are counted are not recorded. There is room again when the others have expired.
func testNodesBounded(_ *testing.T, b *bench) {
	const lasting = 3
	for range 2 {
		b.crowd("ns", 0, lasting, 1)
	}
	b.crowd("ns", lasting, store.MaxNodes-16, 16)
	b.crowd("ns", store.MaxNodes-16, store.MaxNodes, 1)
	b.nodes("ns", 0, store.MaxNodes, store.MaxNodes, store.MaxNodes+1, 0)
	b.nodes("other", 0, 1, 0)
	b.clock.advance(store.Newcomer)
	b.nodes("ns", 0, lasting, 0)
	b.nodes("ns", 0, lasting+1, 99)
}
