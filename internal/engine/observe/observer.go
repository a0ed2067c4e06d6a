// Package observe collects what people look at and decisions do not depend on: what keys have used lately, what
// was refused, which limits are nearly used up and by how much they may be exceeded, and what processes
// hold.
package observe

import (
	"weir/internal/counter"
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
	"weir/internal/engine/meter"
	"weir/internal/engine/rule"
	"weir/internal/failure"
	"weir/internal/sketch"
	"weir/internal/wire"
)

// Observer records figures for people.
type Observer struct {
	link      *link.Link
	rules     *rule.Set
	keys      *entry.Entries
	namespace string
	// node is the process, and sender the worker, in reports.
	node, sender uint64

	warned  []uint64 // by rule
	failure failure.Mode
	// warnings are for the backend; nil without a backend, or if no rule warns.
	warnings *warnings
	// sightings are nil if the node has no backend.
	sightings *sightings
	// visit is Options.InFlight, and inFlight its last result.
	visit    func(visit func(c *rule.Charge, since int64) (more bool))
	inFlight []wire.HeldKey
	tells    telling
	label    []byte // a key's encoded name
	meter    *meter.Meter
	send     func(report []byte)
}

// Worker is one whose decisions are recorded.
type Worker struct {
	Namespace string
	// ID is the process, and Name the worker, in reports.
	ID, Name uint64
	// Owner, Failure, Configuration and InFlight are those of the engine's Options.
	Owner         entry.Owner
	Failure       failure.Mode
	Configuration uint64
	InFlight      func(visit func(c *rule.Charge, since int64) (more bool))
	// Send sends a report.
	Send func(report []byte)
}

// New begins to record for a worker. Without a backend there are no reports.
func New(link *link.Link, rules *rule.Set, keys *entry.Entries, meter *meter.Meter, of *Worker) Observer {
	w := Observer{
		warned: make([]uint64, len(rules.List)), failure: of.Failure, link: link, rules: rules, keys: keys, send: of.Send, visit: of.InFlight,
		namespace: of.Namespace, node: of.ID, sender: of.Name, meter: meter,
	}
	if !rules.Synced {
		return w
	}
	w.tells.configuration = of.Configuration
	w.tells.owner, _ = of.Owner.(Teller)
	for i := range rules.List {
		w.tells.shadows = append(w.tells.shadows, rules.List[i].Shadow)
	}
	w.sightings = newSightings(rules.List, link.Now(), link.HostNow(), link.Random)
	if rules.Warns {
		w.warnings = new(warnings)
	}
	return w
}

// Sighting is what was seen of a request. The zero value is of one that is not decided yet.
type Sighting struct {
	_ [0]func() // keeps Go from generating an equality function

	seen   bool
	weight uint64 // how many requests it stands for
}

// Decided records a request that was decided at once or that waits, and again when it has waited: which keys
// come near their limits, and what is used.
func (w *Observer) Decided(checks []rule.Check, now int64, verdict counter.Verdict, s *Sighting) {
	switch {
	case w.sightings == nil:
	case !s.seen:
		s.seen, s.weight = true, w.see(checks, now, verdict)
	case verdict == counter.Rejected || w.rules.Marks:
		w.seeRefused(checks, now, s.weight)
	}
	if w.rules.Warns && verdict != counter.Unsure {
		w.warn(checks, now)
	}
	if w.rules.Reveals {
		w.meter.Take(checks, verdict, now)
	}
}

// Charged records hits that a check whose counter was read has taken besides, or given back.
func (w *Observer) Charged(d *rule.Check, hits, now int64) {
	if hits >= 0 {
		w.warnOf(d, now)
	}
	if w.meter.Of(d.Rule) {
		w.meter.Add(d, hits, d.Model, now)
	}
}

// visitedPerReport bounds the requests that are asked for places per report.
const visitedPerReport = 1024

// keysInFlight returns the first keys found whose places requests hold, for a report. They are valid
// until the next call.
func (w *Observer) keysInFlight() []wire.HeldKey {
	w.inFlight = w.inFlight[:0]
	visited := 0
	w.visit(func(c *rule.Charge, since int64) (more bool) {
		visited++
		if c.ID == [16]byte{} || c.Cost == 0 || !c.Rule.Synced() {
			return visited < visitedPerReport
		}
		at := 0
		for at < len(w.inFlight) && w.inFlight[at].ID != c.ID {
			at++
		}
		switch {
		case at < len(w.inFlight):
			h := &w.inFlight[at]
			h.Places, h.SinceNanos = min(h.Places+c.Cost, wire.MaxHits), min(h.SinceNanos, uint64(max(0, since)))
		case at < wire.MaxReportHeld:
			w.inFlight = append(w.inFlight, wire.HeldKey{ID: c.ID, Places: min(c.Cost, wire.MaxHits), SinceNanos: uint64(max(0, since))})
		}
		return visited < visitedPerReport
	})
	return w.inFlight
}

