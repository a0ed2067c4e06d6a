package node

import (
	"slices"

	"weir/internal/counter"
	"weir/sharedata"
	"weir/window"
)

// maxLimits bounds the limits of a rule.
const maxLimits = 8

// Rule is a rule as it counts.
type Rule struct {
	counter.Rule
	// SyncRate is the interval between two pushes of a key in nanoseconds. If it is 0, the backend
	// decides each request. If it is negative, the rule's counters stay in this process, and what
	// is said of the backend does not concern it.
	SyncRate int64
	// Prefix begins the keys of the rule, and no others. While the table is full, the counters of
	// the rule that has most of them make room.
	Prefix []byte
	// CountRejected says that what the rule rejects takes its hits too.
	CountRejected bool
	// Marks says that a request passes though the rule has no room for it, and takes nothing of it: see
	// [Saved.Over].
	Marks bool
	// Blocks says that the last limit blocks a key that the rule has refused, and Extends that further
	// refusals prolong that.
	Blocks, Extends bool
	// CostsLater says that requests which have passed take more hits with [Node.Force], whether or
	// not they have room.
	CostsLater bool
	// Watched keys are counted, and never decided: nothing is leased for them. The backend is asked
	// for their totals at every interval for as long as they have a window that counts.
	Watched bool
	// Widest are the largest limits that variants of the rule may have, if there are to be any: the
	// table is made for them.
	Widest []window.Limit
	// WarnAt are the shares of a limit, in thousandths and ascending, from which on a key is warned of.
	WarnAt []uint16
	// Shadow rules refuse nothing, and more is told of what they would refuse. Reveal is how many
	// characters of a key's values people may see, of which sketch.MaxName bytes fit; 0 for its hash
	// alone.
	Shadow bool
	Reveal uint8
	// Delay is how requests wait that the rule has no room for.
	Delay Delay
	// Tag is whatever the owner of the node knows the rule by, or this variant of it.
	Tag any
	// Index is the rule's place among the node's. New sets it, and the Interval of counter.Rule.
	Index int

	// warnings are counted of the rule and its variants where the rule is the node's own.
	warnings uint64
	// excess is by how much charges have brought a key above a limit; nil if the rule has none, or no
	// backend.
	excess *excess
	// before is the largest limit of the configurations that this configuration has replaced.
	before uint64
	group  sharedata.Group
	number uint32 // see dirtyKeys
	// dismissed says that a configuration that came later does not synchronise the rule. Its leases
	// go back.
	dismissed bool
	// advances says that hits of the rule's keys may be advanced, and allowance how many of a key are at
	// most. near names the limits in lists of near keys, and tag the rule.
	advances  bool
	allowance uint64
	near      []uint64
	tag       uint16
	varies    bool // it is a variant
	// overridden says that keys of the rule have overrides, and override that it is the variant of one.
	overridden, override bool
}

// Delay is how requests of a key wait for room: for at most so many nanoseconds, up to MaxDelay, and at most
// so many of them in a process. If they are 0, none waits.
type Delay struct {
	Most  int64
	Queue int
}

// delays reports whether requests wait that the rule has no room for.
func (r *Rule) delays() bool { return r.Delay.Queue > 0 && !r.Shadow }

// MaxDelay is the longest delay, five minutes. Delays times the requests that wait fit an int64.
const MaxDelay = int64(300e9)

// exactInterval is the interval of rules whose requests the backend decides. They have pushes too:
// of hits that were counted while it was away. The costs of responses do not wait for the interval.
const exactInterval = int64(1e9)

// leastInterval is the shortest interval that a rule gets for its windows' sake, and not by its
// rate.
const leastInterval = int64(1e8)

// compile completes a rule that has its place.
func (r *Rule) compile(index int) {
	r.Index = index
	switch {
	case r.SyncRate > 0:
		r.Interval = r.SyncRate
		for i := range r.Limits {
			r.Interval = min(r.Interval, max(r.Limits[i].PushWithin(), leastInterval))
		}
	case r.exact():
		r.Interval = exactInterval
	}
	r.Compile()
}

// exact reports whether the backend decides each request.
func (r *Rule) exact() bool { return r.SyncRate == 0 }

// hasty reports whether the backend is to hear at once of hits that go back.
func (r *Rule) hasty() bool { return r.exact() || r.Limits[0].Kind.Held() && r.Synced() && !r.Leases() }

// forgets reports whether a limit is a log, which keeps no more hits than that. Those that pass without
// the backend push others out of it, and grants that go back after leave room again.
func (r *Rule) forgets() bool {
	return slices.ContainsFunc(r.Limits, func(l window.Limit) bool { return l.IsLog() })
}

// roomTag is the tag of what is asked for. That of a variant is even: the store needs no list of keys
// that are near its limits.
func (r *Rule) roomTag() uint16 {
	if r.varies {
		return r.tag &^ 1
	}
	return r.tag
}

// Own are the limits that a rule was given, without the last if that blocks.
func (r *Rule) Own() []window.Limit {
	own := len(r.Limits)
	if r.Blocks {
		own--
	}
	return r.Limits[:own]
}

// Variant is a rule of a node with other limits: the same number, of the same shapes, in the same
// order. It serves in a [Demand] for the same keys, whose counters stay as they are.
func (r *Rule) Variant(limits []window.Limit, tag any) *Rule {
	v := *r
	v.Rule, v.Tag, v.varies = r.Rule.Variant(limits), tag, true
	return &v
}

// extraBytes is how much memory a counter of the rule, or of a variant, takes beyond the usual.
func (r *Rule) extraBytes() int {
	if r.Widest == nil {
		return r.ExtraBytes()
	}
	widest := counter.Rule{Limits: r.Widest, Interval: r.Interval}
	return max(r.ExtraBytes(), widest.ExtraBytes())
}

// nameOf is the name that a rule's keys begin with.
func nameOf(r *Rule) []byte {
	if len(r.Prefix) < 1 || int(r.Prefix[0]) != len(r.Prefix)-1 {
		return nil
	}
	return r.Prefix[1:]
}
