package entry

import (
	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
)

// OverrideTable has the backend's overrides, indexed by the addresses of their keys. The keys keep
// their counters.
type OverrideTable struct {
	// Version is that of the list; 0 if there has been none. List is its encoded form.
	Version uint64
	List    []byte
	// Places is an open hash table with a power of two as its size, at most three quarters full;
	// nil if empty. The first place of an address counts.
	Places []Place
	// Count is how many are in the table, and unfit how many do not fit their rules.
	Count, Unfit int
}

// Place is an override in the table.
type Place struct {
	Address sharedata.Address
	Until   int64      // Unix time in nanoseconds; 0 for no end
	Rule    *rule.Rule // the variant, once a request has used it
	At      uint32     // 1 + the override's offset in the list; 0 for an empty place
	Index   int32      // index of the rule
}

// Find returns the place of an address: that of its override, or a free place. The table must not
// be nil.
func (o *OverrideTable) Find(a sharedata.Address) *Place {
	for i := a.Hash(); ; i++ {
		p := &o.Places[i&uint64(len(o.Places)-1)]
		if p.At == 0 || p.Address == a {
			return p
		}
	}
}

// inForce returns the variant of a rule that decides a key: that of its override if there is one,
// and otherwise r, unless r belongs to an override that is over.
//
//go:noinline
func (v *Variants) inForce(r *rule.Rule, a sharedata.Address) *rule.Rule {
	if r.Index >= len(v.rules.List) || !v.rules.List[r.Index].Akin(&r.Rule) {
		return r // a rule of an inherited node
	}
	base := &v.rules.List[r.Index]
	if v.overridden != nil && v.overridden[r.Index] {
		p := v.Find(a)
		if p.At != 0 && (p.Until == 0 || v.link.Now() < p.Until) {
			if p.Rule == nil {
				v.vary(p)
			}
			return p.Rule
		}
	}
	if r.Override {
		return base
	}
	return r
}

// vary makes the variant for an override.
func (v *Variants) vary(p *Place) {
	var o wire.OverrideReader
	o.Reset(v.List, int(p.At-1))
	o.Next()
	r := &v.rules.List[p.Index]
	limits, _ := wire.Fit(r.Limits, o.Limits)
	p.Rule = r.Variant(limits)
	p.Rule.Override = true
}

// Variants has the variants of rules for overrides.
type Variants struct {
	OverrideTable
	rules *rule.Set
	link  *link.Link
	Owner Owner // nil if overrides have no effect here
	// overridden says which rules have overrides; nil before there are any.
	overridden []bool
}

// NewVariants returns the variants of a node's rules. owner is nil if overrides have no effect here.
func NewVariants(rules *rule.Set, link *link.Link, owner Owner) Variants {
	return Variants{rules: rules, link: link, Owner: owner}
}

// Set puts a finished table into force.
func (v *Variants) Set(t OverrideTable) {
	v.OverrideTable, v.overridden = t, make([]bool, len(v.rules.List))
	for i := range t.Places {
		if t.Places[i].At != 0 {
			v.overridden[t.Places[i].Index] = true
		}
	}
}

// Listener is an Owner that also uses the prices in a list of overrides.
type Listener interface {
	// BeginList begins a list. [Listener.Priced] follows for the prices of each model, which the
	// reader has just read, and EndList when the whole list is in force.
	BeginList()
	Priced(o *wire.OverrideReader)
	EndList()
}

// Owner is the maker of a node's rules. It supplies the knowledge that the node lacks to apply
// overrides at run time.
type Owner interface {
	// AppendKey appends the key of a rule for values in the form in which people write them, one
	// per selector. ok is false if the number of values is wrong.
	AppendKey(key []byte, rule int, values [][]byte) (_ []byte, ok bool)
}
