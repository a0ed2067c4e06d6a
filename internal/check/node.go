package check

import (
	"bytes"
	"encoding/json"
	"strings"
)

// node is a value of a JSON or YAML document. With YAML's aliases, a node may be part of several
// others, and even of itself.
type node struct {
	kind kind
	// at is the offset in the file where the value begins; end is where a JSON value ends.
	at, end int
	// text is the meaning of a string, and for any other scalar its form in JSON.
	text string
	// writing is the form in which the file has a string.
	writing writing
	// envoys is the scalar as Envoy reads it, in JSON; empty if that is the same.
	envoys string
	// merge is the offset after a merge key of YAML; 0 for none. Its fields are among names.
	merge int
	// problem says why JSON has no such value; the node is null then. It is empty otherwise.
	problem string
	// names are the field names of an object, in the order of the file, duplicates included.
	// children are their values, or the elements of an array.
	names    []name
	children []*node
}

// name is a field's name and its offset in the file.
type name struct {
	text string
	at   int
	// reads is the boolean that readers of YAML 1.1 make of it; empty for none.
	reads string
}

type kind uint8

const (
	kindScalar kind = iota // null, a boolean or a number
	kindString
	kindArray
	kindObject
)

type writing uint8

const (
	plain        writing = iota // without quotes; line breaks and indentation are folded
	singleQuoted                // between ', with '' for a quote
	doubleQuoted                // between ", with escapes
	block                       // on lines after | or >
)

// get returns the value of an object's last field with this name, or with its spelling in
// protobuf's JSON: vmConfig for vm_config. It is nil if there is none, or if n is not an object.
func (n *node) get(path ...string) *node {
	for _, field := range path {
		if n == nil {
			return nil
		}
		var found *node
		other := camel(field)
		for i, name := range n.names {
			if name.text == field || name.text == other {
				found = n.children[i]
			}
		}
		n = found
	}
	return n
}

// string returns the meaning of a string, and "" for other values.
func (n *node) string() string {
	if n == nil || n.kind != kindString {
		return ""
	}
	return n.text
}

// elements returns the elements of an array, and nil for other values.
func (n *node) elements() []*node {
	if n == nil || n.kind != kindArray {
		return nil
	}
	return n.children
}

// sized is a value, and the depth to which it was counted.
type sized struct {
	n    *node
	deep int
}

// size counts the values in a value down to a depth, itself included, up to most. An alias counts
// each time. sizes caches known sizes.
func (n *node) size(deep, most int, sizes map[sized]int) int {
	all, known := sizes[sized{n, deep}]
	if known {
		return all
	}
	all = 1
	for i := 0; i < len(n.children) && deep > 0 && all < most; i++ {
		all = min(all+n.children[i].size(deep-1, most, sizes), most)
	}
	sizes[sized{n, deep}] = all
	return all
}

// camel returns the name that protobuf's JSON gives a field.
func camel(field string) string {
	var b strings.Builder
	for i, part := range strings.Split(field, "_") {
		if i > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// readJSON parses valid JSON. Offsets are those in the text.
func readJSON(text []byte) *node {
	r := jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	r.decoder.UseNumber()
	return r.value()
}

type jsonReader struct {
	text    []byte
	decoder *json.Decoder
}

func (r *jsonReader) next() (token json.Token, at int) {
	at = int(r.decoder.InputOffset())
	for at < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[at]) >= 0 {
		at++
	}
	// Valid JSON has a token wherever this is called.
	token, _ = r.decoder.Token()
	return token, at
}

func (r *jsonReader) value() *node {
	token, at := r.next()
	n := &node{at: at}
	switch token := token.(type) {
	case json.Delim:
		n.kind = kindArray
		if token == '{' {
			n.kind = kindObject
		}
		for r.decoder.More() {
			if n.kind == kindObject {
				token, at := r.next()
				text, _ := token.(string)
				n.names = append(n.names, name{text: text, at: at})
			}
			n.children = append(n.children, r.value())
		}
		r.next()
	case string:
		n.kind, n.text, n.writing = kindString, token, doubleQuoted
	}
	n.end = int(r.decoder.InputOffset())
	if n.kind == kindScalar {
		n.text = string(r.text[n.at:n.end])
	}
	return n
}
