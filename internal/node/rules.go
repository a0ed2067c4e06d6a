package node

import (
	"bytes"
	"weir/window"
)

// ruleset has a node's rules, and what holds of all of them.
type ruleset struct {
	list  []Rule
	nodes uint64 // that share the limits, 0 if that is not known
	// interval is the shortest between two pushes of a key, and lasts for how long a hit can count, of
	// the rules that need the backend.
	interval, lasts int64
	// synced says that any rule needs the backend, warns that any warns, marks that any marks, blocks that
	// any blocks, and delays that requests wait for room of any.
	synced, warns, marks, blocks, delays bool
}

// newRuleset completes rules.
func newRuleset(list []Rule) ruleset {
	r := ruleset{list: list, interval: window.MaxWidth}
	for i := range list {
		own := &list[i]
		own.compile(i)
		r.warns = r.warns || own.WarnAt != 0
		r.marks = r.marks || own.Marks
		r.blocks = r.blocks || own.Blocks
		r.delays = r.delays || own.delays()
		if own.Synced() {
			r.synced, r.interval, r.lasts = true, min(r.interval, own.Interval), max(r.lasts, own.Lasts())
		}
	}
	return r
}

// share tells the rules how many nodes share their limits.
func (r *ruleset) share(nodes uint64) {
	if r.nodes == nodes {
		return
	}
	r.nodes = nodes
	for i := range r.list {
		r.list[i].Share(nodes)
	}
}

// readExcess takes what other workers have noted.
func (r *ruleset) readExcess() {
	for i := range r.list {
		if x := r.list[i].excess; x != nil {
			x.read()
		}
	}
}

// succeed takes over what a rule's limits were, which hits may have passed by that still count.
func (r *ruleset) succeed(old *Rule) {
	for i := range r.list {
		if own := &r.list[i]; bytes.Equal(own.Prefix, old.Prefix) {
			own.before = max(own.before, old.before, old.Quota())
		}
	}
}

// dismiss dismisses a rule that this node does not synchronise.
func (r *ruleset) dismiss(old *Rule) {
	if old == nil || old.dismissed {
		return
	}
	for i := range r.list {
		if own := &r.list[i]; own.Synced() && bytes.Equal(own.Prefix, old.Prefix) {
			return
		}
	}
	old.dismissed = true
}
