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
// value. A hostile document has half a million of them: only what is read becomes a value.
type elements struct {
	in      *value
	scanner scanner
	count   int
	// rawName is the name of the field that the walk is at, as it is written, and nameAt its offset.
	rawName string
	nameAt  int
	// ahead reports whether the scanner has yet to walk over that field's value, or the element.
	ahead bool
}

func (v *value) elements() elements {
	return elements{in: v, scanner: scanner{text: v.report.document, pos: v.at + 1}}
}

// next walks to the next value, and reports whether there is any.
func (e *elements) next() bool {
	if !e.in.composite() {
		return false
	}
	s := &e.scanner
	if e.ahead {
		s.value()
	}
	s.space()
	switch s.peek() {
	case ']', '}':
		return false
	case ',':
		s.pos++
	}
	if e.in.kind == kindObject {
		s.space()
		e.nameAt = s.pos
		s.string()
		e.rawName = s.text[e.nameAt:s.pos]
		s.space()
		s.pos++ // the colon
	}
	e.ahead = true
	e.count++
	return true
}

// read makes v the value that the walk is at. It is called once for each.
func (e *elements) read(v *value) {
	*v = value{report: e.in.report, parent: e.in, index: e.count - 1, rawName: e.rawName}
	if e.rawName != "" {
		v.name = unescaped(e.rawName)
	}
	e.scanner.read(v)
	e.ahead = false
}

// named reports whether the walk is at a field of this name, of at most 40 bytes.
func (e *elements) named(name string) bool {
	var memory [6 * 40]byte // of one byte an escape has six
	raw := e.rawName
	return len(raw) <= len(memory)+2 && len(raw) >= len(name)+2 && string(memory[:unescape(memory[:], raw)]) == name
}

// unescaped returns the meaning of a string, which stands in its quotes.
func unescaped(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	b := make([]byte, len(text)-2)
	return string(b[:unescape(b, text)])
}

// unescape writes what a string means, which stands in its quotes, and returns how many bytes that
// has. No escape means more bytes than it has.
func unescape(b []byte, text string) (n int) {
	text = text[1 : len(text)-1]
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
	return n
}
