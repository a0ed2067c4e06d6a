package engine

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/link"
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
	// Outcome says how a push ended.
	Outcome = link.Outcome
	// Random returns 64 random bits at each call.
	Random = link.Random
)

const (
	// MaxDelay is the longest delay: see [rule.MaxDelay].
	MaxDelay = rule.MaxDelay

	// PushLost is [link.PushLost], which hosts report.
	PushLost = link.PushLost
	// PushRefused is [link.PushRefused], which hosts report.
	PushRefused = link.PushRefused
	// PushAnswered is [link.PushAnswered], which hosts report.
	PushAnswered = link.PushAnswered
	// PushUnsent is [link.PushUnsent], which only the engine reports.
	PushUnsent = link.PushUnsent
	// PushGarbled is [link.PushGarbled], which only the engine reports.
	PushGarbled = link.PushGarbled
)

// RetryAt is the time when refused checks will fit at the latest: see [rule.RetryAt].
func RetryAt(checks []Check, now int64) (at int64, ok bool) { return rule.RetryAt(checks, now) }
