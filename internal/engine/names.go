package engine

import (
	"weir/internal/engine/entry"
	"weir/internal/engine/rule"
	"weir/window"
)

// What a node's owner has to know of the packages below.
type (
	// Rule is a rule as the engine sees it. A node's own rules are in [Options.Rules].
	Rule = rule.Rule
	// Delay says how requests without room wait.
	Delay = rule.Delay
	// Class is a class of a rule's requests, with its shares of each limit.
	Class = rule.Class
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

// MaxPlaces is the most checks that a request needs for a rule: see [rule.Rule.Places].
const MaxPlaces = rule.MaxPlaces

// MaxDelay is the longest delay: see [rule.MaxDelay].
const MaxDelay = rule.MaxDelay

// RetryAt is the time when refused checks will fit at the latest: see [rule.RetryAt].
func RetryAt(checks []Check, now int64) (at int64, ok bool) { return rule.RetryAt(checks, now) }

// Refuses reports whether check i has no room, nor have its spares: see [rule.Refuses].
func Refuses(checks []Check, i int) bool { return rule.Refuses(checks, i) }

// Taken returns the checks that have the hits of check i: see [rule.Taken].
func Taken(checks []Check, i int) (taken *Check, bounds []Check) { return rule.Taken(checks, i) }

// Uneven reports whether check i was refused because of its key's even part: see [rule.Uneven].
func Uneven(checks []Check, i int) bool { return rule.Uneven(checks, i) }

// LimitsOf are the limits that people see of check i: see [rule.LimitsOf].
func LimitsOf(checks []Check, i int) []window.Limit { return rule.LimitsOf(checks, i) }

// StandingOf is how a limit of check i and its group stands: see [rule.StandingOf].
func StandingOf(checks []Check, i, limit int, now int64) window.Standing {
	return rule.StandingOf(checks, i, limit, now)
}
