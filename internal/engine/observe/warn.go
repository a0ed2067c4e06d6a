package observe

import (
	"weir/internal/engine/rule"
	"weir/internal/sketch"
	"weir/internal/wire"
)

// warn records which limits decided checks have nearly used up.
//
//go:noinline
func (w *Observer) warn(checks []rule.Check, now int64) {
	for i := range checks {
		w.warnOf(&checks[i], now)
	}
}

// warnOf is warn for one check, whose counter is as written.
func (w *Observer) warnOf(d *rule.Check, now int64) {
	if d.Warned = 0; len(d.Rule.WarnAt) == 0 {
		return
	}
	for i := range d.Counter.States {
		if step := d.Steps(i); step > 0 {
			d.Warned |= 1 << i
			if w.warnings != nil {
				w.keepWarning(d, i, step, now)
			}
		}
	}
	if d.Warned != 0 {
		w.warned[d.Rule.Index]++
	}
}

// keepWarning records a warning for the backend, once per step in the limit's window. A step that
// was passed before it was reported gives its place to the next step. If there are too many
// warnings, later warnings are dropped.
func (w *Observer) keepWarning(d *rule.Check, i, step int, now int64) {
	l, id := &d.Rule.Limits[i], w.keys.Identity(d)
	end := rule.EndOf(l, &d.Counter.States[i])
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
		if k.reports == 0 && (place == nil || k.until < place.until) {
			place = k
		}
	}
	if place == nil || len(rule.NameOf(&w.rules.List[d.Rule.Index])) == 0 {
		return
	}
	*place = warning{
		id: id, rule: d.Rule.Index, limit: i, end: end, until: now + l.Width, used: d.Used(i),
		quota: l.Quota(), step: step, reports: warningReports,
	}
	if end != 0 {
		place.until = end
	}
	if d.Rule.Reveal != 0 {
		w.label = w.keys.AppendNameOf(w.label[:0], d, id)
		place.nameSize = uint8(copy(place.name[:], w.label))
	}
}

const (
	// maxWarnings bounds the warnings that a worker remembers. warningReports is in how many reports
	// each of them is, because a report may be lost.
	maxWarnings    = wire.MaxReportWarnings
	warningReports = 2
)

// warnings are the warnings to report, and those reported in windows that still run.
type warnings struct {
	kept [maxWarnings]warning
	list []wire.Warning // for a report
}

// warning is a key near a limit. The zero value means none.
type warning struct {
	_ [0]func() // keeps Go from generating an equality function

	id          [16]byte
	rule, limit int
	end         int64 // end of the window; 0 if it has none
	until       int64 // when the key may cause another warning
	used, quota uint64
	step        int   // number of the step of WarnAt, from 1
	reports     uint8 // number of reports that it must still be in
	nameSize    uint8
	name        [sketch.MaxName]byte
}

// report returns the warnings for a report. They are valid until the next call.
func (w *warnings) report(rules []rule.Rule) []wire.Warning {
	w.list = w.list[:0]
	for i := range w.kept {
		k := &w.kept[i]
		if k.reports == 0 {
			continue
		}
		k.reports--
		r := &rules[k.rule]
		at := uint64(0)
		if len(r.WarnAt) > 1 {
			at = uint64(r.WarnAt[k.step-1])
		}
		w.list = append(w.list, wire.Warning{
			At:   at,
			Rule: string(rule.NameOf(r)), ID: k.id, Limit: uint8(k.limit), WidthMillis: uint64(max(1, r.Limits[k.limit].Width/1e6)),
			EndMillis: uint64(max(0, k.end/1e6)), Used: k.used, Quota: k.quota, Name: k.name[:k.nameSize],
		})
	}
	return w.list
}
