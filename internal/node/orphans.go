package node

import (
	"weir/internal/counter"
	"weir/internal/wire"
	"weir/window"
)

// maxOrphans bounds the hits of evicted counters that wait to be pushed.
const maxOrphans = 1 << 12

// orphan has the hits of an evicted counter that the backend has not heard of.
type orphan struct {
	item wire.Item
	ends int64
}

// item makes an item of the wire from a push, whose memory it shares.
//
//go:noinline
func item(id [16]byte, l *window.Limit, push *window.Push) wire.Item {
	return wire.Item{LimitCounter: counterOf(id, l, l.WidthOf(push.Newest)), Limit: l.Max, Newest: push.Newest, Hits: push.Hits, Ages: push.Ages}
}

// rescueEvicted keeps the pending hits of an evicted entry, which would be lost otherwise.
func (k *keys) rescueEvicted(payload []byte) {
	k.tallies.Evicted++
	counter.Orphans(payload, func(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
		if k.local || !k.keepOrphan(id, l, push, ends) {
			k.tallies.Lost += push.Added()
		}
	})
}

// keepOrphan keeps pending hits of a counter that left the table, and reports whether there was
// room.
func (k *keys) keepOrphan(id [16]byte, l *window.Limit, push *window.Push, ends int64) bool {
	if len(k.orphans) == maxOrphans {
		return false
	}
	o := orphan{item: item(id, l, push), ends: ends}
	o.item.Hits = append([]int64(nil), o.item.Hits...)
	o.item.Ages = append([]uint64(nil), o.item.Ages...)
	k.orphans = append(k.orphans, o)
	return true
}

// orphans are the pending hits of evicted counters.
type orphans []orphan

func (o *orphans) count() int { return len(*o) }

// next moves an orphan that can be pushed now to the end of the list: its partition is not away. It
// returns false if there is none.
func (o *orphans) next(away partitions) bool {
	all := *o
	last := len(all) - 1
	for i := last; i >= 0; i-- {
		if !away.has(all[i].item.ID) {
			all[i], all[last] = all[last], all[i]
			return true
		}
	}
	return false
}

// take takes the last orphan out of the list.
func (o *orphans) take() orphan {
	last := len(*o) - 1
	taken := (*o)[last]
	*o = (*o)[:last]
	return taken
}
