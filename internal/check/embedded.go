package check

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// align returns the offset in the file of each byte of a string. If string and file don't match, as
// in unusual YAML, all offsets are that of the beginning.
//
// White space may be folded, indented or escaped. So only the other characters are compared, and
// white space gets the offset of the next of them.
func align(file []byte, n *node) []int {
	places := make([]int, len(n.text)+1)
	a := aligner{file: file, pos: n.at, writing: n.writing}
	a.begin()
	fits := true
	last := 0
	for i := 0; i < len(n.text) && fits; {
		r, size := utf8.DecodeRuneInString(n.text[i:])
		if !white(r) {
			var at int
			at, fits = a.find(r)
			for ; last < i+size; last++ {
				places[last] = at
			}
		}
		i += size
	}
	if !fits {
		for i := range places {
			places[i] = n.at
		}
		return places
	}
	for ; last < len(places); last++ {
		places[last] = min(a.pos, len(file))
	}
	return places
}

func white(r rune) bool { return strings.ContainsRune(" \t\r\n\u0085\u2028\u2029\ufeff", r) }

// aligner reads a string as the file writes it.
type aligner struct {
	file    []byte
	pos     int
	writing writing
}

// begin moves to the first character, past a tag, an anchor, and the opening quote or the head of a
// block.
func (a *aligner) begin() {
	rest := a.file[min(a.pos, len(a.file)):]
	skip := -1
	switch a.writing {
	case singleQuoted:
		skip = bytes.IndexByte(rest, '\'')
	case doubleQuoted:
		skip = bytes.IndexByte(rest, '"')
	case block:
		if head := bytes.IndexAny(rest, "|>"); head >= 0 {
			skip = head + bytes.IndexByte(append(rest[head:len(rest):len(rest)], '\n'), '\n')
		}
	}
	a.pos += skip + 1
}

// find skips white space, and then the next character, which should be want.
func (a *aligner) find(want rune) (at int, found bool) {
	for a.pos < len(a.file) {
		at = a.pos
		r, size := utf8.DecodeRune(a.file[a.pos:])
		a.pos += size
		switch {
		case r == '\\' && a.writing == doubleQuoted:
			if r = a.escaped(); r == lineBreak {
				continue
			}
		case r == '\'' && a.writing == singleQuoted:
			a.pos++
		}
		if !white(r) {
			return at, r == want
		}
	}
	return at, false
}

// lineBreak stands for an escaped line break, which means nothing.
const lineBreak = '\n'

// escaped reads an escape after its backslash, and returns its meaning.
func (a *aligner) escaped() rune {
	r, size := utf8.DecodeRune(a.file[a.pos:])
	a.pos += size
	var digits int
	switch r {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case '_':
		return 0xa0
	case '0', 'a', 'b', 'e', 'f', 'v':
		return map[rune]rune{'0': 0, 'a': 7, 'b': 8, 'e': 0x1b, 'f': '\f', 'v': '\v'}[r]
	case 'n', 'r', 't', 'N', 'L', 'P':
		return ' '
	default:
		return r
	}
	unit := a.hex(digits)
	if next := a.pos + 2; utf16.IsSurrogate(unit) && bytes.HasPrefix(a.file[min(a.pos, len(a.file)):], []byte(`\u`)) {
		a.pos = next
		unit = utf16.DecodeRune(unit, a.hex(4))
	}
	return unit
}

func (a *aligner) hex(digits int) rune {
	end := min(a.pos+digits, len(a.file))
	n, err := strconv.ParseUint(string(a.file[min(a.pos, end):end]), 16, 32)
	a.pos = end
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}
