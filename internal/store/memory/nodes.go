package memory

import "weir/internal/store"

// maxNodes bounds the nodes of all namespaces together.
const maxNodes = 1 << 16

// nodes has the active nodes.
type nodes struct{ joined *fair[struct{}] }

func newNodes(most int) *nodes { return &nodes{joined: newFair[struct{}](most)} }

// join records a node, and returns how many nodes are active in its namespace.
func (n *nodes) join(key owned, now uint64) uint64 {
	n.joined.sweepAll(now)
	switch {
	case n.joined.rows[key] != nil:
		n.joined.put(key, now, now+uint64(store.NodeLife), 1)
	case n.joined.count(key.namespace) < store.MaxNodes:
		n.joined.put(key, now, now+uint64(store.Newcomer), 1)
	}
	return uint64(n.joined.count(key.namespace))
}

// count returns how many nodes are active in the namespace of a node, counting it in any case.
func (n *nodes) count(key owned, now uint64) uint64 {
	n.joined.sweepAll(now)
	nodes := uint64(n.joined.count(key.namespace))
	if n.joined.rows[key] == nil {
		nodes++
	}
	return nodes
}
