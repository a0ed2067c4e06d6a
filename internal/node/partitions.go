package node

import "weir/internal/wire"

// partitions are a set of those that a store may divide a namespace into: a bit for each.
//
// While one fails, the batches stay that have anything for it, as they must be sent again unchanged. So
// that they stay few, nothing else is sent there until they are answered: hits of its keys pile up in the
// table, and requests are decided without the backend.
type partitions uint32

// partitionOf is the set of the partition that a key is in.
func partitionOf(id wire.ID) partitions { return 1 << id.Partition() }

// lookAway notes which partitions are away, when that may have changed.
func (c *callouts) lookAway() {
	c.away = 0
	for _, b := range c.batches {
		c.away |= b.lacks
	}
}

// lost reports whether a key's partition is away.
func (c *callouts) lost(id wire.ID) bool { return c.away != 0 && c.away&partitionOf(id) != 0 }

// lost reports whether the partition of any of an ask's keys is away.
func (a *asks) lost(t *ask) bool {
	for i := range t.parts {
		if a.callouts.lost(t.parts[i].id) {
			return true
		}
	}
	return false
}

// lostAny reports whether the partition of any of these demands is away, of those that the backend is to
// be asked for.
//
//go:noinline
func (a *asks) lostAny(demands []Demand, of func(*Demand) bool) bool {
	for i := range demands {
		if d := &demands[i]; of(d) && a.callouts.lost(a.keys.named(d).id) {
			return true
		}
	}
	return false
}

// nextOrphan brings an orphan to the end that can be pushed now. It reports false if there is none.
func (p *pushes) nextOrphan() bool {
	last := len(p.keys.orphans) - 1
	for i := last; i >= 0; i-- {
		if !p.callouts.lost(p.keys.orphans[i].item.ID) {
			p.keys.orphans[i], p.keys.orphans[last] = p.keys.orphans[last], p.keys.orphans[i]
			return true
		}
	}
	return false
}
