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
}

// measure is what a shadow rule makes of one request.
type measure struct {
	shadows *shadows
	rule    int
	wait    node.Wait
}

// decide measures a demand, the only one of a list.
//
//go:noinline
func (s *shadows) decide(demand []node.Demand, now int64) counter.Verdict {
	m := s.begin(demand[0].Rule.Index)
	return m.end(s.node.Decide(demand, now, &m.wait))
}

// decideSaved measures a demand that was saved.
//
//go:noinline
func (s *shadows) decideSaved(saved *node.Saved, now int64) {
	m := s.begin(saved.Rule.Index)
	m.end(s.node.DecideSaved(saved, now, &m.wait))
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

// Decided implements node.Waiter.
func (m *measure) Decided(_ []node.Demand, _ int64, verdict counter.Verdict) { m.end(verdict) }

// end counts what the rule would have done, unless that is not known yet.
func (m *measure) end(verdict counter.Verdict) counter.Verdict {
	if verdict == counter.Unsure {
		return verdict
	}
	if rule := &m.shadows.rules[m.rule]; verdict == counter.Allowed {
		rule.allowed.count++
	} else {
		rule.rejected.count++
	}
	if len(m.shadows.idle) < maxIdle {
		m.shadows.idle = append(m.shadows.idle, m)
	}
	return verdict
}
