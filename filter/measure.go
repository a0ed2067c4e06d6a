package filter

import (
	"weir/internal/counter"
	"weir/internal/node"
)

// measures are the verdicts of shadow rules on requests, each rule for itself. No request waits for
// that, so that its stream may be gone when a rule has decided.
type measures struct {
	engine *engine
	rules  []ruleMetrics
	idle   []*measure // to be used again, maxIdle at most
	// owed has the costs of responses that had ended before their rules decided.
	owed []owed
}

// measure is the verdict of a shadow rule on one request.
type measure struct {
	measures *measures
	rule     int
	wait     node.Wait
	// debtor has what the rule is to be charged, until the response has told what that is. Then owed
	// has it.
	debtor debtor
	owed   owed
}

// debtor has what shadow rules are to be charged for a request.
type debtor interface {
	// measured charges a shadow rule that has decided at last, or lets it go. Another request may
	// be here by now, if the stream of the first has ended without a response.
	measured(m *measure, d *node.Demand, now int64, verdict counter.Verdict)
}

// owed is the cost of a response that had ended before a shadow rule decided.
type owed struct {
	_ [0]func() // or else Go makes a function that compares values

	node.Charge
	rule *requestRule
	due  uint64
}

func (s *measures) begin(rule int) *measure {
	m, ok := reuse(&s.idle)
	if !ok {
		m = &measure{measures: s}
		m.wait.Request = m
	}
	m.rule = rule
	return m
}

// Decided implements node.Request.
func (m *measure) Decided(demands []node.Demand, now int64, verdict counter.Verdict) {
	d := &demands[0]
	switch {
	case m.debtor != nil:
		m.debtor.measured(m, d, now, verdict)
	case m.owed.rule != nil && verdict == counter.Allowed:
		if m.owed.rule.charges {
			m.owed.Charge = m.measures.engine.node.Charge(d, now)
		}
		m.measures.owed = append(m.measures.owed, m.owed)
	}
	m.end(verdict)
}

// owe keeps what a response has cost until the rule has decided about the request.
func (m *measure) owe(cost owed) { m.debtor, m.owed = nil, cost }

// end counts what the rule would have done, unless that is not known yet.
func (m *measure) end(verdict counter.Verdict) {
	if verdict == counter.Unsure {
		return
	}
	m.measures.rules[m.rule].count(verdict)
	m.debtor, m.owed = nil, owed{}
	keep(&m.measures.idle, m, maxIdle)
}

// settleOwed charges shadow rules for responses that had ended before the rules decided.
//
//go:noinline
func (s *measures) settleOwed() {
	if len(s.owed) == 0 {
		return
	}
	now := s.engine.now()
	for i := range s.owed {
		if c := &s.owed[i]; c.rule.charges {
			s.engine.revise(&c.Charge, c.due, now)
		} else {
			s.engine.force(&c.Saved, now)
		}
	}
	s.owed = s.owed[:0]
	s.engine.node.PushCharges()
}
