package convert

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxValues bounds the values of all files, and nginx's directives. Aliases and includes count them
// again.
const (
	maxValues = 1 << 17
	maxDepth  = 200
)

// value is a value of a file in YAML or JSON.
type value struct {
	c    *converter
	node *yaml.Node // nil if the value is absent
	// the value's place, or that of the enclosing value if it is absent
	at place
}

// documents returns the documents of all files that are not empty.
func (c *converter) documents() (all []value) {
	for _, f := range c.files {
		all = append(all, c.documentsOf(f)...)
	}
	return all
}

func (c *converter) documentsOf(f File) (all []value) {
	loader, err := yaml.NewLoader(bytes.NewReader(f.Text))
	for err == nil {
		var document yaml.Node
		if err = loader.Load(&document); err == nil && len(document.Content) == 1 {
			c.weigh(f.Name, document.Content[0], 0)
			if v := c.value(f.Name, document.Content[0]); v.there() && c.err == nil {
				all = append(all, v)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return all
	}
	at := place{f.Name, 1, 1}
	problem := err.Error()
	if failed := (*yaml.LoadError)(nil); errors.As(err, &failed) {
		problem = failed.Message
		mark := failed.Mark
		if mark.Line == 0 {
			mark = failed.ContextMark
		}
		at.line, at.column = max(1, mark.Line), max(1, mark.Column)
	}
	c.fail(at, "not YAML: %s", problem)
	return all
}

// weigh counts the values of a document, and again those that aliases repeat. A value that contains
// itself exceeds the bounds.
func (c *converter) weigh(file string, n *yaml.Node, depth int) {
	if n == nil || c.err != nil {
		return
	}
	if c.values++; c.values > maxValues || depth > maxDepth {
		c.fail(place{file, max(1, n.Line), max(1, n.Column)}, "want at most %d values, counted again for each alias, and at most %d inside each other", maxValues, maxDepth)
	}
	if n.Kind == yaml.MappingNode {
		c.wantOnce(file, n)
	}
	c.weigh(file, n.Alias, depth+1)
	for _, part := range n.Content {
		c.weigh(file, part, depth+1)
	}
}

// wantOnce refuses a mapping that has a field twice, because sources disagree about which of the
// two counts.
func (c *converter) wantOnce(file string, n *yaml.Node) {
	given := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		at, key := n.Content[i], resolved(n.Content[i])
		if key.Kind != yaml.ScalarNode || isMerge(key) {
			continue
		}
		if line, twice := given[c.field(key.Value)]; twice {
			c.fail(place{file, max(1, at.Line), max(1, at.Column)}, "want the field %.40q once; line %d has it too", key.Value, line)
		}
		given[c.field(key.Value)] = at.Line
	}
}

// resolved returns the node that an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (c *converter) value(file string, n *yaml.Node) value {
	n = resolved(n)
	v := value{c: c, at: place{file, max(1, n.Line), max(1, n.Column)}}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!null" {
		v.node = n
	}
	return v
}

func (v value) there() bool { return v.node != nil }

func (v value) lose(format string, args ...any) { v.c.lose(v.at, format, args...) }

// loses tells of a field, which the format names, that no rule can say, and reports whether it is there.
func (v value) loses(name, format string) bool {
	of := v.get(name)
	if of.there() {
		of.lose("%s", strings.Replace(format, "%s", name, 1))
	}
	return of.there()
}

type field struct {
	name  string
	at    place
	value value
}

// mapping has the fields of a mapping, and then those of its merge keys that it does not have itself.
type mapping struct {
	fields []field
	at     map[string]int // in fields, by name
}

// mapping reads a mapping once: sources ask for many of its fields by name.
func (v value) mapping() mapping {
	if !v.there() {
		return mapping{}
	}
	m, read := v.c.mappings[v.node]
	if !read {
		m.at = map[string]int{}
		v.merge(&m, true)
		v.c.mappings[v.node] = m
	}
	return m
}

func (v value) fields() []field { return v.mapping().fields }

// merge adds the fields of a mapping: its own, or of a base those whose names are not given.
func (v value) merge(into *mapping, own bool) {
	if v.node == nil || v.node.Kind != yaml.MappingNode {
		return
	}
	var bases []value
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		at, key := v.node.Content[i], resolved(v.node.Content[i])
		of := v.c.value(v.at.file, v.node.Content[i+1])
		if isMerge(key) {
			bases = append(bases, of)
			continue
		}
		name := v.c.field(key.Value)
		_, given := into.at[name]
		if !given {
			into.at[name] = len(into.fields)
		}
		if own || !given {
			into.fields = append(into.fields, field{name, place{v.at.file, at.Line, at.Column}, of})
		}
	}
	for i := 0; i < len(bases); i++ {
		bases = append(bases, bases[i].list()...)
		bases[i].merge(into, false)
	}
}

// field returns the name of a field. A message of Envoy's has each under two names: rate_limits is
// also rateLimits.
func (c *converter) field(name string) string {
	if !c.messages || strings.ContainsAny(name, ".-") {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if upper := name[i] >= 'A' && name[i] <= 'Z'; upper && i > 0 {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ToLower(b.String())
}

func isMerge(key *yaml.Node) bool { return key.ShortTag() == "!!merge" }

// get returns the value at the end of a path of names.
func (v value) get(path ...string) value {
	for _, name := range path {
		m := v.mapping()
		i, given := m.at[name]
		if !given {
			return value{c: v.c, at: v.at}
		}
		v = m.fields[i].value
	}
	return v
}

func (v value) list() (all []value) {
	if v.node == nil || v.node.Kind != yaml.SequenceNode {
		return nil
	}
	for _, n := range v.node.Content {
		if e := v.c.value(v.at.file, n); e.there() {
			all = append(all, e)
		}
	}
	return all
}

// either returns the elements of a list, or a scalar alone.
func (v value) either() []value {
	if v.there() && v.node.Kind == yaml.ScalarNode {
		return []value{v}
	}
	return v.list()
}

func (v value) texts() (all []string) {
	for _, e := range v.either() {
		all = append(all, e.text())
	}
	return all
}

// textsOr returns the elements of a list as they are written, or a text if there are none.
func (v value) textsOr(text string) []string {
	if all := v.texts(); len(all) > 0 {
		return all
	}
	return []string{text}
}

// text returns a scalar as it is written, or nothing if there is none.
func (v value) text() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.Value
}

func (v value) or(text string) string { return cmp.Or(v.text(), text) }

// truth returns a bool, or unless if the value is none.
func (v value) truth(unless bool) bool {
	switch strings.ToLower(v.text()) {
	case "true", "on", "yes":
		return true
	case "false", "off", "no":
		return false
	}
	return unless
}

// number returns a number from -1 to maxLimit, or unless if the value is none.
func (v value) number(unless float64) float64 {
	n, err := strconv.ParseFloat(v.text(), 64)
	if v.there() && (err != nil || math.IsNaN(n) || n > maxLimit || n < -1) {
		v.lose("want a number up to %d, got %.40q", uint64(maxLimit), v.text())
		return unless
	}
	if err != nil {
		return unless
	}
	return n
}

// whole returns a whole number, or unless if the value is no number.
func (v value) whole(unless int) int {
	n := v.number(float64(unless))
	if n != math.Trunc(n) {
		v.lose("want a whole number, got %.40q", v.text())
	}
	return int(n)
}
