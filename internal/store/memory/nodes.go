package memory

import "weir/internal/store"

// maxNodes bounds the nodes of all namespaces that are kept. Beyond it those make room that would be
// forgotten first.
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
	n.sweep(now)
	switch {
	case n.joined.rows[key] != nil:
		n.joined.add(key, now, now+uint64(store.NodeLife))
	case n.active[key.namespace] < store.MaxNodes:
		if len(n.joined.queue) >= n.joined.max {
			n.leave()
		}
		n.active[key.namespace]++
		n.joined.add(key, now, now+uint64(store.Newcomer))
	}
	return n.active[key.namespace]
}

// count returns how many nodes are active in the namespace of one, or would be with it.
func (n *nodes) count(key nodeKey, now uint64) uint64 {
	n.sweep(now)
	nodes := n.active[key.namespace]
	if n.joined.rows[key] == nil {
		nodes++
	}
	return nodes
}

func (n *nodes) sweep(now uint64) {
	for len(n.joined.queue) > 0 && n.joined.queue[0].expires <= now {
		n.leave()
	}
}

// leave forgets the node that is to be forgotten first.
func (n *nodes) leave() {
	namespace := n.joined.queue[0].key.namespace
	n.joined.removeFirst()
	if n.active[namespace]--; n.active[namespace] == 0 {
		delete(n.active, namespace)
	}
}
