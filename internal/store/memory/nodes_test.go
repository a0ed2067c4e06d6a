package memory

import (
	"testing"

	"weir/internal/store"
)

func TestNodesAreBoundedAndForgotten(t *testing.T) {
	n := newNodes(3)
	for _, step := range []struct {
		namespace string
		node, now uint64
		want      uint64
	}{
		{"a", 1, 10, 1}, {"a", 2, 11, 2}, {"b", 1, 12, 1},
		{"a", 1, 13, 2},
		// The node that joined longest ago makes room: a's second.
		{"b", 2, 14, 2}, {"a", 3, 15, 2},
		{"c", 1, 15 + uint64(store.NodeLife) - 1, 1},
	} {
		if got := n.join(owned{step.namespace, step.node}, step.now); got != step.want {
			t.Fatalf("%+v: %d nodes", step, got)
		}
	}
	// Nothing is kept of a namespace without nodes.
	n.join(owned{"c", 2}, 15+uint64(store.NodeLife))
	if n.joined.count("c") != 2 || len(n.joined.rows) != 2 || n.joined.size != 2 {
		t.Errorf("%d nodes, %d of c; want two of c alone", len(n.joined.rows), n.joined.count("c"))
	}
}
