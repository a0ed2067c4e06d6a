package node

import (
	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
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
	// Widest are the largest limits that variants of the rule may have, if there are to be any: the
	// table is made for them.
	Widest []window.Limit
	// Tag is whatever the owner of the node knows the rule by, or this variant of it.
	Tag any
	// Index is the rule's place among the node's. New sets it, and what else of counter.Rule is the
	// same for all rules.
	Index int

	group  sharedata.Group
	number uint32 // see dirtyKeys
	// overridden says that keys of the rule have overrides, and override that it is the variant of one.
	overridden, override bool
}

// Variant is a rule of a node with other limits: as many, of the same shapes, in the same order. It
// serves in a [Demand] for the same keys, whose counters stay as they are.
func (r *Rule) Variant(limits []window.Limit, tag any) *Rule {
	v := *r
	v.Rule, v.Tag = r.Rule.Variant(limits), tag
	return &v
}

// extraBytes is what a counter of the rule, or of a variant, takes beyond the usual.
func (r *Rule) extraBytes() int {
	if r.Widest == nil {
		return r.ExtraBytes()
	}
	widest := counter.Rule{Limits: r.Widest, SyncRate: r.SyncRate}
	return max(r.ExtraBytes(), widest.ExtraBytes())
}
