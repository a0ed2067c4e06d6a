package filter

import (
	"weir/internal/counter"
	"weir/internal/engine"
)

// shadows decides shadow rules for requests that have passed the other rules.
type shadows struct {
	rules    *rules
	decider  *decider
	measures measures
	refs     []engine.Ref // of one rule
}

// shadow is a check on a shadow rule by a request that waits for the other rules.
type shadow struct {
	_ [0]func() // keeps Go from generating an equality function

	engine.Ref
	// deferred is the response's cost, if the request tells it.
	deferred uint64
}

// decide decides shadow rules for a request that has passed the other rules. Charges go to charges.
func (s *shadows) decide(checks []engine.Check, now int64, deferred *deferredCosts, charges *charges) {
	for len(checks) > 0 {
		of, cost := checks[:checks[0].Rule.Checks()], uint64(0)
		checks = checks[len(of):]
		d := &of[0]
		m := s.measures.newMeasure(s.rules.of(d))
		verdict := measured(d, s.decider.node.Decide(of, now, &m.wait))
		if verdict != counter.Rejected {
			cost = s.rules.deferredCost(d)
		}
		s.decided(m, of, cost, now, verdict, deferred, charges)
		tellMeasured(s.decider.observed, of)
	}
}

// keepDemands appends everything needed to decide about a request that has to wait first.
func (s *shadows) keepDemands(kept []shadow, checks []engine.Check, now int64) []shadow {
	for i := range checks {
		d := &checks[i]
		s.decider.node.Look(d, now)
		kept = append(kept, shadow{Ref: s.decider.node.Save(d), deferred: s.rules.deferredCost(d)})
	}
	return kept
}

// decideKept is decide for a request that has waited.
func (s *shadows) decideKept(kept []shadow, now int64, deferred *deferredCosts, charges *charges) {
	for i := 0; i < len(kept); {
		k := &kept[i]
		s.refs = s.refs[:0]
		for end := i + k.Rule.Checks(); i < end; i++ {
			s.refs = append(s.refs, kept[i].Ref)
		}
		m := s.measures.newMeasure(&s.rules.list[k.Rule.Index])
		of, verdict := s.decider.node.DecideRefs(s.refs, now, &m.wait)
		s.decided(m, of, k.deferred, now, measured(&of[0], verdict), deferred, charges)
	}
}

// decided records the charge of a shadow rule, unless the rule would reject the request. If the
// rule has not decided yet, the charge waits for its verdict.
func (s *shadows) decided(m *measure, of []engine.Check, cost uint64, now int64, verdict counter.Verdict, deferred *deferredCosts, charges *charges) {
	rule, undecided := m.rule, m
	if verdict == counter.Allowed {
		undecided = nil
	}
	switch {
	case verdict == counter.Rejected:
	case rule.costsLater:
		for i := range of {
			deferred.addCost(s.decider.node, &of[i], cost, undecided)
		}
		if verdict == counter.Allowed {
			deferred.leaveOut(of)
		}
		m.debtor = deferred
	case rule.charges:
		charges.addCharge(of, 0, now, undecided)
		m.debtor = charges
	}
	m.end(verdict)
}
