package node

import (
	"weir/internal/wire"
	"weir/sharedata"
)

// overrideTable has the backend's overrides, indexed by the addresses of their keys. The keys keep
// their counters.
type overrideTable struct {
	// version is that of the list; 0 if there has been none. list is its encoded form.
	version uint64
	list    []byte
	// places is an open hash table with a power of two as its size, at most three quarters full;
	// nil if empty. The first place of an address counts.
	places []place
	// count is how many are in the table, and unfit how many do not fit their rules.
	count, unfit int
}

// place is an override in the table.
type place struct {
	address sharedata.Address
	until   int64  // Unix time in nanoseconds; 0 for no end
	rule    *Rule  // the variant, once a request has used it
	at      uint32 // 1 + the override's offset in the list; 0 for an empty place
	index   int32  // index of the rule
}

// find returns the place of an address: that of its override, or a free place. The table must not
// be nil.
func (o *overrideTable) find(a sharedata.Address) *place {
	for i := a.Hash(); ; i++ {
		p := &o.places[i&uint64(len(o.places)-1)]
		if p.at == 0 || p.address == a {
			return p
		}
	}
}

// inForce returns the variant of a rule that decides a key: that of its override if there is one,
// and otherwise r, unless r belongs to an override that is over.
//
//go:noinline
func (v *variants) inForce(r *Rule, a sharedata.Address) *Rule {
	if r.Index >= len(v.rules.list) || !v.rules.list[r.Index].Akin(&r.Rule) {
		return r // a rule of an inherited node
	}
	base := &v.rules.list[r.Index]
	if base.overridden {
		p := v.find(a)
		if p.at != 0 && (p.until == 0 || v.link.now() < p.until) {
			if p.rule == nil {
				v.vary(p)
			}
			return p.rule
		}
	}
	if r.override {
		return base
	}
	return r
}

// vary makes the variant for an override.
func (v *variants) vary(p *place) {
	var o wire.OverrideReader
	o.Reset(v.list, int(p.at-1))
	o.Next()
	r := &v.rules.list[p.index]
	limits, _ := wire.Fit(r.Limits, o.Limits)
	p.rule = r.Variant(limits)
	p.rule.override = true
}

// variants has the variants of rules for overrides.
type variants struct {
	overrideTable
	rules *ruleset
	link  *link
	owner Owner // nil if overrides have no effect here
}

// newVariants returns the variants of a node's rules. owner is nil if overrides have no effect here.
func newVariants(rules *ruleset, link *link, owner Owner) variants {
	return variants{rules: rules, link: link, owner: owner}
}

// Listener is an Owner that also uses the parts of a list of overrides that are not about rules.
type Listener interface {
	// BeginList begins a list. [Listener.Listed] follows for each such part, which is the part that
	// the reader has just read, and EndList when the whole list is in force.
	BeginList()
	Listed(o *wire.OverrideReader)
	EndList()
}

// Owner is the maker of a node's rules. It supplies the knowledge that the node lacks to apply
// overrides at run time.
type Owner interface {
	// AppendKey appends the key of a rule for values in the form in which people write them, one
	// per selector. ok is false if the number of values is wrong.
	AppendKey(key []byte, rule int, values [][]byte) (_ []byte, ok bool)
}
