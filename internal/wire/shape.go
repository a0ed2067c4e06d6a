package wire

import (
	"slices"

	"weir/window"
)

// RuleShape is the part of a rule on which overrides depend. Nodes report it, so that a backend
// refuses overrides that they can't apply.
type RuleShape struct {
	Name string
	// Values is how many values the rule's key has, or AnyValues if the node does not know.
	Values uint8
	Limits []window.Limit // without numbers of hits
}

// AnyValues is more than any key has.
const AnyValues = MaxOverrideValues + 1

// maxShapesSize bounds the bytes of all shapes in a report, and maxShapes their number, which has a
// byte. Rules beyond that are left out.
const (
	maxShapesSize = MaxReport / 4
	maxShapes     = 255
)

// Equal reports whether two shapes are the same.
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

// appendShapes appends the shapes that there is room for.
func appendShapes(dst []byte, shapes []RuleShape) []byte {
	start := len(dst)
	dst = append(dst, 0)
	for i := range shapes {
		s, end := &shapes[i], len(dst)
		dst = append(appendText(dst, s.Name), s.Values, byte(len(s.Limits)))
		for j := range s.Limits {
			l := &s.Limits[j]
			dst = appendUvarints(append(dst, byte(l.Kind)), uint64(l.Width/window.MinWidth), uint64(l.Precision))
		}
		if len(dst)-start > maxShapesSize || dst[start] == maxShapes {
			return dst[:end]
		}
		dst[start]++
	}
	return dst
}

// shape reads a rule's shape.
func (r *reader) shape() RuleShape {
	s := RuleShape{Name: r.ruleName(), Values: r.byte()}
	if s.Values > AnyValues {
		r.fail("want a number of values")
	}
	s.Limits = several(r, r.few(MaxLimits), r.shapeOfLimit)
	return s
}

func (r *reader) shapeOfLimit() window.Limit {
	l := window.Limit{Shape: window.Shape{Kind: window.Kind(r.byte()), Width: int64(r.width()) * window.MinWidth}, Max: 1}
	if l.Precision = int64(min(r.uvarint(), MaxWidthMillis*1e6+1)); l.Kind.Bursts() {
		l.Burst = 1
	}
	if r.err == nil && l.Fault() != window.Sound {
		r.fail("want a limit")
	}
	return l
}
