package node

import (
	"weir/internal/counter"
	"weir/sharedata"
)

// Rule is a rule as it counts.
type Rule struct {
	counter.Rule
	// Prefix is what the keys of the rule begin with, and no others. While the table is full, the
	// counters of the rule that has most of them make room.
	Prefix []byte
	// CountRejected says that what the rule rejects takes its hits too.
	CountRejected bool
	// CostsLater says that requests which have passed take more hits with [Node.Force], whether or
	// not they have room.
	CostsLater bool
	// Watched keys are counted, and never decided: nothing is leased for them. The backend is asked
	// for their totals at every interval for as long as they have a window that counts.
	Watched bool
	// Index is the rule's place among the node's. New sets it, and what else of counter.Rule is the
	// same for all rules.
	Index int

	group  sharedata.Group
	number uint32 // see dirtyKeys
}
