package memory

import "weir/internal/store"

// maxNodes bounds the nodes of all namespaces that are kept.
const maxNodes = 1 << 16

// nodes are those that joined lately.
type nodes struct{ joined *fair[struct{}] }

func newNodes(most int) *nodes { return &nodes{joined: newFair[struct{}](most)} }

// join notes a node, and returns how many nodes are active in its namespace.
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

// count returns how many nodes are active in the namespace of one, or would be with it.
func (n *nodes) count(key owned, now uint64) uint64 {
	n.joined.sweepAll(now)
	nodes := uint64(n.joined.count(key.namespace))
	if n.joined.rows[key] == nil {
		nodes++
	}
	return nodes
}
