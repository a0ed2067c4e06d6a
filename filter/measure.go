package filter

import (
	"weir/internal/counter"
	"weir/internal/engine"
)

// measures are the verdicts of shadow rules. No request waits for them, so a stream may end before
// its shadow rules have decided.
type measures struct {
	decider *decider
	idle    []*measure // to be used again, maxIdle at most
	// owed has the costs of responses that ended before their shadow rules decided.
	owed []owed
}

// measure is the verdict of a shadow rule on one request.
type measure struct {
	measures *measures
	rule     *rule
	wait     engine.Wait
	// debtor knows what to charge, until the response has told its cost. Then owed has it.
	debtor debtor
	owed   owed
}

// debtor knows what a request is to be charged by shadow rules.
type debtor interface {
	// measured charges a shadow rule that has decided at last, or drops its charge. The debtor may
	// already serve another request if the first ended without a response.
	measured(m *measure, checks []engine.Check, now int64, verdict counter.Verdict)
}

// owed is the cost of a response that ended before a shadow rule decided.
type owed struct {
	_ [0]func() // keeps Go from generating an equality function

	engine.Charge
	rule *rule
	due  uint64
}

func (s *measures) newMeasure(r *rule) *measure {
	m, ok := takeIdle(&s.idle)
	if !ok {
		m = &measure{measures: s}
		m.wait.Request = m
	}
	m.rule = r
	return m
}

// Decided implements engine.Request.
func (m *measure) Decided(checks []engine.Check, now int64, verdict counter.Verdict) {
	verdict = measured(&checks[0], verdict)
	switch {
	case m.debtor != nil:
		m.debtor.measured(m, checks, now, verdict)
	case m.owed.rule != nil && verdict == counter.Allowed:
		taken, bounds := engine.Taken(checks, 0)
		m.owes(taken, now)
		for i := range bounds {
			m.owes(&bounds[i], now)
		}
	}
	m.end(verdict)
}

// owes has the cost of the response charged to what a check has taken.
func (m *measure) owes(d *engine.Check, now int64) {
	o := m.owed
	if o.rule.charges {
		o.Charge = m.measures.decider.node.Charges.Of(d, now)
	} else {
		o.Ref = m.measures.decider.node.Save(d)
		o.Cost = m.owed.Cost
	}
	m.measures.owed = append(m.measures.owed, o)
}

// measured is the verdict of a shadow rule. One that marks passes requests without room, too.
func measured(d *engine.Check, verdict counter.Verdict) counter.Verdict {
	if d.Marked() && verdict == counter.Allowed {
		return counter.Rejected
	}
	return verdict
}

// owe keeps the cost of a response until the rule has decided about its request.
func (m *measure) owe(cost owed) { m.debtor, m.owed = nil, cost }

// end counts the verdict in the rule's metrics, once it is known.
func (m *measure) end(verdict counter.Verdict) {
	if verdict == counter.Unsure {
		return
	}
	if verdict == counter.Allowed {
		m.rule.wouldAllow.count++
	} else {
		m.rule.wouldReject.count++
	}
	m.debtor, m.owed = nil, owed{}
	keepIdle(&m.measures.idle, m, maxIdle)
}

// settleOwed charges shadow rules for responses that ended before the rules decided.
func (s *measures) settleOwed() {
	if len(s.owed) == 0 {
		return
	}
	now := s.decider.now()
	for i := range s.owed {
		if c := &s.owed[i]; c.rule.charges {
			s.decider.revise(&c.Charge, c.due, now)
		} else {
			s.decider.force(&c.Ref, now)
		}
	}
	s.owed = s.owed[:0]
	s.decider.node.PushCharges()
}
