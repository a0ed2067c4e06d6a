package check

import (
	"sort"
	"unicode/utf8"
)

// places converts offsets of a text to lines and columns. Both count from 1; columns count
// characters.
type places struct {
	text  []byte
	lines []int // offsets of their beginnings
	// columns caches, for each line, where its characters begin; nil if each is one byte. A line
	// may be as long as the text and contain every value, and finding each must be fast.
	columns map[int][]int
}

func placesOf(text []byte) *places {
	p := &places{text: text, lines: []int{0}, columns: map[int][]int{}}
	for i, c := range text {
		if c == '\n' {
			p.lines = append(p.lines, i+1)
		}
	}
	return p
}

// line returns a line, counted from 0, with its offset and the offsets of its characters.
func (p *places) line(i int) (line []byte, start int, columns []int) {
	start, end := p.lines[i], len(p.text)
	if i+1 < len(p.lines) {
		end = p.lines[i+1]
	}
	line = p.text[start:end]
	columns, known := p.columns[i]
	if !known {
		for at := 0; at < len(line); {
			columns = append(columns, at)
			_, size := utf8.DecodeRune(line[at:])
			at += size
		}
		if len(columns) == len(line) {
			columns = nil
		}
		p.columns[i] = columns
	}
	return line, start, columns
}

func (p *places) position(offset int) (line, column int) {
	offset = max(0, min(offset, len(p.text)))
	line = sort.SearchInts(p.lines, offset+1)
	_, start, columns := p.line(line - 1)
	if columns == nil {
		return line, offset - start + 1
	}
	return line, sort.SearchInts(columns, offset-start) + 1
}

// offset returns the offset of a line and column, or the nearest if the text has no such place.
func (p *places) offset(line, column int) int {
	text, start, columns := p.line(max(0, min(line, len(p.lines))-1))
	column = max(0, column-1)
	switch {
	case columns == nil:
		return start + min(column, len(text))
	case column < len(columns):
		return start + columns[column]
	}
	return start + len(text)
}
