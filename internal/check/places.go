package check

import (
	"sort"
	"unicode/utf8"
)

// places knows the lines of a text. Lines and columns are counted from 1, columns in characters.
type places struct {
	text  []byte
	lines []int // where they begin
}

func placesOf(text []byte) *places {
	p := &places{text: text, lines: []int{0}}
	for i, c := range text {
		if c == '\n' {
			p.lines = append(p.lines, i+1)
		}
	}
	return p
}

// position returns the place of an offset.
func (p *places) position(offset int) (line, column int) {
	offset = max(0, min(offset, len(p.text)))
	line = sort.SearchInts(p.lines, offset+1)
	return line, utf8.RuneCount(p.text[p.lines[line-1]:offset]) + 1
}

// offset returns the offset of a place; of one outside of the text, the next one in it.
func (p *places) offset(line, column int) int {
	at := p.lines[max(0, min(line, len(p.lines))-1)]
	for ; column > 1 && at < len(p.text); column-- {
		_, size := utf8.DecodeRune(p.text[at:])
		at += size
	}
	return at
}
