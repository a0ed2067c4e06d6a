package filter

import (
	"weir/internal/counter"
	"weir/internal/node"
)

// measure is what a shadow rule makes of one request. The request does not wait for it, so that it
// may be decided when the stream is gone.
type measure struct {
	plugin *plugin
	rule   int
	wait   node.Wait
}

// Decided implements node.Waiter.
func (m *measure) Decided(_ []node.Demand, _ int64, verdict counter.Verdict) { m.end(verdict) }

// end counts what the rule would have done.
func (m *measure) end(verdict counter.Verdict) {
	if rule := &m.plugin.metrics.rules[m.rule]; verdict == counter.Allowed {
		rule.allowed.count++
	} else {
		rule.rejected.count++
	}
	if len(m.plugin.idleMeasures) < maxIdle {
		m.plugin.idleMeasures = append(m.plugin.idleMeasures, m)
	}
}

func (p *plugin) newMeasure(rule int) (m *measure) {
	if n := len(p.idleMeasures); n > 0 {
		m = p.idleMeasures[n-1]
		p.idleMeasures = p.idleMeasures[:n-1]
	} else {
		m = &measure{plugin: p}
		m.wait.Waiter = m
	}
	m.rule = rule
	return m
}

// measure has the shadow rules that match the current request decide about it, each for itself, as
// the request has passed the others.
//
//go:noinline
func (s *stream) measure(shadows []node.Demand, now int64) {
	p := s.plugin
	for i := range shadows {
		d := &shadows[i]
		m := p.newMeasure(d.Rule.Index)
		verdict := p.node.Decide(shadows[i:i+1], now, &m.wait)
		if p.costsLater && verdict != counter.Rejected {
			s.deferCosts(shadows[i : i+1])
		}
		if verdict != counter.Unsure {
			m.end(verdict)
		}
	}
}

// keepShadows keeps what it takes to measure a request that has to wait first.
//
//go:noinline
func (s *stream) keepShadows(shadows []node.Demand, now int64) {
	p := s.plugin
	for i := range shadows {
		p.node.Look(&shadows[i], now)
		s.shadows = append(s.shadows, p.node.Save(&shadows[i]))
		if p.costsLater {
			s.deferCosts(shadows[i : i+1])
		}
	}
}

// measureKept is measure of what was kept. Call it when the demands of the request are of no use any
// more.
//
//go:noinline
func (s *stream) measureKept(now int64) {
	p := s.plugin
	for i := range s.shadows {
		m := p.newMeasure(s.shadows[i].Rule.Index)
		if verdict := p.node.DecideSaved(&s.shadows[i], now, &m.wait); verdict != counter.Unsure {
			m.end(verdict)
		}
	}
	s.shadows = s.shadows[:0]
}
