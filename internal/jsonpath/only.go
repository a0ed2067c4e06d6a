package jsonpath

import (
	"math"
	"strconv"
)

// ResetOnly makes the reader one of a new text, of which it reads all as [Reader.ResetAll] has it,
// for [Reader.Only].
func (r *Reader) ResetOnly(path *Path) {
	r.ResetAll(path)
	r.single = true
}

// Only returns the string, the whole number or the boolean that the path leads to, where the text
// ends. A string has its characters, and a number its digits, however it is written: 7, 7.0 and
// 70e-1 are the same. Found says that there is a value, which no parser may miss. Sound says that
// all parsers find the same: else the text is no JSON as far as it was read, or not whole, or has
// other values too, or some that are none of these. The bytes are valid until the next Reset.
func (r *Reader) Only() (value []byte, found, sound bool) {
	n := r.Numbers()
	switch {
	case !n.Sound, n.Found && n.Lacking:
		return nil, false, false
	case !n.Found:
		return nil, false, true
	}
	return r.only, true, true
}

// takeOnly takes a value that the path leads to, perhaps by names in other capitals.
func (r *Reader) takeOnly(kind Kind) {
	if kind == Number && !r.writeWhole() || r.numbers.Found && string(r.only) != string(r.value) {
		r.finish(Malformed)
		return
	}
	r.only = append(r.only[:0], r.value...)
	in := &r.levels[r.depth]
	r.numbers.Found, in.found = true, in.found || r.exact
}

// writeWhole writes a number that was read in the one way that all of its spellings share, and
// reports whether it has one: it is whole, and no larger than an integer can be.
func (r *Reader) writeWhole() bool {
	digits := r.value
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	n, ok := Natural(digits)
	if !ok || n == math.MaxUint64 {
		return false
	}
	r.value = r.value[:0]
	if negative && n > 0 {
		r.value = append(r.value, '-')
	}
	r.value = strconv.AppendUint(r.value, n, 10)
	return true
}
