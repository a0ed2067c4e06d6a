package node

import (
	"weir/internal/counter"
	"weir/internal/sketch"
	"weir/internal/wire"
)

// see notes what a request asks for, and unless it waits what became of it.
//
//go:noinline
func (n *Node) see(demands []Demand, now int64, verdict counter.Verdict) (weight uint64) {
	weight = n.sightings.weigh()
	for i := range demands {
		d := &demands[i]
		s := &n.sightings.rules[d.Rule.Index]
		s.now.requests++
		s.now.hits += d.Cost
		if weight != 0 || s.sample != nil {
			n.seeKey(s, d, now, weight)
		}
	}
	if verdict == counter.Rejected {
		n.seeRefused(demands, now, weight)
	}
	return weight
}

// seeKey notes which key asks.
func (n *Node) seeKey(s *seen, d *Demand, now int64, weight uint64) {
	id := n.identity(d)
	if s.sample != nil {
		s.sample.Add(hashOf(id), d.Cost, now)
	}
	if weight == 0 || d.Cost == 0 {
		return
	}
	n.lookAt(&s.now.used, d, id, weight)
}

// lookAt adds a demand to the keys that have most.
func (n *Node) lookAt(h *sketch.Heavy, d *Demand, id [16]byte, weight uint64) {
	e := h.Add(id, clamp(d.Cost)*weight)
	_, use := d.Counter.Worth()
	e.Use = thousandths(use)
	if h.Named(e) {
		return
	}
	if prefix := len(d.Rule.Prefix); len(d.Key) > prefix {
		n.payload = appendName(n.payload[:0], d.Key[prefix:], d.Rule.Reveal)
		h.SetName(e, n.payload)
	} else if name := n.sightings.names.of(id); name != nil {
		h.SetName(e, name)
	}
}

// seeRefused notes what was refused of a request that stands for so many.
//
//go:noinline
func (n *Node) seeRefused(demands []Demand, now int64, weight uint64) {
	for i := range demands {
		d := &demands[i]
		if d.Verdict != counter.Rejected {
			continue
		}
		s := &n.sightings.rules[d.Rule.Index]
		s.now.refusedRequests++
		s.now.refusedHits += d.Cost
		if s.sample != nil {
			s.sample.Refuse(hashOf(n.identity(d)), now)
		}
		if weight == 0 || d.Cost == 0 {
			continue
		}
		n.lookAt(&s.now.refused, d, n.identity(d), weight)
	}
}

// tellSightings sends a report if one is due. If it is lost, the next one tells the same.
func (n *Node) tellSightings() {
	s, now := n.sightings, n.hostNow()
	s.turn(now+n.link.offset, now)
	if now < s.reportAt && s.reportAt-now <= 2*reportEvery || n.leaving || n.link.open() {
		return
	}
	s.reportAt = now + n.options.Random.around(reportEvery)
	rules := 0
	for i := range n.rules {
		if n.reports(&n.rules[i]) {
			rules++
		}
	}
	head := wire.Report{Namespace: n.options.Namespace, Node: n.id, Sender: n.sender, AtNanos: uint64(max(0, now+n.link.offset))}
	if n.warnings != nil {
		head.Warnings = n.warnings.tell(n.rules)
	}
	s.body = wire.AppendReportHeader(s.body[:0], &head, rules)
	for i := range n.rules {
		if r := &n.rules[i]; n.reports(r) {
			s.body = s.report(s.body, r, string(nameOf(r)), now, (wire.MaxReport-len(s.body))/rules)
			rules--
		}
	}
	n.options.Host.Send(s.body, Ticket{})
	s.marked = [2]int64{now, s.marked[0]}
	for i := range s.rules {
		s.rules[i].mark()
	}
}

// reports reports whether there is anything to tell of a rule. The windows of package ratelimit have
// no name.
func (n *Node) reports(r *Rule) bool {
	s := &n.sightings.rules[r.Index]
	return s.now.requests+s.past.requests > 0 && len(nameOf(r)) > 0
}
