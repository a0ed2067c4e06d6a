package filter

import (
	"bytes"
	"strings"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/wire"
	"weir/window"
)

// variants are the limits that a rule has for some requests in place of its own.
type variants struct {
	// keys have the limits of single keys, sorted by key. values have those of values of the
	// property by, sorted too.
	keys   []variant
	by     int
	values []variant
	// from are the limits that requests set. recent caches the rules with the values set last.
	from   []limitFrom
	recent [32]*engine.Rule
}

// variant is a rule with the limits for a key or a value.
type variant struct {
	of   []byte
	rule *engine.Rule
}

type limitFrom struct {
	limit    int
	property int
	max      uint64
	bursts   bool
}

// compileVariants resolves the parts of requests that choose limits. The variants themselves need a
// node, and are made later.
func (r *request) compileVariants(c *config.Rule) *variants {
	if !c.Varies() {
		return nil
	}
	v := &variants{}
	if c.Overrides.By != nil {
		v.by = r.propertyOf(c.Overrides.By)
	}
	for i := range c.LimitFrom {
		f := &c.LimitFrom[i]
		v.from = append(v.from, limitFrom{f.Limit, r.propertyOf(&f.From), f.Max, f.Bursts})
	}
	return v
}

// addOverrides makes the variants of the configuration's overrides.
func (v *variants) addOverrides(c *config.Overrides, key []keyPart, rule *engine.Rule) {
	for i := range c.Values {
		o := &c.Values[i]
		v.values = insert(v.values, variant{[]byte(o.Value), variantOf(rule, o.Limits)})
	}
	for i := range c.Keys {
		o := &c.Keys[i]
		v.keys = insert(v.keys, variant{keyOf(rule.Prefix, key, o.Key), variantOf(rule, o.Limits)})
	}
}

// blocking appends a block to a rule's limits.
func blocking(limits []window.Limit, block window.Limit) []window.Limit {
	return append(append([]window.Limit(nil), limits...), block)
}

func variantOf(rule *engine.Rule, limits []window.Limit) *engine.Rule {
	if own := len(rule.Own()); own < len(rule.Limits) && len(limits) == own {
		limits = blocking(limits, rule.Limits[own])
	}
	return rule.Variant(limits)
}

// keyOf returns the key of requests with these values. Addresses are written as people write them.
func keyOf(prefix []byte, parts []keyPart, values []string) (key []byte) {
	var network [16]byte
	key = append(key, prefix...)
	for i, value := range values {
		if parts[i].address {
			value, _, _ = strings.Cut(value, "/")
		}
		key = counter.AppendPart(key, parts[i].counted([]byte(value), &network))
	}
	return key
}

// insert inserts into a sorted list. Package slices would take 23 KB of code for it.
func insert(list []variant, added variant) []variant {
	at, _ := search(list, added.of)
	list = append(list, variant{})
	copy(list[at+1:], list[at:])
	list[at] = added
	return list
}

// search returns the place of a key or a value in a sorted list, and whether it is there.
func search(list []variant, of []byte) (at int, found bool) {
	low, high := 0, len(list)
	for low < high {
		middle := (low + high) / 2
		switch c := bytes.Compare(list[middle].of, of); {
		case c == 0:
			return middle, true
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return low, false
}

// limitsOf returns the rule with the limits for the current request and its key.
func (v *variants) limitsOf(r *request, rule *engine.Rule, key []byte) *engine.Rule {
	if at, found := search(v.keys, key); found {
		return v.keys[at].rule
	}
	if len(v.values) > 0 {
		value, _ := r.value(v.by)
		if at, found := search(v.values, value); found {
			return v.values[at].rule
		}
	}
	if len(v.from) > 0 {
		return v.requestedLimits(r, rule)
	}
	return rule
}

// requestedLimits returns the rule with the limits that the current request sets.
func (v *variants) requestedLimits(r *request, rule *engine.Rule) *engine.Rule {
	var hits [wire.MaxLimits]uint64
	same, place := true, uint64(0)
	for i := range rule.Limits {
		hits[i] = rule.Limits[i].Max
	}
	for i := range v.from {
		f := &v.from[i]
		value, _ := r.value(f.property)
		if n, ok := parseHits(value); ok {
			hits[f.limit] = min(n, f.max)
			same = same && hits[f.limit] == rule.Limits[f.limit].Max
		}
		place = (place ^ hits[f.limit]) * 0x9e3779b97f4a7c15
	}
	if same {
		return rule
	}
	recent := &v.recent[place>>59]
	if *recent == nil || !sameHits((*recent).Limits, &hits) {
		*recent = variantOf(rule, v.limits(rule.Limits, &hits))
	}
	return *recent
}

func sameHits(limits []window.Limit, hits *[wire.MaxLimits]uint64) bool {
	for i := range limits {
		if limits[i].Max != hits[i] {
			return false
		}
	}
	return true
}

// limits returns limits with other numbers of hits.
func (v *variants) limits(own []window.Limit, hits *[wire.MaxLimits]uint64) []window.Limit {
	limits := append([]window.Limit(nil), own...)
	for i := range v.from {
		f := &v.from[i]
		l := &limits[f.limit]
		if l.Max = hits[f.limit]; l.Kind.Bursts() && !f.bursts {
			l.Burst = max(l.Max, 1)
		}
	}
	return limits
}
