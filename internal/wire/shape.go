package wire

import (
	"encoding/binary"
	"slices"

	"weir/window"
)

// RuleShape is what a node tells of a rule: that on which overrides depend, so that a backend refuses
// overrides that the node can't apply, and what people need to know to read the rule's counters.
type RuleShape struct {
	Name string
	// Shadow rules refuse nothing. Local rules count in each process alone. Varies means that some keys
	// or requests have other limits.
	Shadow, Local, Varies bool
	// Values is how many values the rule's key has, or AnyValues if the node does not know. Addresses
	// are those values that are client addresses.
	Values    uint8
	Addresses []AddressValue
	Limits    []window.Limit // without a block, and without calendars
	// Calendars are those of the limits; empty for a limit without one.
	Calendars [MaxLimits]string
}

// AddressValue is a value of a key that is a client address, of which this many leading bits count.
type AddressValue struct{ At, IPv4Prefix, IPv6Prefix uint8 }

// AnyValues is more than any key has.
const AnyValues = MaxOverrideValues + 1

// Bounds of what a node tells of its rules.
const (
	// MaxTold bounds it in bytes. Rules beyond that are left out.
	MaxTold = MaxReport / 4
	// MaxCalendar is the most bytes of a calendar's description.
	MaxCalendar = 64
)

// toldVersion begins what a node tells of its rules.
const toldVersion = 0x91

// TellRules is the body of a backend's answer to a report whose sender should tell its rules in the
// next one. Other reports have an answer without a body.
const TellRules = "rules"

// DigestOf names what a node has told of its rules: it is its FNV-1a hash. 0 names nothing.
func DigestOf(told []byte) uint64 {
	hash := uint64(14695981039346656037)
	for _, b := range told {
		hash = (hash ^ uint64(b)) * 1099511628211
	}
	return max(hash, 1)
}

// Equal reports whether overrides depend on the same in two rules.
func (s RuleShape) Equal(other RuleShape) bool {
	return s.Name == other.Name && s.Values == other.Values &&
		slices.EqualFunc(s.Limits, other.Limits, func(a, b window.Limit) bool { return a.Shape == b.Shape })
}

// Fits reports whether a rule of this shape can have an override.
func (s *RuleShape) Fits(o *Override) bool {
	if o.Mode != OfKey {
		return len(o.Limits) == 0 || Fits(s.Limits, o.Limits)
	}
	return (s.Values == AnyValues || int(s.Values) == len(o.Values)) && Fits(s.Limits, o.Limits)
}

// Fits reports whether a rule with these limits can have an override's.
func Fits(of []window.Limit, by []OverrideLimit) bool {
	_, fits := Fit(of, by)
	return fits
}

// Fit applies an override to a rule's limits. An override has a limit for each of them, and each
// goes to the first limit with its window that has none yet. Without a burst, the burst is the
// limit.
func Fit(of []window.Limit, by []OverrideLimit) (limits []window.Limit, fits bool) {
	last := len(of) - 1
	blocks := last >= 0 && of[last].Kind.Blocks()
	if blocks && len(by) != last || !blocks && len(by) != len(of) {
		return nil, false
	}
	limits = append(limits, of...)
	var given [MaxLimits + 1]bool
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

// Flags of a rule.
const (
	isShadow = 1 << iota
	isLocal
	varies
)

// AppendTold appends what a node tells of its rules, as far as there is room. configuration is the
// digest of everything else in its configuration.
func AppendTold(dst []byte, configuration uint64, shapes []RuleShape) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint64(append(dst, toldVersion), configuration)
	for i := range shapes[:min(len(shapes), MaxReportRules)] {
		end := len(dst)
		if dst = shapes[i].append(dst); len(dst)-start > MaxTold {
			return dst[:end]
		}
	}
	return dst
}

func (s *RuleShape) append(dst []byte) []byte {
	flags := byte(0)
	for i, set := range [...]bool{s.Shadow, s.Local, s.Varies} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(appendText(dst, s.Name), flags, s.Values, byte(len(s.Addresses)))
	for _, a := range s.Addresses {
		dst = append(dst, a.At, a.IPv4Prefix, a.IPv6Prefix)
	}
	dst = append(dst, byte(len(s.Limits)))
	for i := range s.Limits {
		l := &s.Limits[i]
		dst = appendUvarints(append(dst, byte(l.Kind), l.Ordinal), uint64(l.Width/window.MinWidth), uint64(l.Precision), l.Max, l.Burst)
		dst = appendText(dst, s.Calendars[i])
	}
	return dst
}

// DecodeTold reads what a node tells of its rules. Any error wraps [ErrMalformed].
func DecodeTold(told []byte) (configuration uint64, shapes []RuleShape, err error) {
	r := reader{data: told}
	if r.byte() != toldVersion || len(told) > MaxTold {
		r.fail("want rules in at most 16 KiB")
	}
	configuration = r.uint64()
	for r.err == nil && r.pos < len(r.data) {
		shapes = append(shapes, r.shape())
		r.most(uint64(len(shapes)), MaxReportRules)
	}
	if r.err != nil {
		return 0, nil, r.err
	}
	return configuration, shapes, nil
}

// shape reads a rule's shape.
func (r *reader) shape() RuleShape {
	s, at := RuleShape{Name: r.ruleName()}, 0
	flags := r.byte()
	s.Shadow, s.Local, s.Varies = flags&isShadow != 0, flags&isLocal != 0, flags&varies != 0
	if s.Values = r.byte(); s.Values > AnyValues || flags >= varies<<1 {
		r.fail("want a rule's flags and its number of values")
	}
	s.Addresses = several(r, r.few(MaxOverrideValues), func() AddressValue {
		a := AddressValue{r.byte(), r.byte(), r.byte()}
		if a.At >= s.Values || a.IPv4Prefix > 32 || a.IPv6Prefix > 128 {
			r.fail("want an address among the values")
		}
		return a
	})
	s.Limits = several(r, r.few(MaxLimits), func() window.Limit {
		l := r.toldLimit()
		s.Calendars[at] = string(r.counted(MaxCalendar))
		at++
		return l
	})
	return s
}

func (r *reader) toldLimit() window.Limit {
	l := window.Limit{Shape: window.Shape{Kind: window.Kind(r.byte()), Ordinal: r.byte(), Width: int64(r.width()) * window.MinWidth}}
	l.Precision = int64(min(r.uvarint(), MaxWidthMillis*1e6+1))
	l.Max, l.Burst = r.amount(), r.amount()
	if r.err == nil && l.Fault() != window.Sound {
		r.fail("want a limit")
	}
	return l
}
