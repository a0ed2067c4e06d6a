package node

import "weir/window"

// Warnings is how often decisions, and charges since, have left a key of a rule at WarnAt or above.
func (n *Node) Warnings(rule int) uint64 { return n.rules[rule].warnings }

// warn notes which limits decided demands have brought near their ends.
//
//go:noinline
func (n *Node) warn(demands []Demand, now int64) {
	for i := range demands {
		n.warnOf(&demands[i], now)
	}
}

// warnOf is warn of one demand, whose counter is as it was written.
func (n *Node) warnOf(d *Demand, now int64) {
	if d.Warned = 0; d.Rule.WarnAt == 0 {
		return
	}
	for i := range d.Counter.States {
		if d.near(i) {
			d.Warned |= 1 << i
			if n.warnings != nil {
				n.keepWarning(d, i, now)
			}
		}
	}
	if d.Warned != 0 {
		n.rules[d.Rule.Index].warnings++
	}
}

// near reports whether limit i has been used as far as WarnAt says, or further. A limit of 0 has not:
// there is nothing to use.
func (d *Demand) near(i int) bool {
	l := &d.Rule.Limits[i]
	quota, remaining := l.Quota(), l.Remaining(&d.Counter.States[i])
	return quota > remaining && (quota-remaining)*1000 >= quota*uint64(d.Rule.WarnAt)
}

// keepWarning has the backend hear of a key, once in the limit's window. If there are too many, those
// that come later are not told.
func (n *Node) keepWarning(d *Demand, i int, now int64) {
	l, id := &d.Rule.Limits[i], n.identity(d)
	end := windowEnd(l, &d.Counter.States[i])
	var place *warning
	for j := range n.warnings.kept {
		w := &n.warnings.kept[j]
		if w.id == id && w.rule == d.Rule.Index && w.limit == i && w.quota != 0 {
			if w.end == end && now < w.until && w.until-now <= 2*l.Width {
				return
			}
			place = w
			break
		}
		// What was told, and whose window ends first, makes room.
		if w.untold == 0 && (place == nil || w.until < place.until) {
			place = w
		}
	}
	if place == nil || len(nameOf(&n.rules[d.Rule.Index])) == 0 {
		return
	}
	quota := l.Quota()
	*place = warning{
		id: id, rule: d.Rule.Index, limit: i, end: end, until: now + l.Width, used: quota - l.Remaining(&d.Counter.States[i]),
		quota: quota, untold: tellWarnings,
	}
	if end != 0 {
		place.until = end
	}
	if d.Rule.Reveal == 0 {
		return
	}
	if prefix := len(d.Rule.Prefix); len(d.Key) > prefix {
		n.payload = appendName(n.payload[:0], d.Key[prefix:], d.Rule.Reveal)
		place.nameSize = uint8(copy(place.name[:], n.payload))
	} else {
		place.nameSize = uint8(copy(place.name[:], n.sightings.names.of(id)))
	}
}

// windowEnd is when the window ends that a limit counts in. It is 0 if hits leave one after the other.
func windowEnd(l *window.Limit, s *window.State) int64 {
	if !l.Kind.Clocked() && l.Kind != window.FirstHitWindow {
		return 0
	}
	end, ok := l.ResetAt(s)
	if !ok {
		return 0
	}
	return end
}
