//go:build !wasip1

package filter

import (
	"weir/internal/counter"
	"weir/internal/node"
)

// Observer learns what a plugin decides. There are observers only where the plugin runs as plain
// Go: the module has no code for them.
type Observer interface {
	// Decided has the rules that a request matches, in the configuration's order, and what has
	// become of it. The demands are valid until Decided returns.
	Decided(demands []node.Demand, verdict counter.Verdict)
	// Measured has what a shadow rule has made of a request that has passed the others, a list of one.
	// It comes after the request's Decided.
	Measured(demand []node.Demand)
	// Charged has hits that a response has cost. If they are negative, they go back. It comes after the
	// request's Decided.
	Charged(rule int, hits int64)
}

// observed is the part of a VM that tells an observer.
type observed struct {
	// Observer may be nil.
	Observer Observer
}

func tellDecided(o *observed, demands []node.Demand, verdict counter.Verdict) {
	if o.Observer != nil {
		o.Observer.Decided(demands, verdict)
	}
}

func tellMeasured(o *observed, demand []node.Demand) {
	if o.Observer != nil {
		o.Observer.Measured(demand)
	}
}

func tellCharged(o *observed, rule int, hits int64) {
	if o.Observer != nil {
		o.Observer.Charged(rule, hits)
	}
}
