package config

import (
	"math"
	"strconv"
	"strings"
)

// decimal is a JSON number without rounding: digits × 10^exponent. Its digits have no zeros at either end; 0 has none.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// parseDecimal reads a well-formed JSON number.
func parseDecimal(raw string) decimal {
	var d decimal
	if i := strings.IndexAny(raw, "eE"); i >= 0 {
		// At most 32 bits: sums with the length of the digits don't overflow. Beyond them the sign alone matters.
		exponent, err := strconv.ParseInt(raw[i+1:], 10, 32)
		switch {
		case err == nil:
			d.exponent = int(exponent)
		case raw[i+1] == '-':
			d.exponent = math.MinInt32
		default:
			d.exponent = math.MaxInt32
		}
		raw = raw[:i]
	}
	raw, d.negative = strings.CutPrefix(raw, "-")
	whole, fraction, _ := strings.Cut(raw, ".")
	digits := whole + fraction
	d.digits = strings.TrimRight(digits, "0")
	d.exponent += len(digits) - len(d.digits) - len(fraction)
	d.digits = strings.TrimLeft(d.digits, "0")
	return d
}

// scaled returns d × 10^shift, if that is a whole number; beyond 18 digits the nearest int64.
func (d decimal) scaled(shift int) (n int64, whole bool) {
	zeros := d.exponent + shift
	switch {
	case d.digits == "":
		return 0, true
	case zeros < 0:
		return 0, false
	case len(d.digits)+zeros > 18:
		n = math.MaxInt64
	default:
		for _, c := range d.digits + strings.Repeat("0", zeros) {
			n = n*10 + int64(c-'0')
		}
	}
	if d.negative {
		n = -n
	}
	return n, true
}
