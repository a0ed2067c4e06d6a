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

// parse returns the value of the report's document, which has passed checkSyntax.
func parse(r *report) *value {
	v := &value{report: r}
	s := scanner{text: r.document}
	s.read(v)
	return v
}

// read scans the next value.
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

// elements iterates over the elements of an array, or the fields of an object; any other value has
// none. A hostile document has half a million of them, and only those that are read become values.
type elements struct {
	in      *value
	scanner scanner
	count   int
	// rawName is the name of the present field as it is written, and nameAt its offset.
	rawName string
	nameAt  int
	// ahead says that the present value was not scanned yet.
	ahead bool
}

func (v *value) elements() elements {
	return elements{in: v, scanner: scanner{text: v.report.document, pos: v.at + 1}}
}

// next moves to the next value, and reports whether there is one.
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

// read makes v the present value. Call it once for each value.
func (e *elements) read(v *value) {
	*v = value{report: e.in.report, parent: e.in, index: e.count - 1, rawName: e.rawName}
	if e.rawName != "" {
		v.name = unescaped(e.rawName)
	}
	e.scanner.read(v)
	e.ahead = false
}

// named reports whether the present field has this name, which has at most 40 bytes.
func (e *elements) named(name string) bool {
	var memory [6 * 40]byte // an escape takes up to six bytes for one
	raw := e.rawName
	return len(raw) <= len(memory)+2 && len(raw) >= len(name)+2 && string(memory[:unescape(memory[:], raw)]) == name
}

// unescaped returns the meaning of a string literal with its quotes.
func unescaped(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	b := make([]byte, len(text)-2)
	return string(b[:unescape(b, text)])
}

// unescape writes the meaning of a string literal to b, and returns its length in bytes. That is
// never more than the literal has.
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
