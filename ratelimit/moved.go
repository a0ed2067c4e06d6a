package ratelimit

import (
	"slices"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/wire"
)

// aside is a demand that does not take part in a decision, because its rule is off or in shadow mode.
type aside struct {
	check   [1]engine.Check
	limiter *Limiter
	// after is how many of the call's other demands come before it.
	after int
	off   bool
}

// putAside adds a demand on a rule with a mode. Places are not counted in shadow mode: nobody would
// give back those of a request that has not waited for them.
func (c *call) putAside(l *Limiter, key Key, cost uint64, mode wire.Mode) {
	c.aside = slices.Grow(c.aside, 1)[:len(c.aside)+1]
	a := &c.aside[len(c.aside)-1]
	a.limiter, a.after, a.off = l, len(c.demands), mode == wire.Off || l.holds()
	d := &a.check[0]
	d.Rule, d.Cost, d.Key = l.rule, cost, key.append(append(d.Key[:0], l.rule.Prefix...))
}

// decideAside decides the demands on rules in shadow mode, if the others have passed, and has the
// counters of all. The caller holds the lock.
func (c *call) decideAside(now int64, passed bool) {
	n := c.namespace
	for i := range c.aside {
		switch a := &c.aside[i]; {
		case a.off:
			n.off++
			n.node.Look(&a.check[0], now)
		case passed:
			n.measure(a.check[:], now)
		default:
			n.node.Look(&a.check[0], now)
		}
	}
}

// measure is a request's decision by a rule in shadow mode, which nobody waits for.
type measure struct {
	namespace *Namespace
	wait      engine.Wait
}

// measure decides a check on a rule in shadow mode. The caller holds the lock.
func (n *Namespace) measure(check []engine.Check, now int64) {
	var m *measure
	if last := len(n.measures) - 1; last >= 0 {
		m, n.measures = n.measures[last], n.measures[:last]
	} else {
		m = &measure{namespace: n}
		m.wait.Request = m
	}
	m.wait.Patience = -1
	n.measuring++
	m.Decided(nil, now, n.node.Decide(check, now, &m.wait))
}

// Decided implements engine.Request.
func (m *measure) Decided(_ []engine.Check, _ int64, verdict counter.Verdict) {
	n := m.namespace
	switch verdict {
	case counter.Unsure:
		return
	case counter.Rejected:
		n.wouldReject++
	}
	n.measuring--
	n.measures = append(n.measures, m)
}
