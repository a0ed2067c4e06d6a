package jsonpath

import (
	"bytes"
	"cmp"
)

// Decimal is a decimal number of any size, without rounding.
type Decimal struct {
	_ [0]func() // keeps Go from generating an equality function

	sign int // -1, 0 or 1
	// power is that of ten by which 0.DIGITS is multiplied. digits begin and end with one that is
	// not 0, and may have a point in them.
	power  int
	digits []byte
}

// ParseDecimal reads a number as JSON has it; further zeros may lead it. The number is valid while the
// text is. An exponent beyond a million counts as a million.
func ParseDecimal(text []byte) (n Decimal, ok bool) {
	n.sign = 1
	if len(text) > 0 && text[0] == '-' {
		n.sign, text = -1, text[1:]
	}
	first, point, at := -1, -1, 0
	for ; at < len(text); at++ {
		c := text[at]
		if c == '.' && point < 0 && at > 0 {
			point = at
		} else if c < '0' || '9' < c {
			break
		} else if c != '0' && first < 0 {
			first = at
		}
	}
	if at == 0 || point == at-1 {
		return n, false
	}
	if at < len(text) {
		if n.power, ok = exponentOf(text[at:]); !ok {
			return n, false
		}
	}
	if first < 0 {
		return Decimal{}, true
	}
	if point < 0 {
		point = at
	}
	n.digits = bytes.TrimRight(text[first:at], ".0")
	if n.power += point - first; first > point {
		n.power++ // the point is no digit
	}
	return n, true
}

// Compare returns -1, 0 or 1: whether n is below, equal to or above the other.
func (n *Decimal) Compare(other *Decimal) int {
	switch {
	case n.sign != other.sign || n.sign == 0:
		return cmp.Compare(n.sign, other.sign)
	case n.power != other.power:
		return cmp.Compare(n.power, other.power) * n.sign
	}
	a, b := n.digits, other.digits
	for len(a) > 0 || len(b) > 0 {
		var x, y byte
		x, a = nextDigit(a)
		y, b = nextDigit(b)
		if x != y {
			return cmp.Compare(x, y) * n.sign
		}
	}
	return 0
}

// nextDigit returns the first digit, or 0 after the last, and the rest.
func nextDigit(digits []byte) (digit byte, rest []byte) {
	if len(digits) > 0 && digits[0] == '.' {
		digits = digits[1:]
	}
	if len(digits) == 0 {
		return '0', nil
	}
	return digits[0], digits[1:]
}
