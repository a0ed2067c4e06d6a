package entry

import (
	"weir/internal/engine/rule"
	"weir/window"
)

// KeepOrphan keeps pending hits of a counter that left the table. They are lost if there is no room.
func (k *Entries) KeepOrphan(id [16]byte, l *window.Limit, push *window.Push, ends int64) {
	if k.local || !k.pending.Keep(id, l, push, ends) {
		k.tallies.Lost += push.Added()
	}
}

// Elsewhere is KeepOrphan for hits of limit i of a key, in the window with a number.
func (k *Entries) Elsewhere(s *rule.Ref, i int, hits int64, number uint64, now int64) {
	l, push := &s.Rule.Limits[i], &k.push
	push.Newest, push.Hits, push.Ages = number, append(push.Hits[:0], hits), push.Ages[:0]
	if l.Kind.Bucketed() {
		push.Ages = append(push.Ages, 0)
	}
	k.KeepOrphan(s.ID, l, push, now+2*l.Width)
}

// ReviseElsewhere pushes a charge's change to cost hits when the table has lost its counter.
func (k *Entries) ReviseElsewhere(c *rule.Charge, cost uint64, now int64) {
	for i := range c.Rule.Limits {
		l := &c.Rule.Limits[i]
		hits, number := int64(cost)-int64(c.Cost), c.Numbers[i]
		if l.Kind.Blocks() {
			continue // requests take nothing from a block
		}
		if hits < 0 {
			if hits = -int64(l.Returnable(uint64(-hits), c.At, now)); l.Kind.Refills() {
				number = uint64(c.At)
			}
		}
		if hits != 0 && c.Rule.Synced() {
			k.Elsewhere(&c.Ref, i, hits, number, now)
		}
	}
}
