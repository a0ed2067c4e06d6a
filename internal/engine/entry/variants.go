package entry

import (
	"math/bits"

	"weir/internal/engine/link"
	"weir/internal/engine/rule"
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// OverrideTable has the backend's overrides, indexed by the addresses of their keys. The keys keep
// their counters.
type OverrideTable struct {
	// Version is that of the list; 0 if there has been none. List is its encoded form.
	Version uint64
	List    []byte
	// Places is an open hash table that is at most three quarters full; nil if empty. The first place of
	// an address counts.
	Places []Place
	// All is what the list says of all rules together, and Rules what it says of each, by index; nil
	// if it says nothing of any.
	All   Whole
	Rules []Moved
	// Count is how many apply, and unfit how many do not fit their rules.
	Count, Unfit int
}

// Moved is what the list says of a rule. Keys means that it has overrides of single keys. Shapes are
// the patterns of those of many, the longest first.
type Moved struct {
	Whole
	Keys   bool
	Shapes []Shape
}

// Whole is what the list says of a whole rule. The zero value says nothing.
type Whole struct {
	Mode   wire.Mode
	Until  int64          // Unix time in nanoseconds; 0 for no end
	Limits []window.Limit // nil for those of the configuration
}

// holds reports whether there is something that has not ended.
func (w *Whole) holds(now int64) bool { return w.Mode != wire.OfKey && (w.Until == 0 || now < w.Until) }

// Place is an override in the table. One of many keys has the address of their common name.
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
	size := uint64(len(o.Places))
	for i, _ := bits.Mul64(a.Hash(), size); ; {
		p := &o.Places[i]
		if p.At == 0 || p.Address == a {
			return p
		}
		if i++; i == size {
			i = 0
		}
	}
}

// inForce returns the variant of a rule that decides a key: that of its override if there is one,
// else that of the longest pattern that the key has, else that of the whole rule, and otherwise r,
// unless r belongs to an override that is over. If the key is not known, r knows its pattern.
//
//go:noinline
func (v *Variants) inForce(r *rule.Rule, a sharedata.Address, table *sharedata.Table, key []byte) *rule.Rule {
	if r.Index >= len(v.rules.List) || !v.rules.List[r.Index].Akin(&r.Rule) {
		return r // a rule of an inherited node
	}
	found := r
	if r.Override {
		found = &v.rules.List[r.Index]
	}
	if v.moved != nil {
		m := &v.moved[r.Index]
		if p := v.placeOf(m, r, a, table, key); p != nil {
			if p.Rule == nil {
				var o wire.OverrideReader
				o.Reset(v.List, int(p.At-1))
				o.Next()
				limits, _ := wire.Fit(v.rules.List[p.Index].Limits, o.Limits)
				p.Rule = v.rules.List[p.Index].Overridden(limits)
				if o.Mode == wire.OfKeys {
					p.Rule.Pattern = p.Address
				}
			}
			found = p.Rule
		} else if m.whole != nil && v.Rules[r.Index].holds(v.link.Now()) {
			found = m.whole
		}
	}
	if found == r {
		return r
	}
	return found.Same(r)
}

// placeOf returns the place of the override in force that a key has, or else of the longest pattern; nil for none.
func (v *Variants) placeOf(m *moved, r *rule.Rule, a sharedata.Address, table *sharedata.Table, key []byte) *Place {
	if m.keys {
		if p := v.Find(a); v.holds(p) {
			return p
		}
	}
	if key == nil && m.shapes != nil {
		if p := v.Find(r.Pattern); r.Pattern != (sharedata.Address{}) && v.holds(p) {
			return p
		}
		return nil
	}
	for i := range m.shapes {
		name, ok := m.shapes[i].Append(v.name[:0], key, len(r.Prefix))
		if v.name = name; !ok {
			continue
		}
		if p := v.Find(table.Address(r.Group, name)); v.holds(p) {
			return p
		}
	}
	return nil
}

// holds reports whether a place has an override that has not ended.
func (v *Variants) holds(p *Place) bool { return p.At != 0 && (p.Until == 0 || v.link.Now() < p.Until) }

// Variants has the variants of rules for overrides.
type Variants struct {
	OverrideTable
	rules *rule.Set
	link  *link.Link
	Owner Owner // nil if overrides have no effect here
	// moved says by rule which overrides there are; nil while there are none.
	moved []moved
	// modes are those that the owner was told of, by rule, and ends is when the first of them ends;
	// 0 for never.
	modes []wire.Mode
	ends  int64
	name  []byte // of the keys that are like a request's
}

// moved says which overrides a rule has: some of keys, of many keys by patterns, and the variant of the whole
// rule, unless it is nil.
type moved struct {
	keys   bool
	shapes []Shape
	whole  *rule.Rule
}

// newVariants returns the variants of a node's rules.
func newVariants(rules *rule.Set, link *link.Link, owner Owner) Variants {
	v := Variants{rules: rules, link: link, Owner: owner, modes: make([]wire.Mode, len(rules.List))}
	for i := range v.modes {
		v.modes[i] = wire.Configured
	}
	return v
}

// Set puts a finished table into force.
func (v *Variants) Set(t OverrideTable) {
	v.OverrideTable, v.moved = t, nil
	if t.Rules != nil {
		v.moved = make([]moved, len(v.rules.List))
	}
	for i := range t.Rules {
		m := &t.Rules[i]
		v.moved[i].keys, v.moved[i].shapes = m.Keys, m.Shapes
		if m.Limits != nil {
			v.moved[i].whole = v.rules.List[i].Overridden(m.Limits)
		}
	}
	v.turn()
}

// Turn tells the owner of modes that have ended.
func (v *Variants) Turn() {
	if v.ends != 0 && v.link.Now() >= v.ends {
		v.turn()
	}
}

// turn tells the owner of the modes that have changed.
func (v *Variants) turn() {
	now := v.link.Now()
	v.ends = 0
	for i := range v.modes {
		mode := wire.Configured
		for _, w := range v.wholes(i) {
			if !w.holds(now) {
				continue
			}
			mode = w.Mode
			if w.Until != 0 && (v.ends == 0 || w.Until < v.ends) {
				v.ends = w.Until
			}
		}
		if v.modes[i] != mode {
			v.modes[i] = mode
			v.Owner.Move(i, mode)
		}
	}
}

// wholes returns what the list says of a rule, the strongest last.
func (v *Variants) wholes(rule int) [2]*Whole {
	if v.Rules == nil {
		return [2]*Whole{&v.All, &v.All}
	}
	return [2]*Whole{&v.Rules[rule].Whole, &v.All}
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
	// Move says which mode a rule has from now on: [wire.Configured] or one above. The owner sees to
	// it.
	Move(rule int, mode wire.Mode)
}
