// Package named finds the counter of a key from the values that people type.
package named

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weir/config"
	"weir/internal/clientip"
	"weir/internal/counter"
	"weir/internal/wire"
)

// Check returns an error if the values don't fit the rule's key. Where the rule has classes, the last value
// is that of one of their parts. Where these are shared evenly, the one before is empty.
func Check(rule *config.Rule, key []string) error {
	want := len(rule.Key)
	if rule.Classes != nil {
		want++
	}
	if want != len(key) {
		return fmt.Errorf("want %d values for the key of %s, got %d", want, rule.Name, len(key))
	}
	for i := range rule.Key {
		if i == len(rule.Key)-1 && rule.Fair() {
			if key[i] != "" {
				return fmt.Errorf("want an empty value %d for the key of %s, whose classes count all such values together, got %.80q", i+1, rule.Name, key[i])
			}
			continue
		}
		if rule.Key[i].Kind != config.SelectClientIP {
			continue
		}
		if _, err := netip.ParseAddr(key[i]); err != nil {
			return fmt.Errorf("want an address for value %d of the key of %s, got %.80q", i+1, rule.Name, key[i])
		}
	}
	return nil
}

// Whole returns the key that overrides have for a rule's key: where the rule has classes, they are of all of its parts, and
// the last value is empty.
func Whole(rule *config.Rule, key []string) []string {
	if n := len(rule.Key); rule.Classes != nil && len(key) > n {
		return append(slices.Clone(key[:n]), "")
	}
	return key
}

// Counters returns the keys of the counters that an override of a key is for.
func Counters(rule *config.Rule, key []string) (all [][]string) {
	n := len(rule.Key)
	switch {
	case rule.Classes == nil && len(key) == n:
		return [][]string{key}
	case rule.Classes == nil || len(key) < n || len(key) > n && key[n] != "":
		return nil
	}
	for _, part := range rule.Classes.Parts() {
		all = append(all, append(slices.Clone(key[:n]), part))
	}
	return all
}

// Identity returns the backend's identity for a key of a rule. selectors are those of the rule, and
// tell which part of an address counts. A value without a selector counts as it is.
func Identity(of *counter.Identities, rule string, selectors []config.Selector, key []string) wire.ID {
	name := counter.AppendPart(nil, rule)
	for i, value := range key {
		if i < len(selectors) && selectors[i].Kind == config.SelectClientIP {
			var network [16]byte
			value, _, _ = strings.Cut(value, "/") // people type networks too
			value = string(clientip.Network([]byte(value), selectors[i].IPv4Prefix, selectors[i].IPv6Prefix, &network))
		}
		name = counter.AppendPart(name, value)
	}
	return of.Of(name)
}

// Plain returns the identity of a key of a rule, as nodes without a secret have it. Of addresses, values are the
// part that counts.
func Plain(rule string, values []string) wire.ID {
	plain := counter.NewIdentities("")
	return Identity(&plain, rule, nil, values)
}
