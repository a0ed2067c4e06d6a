//go:build !wasip1

package filter

import (
	"weir/internal/counter"
	"weir/internal/engine"
)

// Observer is told what a plugin decides. Only the plugin as plain Go has observers: the wasm
// module has no code for them.
type Observer interface {
	// Decided has the rules that match a request, in the order of the configuration, and the
	// verdict. The checks are valid until Decided returns.
	Decided(checks []engine.Check, verdict counter.Verdict)
	// Measured has the decision of a shadow rule about a request that has passed the other rules,
	// as a list of one check. It comes after Decided.
	Measured(check []engine.Check)
	// Charged has the hits that a response was charged by a rule; negative if hits went back. It
	// comes after Decided.
	Charged(rule int, hits int64)
}

// observed is the part of a VM that calls an observer.
type observed struct {
	// Observer may be nil.
	Observer Observer
}

func tellDecided(o *observed, checks []engine.Check, verdict counter.Verdict) {
	if o.Observer != nil {
		o.Observer.Decided(checks, verdict)
	}
}

func tellMeasured(o *observed, check []engine.Check) {
	if o.Observer != nil {
		o.Observer.Measured(check)
	}
}

func tellCharged(o *observed, rule int, hits int64) {
	if o.Observer != nil {
		o.Observer.Charged(rule, hits)
	}
}
