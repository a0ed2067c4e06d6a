package wire

import (
	"bytes"
	"slices"

	"weir/window"
)

// RuleShape is what a node tells of a rule: that on which overrides depend, so that a backend refuses
// overrides that the node can't apply, and what people need to know to read the rule's counters.
type RuleShape struct {
	Name  string
	Flags RuleFlags
	// Key has two bytes for each value of the rule's key: how many leading bits of an IPv4 and of an
	// IPv6 address count. They are 0 for a value that is no address.
	Key    []byte
	Limits []ToldLimit // without a block
}

// RuleFlags are what is so of a rule.
type RuleFlags uint8

const (
	// IsShadow rules refuse nothing.
	IsShadow RuleFlags = 1 << iota
	// Local rules count in each process alone.
	Local
	// Varies means that some keys or requests have other limits.
	Varies
	// AnyKey means that the node does not know how many values the key has.
	AnyKey
	// Fair means that what is counted has an empty value in the last place but one of the key: requests with
	// other values there share it evenly. It comes with Classes.
	Fair
	// Classes means that the last value of the key is that of a class's part. Overrides are of all parts, and have
	// an empty value there.
	Classes
	allFlags = IsShadow | Local | Varies | AnyKey | Fair | Classes
)

// ToldLimit is a limit, whose calendar is described; empty for a limit without one.
type ToldLimit struct {
	_ [0]func() // keeps Go from generating an equality function

	window.Limit
	Described string
}

// Values is how many values the rule's key has, or more than any key if the node does not know.
func (s *RuleShape) Values() int {
	if s.Flags&AnyKey != 0 {
		return MaxOverrideValues + 1
	}
	return len(s.Key) / 2
}

// Shared is the place of the value that is always empty, of a rule that is [Fair]; -1 for any other.
func (s *RuleShape) Shared() int {
	if s.Flags&Fair == 0 {
		return -1
	}
	return len(s.Key)/2 - 2
}

// Whole returns the key that overrides have for a key of the rule.
func (s *RuleShape) Whole(key []string) []string {
	if last := s.Values() - 1; s.Flags&Classes != 0 && last >= 0 && len(key) == last+1 {
		return append(slices.Clone(key[:last]), "")
	}
	return key
}

// Prefixes returns how many leading bits of a value count that is a client address. ok is false if it is
// none.
func (s *RuleShape) Prefixes(value int) (ipv4, ipv6 int, ok bool) {
	if 2*value+1 >= len(s.Key) {
		return 0, 0, false
	}
	ipv4, ipv6 = int(s.Key[2*value]), int(s.Key[2*value+1])
	return ipv4, ipv6, ipv4|ipv6 != 0
}

// Bounds of what a node tells of its rules.
const (
	// MaxTold bounds it in bytes. Rules beyond that are left out.
	MaxTold = MaxReport / 4
	// MaxCalendar is the most bytes of a calendar's description.
	MaxCalendar = 64
)

// toldVersion begins what a node tells of its rules.
const toldVersion = 1

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
	return s.Name == other.Name && s.Values() == other.Values() && (s.Flags^other.Flags)&(Fair|Classes) == 0 && bytes.Equal(s.Key, other.Key) &&
		slices.EqualFunc(s.Limits, other.Limits, func(a, b ToldLimit) bool { return a.Shape == b.Shape })
}

// Fits reports whether a rule of this shape can have an override.
func (s *RuleShape) Fits(o *Override) bool {
	if o.Mode.IsWhole() {
		return len(o.Limits) == 0 || Fits(s.Plain(), o.Limits)
	}
	if p, ok := PatternOf(o.Values); o.Mode == OfKeys && (!ok || s.Flags&AnyKey == 0 && !p.Fits(s.Key)) {
		return false
	}
	for i, v := range o.Values[:min(len(o.Values), s.Values())] {
		if (i == s.Shared() || s.Flags&Classes != 0 && i == s.Values()-1) && (v != "" && o.Mode != OfKeys || v != "=" && o.Mode == OfKeys) {
			return false
		}
	}
	return (s.Flags&AnyKey != 0 || s.Values() == len(o.Values)) && Fits(s.Plain(), o.Limits)
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

// AppendTold appends what a node tells of its rules, as far as there is room. configuration is the
// digest of everything else in its configuration.
func AppendTold(dst []byte, configuration uint64, shapes []RuleShape) []byte {
	most := len(dst) + MaxTold
	dst = appendUvarints(dst, toldVersion, configuration)
	for i := range shapes {
		end := len(dst)
		if dst = shapes[i].append(dst); len(dst) > most || i == MaxReportRules {
			return dst[:end]
		}
	}
	return dst
}

func (s *RuleShape) append(dst []byte) []byte {
	dst = appendUvarints(appendCounted(appendText(dst, s.Name), s.Key), uint64(s.Flags), uint64(len(s.Limits)))
	for i := range s.Limits {
		l := &s.Limits[i]
		dst = appendUvarints(dst, uint64(l.Kind), uint64(l.Width/window.MinWidth), uint64(l.Precision), l.Max, l.Burst)
		dst = appendText(dst, l.Described)
	}
	return dst
}

// DecodeTold reads what a node tells of its rules. Any error wraps [ErrMalformed].
func DecodeTold(told []byte) (configuration uint64, shapes []RuleShape, err error) {
	r := reader{data: told}
	if r.uvarint() != toldVersion || len(told) > MaxTold {
		r.fail("want rules in at most 16 KiB")
	}
	configuration = r.uvarint()
	for r.err == nil && r.pos < len(r.data) {
		shapes = append(shapes, r.shape())
		r.most(uint64(len(shapes)), MaxReportRules)
	}
	if r.err != nil {
		return 0, nil, r.err
	}
	return configuration, shapes, nil
}

func (r *reader) shape() RuleShape {
	s := RuleShape{Name: r.ruleName(), Key: r.counted(2 * MaxOverrideValues)}
	for i, bits := range s.Key {
		if len(s.Key)%2 != 0 || i%2 == 0 && bits > 32 || bits > 128 {
			r.fail("want the prefixes of addresses")
		}
	}
	s.Flags = RuleFlags(r.most(r.uvarint(), int(allFlags)))
	if s.Flags&(Classes|Fair) == Fair {
		r.fail("want fair shares of classes")
	}
	s.Limits = several(r, r.most(r.uvarint(), MaxLimits), r.toldLimit)
	limits := s.Plain()
	window.SetOrdinals(limits)
	for i := range limits {
		s.Limits[i].Ordinal = limits[i].Ordinal
	}
	return s
}

func (r *reader) toldLimit() ToldLimit {
	l := window.Limit{Shape: window.Shape{Kind: window.Kind(r.most(r.uvarint(), 255)), Width: int64(r.width()) * window.MinWidth}}
	l.Precision = int64(min(r.uvarint(), MaxWidthMillis*1e6+1))
	l.Max, l.Burst = r.amount(), r.amount()
	if r.err == nil && l.Fault() != window.Sound {
		r.fail("want a limit")
	}
	return ToldLimit{Limit: l, Described: string(r.counted(MaxCalendar))}
}

// Plain returns the limits without descriptions.
func (s *RuleShape) Plain() (limits []window.Limit) {
	for i := range s.Limits {
		limits = append(limits, s.Limits[i].Limit)
	}
	return limits
}
