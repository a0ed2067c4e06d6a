package node

import (
	"weir/internal/sketch"
	"weir/internal/wire"
	"weir/window"
)

const (
	// maxWarnings bounds the warnings that a worker remembers. tellWarnings is in how many reports
	// each of them is, because a report may be lost.
	maxWarnings  = wire.MaxReportWarnings
	tellWarnings = 2
)

// warnings are the warnings to report, and those reported in windows that still run.
type warnings struct {
	kept [maxWarnings]warning
	list []wire.Warning // for a report
}

// warning is a key near a limit. The zero value means none.
type warning struct {
	id          [16]byte
	rule, limit int
	end         int64 // end of the window; 0 if it has none
	until       int64 // when the key may cause another warning
	used, quota uint64
	step        int   // number of the step of WarnAt, from 1
	untold      uint8 // number of reports that it must still be in
	nameSize    uint8
	name        [sketch.MaxName]byte
}

// tell returns the warnings for a report. They are valid until the next call.
func (w *warnings) tell(rules []Rule) []wire.Warning {
	w.list = w.list[:0]
	for i := range w.kept {
		k := &w.kept[i]
		if k.untold == 0 {
			continue
		}
		k.untold--
		r := &rules[k.rule]
		at := uint64(0)
		if len(r.WarnAt) > 1 {
			at = uint64(r.WarnAt[k.step-1])
		}
		w.list = append(w.list, wire.Warning{
			At:   at,
			Rule: string(nameOf(r)), ID: k.id, Limit: uint8(k.limit), WidthMillis: uint64(max(1, r.Limits[k.limit].Width/1e6)),
			EndMillis: uint64(max(0, k.end/1e6)), Used: k.used, Quota: k.quota, Name: k.name[:k.nameSize],
		})
	}
	return w.list
}

// windowEnd is the end of the window that a limit counts in; 0 if hits leave one by one.
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
