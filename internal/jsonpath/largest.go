package jsonpath

import "math"

// Numbers describes the numbers that parsers may find at the end of a path in one text.
type Numbers struct {
	// Largest is the largest of these numbers, as [Natural] reads them, or 0 without any.
	Largest uint64
	// Found says that there is a number. Lacking says that a parser may find none: the text has
	// none, or a null too, or an object is given twice and only one of the two has the number.
	Found, Lacking bool
	// Sound says that the text is whole, that it is JSON as far as it was read, and that the path
	// leads to numbers and nulls only.
	Sound bool
}

// ResetAll prepares the reader for a new text, of which it will read all for [Reader.Numbers]. The
// author of the text may want Weir to read something else than other parsers do. If names are given
// twice, parsers take the first or the last; some ignore capitals, and some accept a text that is
// no JSON. So Feed reports true only for a text that is not sound, and never for a value that it
// has found.
func (r *Reader) ResetAll(path *Path) {
	r.Reset(path)
	r.all = true
}

// Numbers returns the result at the end of the text.
func (r *Reader) Numbers() Numbers {
	n := r.numbers
	switch r.state {
	case begin:
		n.Lacking, n.Sound = true, true
	case afterText:
		n.Sound = true
	}
	return n
}

// takeNumber takes a value at the end of the path, whose names may have had other capitals.
func (r *Reader) takeNumber(kind Kind) {
	in := &r.levels[r.depth]
	switch kind {
	case Null:
		r.lack()
	case Number, String, Bool:
		if r.single {
			r.takeOnly(kind)
			return
		}
		if kind == Bool {
			r.finish(kind)
			return
		}
		hits, ok := Natural(r.value)
		if !ok {
			r.finish(Malformed)
			return
		}
		r.numbers.Found, r.numbers.Largest = true, max(r.numbers.Largest, hits)
		in.found = in.found || r.exact
	default:
		r.finish(kind)
	}
}

// lack records that the path leads no further here.
func (r *Reader) lack() {
	in := &r.levels[r.depth]
	if r.exact && in.exact {
		r.numbers.Lacking, in.found = true, true
	}
}

// count takes the number of an array's elements at the array's end, if the path wants it.
func (r *Reader) count() {
	in := &r.levels[r.depth]
	if in.object || r.path.names[r.depth].index != counted {
		return
	}
	elements := in.index + 1
	if r.state == first {
		elements = 0
	}
	r.numbers.Found, r.numbers.Largest, in.found = true, max(r.numbers.Largest, uint64(elements)), true
}

// leave ends an object or an array that the path leads through.
func (r *Reader) leave() {
	in := &r.levels[r.depth]
	if !in.exact {
		return
	}
	if !in.found {
		r.numbers.Lacking = true
	}
	if r.depth > 0 {
		r.levels[r.depth-1].found = true
	}
}

// keepName keeps characters of a name, while it may still match the path's.
func (r *Reader) keepName(characters []byte) {
	const widest = 3 // bytes of the longest letter that has an ASCII letter as its lower case
	if len(r.value)+len(characters) > widest*len(r.path.names[r.depth].text) {
		r.matched = -1
		return
	}
	r.value = append(r.value, characters...)
}

// alike reports whether a name is the path's, perhaps in other capitals.
func (r *Reader) alike() bool {
	text := r.path.names[r.depth].text
	if r.matched < 0 {
		return false
	}
	if r.exact = string(r.value) == text; r.exact {
		return true
	}
	name := r.value
	for i := range len(text) {
		if len(name) == 0 {
			return false
		}
		c, size := fold(name)
		if other, _ := fold([]byte{text[i]}); c != other {
			return false
		}
		name = name[size:]
	}
	return len(name) == 0
}

// fold returns the first letter of a name in lower case, and its size. Two letters beyond ASCII
// have lower cases in ASCII, by unicode.SimpleFold, which Go's parser follows.
func fold(name []byte) (c byte, size int) {
	switch c = name[0]; {
	case 'A' <= c && c <= 'Z':
		return c | 0x20, 1
	case len(name) > 1 && string(name[:2]) == "\u017f":
		return 's', 2
	case len(name) > 2 && string(name[:3]) == "\u212a":
		return 'k', 3
	}
	return c, 1
}

// Natural reads a number without a fraction in any notation: 8000, 8000.0 and 8e3 are the same. A
// number that is too large is the largest uint64.
func Natural(text []byte) (n uint64, ok bool) {
	d, ok := ParseDecimal(text)
	if !ok || text[0] == '-' {
		return 0, false
	}
	// Digits before the point count. If there are fewer of them, zeros follow.
	place := 0
	for rest := d.digits; len(rest) > 0; place++ {
		var digit byte
		digit, rest = nextDigit(rest)
		n = tenfold(n, digit-'0')
	}
	if place > d.power {
		return 0, false
	}
	for ; place < d.power && n < math.MaxUint64; place++ {
		n = tenfold(n, 0)
	}
	return n, true
}

// tenfold appends a digit to a number.
func tenfold(n uint64, digit byte) uint64 {
	if n > (math.MaxUint64-uint64(digit))/10 {
		return math.MaxUint64
	}
	return 10*n + uint64(digit)
}

// exponentOf reads e+3 and the like. Beyond a million only the sign matters.
func exponentOf(text []byte) (power int, ok bool) {
	if text[0]|0x20 != 'e' {
		return 0, false
	}
	text = text[1:]
	negative := false
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		negative, text = text[0] == '-', text[1:]
	}
	for _, c := range text {
		if c -= '0'; c > 9 {
			return 0, false
		}
		power = min(10*power+int(c), 1e6)
	}
	if negative {
		power = -power
	}
	return power, len(text) > 0
}
