package engine

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
)

// What a node's owner has to know of the packages below.
type (
	// Rule is a rule as the engine sees it. A node's own rules are in [Options.Rules].
	Rule = rule.Rule
	// Delay says how requests without room wait.
	Delay = rule.Delay
	// Check is a request's check for hits of a key from one rule.
	Check = rule.Check
	// Ref is everything needed to decide or count a check later.
	Ref = rule.Ref
	// Charge records the hits that an allowed request has taken from a rule, until its cost is known.
	Charge = rule.Charge
	// Owner is the maker of a node's rules.
	Owner = entry.Owner
	// Listener is an Owner that also uses the parts of a list of overrides that are not about rules.
	Listener = entry.Listener
	// Tallies count a node's own work since it was made.
	Tallies = entry.Tallies
)

// MaxDelay is the longest delay: see [rule.MaxDelay].
const MaxDelay = rule.MaxDelay

// RetryAt is the time when refused checks will fit at the latest: see [rule.RetryAt].
func RetryAt(checks []Check, now int64) (at int64, ok bool) { return rule.RetryAt(checks, now) }
