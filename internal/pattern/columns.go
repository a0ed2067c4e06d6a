package pattern

import (
	"slices"
	"unicode/utf8"
)

// columns are sets of characters that no instruction tells apart, and the end of the text, which is
// column 0.
type columns struct {
	// bytes has the columns of the characters that a byte alone tells: ASCII, and what is not UTF-8
	// whatever follows. Of others it has 0.
	bytes [256]uint8
	// count is how many columns there are, 0 if they are too many.
	count int
	// The characters from starts[i] on, and below starts[i+1], are in column of[i].
	starts []rune
	of     []uint8
}

const maxColumns = 256

// beyond is the column of a character that begins at a place of a text with a byte from 0xc2 to 0xf4,
// and how many bytes it has. Calls are dear in WebAssembly: it is decoded here.
func (c *columns) beyond(text []byte, at int) (column, width int) {
	r := rune(text[at])
	width = 4
	switch {
	case r < 0xe0:
		r, width = r&0x1f, 2
	case r < 0xf0:
		r, width = r&0xf, 3
	default:
		r &= 7
	}
	if len(text)-at < width {
		return int(c.bytes[0xff]), 1
	}
	for i := at + 1; i < at+width; i++ {
		b := text[i]
		if b&0xc0 != 0x80 {
			return int(c.bytes[0xff]), 1
		}
		r = r<<6 | rune(b&0x3f)
	}
	// One that is longer than it need be, a surrogate, or none of Unicode.
	if width > 2 && r < 0x800 || width > 3 && r < 0x10000 || 0xd800 <= r && r <= 0xdfff || r > utf8.MaxRune {
		return int(c.bytes[0xff]), 1
	}
	i := len(c.of) - 1
	if c.starts[i] > utf8.RuneSelf {
		i = c.find(r)
	}
	return int(c.of[i]), width
}

// find is where in starts the characters begin that a character is among.
func (c *columns) find(r rune) int {
	low, high := 0, len(c.starts)
	for high-low > 1 {
		if middle := int(uint(low+high) >> 1); c.starts[middle] <= r {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// findColumns finds what the program's instructions tell apart.
func (p *Pattern) findColumns() (c columns) {
	sets := slices.Clone(p.classes)
	if p.asserts {
		sets = append(sets, newClass([]span{{'\n', '\n'}}), newClass([]span{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}))
	}
	var runes []rune
	for i := range p.program {
		if in := &p.program[i]; in.op == takeRune && !slices.Contains(runes, in.x) {
			runes = append(runes, in.x)
			sets = append(sets, newClass([]span{{in.x, in.x}}))
		}
	}
	c.starts = []rune{0}
	for i := range sets {
		for _, s := range sets[i].ranges {
			c.cut(s.low)
			c.cut(s.high + 1)
		}
	}
	c.of, c.count = make([]uint8, len(c.starts)), 2
	for i := range c.of {
		c.of[i] = 1
	}
	for i := range sets {
		if !c.split(&sets[i]) {
			c.count = 0
			return c
		}
	}
	for b := range c.bytes {
		switch {
		case b < utf8.RuneSelf:
			c.bytes[b] = c.of[c.find(rune(b))]
		case b < 0xc2 || b > 0xf4:
			c.bytes[b] = c.of[c.find(utf8.RuneError)]
		}
	}
	return c
}

// cut has characters begin with one.
func (c *columns) cut(r rune) {
	if i := c.find(r); c.starts[i] < r && r <= utf8.MaxRune {
		c.starts = slices.Insert(c.starts, i+1, r)
	}
}

// split tells what is in a set from what is not. It reports false if there are too many columns.
func (c *columns) split(set *class) bool {
	var all, inside [maxColumns]int
	for i, r := range c.starts {
		if all[c.of[i]]++; set.has(r) {
			inside[c.of[i]]++
		}
	}
	var apart [maxColumns]uint8
	for i, r := range c.starts {
		from := c.of[i]
		if inside[from] == all[from] || !set.has(r) {
			continue
		}
		if apart[from] == 0 {
			if c.count == maxColumns {
				return false
			}
			apart[from] = uint8(c.count)
			c.count++
		}
		c.of[i] = apart[from]
	}
	return true
}
