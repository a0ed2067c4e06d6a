package config

import (
	"strings"
	"unicode/utf16"
)

type kind uint8

const (
	kindMissing kind = iota
	kindNull
	kindBoolean
	kindNumber
	kindString
	kindArray
	kindObject
)

// parse gives the value that the report's document is. checkSyntax has found nothing wrong with it.
func parse(r *report) *value {
	v := &value{report: r}
	s := scanner{text: r.document}
	s.read(v)
	return v
}

// read walks over the next value.
func (s *scanner) read(v *value) {
	s.space()
	v.at = s.pos
	s.value()
	v.raw = s.text[v.at:s.pos]
	switch v.raw[0] {
	case '{':
		v.kind = kindObject
	case '[':
		v.kind = kindArray
	case '"':
		v.kind, v.text = kindString, unescaped(v.raw)
	case 't', 'f':
		v.kind = kindBoolean
	case 'n':
		v.kind = kindNull
	default:
		v.kind = kindNumber
	}
}

// elements walks over an array's elements, or over an object's fields; there are none in another
// value.
type elements struct {
	in      *value
	scanner scanner
	count   int
}

func (v *value) elements() elements {
	return elements{in: v, scanner: scanner{text: v.report.document, pos: v.at + 1}}
}

// next returns the next one, or nil.
func (e *elements) next() *value {
	if !e.in.composite() {
		return nil
	}
	s := &e.scanner
	s.space()
	switch s.peek() {
	case ']', '}':
		return nil
	case ',':
		s.pos++
	}
	v := &value{report: e.in.report, parent: e.in, index: e.count}
	if e.in.kind == kindObject {
		s.space()
		start := s.pos
		s.string()
		v.rawName = s.text[start:s.pos]
		v.name = unescaped(v.rawName)
		s.space()
		s.pos++ // the colon
	}
	s.read(v)
	e.count++
	return v
}

// unescaped is what a string means, which stands in its quotes.
func unescaped(text string) string {
	text = text[1 : len(text)-1]
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	// No escape means more bytes than it has.
	b := make([]byte, len(text))
	n := 0
	for i := 0; i < len(text); n++ {
		b[n] = text[i]
		i++
		if b[n] != '\\' {
			continue
		}
		const escapes, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
		if at := strings.IndexByte(escapes, text[i]); at >= 0 {
			b[n] = meanings[at]
			i++
			continue
		}
		r := codeUnit(text[i-1:])
		i += len(`u0000`)
		if utf16.IsSurrogate(r) {
			r = utf16.DecodeRune(r, codeUnit(text[i:]))
			i += len(`\u0000`)
		}
		n += copy(b[n:], string(r)) - 1
	}
	return string(b[:n])
}
