package config

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a document. The grammar uses 7 levels.
const maxDepth = 64

// checkSyntax checks that the text is one JSON value (RFC 8259). It returns the first problem, or
// "", and its offset. Strings must be well-formed Unicode, including their escapes, so that equal
// strings have equal bytes.
func checkSyntax(text string) (problem string, at int) {
	s := scanner{text: text}
	if s.value() {
		if s.space(); s.pos == len(text) {
			return "", 0
		}
		s.want("the end of the document")
	}
	line, column := 1, 1
	for i := range s.pos {
		switch {
		case text[i] == '\n':
			line++
			column = 1
		case utf8.RuneStart(text[i]):
			column++
		}
	}
	return "not JSON at line " + strconv.Itoa(line) + ", column " + strconv.Itoa(column) + ": " + s.problem, s.pos
}

// scanner reads JSON. Its methods return false at the first mistake, with pos at the mistake and
// problem set.
type scanner struct {
	text    string
	pos     int
	depth   int
	problem string
}

func (s *scanner) fail(problem string) bool {
	s.problem = problem
	return false
}

func (s *scanner) want(what string) bool {
	got := "the end of the document"
	if s.pos < len(s.text) {
		if c := s.text[s.pos]; ' ' < c && c < 0x7f {
			got = "'" + string(rune(c)) + "'"
		} else {
			got = "the byte 0x" + strconv.FormatUint(uint64(c), 16)
		}
	}
	return s.fail("want " + what + ", got " + got)
}

// peek returns the next byte, or 0 at the end. A NUL in the text is a mistake anywhere.
//
//go:noinline
func (s *scanner) peek() byte {
	if s.pos == len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

func (s *scanner) space() {
	for s.pos < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.pos]) >= 0 {
		s.pos++
	}
}

var literals = [...]string{"true", "false", "null"}

func (s *scanner) value() bool {
	s.space()
	switch c := s.peek(); {
	case c == '{' || c == '[':
		return s.list(c)
	case c == '"':
		return s.string()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, literal := range literals {
		if strings.HasPrefix(s.text[s.pos:], literal) {
			s.pos += len(literal)
			return true
		}
	}
	return s.want("a value")
}

// list scans an object or array, whose opening bracket is the next byte.
func (s *scanner) list(bracket byte) bool {
	if s.depth == maxDepth {
		return s.fail("nested more than " + strconv.Itoa(maxDepth) + " deep")
	}
	// In ASCII both closing brackets are two places after the opening bracket.
	end := bracket + 2
	s.depth++
	s.pos++
	s.space()
	for more := s.peek() != end; more; {
		if bracket == '{' && !s.name() || !s.value() {
			return false
		}
		switch s.space(); s.peek() {
		case ',':
			s.pos++
		case end:
			more = false
		default:
			return s.want("',' or '" + string(rune(end)) + "'")
		}
	}
	s.depth--
	s.pos++
	return true
}

// name scans a field's name and the colon after it.
func (s *scanner) name() bool {
	if s.space(); s.peek() != '"' {
		return s.want("a field's name in double quotes")
	}
	if !s.string() {
		return false
	}
	if s.space(); s.peek() != ':' {
		return s.want("':'")
	}
	s.pos++
	return true
}

func (s *scanner) number() bool {
	s.optional('-', '-')
	if !s.optional('0', '0') && !s.digits() {
		return false
	}
	if s.optional('.', '.') && !s.digits() {
		return false
	}
	if s.optional('e', 'E') {
		s.optional('+', '-')
		return s.digits()
	}
	return true
}

// optional scans one of two bytes, if it is next.
//
//go:noinline
func (s *scanner) optional(a, b byte) bool {
	c := s.peek()
	if c != a && c != b {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start || s.want("a digit")
}

func (s *scanner) string() bool {
	s.pos++
	for {
		switch c := s.peek(); {
		case c < ' ':
			return s.want("more of a string or its closing '\"'")
		case c == '"':
			s.pos++
			return true
		case c == '\\':
			if !s.escape() {
				return false
			}
		default:
			r, size := utf8.DecodeRuneInString(s.text[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.want("UTF-8")
			}
			s.pos += size
		}
	}
}

func (s *scanner) escape() bool {
	rest := s.text[s.pos+1:]
	if rest != "" && strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0 {
		s.pos += 2
		return true
	}
	const size = len(`\u0000`)
	unit := codeUnit(s.text[s.pos:])
	switch {
	case unit < 0:
		return s.fail(`want an escape such as \n or \u00e4`)
	case unit < 0xd800 || unit > 0xdfff:
		s.pos += size
		return true
	}
	if low := codeUnit(s.text[s.pos+size:]); unit >= 0xdc00 || low < 0xdc00 || low > 0xdfff {
		return s.fail("want a pair of surrogates, got one alone")
	}
	s.pos += 2 * size
	return true
}

// codeUnit returns the UTF-16 code unit of an escape at the beginning of text, \u and four
// hexadecimal digits, or -1.
func codeUnit(text string) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, ok := natural(text[2:6], 16)
	if !ok {
		return -1
	}
	return rune(unit)
}
