package jsonpath

import (
	"math"
	"strconv"
)

// ResetOnly prepares the reader for a new text, of which it will read all as after
// [Reader.ResetAll], for [Reader.Only].
func (r *Reader) ResetOnly(path *Path) {
	r.ResetAll(path)
	r.single = true
}

// Only returns the string, the whole number or the boolean at the end of the path. Call it at the
// end of the text. A string has its characters. A number has its digits in a single notation: 7,
// 7.0 and 70e-1 are the same. Found says that there is a value, which no parser can miss. Sound
// says that all parsers find the same value, or all find none. It is false if the text is not whole
// or, as far as it was read, no JSON, and if the path leads to several values or to one of another
// kind. The bytes are valid until the next Reset.
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

// takeOnly takes a value at the end of the path, whose names may have had other capitals.
func (r *Reader) takeOnly(kind Kind) {
	if kind == Number && !r.writeWhole() || r.numbers.Found && string(r.only) != string(r.value) {
		r.finish(Malformed)
		return
	}
	r.only = append(r.only[:0], r.value...)
	in := &r.levels[r.depth]
	r.numbers.Found, in.found = true, in.found || r.exact
}

// writeWhole rewrites the number that was read in a single notation for all spellings. It reports
// whether there is such a notation: the number must be whole, and no larger than an integer can be.
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
