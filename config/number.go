package config

import (
	"math"
	"strings"
)

// decimal is a JSON number without rounding: digits × 10^exponent. Its digits neither begin nor end
// with zeros; the number 0 has no digits.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// parseDecimal reads a well-formed JSON number.
func parseDecimal(raw string) decimal {
	var d decimal
	if i := strings.IndexByte(lower(raw), 'e'); i >= 0 {
		exponent := raw[i+1:]
		negative := exponent[0] == '-'
		if negative || exponent[0] == '+' {
			exponent = exponent[1:]
		}
		// 32 bits at most, so that adding the length of the digits can't overflow. For larger
		// exponents only the sign matters.
		n, _ := natural(exponent, 10)
		d.exponent = int(min(n, math.MaxInt32))
		if negative {
			d.exponent = -d.exponent
		}
		raw = raw[:i]
	}
	raw, d.negative = strings.CutPrefix(raw, "-")
	whole, fraction := split(raw, '.')
	digits := whole + fraction
	d.exponent -= len(fraction)
	for digits != "" && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		d.exponent++
	}
	for digits != "" && digits[0] == '0' {
		digits = digits[1:]
	}
	d.digits = digits
	return d
}

// scaled returns d × 10^shift, and whether that is a whole number. Beyond 18 digits it returns the
// nearest int64.
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
		n, _ = natural(d.digits, 10)
		for range zeros {
			n *= 10
		}
	}
	if d.negative {
		n = -n
	}
	return n, true
}

// natural reads one or more digits, and nothing else. It returns the largest int64 for larger
// numbers. The functions of strconv, with their errors, would make the plugin some 30 KB larger.
func natural(text string, base int64) (n int64, ok bool) {
	for i := range len(text) {
		digit := int64(text[i])
		switch {
		case '0' <= digit && digit <= '9':
			digit -= '0'
		case 'a' <= digit|0x20 && digit|0x20 <= 'f':
			digit = digit | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		if digit >= base {
			return 0, false
		}
		if n > (math.MaxInt64-digit)/base {
			n = math.MaxInt64
			continue
		}
		n = n*base + digit
	}
	return n, text != ""
}
