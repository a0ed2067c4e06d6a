// Package answer gives clients of a program the same header fields about a decision as the plugin
// gives clients of a proxy, whatever protocol carries them.
package answer

import (
	"sync"
	"sync/atomic"

	"weir/internal/fields"
	"weir/ratelimit"
	"weir/window"
)

// Writer writes the fields of answers. It is safe for concurrent use.
type Writer struct {
	set   fields.Set
	unit  fields.ResetUnit
	rules sync.Map // from *ratelimit.Limiter to *rule
	kept  atomic.Int32
	lists sync.Pool // of *fields.List
}

// mostKept bounds how many limiters a writer keeps alive: a program may make one for each request.
const mostKept = 1024

// NewWriter returns a writer of all fields except those in omit.
func NewWriter(omit fields.Set, unit fields.ResetUnit) *Writer {
	return &Writer{set: fields.All &^ omit, unit: unit, lists: sync.Pool{New: func() any { return new(fields.List) }}}
}

// Write calls add with each field of the answer to a decision of [ratelimit.Decide], in the order
// in which they are sent. Names are in lower case. value is valid only during the call of add.
func (w *Writer) Write(d *ratelimit.Decision, add func(name string, value []byte)) {
	l := w.lists.Get().(*fields.List)
	defer w.lists.Put(l)
	now := d.At.UnixNano()
	l.Begin(w.unit, now)
	if len(d.Standings) > 0 && w.set.Describes() {
		for i := range d.Standings {
			s := &d.Standings[i]
			if s.Index == 0 {
				l.Rule(w.rule(d.Standings[i:]), w.set)
			}
			l.Limit(window.Standing{Remaining: s.Remaining, Next: int64(s.RoomAfter), Reset: int64(s.ResetAfter)})
		}
		l.End()
	}
	if !d.Allowed {
		l.Refuse(w.set, now+int64(d.RetryAfter), d.RetryAfter != ratelimit.Never)
	}
	for _, f := range l.Fields() {
		add(f.Name, f.Value)
	}
}

// rule returns the fields that never change for the rule that the first standings belong to. An
// override may have changed its limits.
func (w *Writer) rule(standings []ratelimit.Standing) *fields.Rule {
	of := standings[0].Limiter
	usual, ok := w.rules.Load(of)
	if !ok {
		limits := of.Limits()
		usual, ok = w.rules.LoadOrStore(of, &rule{limits, fieldsOf(of.Name(), limits)})
		if !ok && w.kept.Add(1) > mostKept {
			w.kept.Store(0)
			w.rules.Clear()
		}
	}
	if r := usual.(*rule); r.decided(standings) {
		return &r.fields
	}
	limits := of.Limits()
	for i := range limits {
		limits[i] = standings[i].Limit
	}
	moved := fieldsOf(of.Name(), limits)
	return &moved
}

// fieldsOf describes a rule as fixed windows of its quotas. A window of unknown length gets one
// nanosecond, which no field can express, so that the fields leave it out.
func fieldsOf(name string, limits []ratelimit.Limit) fields.Rule {
	told := make([]window.Limit, len(limits))
	for i, l := range limits {
		told[i] = window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: max(1, int64(l.Window()))}, Max: l.Quota()}
	}
	unit := fields.Requests
	if limits[0] == ratelimit.InFlight(limits[0].Quota()) {
		unit = fields.ConcurrentRequests
	}
	return fields.NewRule(name, told, unit)
}

// rule is a rule with the limits of its definition.
type rule struct {
	limits []ratelimit.Limit
	fields fields.Rule
}

// decided reports whether the first standings are those of the rule's own limits.
func (r *rule) decided(standings []ratelimit.Standing) bool {
	for i := range r.limits {
		if standings[i].Limit != r.limits[i] {
			return false
		}
	}
	return true
}
