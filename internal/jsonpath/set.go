package jsonpath

import (
	"bytes"
	"strings"
)

// Edit replaces Size bytes of a text, from At on, by Text.
type Edit struct {
	_ [0]func() // keeps Go from generating an equality function

	At, Size int
	Text     []byte
}

// place is where a text has the value of a name. Its zero value is a name that the text lacks.
type place struct {
	_ [0]func() // keeps Go from generating an equality function

	// at is how many bytes of the text precede the value, and first is its first byte.
	at    int
	first byte
	// once says that the text has the name exactly once, and in no other capitals besides.
	once bool
	// given says that the text has the name, perhaps in other capitals.
	given bool
}

func (p *place) note(at int, first byte, exact bool) {
	p.at, p.first, p.once, p.given = at, first, exact && !p.given, true
}

// Complete reports whether all of the text that [Reader.ResetAll] or [Reader.ResetOnly] reads has
// come. Only white space may follow.
func (r *Reader) Complete() bool { return r.state == afterText }

// IsPlain reports whether [Reader.Set] may write the path's names: as members, and without escapes.
func (p *Path) IsPlain() bool {
	for i := range p.names {
		if p.names[i].index != -1 || strings.ContainsFunc(p.names[i].text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
			return false
		}
	}
	return true
}

// Set returns the edit that gives the path a value, in the text that the reader has read by
// [Reader.ResetAll] or [Reader.ResetOnly]. The path must be plain. The edit is of piece, in which the
// text ends; start bytes came before it. Its text is appended to dst, which is returned.
//
// A number, a string, a word or nothing becomes the value. ok is false where parsers might find
// another: a name is given twice or in other capitals, or the text is not whole, no object, or has an
// array or an object there. It is also false if the place lies before piece.
func (r *Reader) Set(dst, value, piece []byte, start int) (texts []byte, e Edit, ok bool) {
	if !r.Complete() || !r.levels[0].object {
		return dst, e, false
	}
	at := bytes.LastIndexByte(piece, '}')
	names := r.path.names
	begin := len(dst)
	for i := range names {
		switch place := &r.levels[i].place; {
		case !place.given:
			if at < 0 {
				return dst, e, false
			}
			comma := r.levels[i].index > 0 // the object has other members
			if comma && i == 0 {
				dst = append(dst, ',')
			}
			dst = r.path.appendMember(dst, i, value)
			if comma && i > 0 {
				dst = append(dst, ',')
			}
			return dst, Edit{At: at, Text: dst[begin:]}, true
		case !place.once || place.first == '[' || place.first == '{' && i == len(names)-1:
			return dst, e, false
		case place.first == '{':
			at = place.at - start + 1
		default:
			if at = place.at - start; at < 0 {
				return dst, e, false
			}
			dst = r.path.appendValue(dst, i+1, value)
			return dst, Edit{At: at, Size: scalarSize(piece[at:]), Text: dst[begin:]}, true
		}
	}
	return dst, e, false
}

// appendMember appends a member with the name at an index, in which the rest of the path leads to a value.
func (p *Path) appendMember(dst []byte, at int, value []byte) []byte {
	dst = append(append(append(dst, '"'), p.names[at].text...), `":`...)
	return p.appendValue(dst, at+1, value)
}

// appendValue appends the value itself, within objects for the names from an index on.
func (p *Path) appendValue(dst []byte, from int, value []byte) []byte {
	if from == len(p.names) {
		return append(dst, value...)
	}
	return append(p.appendMember(append(dst, '{'), from, value), '}')
}

// scalarSize returns how many bytes the string, the number or the word has that a text begins with.
func scalarSize(text []byte) int {
	quoted := text[0] == '"'
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case quoted && c == '"':
			return i + 1
		case !quoted && (c <= ' ' || c == ',' || c == '}'):
			return i
		}
	}
	return len(text)
}
