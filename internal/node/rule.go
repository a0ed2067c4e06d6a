package node

import (
	"weir/internal/counter"
)

// Rule is a rule as it counts.
type Rule struct {
	counter.Rule
	// CountRejected says that what the rule rejects takes its hits too.
	CountRejected bool
	// Index is the rule's place among the node's. New sets it, and what else of counter.Rule is the
	// same for all rules.
	Index int

	number uint32 // see dirtyKeys
}
