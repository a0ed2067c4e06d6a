package memory

import "weir/internal/store"

// maxNodes bounds the nodes of all namespaces that are kept. Beyond it those that joined longest
// ago make room.
const maxNodes = 1 << 16

type nodeKey struct {
	namespace string
	node      uint64
}

// nodes counts those that joined lately, for each namespace.
type nodes struct {
	joined *table[nodeKey, struct{}]
	active map[string]uint64
}

func newNodes(most int) *nodes {
	return &nodes{joined: newTable[nodeKey, struct{}](most), active: make(map[string]uint64)}
}

// join returns how many nodes are active in the namespace of one that joins.
func (n *nodes) join(key nodeKey, now uint64) uint64 {
	for len(n.joined.queue) > 0 && n.joined.queue[0].expires <= now {
		n.leave()
	}
	if n.joined.rows[key] == nil {
		if len(n.joined.queue) >= n.joined.max {
			n.leave()
		}
		n.active[key.namespace]++
	}
	n.joined.add(key, now, now+uint64(store.NodeLife))
	return n.active[key.namespace]
}

// leave forgets the node that joined longest ago.
func (n *nodes) leave() {
	namespace := n.joined.queue[0].key.namespace
	n.joined.removeFirst()
	if n.active[namespace]--; n.active[namespace] == 0 {
		delete(n.active, namespace)
	}
}
