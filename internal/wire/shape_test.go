package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/window"
)

func exampleShapes() []RuleShape {
	bucket := window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: 6e10}, Max: 100, Burst: 20}
	log := window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: 1e9, Precision: window.LogPrecision}, Max: 7}
	month := window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: 31 * 24 * 3600e9}, Max: window.MaxLimit}
	return []RuleShape{
		{Name: "per-user", Flags: Fair | Classes, Key: []byte{0, 0, 32, 64, 8, 0}, Limits: []ToldLimit{{Limit: bucket}, {Limit: log}, {Limit: month, Described: "month"}}},
		{Name: "program", Flags: IsShadow | Varies | AnyKey, Key: []byte{}, Limits: []ToldLimit{{Limit: log}}},
		{Name: "here", Flags: Local, Key: []byte{}, Limits: []ToldLimit{{Limit: window.Limit{Shape: bucket.Shape, Max: 0, Burst: 1}}}},
	}
}

func TestTold(t *testing.T) {
	told := AppendTold(nil, 9, exampleShapes())
	configuration, got, err := DecodeTold(told)
	if err != nil || configuration != 9 || !reflect.DeepEqual(got, exampleShapes()) {
		t.Errorf("got %d %+v, error %v", configuration, got, err)
	}
	other := AppendTold(nil, 10, exampleShapes())
	if DigestOf(told) == DigestOf(other) || DigestOf(told) != DigestOf(slices.Clone(told)) || DigestOf(told) == 0 {
		t.Errorf("digests %x and %x", DigestOf(told), DigestOf(other))
	}
	for end := range told {
		if _, _, err := DecodeTold(told[:end]); err == nil && end != len(AppendTold(nil, 9, exampleShapes()[:1])) && end != len(AppendTold(nil, 9, exampleShapes()[:2])) && end != len(AppendTold(nil, 9, nil)) {
			t.Errorf("%d of %d bytes are read", end, len(told))
		}
	}
}

// Overrides are of a rule's values and windows. Of a rule that is shared they are of all parts, and of all that share a part.
func TestFits(t *testing.T) {
	t.Parallel()
	shared, anything := exampleShapes()[0], exampleShapes()[1]
	plain := shared
	plain.Flags = IsShadow
	limits := []OverrideLimit{{Max: 1, WidthMillis: 60_000}, {Max: 2, WidthMillis: 1000}, {Max: 3, WidthMillis: 31 * 24 * 3600_000}}
	for _, test := range []struct {
		of     RuleShape
		mode   Mode
		limits []OverrideLimit
		want   bool
		values []string
	}{
		{shared, OfKey, limits, true, []string{"a", "", ""}},
		{shared, OfKey, limits, false, []string{"a", "b", ""}},
		{shared, OfKey, limits, false, []string{"a", "", "c"}},
		{shared, OfKey, limits, false, []string{"a", ""}},
		{shared, OfKey, limits[1:], false, []string{"a", "", ""}},
		{shared, OfKeys, limits, true, []string{"^a", "=", "="}},
		{shared, OfKeys, limits, false, []string{"^a", "", "="}},
		{shared, OfKeys, limits, false, []string{"^a", "=", "=c"}},
		{shared, OfKeys, limits, false, []string{"=a", "=", "="}},
		{shared, OfKeys, limits, false, []string{"/10.0.0.0/8", "=", "="}},
		{plain, OfKey, limits, true, []string{"a", "b", "c"}},
		{plain, OfKeys, limits, true, []string{"=a", "/10.0.0.0/8", "=c"}},
		{plain, OfKeys, limits, false, []string{"=a", "=b", "=c"}},
		{plain, Off, nil, true, nil},
		{plain, Shadow, limits, true, nil},
		{plain, Shadow, limits[:2], false, nil},
		{anything, OfKey, limits[1:2], true, []string{"a", "b"}},
		{anything, OfKeys, limits[1:2], true, []string{"/10.0.0.0/8", "=b"}},
		{anything, OfKeys, limits[1:2], false, []string{"=a"}},
	} {
		must.Equal(t, test.of.Fits(&Override{Mode: test.mode, Values: test.values, Limits: test.limits}), test.want, "%s, %v, %q with %d limits: fits", test.of.Name, test.mode, test.values, len(test.limits))
	}
	most := slices.Repeat(shared.Plain()[:1], MaxLimits)
	blocks := append(slices.Clone(most), window.Limit{Shape: window.Shape{Kind: window.Block, Width: 6e10}, Max: 1})
	for width, want := range map[uint64]bool{60_000: true, 1000: false} {
		by := slices.Repeat([]OverrideLimit{{Max: 1, WidthMillis: 60_000}}, MaxLimits)
		by[MaxLimits-1].WidthMillis = width
		must.Equal(t, Fits(most, by), want, "the most limits, the last in %d ms: fit", width)
		must.Equal(t, Fits(blocks, by), want, "the most limits and a block, the last in %d ms: fit", width)
	}
	for i, want := range []string{"0 0 false", "32 64 true", "8 0 true"} {
		ipv4, ipv6, ok := plain.Prefixes(i)
		must.Equal(t, fmt.Sprint(ipv4, ipv6, ok), want, "value %d: bits that count", i)
	}
	for name, change := range map[string]func(s *RuleShape){
		"name": func(s *RuleShape) { s.Name = "r" }, "values": func(s *RuleShape) { s.Key = s.Key[2:] }, "prefix": func(s *RuleShape) { s.Key[2]-- },
		"shared": func(s *RuleShape) { s.Flags ^= Fair }, "window": func(s *RuleShape) { s.Limits[1].Width++ }, "any key": func(s *RuleShape) { s.Flags |= AnyKey },
	} {
		other := exampleShapes()[0]
		change(&other)
		must.Equal(t, shared.Equal(other), false, "equal, with another %s", name)
	}
	other := exampleShapes()[0]
	other.Flags, other.Limits[0].Max, other.Limits[0].Described = other.Flags^IsShadow, 7, "x"
	must.Equal(t, shared.Equal(other), true, "equal, with what no override depends on")
}

