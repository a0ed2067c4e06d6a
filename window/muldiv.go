package window

import (
	"math"
	"math/bits"
)

// MulDiv returns a·b/c and the remainder. ok is false if c is 0 or the quotient exceeds 64 bits. It
// is true if c is not 0 and a or b is at most c.
func MulDiv(a, b, c uint64) (quotient, remainder uint64, ok bool) {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 || c == 0 {
		return longMulDiv(hi, lo, c)
	}
	quotient = lo / c
	return quotient, lo - quotient*c, true
}

// MulDivUp is MulDiv rounded up; math.MaxUint64 if the quotient exceeds 64 bits.
func MulDivUp(a, b, c uint64) uint64 {
	quotient, remainder, ok := MulDiv(a, b, c)
	if !ok {
		return math.MaxUint64
	}
	return max(quotient, quotient+min(remainder, 1))
}

// SaturatingSub is a − b, or 0 if b is larger.
func SaturatingSub(a, b uint64) uint64 { return a - min(a, b) }

func longMulDiv(hi, lo, c uint64) (quotient, remainder uint64, ok bool) {
	if hi >= c {
		return quotient, remainder, false
	}
	quotient, remainder = bits.Div64(hi, lo, c)
	return quotient, remainder, true
}
