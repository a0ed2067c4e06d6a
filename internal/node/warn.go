package node

// warn records which limits decided demands have nearly used up.
//
//go:noinline
func (w *watch) warn(demands []Demand, now int64) {
	for i := range demands {
		w.warnOf(&demands[i], now)
	}
}

// warnOf is warn for one demand, whose counter is as written.
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

// near is how many steps of WarnAt the use of limit i has reached. A limit of 0 reaches none: it
// can't be used.
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

// keepWarning records a warning for the backend, once per step in the limit's window. A step that
// was passed before it was reported gives its place to the next step. If there are too many
// warnings, later warnings are dropped.
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
		// The reported warning whose window ends first is replaced.
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
