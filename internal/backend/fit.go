package backend

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/clientip"
	"weir/internal/store"
	"weir/internal/wire"
	"weir/window"
)

// checkFit returns an error that wraps [store.ErrInvalid] if the rule of an override is known, and
// can't have it. A rule is known if a node of the last half minute has told its shape, or else
// if it has overrides and there are nodes: then it needs the windows of one of these, whether or not all
// nodes have them yet. While nodes change from one configuration to another, an override has to fit some
// of them.
func (b *Backend) checkFit(ctx context.Context, namespace string, set []wire.Override) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	reported, err := b.shapes(ctx, namespace)
	if err != nil {
		return err
	}
	inForce, err := b.Overrides(ctx, namespace)
	if err != nil {
		return err
	}
	others := inForce.shapes()
	for i := range set {
		o := &set[i]
		known, from, needs := reported[o.Rule], "rule "+o.Rule+" has", ""
		if len(known) == 0 {
			known, from = others[o.Rule], "the overrides of rule "+o.Rule+" in force have"
			if o.Mode == wire.OfKeys {
				known = slices.Clone(known)
				for j := range known {
					known[j].Flags |= wire.AnyKey // they do not tell which values are addresses
				}
			}
		}
		switch {
		case len(known) == 0:
		case o.Mode.IsWhole():
			known = slices.Clone(known)
			known[0].Flags |= wire.AnyKey // it has no key to speak of
		case o.Mode == wire.OfKeys:
			needs = "; a network is for a value that is a client address, of which as many bits count, and a prefix or suffix for any other"
		}
		network := ""
		if len(known) > 0 && !slices.ContainsFunc(known, func(s wire.RuleShape) bool {
			found := networkIn(&s, o)
			network = cmp.Or(network, found)
			return found == "" && s.Fits(o)
		}) {
			if network != "" {
				needs = "; " + network + " is a network: say so by --network, or by the pattern network"
			}
			return fmt.Errorf("%w: overrides[%d]: no node can apply it: %s %s", store.ErrInvalid, i, from, describeShape(&known[0])+needs)
		}
	}
	return nil
}

// networkIn returns a network that an override has where keys of a rule have a single client address, or "".
func networkIn(s *wire.RuleShape, o *wire.Override) string {
	for i, text := range o.Texts() {
		_, _, address := s.Prefixes(i)
		_, err := netip.ParsePrefix(text)
		if address && err == nil && (o.Mode != wire.OfKeys || strings.HasPrefix(o.Values[i], string(wire.Exactly))) {
			return text
		}
	}
	return ""
}

// shapes returns the shapes of a namespace's rules by their names, as nodes that report have told them: one of each
// configuration, since somebody may make one up that names a rule again and again.
func (b *Backend) shapes(ctx context.Context, namespace string) (map[string][]wire.RuleShape, error) {
	configurations, err := b.Configurations(ctx, namespace)
	shapes := map[string][]wire.RuleShape{}
	for _, c := range configurations {
		named := map[string]bool{}
		for _, s := range c.Rules {
			if len(c.Nodes) > 0 && s.Flags&wire.Local == 0 && !named[s.Name] && !slices.ContainsFunc(shapes[s.Name], s.Equal) {
				shapes[s.Name] = append(shapes[s.Name], s)
			}
			named[s.Name] = true
		}
	}
	return shapes, err
}

// shapes returns the shapes that rules have by their overrides, as many different ones as nodes can tell; nothing
// if there is no node.
func (o *Overrides) shapes() map[string][]wire.RuleShape {
	shapes := map[string][]wire.RuleShape{}
	for i := range o.List {
		of := shapes[o.List[i].Rule]
		if o.Nodes == 0 || len(o.List[i].Limits) == 0 || len(of) == store.MaxRules {
			continue
		}
		if s := shapeOf(&o.List[i]); !slices.ContainsFunc(of, s.Equal) {
			shapes[s.Name] = append(of, s)
		}
	}
	return shapes
}

// shapeOf returns a shape that has the windows and the number of values of an override. It does not
// tell which kinds the limits have, so they are of a kind that takes any number of hits.
func shapeOf(o *wire.Override) wire.RuleShape {
	s := wire.RuleShape{Name: o.Rule, Key: make([]byte, 2*len(o.Values))}
	if o.Mode.IsWhole() {
		s.Flags |= wire.AnyKey
	}
	for _, l := range o.Limits {
		s.Limits = append(s.Limits, wire.ToldLimit{Limit: window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: int64(l.WidthMillis) * window.MinWidth}, Max: 1, Burst: 1}})
	}
	return s
}

// Counts returns what of a value counts, in a key of a rule with this shape: of a client address, its network.
func Counts(of *wire.RuleShape, i int, value string) string {
	ipv4, ipv6, ok := of.Prefixes(i)
	if !ok {
		return value
	}
	var memory [16]byte
	return string(clientip.Network([]byte(value), ipv4, ipv6, &memory))
}

// form names what an override is of, as nodes with a rule of these shapes count it. It is the same however
// people write it, and nothing but what they write if there are no shapes.
func form(shapes []wire.RuleShape, o *wire.Override) string {
	name := fmt.Appendf(nil, "%s %d", o.Rule, o.Mode)
	for n := range max(1, len(shapes)) {
		for i, v := range o.Values {
			mark := ""
			if o.Mode == wire.OfKeys && v != "" {
				mark, v = v[:1], v[1:]
			}
			if n < len(shapes) && (mark == "" || mark == string(wire.Exactly)) {
				v = Counts(&shapes[n], i, v)
			}
			name = strconv.AppendQuote(append(name, mark...), v)
		}
	}
	return string(name)
}

// describeShape says what an override of a rule needs.
func describeShape(s *wire.RuleShape) string {
	windows := make([]string, len(s.Limits))
	for i := range s.Limits {
		windows[i] = (time.Duration(s.Limits[i].Width)).String()
	}
	text := fmt.Sprintf("%d limits, with windows of %s", len(windows), strings.Join(windows, ", "))
	if len(windows) == 1 {
		text = "a limit with a window of " + windows[0]
	}
	if s.Flags&wire.AnyKey != 0 {
		return text
	}
	text += fmt.Sprintf(", and a key of %d values", s.Values())
	switch {
	case s.Shared() >= 0:
		text += ", of which the last two are empty"
	case s.Flags&wire.Classes != 0:
		text += ", of which the last is empty"
	}
	return text
}

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