// Of too many rules as many are told as there is room for.
func TestToldIsBounded(t *testing.T) {
	var all []RuleShape
	for i := range 300 {
		all = append(all, RuleShape{Name: fmt.Sprint(strings.Repeat("r", i%60), i)})
	}
	if _, got, err := DecodeTold(AppendTold(nil, 0, all)); err != nil || len(got) != MaxReportRules {
		t.Errorf("%d short rules, %v", len(got), err)
	}
	for i := range all {
		all[i].Limits = slices.Repeat(exampleShapes()[0].Limits[:1], MaxLimits)
	}
	all[0].Key = make([]byte, 2*MaxOverrideValues)
	told := AppendTold([]byte("before"), 0, all)
	_, got, err := DecodeTold(told[len("before"):])
	if err != nil || len(got) < 50 || len(got) >= MaxReportRules || len(told) > MaxTold+len("before") || got[len(got)-1].Name != all[len(got)-1].Name || len(got[0].Limits) != MaxLimits || got[0].Limits[7].Ordinal != 7 {
		t.Errorf("%d rules in %d bytes, %v", len(got), len(told), err)
	}
}

func TestToldBounds(t *testing.T) {
	for name, change := range map[string]func(s *RuleShape){
		"values":    func(s *RuleShape) { s.Key = make([]byte, 2*MaxOverrideValues+1) },
		"name":      func(s *RuleShape) { s.Name = "r r" },
		"flags":     func(s *RuleShape) { s.Flags = allFlags + 1 },
		"prefix":    func(s *RuleShape) { s.Key[2] = 33 },
		"IPv6":      func(s *RuleShape) { s.Key[3] = 129 },
		"limits":    func(s *RuleShape) { s.Limits = make([]ToldLimit, MaxLimits+1) },
		"kind":      func(s *RuleShape) { s.Limits[0].Kind = window.LastKind + 1 },
		"window":    func(s *RuleShape) { s.Limits[0].Width = 0 },
		"precision": func(s *RuleShape) { s.Limits[0].Precision = 1 },
		"burst":     func(s *RuleShape) { s.Limits[0].Burst = 0 },
		"hits":      func(s *RuleShape) { s.Limits[2].Max = MaxHits + 1 },
		"calendar":  func(s *RuleShape) { s.Limits[0].Described = strings.Repeat("c", MaxCalendar+1) },
	} {
		s := exampleShapes()
		change(&s[0])
		_, _, err := DecodeTold(AppendTold(nil, 0, s))
		must.Is(t, err, ErrMalformed, "%s", name)
	}
	if _, _, err := DecodeTold(nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("nothing: %v", err)
	}
}

func FuzzDecodeTold(f *testing.F) {
	f.Add(AppendTold(nil, 1, exampleShapes()))
	f.Add(AppendTold(nil, 0, nil))
	f.Fuzz(func(t *testing.T, told []byte) {
		configuration, shapes, err := DecodeTold(told)
		if err != nil {
			must.Is(t, err, ErrMalformed, "read")
			return
		}
		again := AppendTold(nil, configuration, shapes)
		if _, got, err := DecodeTold(again); err != nil || !reflect.DeepEqual(got, shapes) || len(again) > len(told) || len(again) == len(told) && !bytes.Equal(again, told) {
			t.Fatalf("%+v became %+v, %v", shapes, got, err)
		}
	})
}
