package filter

import (
	"weir/internal/counter"
	"weir/internal/engine"
)

// deferredCosts are the checks of a request whose costs are charged when the response is there.
type deferredCosts struct{ list []deferredCost }

// deferredCost is a check on a rule that charges the cost of the response.
type deferredCost struct {
	_ [0]func() // keeps Go from generating an equality function

	engine.Ref
	measure *measure // of a shadow rule that has not decided yet
}

// noteCosts records the rules that charge the response's cost. The part of the cost that the
// request tells is read now.
func (l *deferredCosts) noteCosts(r *rules, n *engine.Engine, checks []engine.Check) {
	for i := range checks {
		if d := &checks[i]; r.of(d).costsLater {
			l.addCost(n, d, r.deferredCost(d), nil)
		}
	}
}

// addCost records a rule, which may be an undecided shadow rule.
func (l *deferredCosts) addCost(n *engine.Engine, d *engine.Check, cost uint64, undecided *measure) {
	noted := deferredCost{Ref: n.Save(d), measure: undecided}
	noted.Cost = cost
	l.list = append(l.list, noted)
}

// leaveOut drops the rules that had no room for a request that passes with a mark.
func (l *deferredCosts) leaveOut(checks []engine.Check) {
	for i := range checks {
		for j := 0; checks[i].Over && j < len(l.list); j++ {
			if l.list[j].Address == checks[i].Address {
				l.list = append(l.list[:j], l.list[j+1:]...)
				break
			}
		}
	}
}

func (l *deferredCosts) forget() { l.list = l.list[:0] }

// charge charges the cost of the response, whether or not there is room.
func (l *deferredCosts) charge(r *rules, e *decider) {
	now := e.now()
	for i := range l.list {
		c := &l.list[i]
		rule := &r.list[c.Rule.Index]
		if name := rule.onResponse.responseHeader; name != "" {
			c.Cost, _ = r.request.responseCost(name)
		}
		switch {
		case c.Cost == 0:
		case c.measure != nil:
			c.measure.owe(owed{Charge: engine.Charge{Ref: c.Ref}, rule: rule})
		default:
			e.force(&c.Ref, now)
		}
	}
	l.forget()
	e.node.PushCharges()
}

// measured implements debtor.
func (l *deferredCosts) measured(m *measure, checks []engine.Check, _ int64, verdict counter.Verdict) {
	mine := false
	for i := len(l.list) - 1; i >= 0; i-- {
		if l.list[i].measure != m {
			continue
		}
		mine = true
		if l.list[i].measure = nil; verdict != counter.Allowed {
			l.list = append(l.list[:i], l.list[i+1:]...)
		}
	}
	if mine && verdict == counter.Allowed { // else the list is a later request's
		l.leaveOut(checks)
	}
}
