package node

import (
	"bytes"
	"weir/window"
)

// ruleset has a node's rules, and properties of all of them.
type ruleset struct {
	list  []Rule
	nodes uint64 // how many share the limits; 0 if unknown
	// interval is the shortest interval between pushes of a key, and lasts the longest time that a
	// hit counts, over the rules that need the backend.
	interval, lasts int64
	// These are set if any rule needs the backend, warns, marks, blocks, or delays.
	synced, warns, marks, blocks, delays bool
	// reveals is set if any rule reveals names, and therefore reports usage.
	reveals bool
}

// newRuleset completes the rules.
func newRuleset(list []Rule) ruleset {
	r := ruleset{list: list, interval: window.MaxWidth}
	for i := range list {
		own := &list[i]
		own.compile(i)
		r.warns = r.warns || len(own.WarnAt) > 0
		r.marks = r.marks || own.Marks
		r.blocks = r.blocks || own.Blocks
		r.delays = r.delays || own.delays()
		if own.Synced() {
			r.reveals = r.reveals || own.Reveal != 0
			r.synced, r.interval, r.lasts = true, min(r.interval, own.Interval), max(r.lasts, own.Lasts())
		}
	}
	return r
}

// share sets how many nodes share the limits.
func (r *ruleset) share(nodes uint64) {
	if r.nodes == nodes {
		return
	}
	r.nodes = nodes
	for i := range r.list {
		r.list[i].Share(nodes)
	}
}

// readExcess reads the excess that other workers have recorded.
func (r *ruleset) readExcess() {
	for i := range r.list {
		if x := r.list[i].excess; x != nil {
			x.read()
		}
	}
}

// succeed takes over the limits of an earlier configuration's rule, whose hits may still count.
func (r *ruleset) succeed(old *Rule) {
	for i := range r.list {
		if own := &r.list[i]; bytes.Equal(own.Prefix, old.Prefix) {
			own.before = max(own.before, old.before, old.Quota())
		}
	}
}

// dismiss takes over a rule that this node does not synchronise.
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
