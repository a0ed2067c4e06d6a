package backend

import (
	"net/netip"
	"strings"

	"weir/internal/clientip"
	"weir/internal/wire"
	"weir/window"
)

// PatternNames are the names of the kinds of patterns.
var PatternNames = map[byte]string{wire.ByPrefix: "prefix", wire.BySuffix: "suffix", wire.ByNetwork: "network"}

// InForce returns the override by which nodes decide a key of a rule: its own, or else that of the longest
// pattern that it has, or else that of the whole rule; nil if there is none. is reports whether values are the
// key's. Of the rule's limits, if they are known, overrides that do not fit are left out, as by nodes.
func InForce(list []wire.Override, rule string, key []string, is func(values []string) bool, limits []window.Limit) (found *wire.Override) {
	for i := range list {
		o := &list[i]
		if o.Rule != rule || o.Mode == wire.OfKey && (o.IsNotice() || !is(o.Values)) || o.Mode == wire.OfKeys && !isLike(o, key, is) ||
			len(limits) > 0 && len(o.Limits) > 0 && !wire.Fits(limits, o.Limits) {
			continue
		}
		if found == nil || precedence(o, found) {
			found = o
		}
	}
	return found
}

// precedence reports whether an override goes before another of the same rule, which stands before it in the list.
func precedence(o, before *wire.Override) bool {
	if o.Mode == wire.OfKeys && before.Mode == wire.OfKeys {
		p, _ := wire.PatternOf(o.Values)
		q, _ := wire.PatternOf(before.Values)
		return p.Compare(q) < 0
	}
	return o.Mode == wire.OfKey && before.Mode != wire.OfKey || o.Mode == wire.OfKeys && before.Mode.IsWhole()
}

// isLike reports whether a key is one of those of an override of many: one of its values is like the
// pattern, and with that value in the pattern's place the override's are the key's.
func isLike(o *wire.Override, key []string, is func(values []string) bool) bool {
	p, ok := wire.PatternOf(o.Values)
	if !ok || len(o.Values) != len(key) {
		return false
	}
	values := o.Texts()
	of, value := values[p.Part], key[p.Part]
	values[p.Part] = value
	switch p.Kind {
	case wire.ByPrefix:
		ok = strings.HasPrefix(value, of)
	case wire.BySuffix:
		ok = strings.HasSuffix(value, of)
	default:
		value, _, _ = strings.Cut(value, "/") // people type networks too
		network, err := netip.ParsePrefix(of)
		address, errAddress := netip.ParseAddr(string(clientip.Bare([]byte(value))))
		ok = err == nil && errAddress == nil && network.Contains(address.Unmap())
	}
	return ok && is(values)
}
