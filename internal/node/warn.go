package node

// warn notes which limits decided demands have brought near their ends.
//
//go:noinline
func (w *watch) warn(demands []Demand, now int64) {
	for i := range demands {
		w.warnOf(&demands[i], now)
	}
}

// warnOf is warn of one demand, whose counter is as it was written.
func (w *watch) warnOf(d *Demand, now int64) {
	if d.Warned = 0; len(d.Rule.WarnAt) == 0 {
		return
	}
	for i := range d.Counter.States {
		if step := d.near(i); step > 0 {
			d.Warned |= 1 << i
			if w.warnings != nil {
				w.keepWarning(d, i, step, now)
			}
		}
	}
	if d.Warned != 0 {
		w.rules.list[d.Rule.Index].warnings++
	}
}

// near is how many steps of WarnAt limit i has been used as far as, or further. A limit of 0 has reached none:
// there is nothing to use.
func (d *Demand) near(i int) (steps int) {
	l := &d.Rule.Limits[i]
	quota, remaining := l.Quota(), l.Remaining(&d.Counter.States[i])
	if quota <= remaining {
		return 0
	}
	for steps < len(d.Rule.WarnAt) && (quota-remaining)*1000 >= quota*uint64(d.Rule.WarnAt[steps]) {
		steps++
	}
	return steps
}

// keepWarning has the backend hear of a key, once for each step in the limit's window. A step that is
// passed before it was told makes room for the next. If there are too many warnings, those that come
// later are not told.
func (w *watch) keepWarning(d *Demand, i, step int, now int64) {
	l, id := &d.Rule.Limits[i], w.keys.identity(d)
	end := windowEnd(l, &d.Counter.States[i])
	var place *warning
	for j := range w.warnings.kept {
		k := &w.warnings.kept[j]
		if k.id == id && k.rule == d.Rule.Index && k.limit == i && k.quota != 0 {
			if k.end == end && now < k.until && k.until-now <= 2*l.Width && k.step >= step {
				return
			}
			place = k
			break
		}
		// The told warning whose window ends first makes room.
		if k.untold == 0 && (place == nil || k.until < place.until) {
			place = k
		}
	}
	if place == nil || len(nameOf(&w.rules.list[d.Rule.Index])) == 0 {
		return
	}
	quota := l.Quota()
	*place = warning{
		id: id, rule: d.Rule.Index, limit: i, end: end, until: now + l.Width, used: quota - l.Remaining(&d.Counter.States[i]),
		quota: quota, step: step, untold: tellWarnings,
	}
	if end != 0 {
		place.until = end
	}
	if d.Rule.Reveal == 0 {
		return
	}
	if prefix := len(d.Rule.Prefix); len(d.Key) > prefix {
		w.keys.payload = appendName(w.keys.payload[:0], d.Key[prefix:], d.Rule.Reveal)
		place.nameSize = uint8(copy(place.name[:], w.keys.payload))
	} else {
		place.nameSize = uint8(copy(place.name[:], w.sightings.names.of(id)))
	}
}
