package config

import (
	"slices"
	"strconv"
	"strings"

	"weir/internal/clientip"
	"weir/internal/wire"
	"weir/window"
)

// maxOverrides bounds the values, and the keys, with other limits than a rule's.
const maxOverrides = 1024

var (
	overridesFields   = []field{{"by", optional}, {"values", optional}, {"keys", optional}}
	keyOverrideFields = []field{{"key", required}, {"limits", required}}
	// The limits of an override may repeat fields of the rule's limits with the same values.
	overrideLimitFields = limitFields[:len(limitFields)-4]
)

// readOverrides reads a rule's overrides after all other fields. If the rule's limits have errors,
// the overrides are not compared with them.
func readOverrides(v *value, rule *Rule, sound bool) {
	o := &rule.Overrides
	var by, values *value
	limits := func(v *value) []window.Limit { return readOtherLimits(v, rule.Limits, sound) }
	v.object(`{"by": {"header": "x-plan"}, "values": {"gold": [{"limit": 1000, "window": "1m"}]}}`, overridesFields, func(name string, v *value) {
		switch name {
		case "by":
			by = v
			s := readKeySelector(v, groupField)
			o.By = &s
		case "values":
			values = v
			o.Values = readValueOverrides(v, limits)
		case "keys":
			o.Keys = readKeyOverrides(v, len(rule.Key), limits)
		}
	})
	if by.given() && !values.given() {
		v.missing("values").wrong("the values with other limits, because by selects them")
	}
	if values.given() && !by.given() {
		v.missing("by").wrong("the selector that values are for")
	}
	if values.given() && o.By != nil && o.By.Kind == SelectClientIP {
		checkNetworks(values, o.By)
	}
}

// checkNetworks wants each value of client_ip to be another network of the selector's.
func checkNetworks(values *value, by *Selector) {
	var seen []string
	values.each("", 0, maxOverrides, func(v *value) {
		var memory [16]byte
		address, bits, cut := strings.Cut(v.name, "/")
		network := string(clientip.Network([]byte(address), by.IPv4Prefix, by.IPv6Prefix, &memory))
		prefix := by.IPv6Prefix
		if len(network) == 4 {
			prefix = by.IPv4Prefix
		}
		if network == address || cut && bits != strconv.Itoa(prefix) {
			v.fail("want limits of an address, or of a network of as many bits as by has")
		} else if slices.Contains(seen, network) {
			v.fail("want no two values of one network")
		}
		seen = append(seen, network)
	})
}

func readValueOverrides(v *value, limits func(v *value) []window.Limit) (overrides []ValueOverride) {
	if !v.isObject(`{"gold": [{"limit": 1000, "window": "1m"}]}`) {
		return nil
	}
	v.each("values", 1, maxOverrides, func(v *value) {
		for i := range overrides {
			if overrides[i].Value == v.name {
				v.givenTwice()
				return
			}
		}
		overrides = append(overrides, ValueOverride{Value: v.name, Limits: limits(v)})
	})
	return overrides
}

func readKeyOverrides(v *value, parts int, limits func(v *value) []window.Limit) (overrides []KeyOverride) {
	v.array("keys", 1, maxOverrides, func(v *value) {
		var o KeyOverride
		v.object(`{"key": ["ann"], "limits": [{"limit": 1000, "window": "1m"}]}`, keyOverrideFields, func(name string, v *value) {
			if name == "limits" {
				o.Limits = limits(v)
				return
			}
			v.array("values", 0, maxKey, func(v *value) { o.Key = append(o.Key, v.string("a string of at most 4096 bytes", isLiteral)) })
			if n := v.length(); n >= 0 && n != parts {
				v.fail("want a value for each selector of the rule's key, " + strconv.Itoa(parts) + " in all, got " + strconv.Itoa(n))
			}
		})
		for i := range overrides {
			if slices.Equal(overrides[i].Key, o.Key) {
				v.fail("key given twice")
			}
		}
		overrides = append(overrides, o)
	})
	return overrides
}

// readOtherLimits reads limits that replace a rule's. They share its counters, so they may only
// differ in limit and burst.
func readOtherLimits(v *value, own []window.Limit, sound bool) (limits []window.Limit) {
	v.array("limits", 1, wire.MaxLimits, func(v *value) {
		limit, _, _ := readLimit(v, overrideLimitFields)
		if i := len(limits); i < len(own) && sound && limit.Width != 0 {
			want := own[i].Shape
			limit.Ordinal = want.Ordinal
			if limit.Shape != want || (limit.Calendar != nil) != (own[i].Calendar != nil) {
				v.fail("want the window and the algorithm of the rule's limits[" + strconv.Itoa(i) + "], because only limit and burst can differ")
			}
			limit.Calendar = own[i].Calendar
		}
		limits = append(limits, limit)
	})
	if n := v.length(); n > 0 && n != len(own) && sound {
		v.fail("want a limit for each limit of the rule, " + strconv.Itoa(len(own)) + " in all, got " + strconv.Itoa(n))
	}
	return limits
}

// Varies reports whether some requests or keys have other limits.
func (r *Rule) Varies() bool {
	return len(r.LimitFrom) > 0 || r.Overrides.By != nil || len(r.Overrides.Keys) > 0
}

// Widest returns the rule's limits, each as large as any request may have it.
//
//go:noinline
func (r *Rule) Widest() []window.Limit {
	widest := append([]window.Limit(nil), r.Limits...)
	for i := range r.LimitFrom {
		widen(&widest[r.LimitFrom[i].Limit], r.LimitFrom[i].Max)
	}
	for i := range r.Overrides.Keys {
		widenAll(widest, r.Overrides.Keys[i].Limits)
	}
	for i := range r.Overrides.Values {
		widenAll(widest, r.Overrides.Values[i].Limits)
	}
	return widest
}

func widenAll(widest, limits []window.Limit) {
	for i := range limits {
		if i < len(widest) {
			widen(&widest[i], limits[i].Max)
		}
	}
}

func widen(l *window.Limit, hits uint64) { l.Max = max(l.Max, hits) }
