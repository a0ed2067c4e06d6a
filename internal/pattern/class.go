package pattern

import "unicode/utf8"

type class struct {
	ascii  [4]uint32 // a bit for each ASCII character
	ranges []span    // all of the set
}

// span is a range of characters, both ends included.
type span struct{ low, high rune }

func (c *class) has(r rune) bool {
	if r < utf8.RuneSelf {
		return c.ascii[r>>5&3]>>(r&31)&1 != 0
	}
	low, high := 0, len(c.ranges)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if c.ranges[middle].high < r {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low < len(c.ranges) && c.ranges[low].low <= r
}

// newClass makes a class from ranges in the order of insert.
func newClass(ranges []span) class {
	c := class{ranges: ranges}
	for _, s := range ranges {
		for r := s.low; r <= s.high && r < utf8.RuneSelf; r++ {
			c.ascii[r>>5] |= 1 << (r & 31)
		}
	}
	return c
}

// insert adds a range to the ranges of a class, which are ascending and neither overlap nor touch.
func insert(ranges []span, s span) []span {
	from := 0
	for from < len(ranges) && ranges[from].high+1 < s.low {
		from++
	}
	to := from
	for to < len(ranges) && ranges[to].low <= s.high+1 {
		s.low = min(s.low, ranges[to].low)
		s.high = max(s.high, ranges[to].high)
		to++
	}
	if from == to {
		ranges = append(ranges, span{})
		copy(ranges[from+1:], ranges[from:])
	} else {
		ranges = append(ranges[:from+1], ranges[to:]...)
	}
	ranges[from] = s
	return ranges
}

// negate returns all characters that a class does not have.
func negate(ranges []span) (rest []span) {
	low := rune(0)
	for _, s := range ranges {
		if low < s.low {
			rest = append(rest, span{low, s.low - 1})
		}
		low = s.high + 1
	}
	if low <= utf8.MaxRune {
		rest = append(rest, span{low, utf8.MaxRune})
	}
	return rest
}

// Only these two characters beyond ASCII have an ASCII letter as their other case.
const (
	longS  = '\u017f'
	kelvin = '\u212a'
)

// lastFolded is the last character that has another case.
const lastFolded = 0x1e943

// insertFolded adds a range, and its characters in other cases. It reports false if that requires
// tables of Unicode.
func insertFolded(ranges []span, s span) ([]span, bool) {
	ranges = insert(ranges, s)
	switch beyond := s.high >= utf8.RuneSelf; {
	case !beyond || s.low > lastFolded:
	case s.low == s.high && (s.low == longS || s.low == kelvin):
	case s.low <= utf8.RuneSelf && s.high >= lastFolded: // all characters beyond ASCII
	default:
		return ranges, false
	}
	for _, alike := range [...]span{{longS, 's'}, {kelvin, 'k'}} {
		if s.low <= alike.low && alike.low <= s.high {
			ranges = insert(ranges, span{alike.high, alike.high})
			ranges = insert(ranges, span{alike.high - 'a' + 'A', alike.high - 'a' + 'A'})
		}
	}
	for r := s.low; r <= s.high && r < utf8.RuneSelf; r++ {
		lower := r | 0x20
		if lower < 'a' || 'z' < lower {
			continue
		}
		ranges = insert(ranges, span{r ^ 0x20, r ^ 0x20})
		switch lower {
		case 's':
			ranges = insert(ranges, span{longS, longS})
		case 'k':
			ranges = insert(ranges, span{kelvin, kelvin})
		}
	}
	return ranges, true
}

// named are the ASCII classes that have a name, with ranges as pairs of bytes.
var named = [...]struct{ name, ranges string }{
	{"alnum", "09AZaz"},
	{"alpha", "AZaz"},
	{"ascii", "\x00\x7f"},
	{"blank", "\t\t  "},
	{"cntrl", "\x00\x1f\x7f\x7f"},
	{"digit", "09"},
	{"graph", "!~"},
	{"lower", "az"},
	{"print", " ~"},
	{"punct", "!/:@[`{~"},
	{"space", "\t\r  "},
	{"upper", "AZ"},
	{"word", "09AZ__az"},
	{"xdigit", "09AFaf"},
	// The classes of Perl have one letter. Perl's class of spaces differs from space.
	{"d", "09"},
	{"s", "\t\n\f\r  "},
	{"w", "09AZ__az"},
}

func find(name string) (ranges string) {
	for i := range named {
		if named[i].name == name {
			return named[i].ranges
		}
	}
	return ""
}
