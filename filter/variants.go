package filter

import (
	"bytes"
	"strings"

	"weir/config"
	"weir/internal/counter"
	"weir/internal/engine"
	"weir/internal/fields"
	"weir/internal/proxywasm"
	"weir/internal/wire"
	"weir/sharedata"
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
	// told are the limits a minute that the upstream has told last, each in the place of its key; nil if the rule does not
	// follow them. They hold for the limits in minutes, of which each has a bit. table has the addresses of keys.
	told    []told
	minutes uint
	tokens  bool // and not requests
	table   *sharedata.Table
}

// told is what the upstream has told of a key, until a time. rule is the last with that limit. The key's length, which clients
// choose, takes no memory.
type told struct {
	key   sharedata.Address
	limit uint64
	until int64
	rule  *engine.Rule
}

const (
	// maxTold bounds the keys whose limits are known.
	maxTold = 64
	// toldFor is how long the upstream's word counts. Then the own limit does again, so that a key with a limit that fits no
	// request is not refused for good.
	toldFor = int64(60e9)
)

// toldOf returns the place of the key at an address.
func (v *variants) toldOf(key sharedata.Address) *told { return &v.told[key.Hash()%maxTold] }

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
	v := &variants{tokens: c.Usage.CountsTokens()}
	if c.Upstream && c.Prices == nil && c.ChargeWhen == nil && (v.tokens || unitOf(c) == fields.Requests) {
		for i := range c.Limits {
			if l := &c.Limits[i]; l.Width == toldFor && l.Calendar == nil && !l.Kind.Held() {
				v.minutes |= 1 << i
			}
		}
	}
	if v.minutes != 0 {
		v.told = make([]told, maxTold)
	} else if !c.Varies() {
		return nil
	}
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
	var s scratch
	for i := range c.Values {
		o := &c.Values[i]
		of := o.Value
		if c.By.Kind == config.SelectClientIP {
			address, _, _ := strings.Cut(of, "/")
			by := networkPart(c.By)
			text, _ := by.of([]byte(address), &s)
			of = string(text)
		}
		v.values = insert(v.values, variant{[]byte(of), variantOf(rule, o.Limits)})
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

// limitsOf returns a check's rule with the limits for the current request and its key.
func (v *variants) limitsOf(r *request, d *engine.Check) *engine.Rule {
	if at, found := search(v.keys, d.Key); found {
		return v.keys[at].rule
	}
	if len(v.values) > 0 {
		value, _ := r.value(v.by)
		if at, found := search(v.values, value); found {
			return v.values[at].rule
		}
	}
	if t := v.lastTold(d); t != nil || len(v.from) > 0 {
		return v.requestedLimits(r, d.Rule, t)
	}
	return d.Rule
}

// lastTold returns what the upstream has told of a check's key; nil if there is nothing.
func (v *variants) lastTold(d *engine.Check) *told {
	if v.told == nil {
		return nil
	}
	key := v.table.Address(d.Rule.Group, d.Key)
	t := v.toldOf(key)
	if t.limit == 0 || t.key != key {
		return nil
	}
	if left := t.until - proxywasm.Now(); left <= 0 || left > toldFor { // the clock may have been set back
		return nil
	}
	return t
}

// requestedLimits returns the rule with the limits that the current request sets, and with that of the upstream, or nil for none.
func (v *variants) requestedLimits(r *request, rule *engine.Rule, t *told) *engine.Rule {
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
	recent, lower := &v.recent[place>>59], uint(0)
	for i := range rule.Limits {
		if v.minutes>>i&1 != 0 && t != nil && t.limit < hits[i] {
			hits[i], same, recent = t.limit, false, &t.rule
			lower |= 1 << i
		}
	}
	if same {
		return rule
	}
	if *recent == nil || !sameHits((*recent).Limits, &hits) {
		*recent = variantOf(rule, v.limits(rule.Limits, &hits, lower))
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

// limits returns limits with other numbers of hits. Those that the upstream has lowered have a bit in lower.
func (v *variants) limits(own []window.Limit, hits *[wire.MaxLimits]uint64, lower uint) []window.Limit {
	limits := append([]window.Limit(nil), own...)
	for i := range v.from {
		f := &v.from[i]
		l := &limits[f.limit]
		if l.Max = hits[f.limit]; l.Kind.Bursts() && !f.bursts {
			l.Burst = max(l.Max, 1)
		}
	}
	for i := range limits {
		if l := &limits[i]; lower>>i&1 != 0 {
			l.Max, l.Burst = hits[i], min(l.Burst, hits[i])
		}
	}
	return limits
}
