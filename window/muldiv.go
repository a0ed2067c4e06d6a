package window

import (
	"math"
	"math/bits"
)

// muldiv returns a·b/c and the remainder. ok is false if c is 0 or the quotient exceeds 64 bits. It
// is true if c is not 0 and a or b is at most c.
func muldiv(a, b, c uint64) (quotient, remainder uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 || c == 0 {
		return longMuldiv(hi, lo, c)
	}
	quotient = lo / c
	return quotient, lo - quotient*c, true
}

// muldivUp is muldiv rounded up; math.MaxUint64 if the quotient exceeds 64 bits.
func muldivUp(a, b, c uint64) uint64 {
	quotient, remainder, ok := muldiv(a, b, c)
	if !ok {
		return math.MaxUint64
	}
	return max(quotient, quotient+min(remainder, 1))
}

func longMuldiv(hi, lo, c uint64) (quotient, remainder uint64, ok bool) {
	if hi >= c {
		return quotient, remainder, false
	}
	quotient, remainder = bits.Div64(hi, lo, c)
	return quotient, remainder, true
}
