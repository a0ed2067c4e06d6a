package filter

import (
	"math"
	"strconv"

	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/proxywasm"
)

// What was decided is in the stream's state, where access logs find it: %FILTER_STATE(wasm.weir.rule:PLAIN)%.
const (
	ruleProperty      = "weir.rule"
	outcomeProperty   = "weir.outcome"
	remainingProperty = "weir.remaining"
)

// accessLog tells access logs which rule has decided a request, how, and what it leaves.
type accessLog struct {
	on   bool
	text []byte
}

// note notes a decided request. The rule is the first that refuses or marks it, or else the one with
// least remaining.
func (l *accessLog) note(a *answer, checks []engine.Check, verdict counter.Verdict, now int64) {
	if !l.on || len(checks) == 0 {
		return
	}
	outcome, of, least := "allowed", &checks[0], uint64(math.MaxUint64)
	for i := range checks {
		d := &checks[i]
		if d.Rule.Spare {
			continue // it stands with the check before
		}
		decides, left := d.Marked(), remaining(checks, i, now)
		if verdict != counter.Allowed {
			decides = engine.Refuses(checks, i)
		}
		if decides || left < least {
			of, least = d, left
		}
		if decides {
			break
		}
	}
	switch {
	case verdict != counter.Allowed:
		outcome = "rejected"
	case of.Marked():
		outcome = "marked"
	}
	l.set(a.rules.of(of).config.Name, outcome)
	l.text = strconv.AppendUint(l.text[:0], least, 10)
	proxywasm.SetProperty(remainingProperty, l.text)
}

// set notes a rule, and what it has done.
func (l *accessLog) set(rule, outcome string) {
	l.text = append(l.text[:0], rule...)
	proxywasm.SetProperty(ruleProperty, l.text)
	l.text = append(l.text[:0], outcome...)
	proxywasm.SetProperty(outcomeProperty, l.text)
}

// remaining is how many hits the tightest limit of check i leaves, with those that take its place.
func remaining(checks []engine.Check, i int, now int64) uint64 {
	least := uint64(math.MaxUint64)
	for j := range engine.LimitsOf(checks, i) {
		least = min(least, engine.StandingOf(checks, i, j, now).Remaining)
	}
	return least
}
