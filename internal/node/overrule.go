package node

import (
	"weir/internal/wire"
	"weir/sharedata"
)

// inForce is the variant of a rule that decides a key: that of an override, if there is one, or else
// the one given, unless it is an override's that counts no more.
//
//go:noinline
func (n *Node) inForce(r *Rule, a sharedata.Address) *Rule {
	if r.Index >= len(n.rules) || !n.rules[r.Index].Akin(&r.Rule) {
		return r // of a node whose keys this one has inherited
	}
	base := &n.rules[r.Index]
	if base.overridden {
		p := n.overrides.find(a)
		if p.at != 0 && (p.until == 0 || n.now() < p.until) {
			if p.rule == nil {
				n.vary(p)
			}
			return p.rule
		}
	}
	if r.override {
		return base
	}
	return r
}

// vary makes the variant of an override.
func (n *Node) vary(p *place) {
	var o wire.OverrideReader
	o.Reset(n.overrides.list, int(p.at-1))
	o.Next()
	r := &n.rules[p.index]
	limits, _ := fit(r.Limits, o.Limits)
	p.rule = r.Variant(limits, n.options.Owner.Tag(int(p.index), limits))
	p.rule.override = true
}