// see records what a request asks for and, unless it waits, its verdict.
//
//go:noinline
func (w *Observer) see(checks []rule.Check, now int64, verdict counter.Verdict) (weight uint64) {
	weight = w.sightings.weigh()
	for i := range checks {
		d := &checks[i]
		if d.Rule.Spare {
			continue // the request is its class's
		}
		s := &w.sightings.rules[d.Rule.Index]
		s.now.Requests++
		s.now.Hits += d.Cost
		if weight != 0 || s.sample != nil {
			w.seeKey(s, d, now, weight)
		}
	}
	if verdict == counter.Rejected || w.rules.Marks && verdict == counter.Allowed {
		w.seeRefused(checks, now, weight)
	}
	return weight
}

// seeKey records the key of a request.
func (w *Observer) seeKey(s *seen, d *rule.Check, now int64, weight uint64) {
	id := w.keys.Identity(d)
	if s.sample != nil {
		s.sample.Add(hashOf(id), d.Cost, now)
	}
	w.lookAt(&s.now.used, d, id, now, weight)
}

// lookAt adds a check of a request that stands for weight requests to the keys with most hits.
func (w *Observer) lookAt(h *sketch.Heavy, d *rule.Check, id [16]byte, now int64, weight uint64) {
	if weight == 0 || d.Cost == 0 {
		return
	}
	_, use := d.Counter.Worth()
	e := h.Add(id, clamp(d.Cost)*weight)
	e.Use, e.Leased, e.Pending, e.At = thousandths(use), 0, 0, now
	if d.Rule.Synced() {
		e.Leased, e.Pending = d.Counter.Leased(), d.Counter.Unheard()
	}
	if h.Named(e) {
		return
	}
	if w.label = w.keys.AppendNameOf(w.label[:0], d, id); len(w.label) > 0 {
		h.SetName(e, w.label)
	}
}

// seeRefused records the refused checks of a request that stands for weight requests.
//
//go:noinline
func (w *Observer) seeRefused(checks []rule.Check, now int64, weight uint64) {
	for i := range checks {
		d := &checks[i]
		switch {
		case d.Rule.Spare || d.Rule.Checks() > 1 && !rule.Refuses(checks, i):
			continue
		case d.Rule.Checks() == 1 && d.Verdict != counter.Rejected:
			continue
		}
		s := &w.sightings.rules[d.Rule.Index]
		s.now.RefusedRequests++
		s.now.RefusedHits += d.Cost
		if weight == 0 && s.sample == nil {
			continue
		}
		id := w.keys.Identity(d)
		if s.sample != nil {
			s.sample.Refuse(hashOf(id), now)
		}
		w.lookAt(&s.now.refused, d, id, now, weight)
	}
}

// Report sends the report, if one is due. If it is lost, the next has the same figures. A node that leaves sends none.
func (w *Observer) Report() {
	s, now := w.sightings, w.link.HostNow()
	s.turn(w.link.ToBackend(now), now)
	s.wake(now)
	if now < s.reportAt && s.reportAt-now <= 2*reportEvery || w.link.Open() || w.rules.Leaving {
		return
	}
	s.reportAt = now + w.link.Random.Around(reportEvery)
	rules := 0
	for i := range w.rules.List {
		r := &w.rules.List[i]
		if s.rules[i].follow(r, w.link.Now()); w.reports(r) {
			rules++
		}
	}
	head := wire.Report{Namespace: w.namespace, Node: w.node, Sender: w.sender, AtNanos: uint64(max(0, w.link.ToBackend(now)))}
	if w.warnings != nil {
		head.Warnings = w.warnings.report(w.rules.List)
	}
	if w.visit != nil {
		head.Held = w.keysInFlight()
	}
	w.tell(&head)
	// The backend keeps a report until another replaces it, so an idle node sends one empty report.
	// One that has told its rules sends another, so that the backend can ask again.
	empty := rules+len(head.Warnings)+len(head.Held)+len(head.Told) == 0
	if empty && s.idle {
		return
	}
	s.idle = empty
	s.body = wire.AppendReportHeader(s.body[:0], &head)
	for i := range w.rules.List {
		if r := &w.rules.List[i]; w.reports(r) {
			s.body = s.report(s.body, r, string(rule.NameOf(r)), w.link.ToBackend(now), now, (wire.MaxReport-1-len(s.body))/rules)
			rules--
		}
	}
	s.body = wire.AppendEnd(s.body)
	s.marked = [2]int64{now, s.marked[0]}
	for i := range s.rules {
		s.rules[i].mark()
	}
	w.send(s.body)
}

// reports reports whether a rule has anything to report. The windows of package ratelimit have no
// name, and are left out.
func (w *Observer) reports(r *rule.Rule) bool {
	s := &w.sightings.rules[r.Index]
	return s.now.Requests+s.past.Requests > 0 && len(rule.NameOf(r)) > 0
}
