// Package jsonpath reads one value out of a JSON text that comes in pieces, in bounded memory.
//
// A path has the syntax of gjson as far as it names one value: names of members and numbers of
// elements, with dots between, as in choices.0.message. A \ makes any character part of a name. A
// number is a member's name in an object. In valid JSON a path finds the value that gjson.Get
// finds: the first value that the whole path leads to, also where names are given twice.
//
// The rest of gjson's syntax is refused unless it has a \ before it: wildcards (* and ?), counts
// and queries (#, but see [CompileNumber]), pipes (|), and at the beginning of a name modifiers (@), literals (!) and
// multipaths ([ and {). So are empty names.
package jsonpath

import (
	"strconv"
	"strings"
)

// MaxPath is the length of the longest path, in bytes.
const MaxPath = 1024

// Path leads to a value. It does not change once compiled, and several readers may use it.
type Path struct {
	_     [0]func() // keeps Go from generating an equality function
	names []name
}

// name is one step of a path.
type name struct {
	text  string
	index int // of an element in an array; -1 if the name is no number, and counted for an array's elements
}

type mistake struct {
	what string
	at   int // the first byte is 0
	why  string
}

// Error counts bytes from 1.
func (m *mistake) Error() string {
	return m.what + " at byte " + strconv.Itoa(m.at+1) + m.why
}

// Compile returns a path of at most MaxPath bytes. An error is a phrase such as "a * at byte 3,
// which is supported only with a \ before it", which fits after "want a path, got one with". It
// counts bytes from 1.
func Compile(path string) (*Path, error) {
	if len(path) > MaxPath {
		return nil, &mistake{"a character", MaxPath, ", but " + strconv.Itoa(MaxPath) + " bytes are the most"}
	}
	p := &Path{}
	var text []byte
	escaped, start := false, 0
	for at := 0; ; at++ {
		if at == len(path) || path[at] == '.' {
			if len(text) == 0 {
				return nil, &mistake{"an empty name", at, ""}
			}
			n := name{text: string(text), index: -1}
			if !escaped {
				n.index = index(n.text)
			}
			p.names = append(p.names, n)
			if at == len(path) {
				return p, nil
			}
			text, escaped, start = text[:0], false, at+1
			continue
		}
		c := path[at]
		switch c {
		case '\\':
			escaped = true
			if at++; at == len(path) {
				return nil, &mistake{`a \`, at - 1, " that nothing follows"}
			}
			c = path[at]
		case '@', '!', '[', '{':
			if at > start {
				break
			}
			fallthrough
		case '*', '?', '#', '|':
			return nil, &mistake{"a " + string(rune(c)), at, `, which is supported only with a \ before it`}
		}
		text = append(text, c)
	}
}

// counted is the index that stands for how many elements an array has.
const counted = -2

// CompileNumber returns a path as Compile does, for [Reader.ResetAll]. It may end in the name #, which is how many
// elements an array has, as in gjson; no member has that name.
func CompileNumber(path string) (*Path, error) {
	before, counts := strings.CutSuffix(path, "#")
	if counts = counts && (before == "" || before[len(before)-1] == '.'); !counts {
		return Compile(path)
	}
	p, err := Compile(before + `\#`)
	if err == nil && p.names[len(p.names)-1].text != "#" {
		return Compile(path) // the point is a part of the name
	}
	if err == nil {
		p.names[len(p.names)-1].index = counted
	}
	return p, err
}

// index returns the element that a name stands for in an array, or -1. As in gjson, zeros may lead.
func index(text string) int {
	n := 0
	for i := range len(text) {
		digit := int(text[i]) - '0'
		if digit < 0 || 9 < digit || n > 1e8 {
			return -1
		}
		n = 10*n + digit
	}
	return n
}

// Indexes reports whether the path leads into an array, if the text is an array.
func (p *Path) Indexes() bool { return p.names[0].index >= 0 }

// Join returns the path's names, without escapes, with a separator between them.
func (p *Path) Join(separator string) (text string) {
	for i := range p.names {
		if i > 0 {
			text += separator
		}
		text += p.names[i].text
	}
	return text
}

// Longest returns the longest of the path's names, without escapes.
func (p *Path) Longest() (text string) {
	for i := range p.names {
		if len(p.names[i].text) > len(text) {
			text = p.names[i].text
		}
	}
	return text
}
