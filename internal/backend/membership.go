package backend

import (
	"cmp"
	"context"
	"sync"
	"time"

	"weir/internal/share"
	"weir/internal/store"
	"weir/internal/wire"
)

// joinEvery is how often a node that pushes joins its namespace in the store, and how often the
// nodes are counted for a node that only reads.
const joinEvery = time.Second

// membership counts the nodes of namespaces, without asking the store each time.
type membership struct {
	now func() time.Time

	mu     sync.Mutex
	joined members[joining]
	swept  time.Time
}

type joining struct {
	at    time.Time
	nodes uint64
	// counted means that the node has joined, rather than only read.
	counted bool
}

// count returns how many nodes are active in the namespace of a push, including its own. A node
// that only reads, such as one just started, is not counted yet, so that the leases of others need
// not shrink for it.
func (m *membership) count(ctx context.Context, counters store.Store, p *wire.Push) (nodes uint64, err error) {
	key, now := member{p.Namespace, p.Node}, m.now()
	m.mu.Lock()
	known, ok := m.joined.get(key)
	m.mu.Unlock()
	joins := !store.IsRead(p)
	if ok && now.Sub(known.at) < joinEvery && (known.counted || !joins) {
		return known.nodes, nil
	}
	if store.Check(p) != nil {
		return 0, nil // nothing may change, and the store will say what is wrong
	}
	// The nodes may be recorded on a server that is away while the counters are not. So this may
	// only take part of the time, and if it fails, the known number lasts, or for a new node that of the others.
	asking, cancel := context.WithTimeout(ctx, patience(ctx)/2)
	defer cancel()
	if nodes, err = counters.Note(asking, store.Nodes, p.Namespace, store.Note{Member: p.Node, Asks: !joins}); err != nil {
		if !ok {
			known, ok = m.newcomer(p.Namespace)
		}
		if !ok || ctx.Err() != nil {
			return 0, err
		}
		nodes, joins = known.nodes, known.counted
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.swept) >= joinEvery {
		m.swept = now
		life := store.NodeLife
		if m.joined.count > maxMembers/2 {
			life = joinEvery
		}
		m.joined.sweep(func(j joining) bool { return now.Sub(j.at) >= life })
	}
	m.joined.put(key, joining{at: now, nodes: nodes, counted: joins})
	return nodes, nil
}

// newcomer is what is known of a node that the store can't count: that it is one more than its namespace's others know of. If
// others have left, that is too many, which is safer than too few.
func (m *membership) newcomer(namespace string) (known joining, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own := m.joined.shares.Of(namespace); own != nil {
		for _, other := range own.Of {
			known.nodes, known.counted, ok = max(known.nodes, other.nodes+1), true, true // once a second
		}
	}
	return known, ok
}

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
