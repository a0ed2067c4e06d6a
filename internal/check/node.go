package check

import "strings"

// node is a value of a JSON or YAML document. With YAML's aliases, a node may be in several others,
// and even in itself.
type node struct {
	kind kind
	// at is the offset in the file at which the value begins, end the one behind a value of JSON.
	at, end int
	// text is the meaning of a string; for another scalar it is JSON's writing of it.
	text string
	// writing is how the file has a string.
	writing writing
	// envoys is Envoy's reading of a scalar of YAML, as JSON; empty if that is the same.
	envoys string
	// merge is the offset behind a merge key of YAML; 0 for none. Its fields are among names.
	merge int
	// problem says why JSON has no such value; empty if it has. The node is null then.
	problem string
	// names are those of an object's fields, in the order of the file and as often as they are there.
	// children are their values, or an array's elements.
	names    []name
	children []*node
}

// name is a field's name and its offset in the file.
type name struct {
	text string
	at   int
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
	plain        writing = iota // as it is, but for line breaks and indentation
	singleQuoted                // in ', which is written twice
	doubleQuoted                // in ", with escapes
	block                       // below a line that ends in | or >
)

// get returns the value of an object's last field of this name, in the spelling of protobuf's JSON
// too: of vm_config also vmConfig. It is nil if there is none, or n is no object.
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

// string returns what a string means, and "" of other values.
func (n *node) string() string {
	if n == nil || n.kind != kindString {
		return ""
	}
	return n.text
}

// elements returns those of an array, and none of other values.
func (n *node) elements() []*node {
	if n == nil || n.kind != kindArray {
		return nil
	}
	return n.children
}

// sized is a value and how deep is looked into it.
type sized struct {
	n    *node
	deep int
}

// size is how many values a value has in it so deep, itself among them, up to most. An alias counts wherever
// it is. sizes are those that are known.
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
