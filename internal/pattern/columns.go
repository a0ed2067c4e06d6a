package pattern

import "unicode/utf8"

// columns are sets of characters that all instructions treat alike. Column 0 is the end of the
// text.
type columns struct {
	// bytes has the columns of characters that their first byte alone identifies: ASCII, and bytes
	// that begin no UTF-8. Other bytes have 0.
	bytes [256]uint8
	// count is the number of columns, or 0 if they are too many.
	count int
	parts []part
}

// part is the range of characters from start up to the start of the next part.
type part struct {
	_ [0]func() // keeps Go from generating an equality function

	start  rune
	column uint8
}

const maxColumns = 256

// beyond returns the column and the length of a character that begins at at with a byte from 0xc2
// to 0xf4. It decodes the character itself, because calls are slow in WebAssembly.
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
	// It is longer than necessary, a surrogate, or beyond Unicode.
	if width > 2 && r < 0x800 || width > 3 && r < 0x10000 || 0xd800 <= r && r <= 0xdfff || r > utf8.MaxRune {
		return int(c.bytes[0xff]), 1
	}
	i := len(c.parts) - 1
	if c.parts[i].start > utf8.RuneSelf {
		i = c.find(r)
	}
	return int(c.parts[i].column), width
}

// find returns the index of the part that has a character.
func (c *columns) find(r rune) int {
	low, high := 0, len(c.parts)
	for high-low > 1 {
		if middle := int(uint(low+high) >> 1); c.parts[middle].start <= r {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// findColumns finds the sets of characters that the program's instructions tell apart.
func (p *Pattern) findColumns() {
	c := &p.cache.columns
	c.parts, c.count = []part{{column: 1}}, 2
	if p.asserts {
		c.tell([]span{{'\n', '\n'}})
		c.tell([]span{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}})
	}
	for i := range p.program {
		switch in := &p.program[i]; in.op {
		case takeRune:
			c.tell([]span{{in.x, in.x}})
		case takeClass:
			c.tell(p.classes[in.x].ranges)
		}
	}
	for b := range c.bytes {
		r := rune(b)
		if b >= utf8.RuneSelf {
			r = utf8.RuneError
		}
		if b < 0xc2 || b > 0xf4 {
			c.bytes[b] = c.parts[c.find(r)].column
		}
	}
}

// tell gives the characters inside ranges other columns than those outside.
func (c *columns) tell(ranges []span) {
	for _, s := range ranges {
		c.cut(s.low)
		c.cut(s.high + 1)
	}
	var all, inside [maxColumns]int
	var apart [maxColumns]uint8
	c.each(ranges, func(p *part, in bool) {
		if all[p.column]++; in {
			inside[p.column]++
		}
	})
	c.each(ranges, func(p *part, in bool) {
		if !in || inside[p.column] == all[p.column] || c.count == 0 {
			return
		}
		if apart[p.column] == 0 {
			if c.count == maxColumns {
				c.count = 0
				return
			}
			apart[p.column] = uint8(c.count)
			c.count++
		}
		p.column = apart[p.column]
	})
}

// each visits all parts, and tells visit whether the part is in ranges.
func (c *columns) each(ranges []span, visit func(p *part, in bool)) {
	for i := range c.parts {
		p := &c.parts[i]
		for len(ranges) > 0 && ranges[0].high < p.start {
			ranges = ranges[1:]
		}
		visit(p, len(ranges) > 0 && ranges[0].low <= p.start)
	}
}

// cut makes a part start at a character.
func (c *columns) cut(r rune) {
	i := c.find(r)
	if c.parts[i].start == r || r > utf8.MaxRune {
		return
	}
	c.parts = append(c.parts, part{})
	copy(c.parts[i+1:], c.parts[i:])
	c.parts[i+1].start = r
}
