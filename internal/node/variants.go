package node

import (
	"weir/internal/wire"
	"weir/sharedata"
	"weir/window"
)

// overrideTable has other limits for some keys, as the backend has told. They are found by the addresses
// of their keys. A key's counter stays as it is.
type overrideTable struct {
	// version is that of the list, 0 if there has been none; list its bytes.
	version uint64
	list    []byte
	// places is an open table of a power of two, never more than three quarters full, or nil if
	// there is nothing in it. The first place of an address counts.
	places []place
	// count are in the table. unfit are of rules that they don't fit.
	count, unfit int
}

// place is an override's.
type place struct {
	address sharedata.Address
	until   int64  // Unix time in nanoseconds, 0 for ever
	rule    *Rule  // the variant, once a request has wanted it
	at      uint32 // 1 + the override's place in the list, 0 if there is none
	index   int32  // of the rule
}

// find is the place of an address: that of its override, or the one where it would be. There has to
// be a table.
func (o *overrideTable) find(a sharedata.Address) *place {
	for i := a.Hash(); ; i++ {
		p := &o.places[i&uint64(len(o.places)-1)]
		if p.at == 0 || p.address == a {
			return p
		}
	}
}

// Fits reports whether an override's limits can be those of a rule.
func Fits(of []window.Limit, by []wire.OverrideLimit) bool {
	_, fits := fit(of, by)
	return fits
}

// fit gives a rule's limits what an override says of them. An override has a limit for each of the
// rule's. Each is for the first limit of its window that has none yet. A burst that it does not
// tell is its limit.
func fit(of []window.Limit, by []wire.OverrideLimit) (limits []window.Limit, fits bool) {
	last := len(of) - 1
	blocks := last >= 0 && of[last].Kind.Blocks()
	if blocks && len(by) != last || !blocks && len(by) != len(of) {
		return nil, false
	}
	limits = append(limits, of...)
	var given [maxLimits]bool
	for j := range by {
		i := 0
		for i < len(limits) && (given[i] || limits[i].Width != int64(by[j].WidthMillis)*window.MinWidth) {
			i++
		}
		if i == len(limits) {
			return nil, false
		}
		given[i] = true
		l := &limits[i]
		if l.Max, l.Burst = by[j].Max, by[j].Burst; l.Kind.Bursts() && l.Burst == 0 {
			l.Burst = max(1, l.Max)
		}
		if l.Fault() != window.Sound {
			return nil, false
		}
	}
	return limits, true
}

// inForce is the variant of a rule that decides a key: that of an override, if there is one, or else
// the one given, unless it is an override's that counts no more.
//
//go:noinline
func (v *variants) inForce(r *Rule, a sharedata.Address) *Rule {
	if r.Index >= len(v.rules.list) || !v.rules.list[r.Index].Akin(&r.Rule) {
		return r // of a node whose keys were inherited here
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

// vary makes the variant of an override.
func (v *variants) vary(p *place) {
	var o wire.OverrideReader
	o.Reset(v.list, int(p.at-1))
	o.Next()
	r := &v.rules.list[p.index]
	limits, _ := fit(r.Limits, o.Limits)
	p.rule = r.Variant(limits, v.owner.Tag(int(p.index), limits))
	p.rule.override = true
}

// variants are a node's rules as overrides have them.
type variants struct {
	overrideTable
	rules *ruleset
	link  *link
	owner Owner // nil if overrides do nothing here
}
