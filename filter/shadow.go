package filter

import (
	"weir/internal/counter"
	"weir/internal/node"
)

// maxIdle bounds the streams, and what else is of one request, that are kept to be used again.
const maxIdle = 1024

// shadows has the shadow rules decide about requests that have passed the others, each rule for
// itself. No request waits for that, so that its stream may be gone when a rule has decided.
type shadows struct {
	node  *node.Node
	rules []ruleMetrics
	idle  []*measure // to be used again, maxIdle at most
	// owed is what responses have cost that had ended before their rules decided.
	owed []charge
}

// measure is what a shadow rule makes of one request.
type measure struct {
	shadows *shadows
	rule    int
	wait    node.Wait
	// stream has what the rule is to be charged, until the response has told what that is. Then owed
	// has it.
	stream *stream
	owed   charge
}

// shadow is a demand of a shadow rule, of a request that waits for the others.
type shadow struct {
	_ [0]func() // or else Go makes a function that compares values

	node.Saved
	// later is what the request says that the response costs.
	later uint64
}

// measure has a shadow rule decide about a request that has passed the others. The demand is the only
// one of a list.
//
//go:noinline
func (s *stream) measure(demand []node.Demand, now int64) {
	p, d := s.plugin, &demand[0]
	m := p.shadows.begin(d.Rule.Index)
	verdict, later := p.node.Decide(demand, now, &m.wait), uint64(0)
	if verdict != counter.Rejected {
		later = p.laterCost(d)
	}
	m.decided(s, d, later, now, verdict)
	tellMeasured(&p.vm.observed, demand)
}

// keepShadows keeps what it takes to measure a request that has to wait first.
//
//go:noinline
func (s *stream) keepShadows(demands []node.Demand, now int64) {
	p := s.plugin
	for i := range demands {
		d := &demands[i]
		p.node.Look(d, now)
		s.shadows = append(s.shadows, shadow{Saved: p.node.Save(d), later: p.laterCost(d)})
	}
}

// measureKept measures a request that has waited, and has passed the other rules.
func (s *stream) measureKept(now int64) {
	p := s.plugin
	for i := range s.shadows {
		kept := &s.shadows[i]
		m := p.shadows.begin(kept.Rule.Index)
		d, verdict := p.node.DecideSaved(&kept.Saved, now, &m.wait)
		m.decided(s, d, kept.later, now, verdict)
	}
}

func (s *shadows) begin(rule int) (m *measure) {
	if n := len(s.idle); n > 0 {
		m = s.idle[n-1]
		s.idle = s.idle[:n-1]
	} else {
		m = &measure{shadows: s}
		m.wait.Waiter = m
	}
	m.rule = rule
	return m
}

// decided has the request's stream charge the rule as it charges others, unless the rule would reject
// the request. If it can't tell yet, the stream keeps the charge.
func (m *measure) decided(s *stream, d *node.Demand, later uint64, now int64, verdict counter.Verdict) {
	rule := &s.plugin.rules[m.rule]
	if (rule.costsLater || rule.charges) && verdict != counter.Rejected {
		undecided := m
		if verdict == counter.Allowed {
			undecided = nil
		} else {
			m.stream = s
		}
		if rule.costsLater {
			s.countLater(d, later, undecided)
		} else {
			s.chargeFor(rule, d, now, undecided)
		}
	}
	m.end(verdict)
}

// Decided implements node.Waiter.
func (m *measure) Decided(demands []node.Demand, now int64, verdict counter.Verdict) {
	d := &demands[0]
	switch {
	case m.stream != nil:
		m.stream.measured(m, d, now, verdict)
	case m.owed.rule != nil && verdict == counter.Allowed:
		if m.owed.rule.charges {
			m.owed.Charge = m.shadows.node.Charge(d, now)
		}
		m.shadows.owed = append(m.shadows.owed, m.owed)
	}
	m.end(verdict)
}

// measured charges a shadow rule that has decided at last, or lets it go. The request may be another
// one by now, if its stream has ended without a response.
func (s *stream) measured(m *measure, d *node.Demand, now int64, verdict counter.Verdict) {
	for i := range s.later {
		if s.later[i].measure != m {
			continue
		}
		if s.later[i].measure = nil; verdict != counter.Allowed {
			s.later = append(s.later[:i], s.later[i+1:]...)
		}
		return
	}
	for i := range s.charges {
		c := &s.charges[i]
		if c.measure != m {
			continue
		}
		if c.measure = nil; verdict == counter.Allowed {
			c.Charge = s.plugin.node.Charge(d, now)
		} else {
			s.drop(i)
		}
		return
	}
}

// owe keeps what a response has cost until the rule has decided about the request.
func (m *measure) owe(c charge) {
	m.stream, m.owed = nil, c
	m.owed.measure, m.owed.reader = nil, nil
}

// end counts what the rule would have done, unless that is not known yet.
func (m *measure) end(verdict counter.Verdict) {
	if verdict == counter.Unsure {
		return
	}
	if rule := &m.shadows.rules[m.rule]; verdict == counter.Allowed {
		rule.allowed.count++
	} else {
		rule.rejected.count++
	}
	m.stream, m.owed = nil, charge{}
	if len(m.shadows.idle) < maxIdle {
		m.shadows.idle = append(m.shadows.idle, m)
	}
}

// settleOwed charges shadow rules for responses that had ended before the rules decided.
//
//go:noinline
func (p *plugin) settleOwed() {
	if len(p.shadows.owed) == 0 {
		return
	}
	now := p.now()
	for i := range p.shadows.owed {
		if c := &p.shadows.owed[i]; c.rule.charges {
			p.revise(c, c.due, now)
		} else {
			p.force(&c.Saved, now)
		}
	}
	p.shadows.owed = p.shadows.owed[:0]
	p.node.PushCharges()
}
