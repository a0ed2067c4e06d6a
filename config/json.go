package config

import (
	"strings"
	"unicode/utf16"
)

// node is a value of a document that checkSyntax has found nothing wrong with. The zero value is a missing one.
type node struct {
	kind kind
	// raw is the value as it is written, text what a string means.
	raw, text string
	// at is the value's offset in the document.
	at       int
	document string
}

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

// parse gives the value that a document is.
func parse(document string) node {
	s := scanner{text: document}
	return s.node()
}

// node walks over the next value.
func (s *scanner) node() node {
	s.space()
	n := node{at: s.pos, document: s.text}
	s.value()
	n.raw = s.text[n.at:s.pos]
	switch n.raw[0] {
	case '{':
		n.kind = kindObject
	case '[':
		n.kind = kindArray
	case '"':
		n.kind, n.text = kindString, unescaped(n.raw[1:len(n.raw)-1])
	case 't', 'f':
		n.kind = kindBoolean
	case 'n':
		n.kind = kindNull
	default:
		n.kind = kindNumber
	}
	return n
}

// each visits the elements of an array, or the fields of an object with their names, until visit returns false.
func (n *node) each(visit func(name, element node) bool) {
	if n.kind != kindArray && n.kind != kindObject {
		return
	}
	s := scanner{text: n.document, pos: n.at + 1}
	for s.space(); s.peek() != ']' && s.peek() != '}'; s.space() {
		if s.peek() == ',' {
			s.pos++
		}
		var name node
		if n.kind == kindObject {
			name = s.node()
			s.space()
			s.pos++ // the colon
		}
		if !visit(name, s.node()) {
			return
		}
	}
}

// unescaped is what a string means.
func unescaped(text string) string {
	i := strings.IndexByte(text, '\\')
	if i < 0 {
		return text
	}
	b := append(make([]byte, 0, len(text)), text[:i]...)
	for i < len(text) {
		if text[i] != '\\' {
			b = append(b, text[i])
			i++
			continue
		}
		unit, ok := codeUnit(text[i:])
		if !ok {
			const escapes, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
			b = append(b, meanings[strings.IndexByte(escapes, text[i+1])])
			i += 2
			continue
		}
		i += len(`\u0000`)
		r := rune(unit)
		if utf16.IsSurrogate(r) {
			low, _ := codeUnit(text[i:])
			r = utf16.DecodeRune(r, rune(low))
			i += len(`\u0000`)
		}
		b = append(b, string(r)...)
	}
	return string(b)
}

// boolean tells whether the value is true.
func (n *node) boolean() bool { return n.raw == "true" }

// composite tells whether the value has others in it.
func (n *node) composite() bool { return n.kind == kindArray || n.kind == kindObject }
