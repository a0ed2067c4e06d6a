package wire

import (
	"strings"
	"testing"

	"weir/internal/must"
)

// A pattern is of one value, and a longer one comes before a shorter. It fits values that are addresses or
// not, and networks only as many bits as count.
func TestPatternOf(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{
		nil, {"=a"}, {"a"}, {""}, {"^a", ""}, {"^a", "$b"}, {"/10.0.0.0"}, {"/10.0.0.0/"}, {"/10.0.0.0/33"}, {"/::/129"}, {"/::/1x"}, {"//8x"}, {"/8"},
	} {
		if p, ok := PatternOf(values); ok {
			t.Errorf("%q: got %+v", values, p)
		}
	}
	key := []byte{24, 48, 0, 0}
	var before Pattern
	for i, test := range []struct {
		values []string
		want   Pattern
		fits   bool
	}{
		{[]string{"/2001:db8::/64", "=x"}, Pattern{ByNetwork, 0, true, 64}, false},
		{[]string{"/2001:db8::/48", "=x"}, Pattern{ByNetwork, 0, true, 48}, true},
		{[]string{"/10.0.0.0/25", "=x"}, Pattern{ByNetwork, 0, false, 25}, false},
		{[]string{"/10.0.0.0/24", "=x"}, Pattern{ByNetwork, 0, false, 24}, true},
		{[]string{"/2001::/24", "=x"}, Pattern{ByNetwork, 0, true, 24}, true},
		{[]string{"=x", "/10.0.0.0/24"}, Pattern{ByNetwork, 1, false, 24}, false},
		{[]string{"/10.0.0.0/20", "=x"}, Pattern{ByNetwork, 0, false, 20}, true},
		{[]string{"=x", "$ab"}, Pattern{BySuffix, 1, false, 16}, true},
		{[]string{"=x", "^ab"}, Pattern{ByPrefix, 1, false, 16}, true},
		{[]string{"^", "=x"}, Pattern{ByPrefix, 0, false, 0}, false},
		{[]string{"=x", "=y", "^"}, Pattern{ByPrefix, 2, false, 0}, false},
	} {
		p, ok := PatternOf(test.values)
		if !ok || p != test.want || p.Fits(key) != test.fits {
			t.Errorf("%q: got %+v, %v; fits %v", test.values, p, ok, p.Fits(key))
		}
		if i > 0 && (before.Compare(p) >= 0 || p.Compare(before) <= 0) || p.Compare(p) != 0 {
			t.Errorf("%+v does not come before %+v", before, p)
		}
		before = p
	}
	for mode, want := range map[Mode]string{OfKey: "^ab,=b,", OfKeys: "ab,b,"} {
		o := Override{Mode: mode, Values: []string{"^ab", "=b", ""}}
		must.Equal(t, strings.Join(o.Texts(), ","), want, "mode %v: texts", mode)
	}
}
