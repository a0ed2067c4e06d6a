package backend

import (
	"cmp"

	"weir/internal/share"
)

// maxMembers bounds the nodes that a backend remembers. Beyond it, the namespace with most nodes
// makes room, and its pushes then ask the store.
const maxMembers = 1 << 16

type member struct {
	namespace string
	node      uint64
}

// members has a value for each of at most most nodes; 0 means maxMembers.
type members[V any] struct {
	most, count int
	shares      share.Shares[string, map[uint64]V]
}

func (m *members[V]) get(of member) (v V, known bool) {
	if own := m.shares.Of(of.namespace); own != nil {
		v, known = own.Of[of.node]
	}
	return v, known
}

func (m *members[V]) put(of member, v V) {
	if _, known := m.get(of); !known {
		if m.count >= cmp.Or(m.most, maxMembers) {
			from := m.shares.MakesRoom(of.namespace)
			for node := range from.Of { // any
				m.delete(member{from.Owner, node})
				break
			}
		}
		m.count++
		m.shares.Grow(of.namespace, 1)
	}
	own := m.shares.Of(of.namespace)
	if own.Of == nil {
		own.Of = map[uint64]V{}
	}
	own.Of[of.node] = v
}

func (m *members[V]) delete(of member) {
	if _, known := m.get(of); known {
		delete(m.shares.Of(of.namespace).Of, of.node)
		m.count--
		m.shares.Grow(of.namespace, -1)
	}
}

// sweep removes old values.
func (m *members[V]) sweep(old func(V) bool) {
	for namespace, own := range m.shares.All() {
		for node, v := range own.Of {
			if old(v) {
				m.delete(member{namespace, node})
			}
		}
	}
}
