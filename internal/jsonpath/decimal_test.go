package jsonpath_test

import (
	"math/big"
	"regexp"
	"testing"

	"weir/internal/jsonpath"
	"weir/internal/must"
)

var aNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// Numbers are read and compared as package big does.
func FuzzDecimal(f *testing.F) {
	texts := []string{"0", "-0", "0.0", "1", "-1", "10", "1e1", "0.1e2", "100.50", "100.5", "007", "0.007", "7e-3", "0.070e-1", "-12.5", "-12.50001",
		"1e400", "1e-400", "99999999999999999999999999", "1e26", "", "-", ".5", "5.", "1e", "1e+", "+1", " 1", "1 ", "1.2.3", "0x1", "NaN", "1_0"}
	for i, a := range texts {
		f.Add(a, texts[(i+1)%len(texts)])
		f.Add(a, texts[(i+9)%len(texts)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var numbers [2]jsonpath.Decimal
		var want [2]*big.Rat
		for i, text := range []string{a, b} {
			n, ok := jsonpath.ParseDecimal([]byte(text))
			must.EqualOrEnd(t, ok, aNumber.MatchString(text), "%q: read", text)
			if !ok || len(text) > 100 {
				return
			}
			if want[i], ok = new(big.Rat).SetString(text); !ok || largeExponent.MatchString(text) {
				return
			}
			numbers[i] = n
		}
		must.Equal(t, numbers[0].Compare(&numbers[1]), want[0].Cmp(want[1]), "%q and %q", a, b)
	})
}

// largeExponent is where package big takes very long.
var largeExponent = regexp.MustCompile(`[eE][+-]?0*[0-9]{4}`)
