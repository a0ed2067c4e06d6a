package ratelimitservice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// maxNodes bounds the values of a file. Aliases count them again.
const maxNodes = 1 << 17

// maxMistakes bounds the errors of a file, and its warnings of each kind, as in a plugin's
// configuration: with aliases they grow much faster than the file.
const maxMistakes = 1000

// reader reads the documents of a file, and collects their mistakes.
type reader struct {
	file string
	errs []Mistake
	// ignored are fields that the rate limit service ignores in their place.
	ignored []Mistake
	// surprises are those of a [Configuration].
	surprises []Mistake
	nodes     int
}

// place is a value in a file, and the path to it.
type place struct {
	node *yaml.Node
	path string
}

// resolved returns the place of the value that an alias stands for.
func (p place) resolved() place {
	for p.node.Kind == yaml.AliasNode && p.node.Alias != nil {
		p.node = p.node.Alias
	}
	return p
}

func (p place) field(name string, value *yaml.Node) place {
	if p.path != "" {
		name = p.path + "." + name
	}
	return place{value, name}
}

// has returns the place of a mapping's field, or the mapping itself under the field's name.
func (p place) has(name string) place {
	for i := 0; i+1 < len(p.node.Content); i += 2 {
		if p.node.Content[i].Value == name {
			return p.field(name, p.node.Content[i+1])
		}
	}
	return p.field(name, p.node)
}

func (p place) element(i int) place {
	return place{p.node.Content[i], p.path + "[" + strconv.Itoa(i) + "]"}
}

// Mistake is a mistake in a file.
type Mistake struct {
	File string
	// Line and Column count from 1. They are 0 if the mistake is about the whole file.
	Line, Column int
	// Path leads to the value, and Problem says what would be right.
	Path, Problem string
}

// Error leaves out the column, because the path says more.
func (m *Mistake) Error() string {
	where := m.File + ": "
	if m.Line > 0 {
		where = fmt.Sprintf("%s:%d: ", m.File, m.Line)
	}
	if m.Path != "" {
		where += m.Path + ": "
	}
	return where + m.Problem
}

func (r *reader) mistake(p place, format string, args ...any) *Mistake {
	return &Mistake{r.file, p.node.Line, p.node.Column, p.path, fmt.Sprintf(format, args...)}
}

func (r *reader) fail(p place, format string, args ...any) {
	r.tell(&r.errs, "errors", p, format, args...)
}

// tell adds to the errors or warnings of a file. After maxMistakes it says only that there are more.
func (r *reader) tell(all *[]Mistake, what string, p place, format string, args ...any) {
	switch told := len(*all); {
	case told < maxMistakes:
		*all = append(*all, *r.mistake(p, format, args...))
	case told == maxMistakes:
		*all = append(*all, Mistake{File: r.file, Problem: "too many " + what + ", the rest are left out"})
	}
}

// unplaced records a mistake about the whole file.
func (r *reader) unplaced(problem string) {
	r.errs = append(r.errs, Mistake{File: r.file, Problem: problem})
}

// documents calls read for each document that is not empty.
func (r *reader) documents(text []byte, read func(place)) {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	empty := true
	for err == nil {
		var document yaml.Node
		if err = loader.Load(&document); err == nil && len(document.Content) == 1 && !isNull(document.Content[0]) {
			read(place{node: document.Content[0]})
			empty = false
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		r.unplaced(err.Error())
	case empty:
		// The file may be being written, and must not remove limits.
		r.unplaced("want a domain and its descriptors, got nothing")
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// enter counts values, and reports whether they may be read: nothing more is once the rest of the
// errors are left out.
func (r *reader) enter(p place, values int) bool {
	before := r.nodes
	if r.nodes += values; before < maxNodes && r.nodes >= maxNodes {
		r.fail(p, "want at most %d values in a file, counted again for each alias", maxNodes)
	}
	return r.nodes < maxNodes && len(r.errs) <= maxMistakes
}

// fields reads the fields of a mapping with the functions under their names.
func (r *reader) fields(p place, readers map[string]func(place)) {
	if p = p.resolved(); isNull(p.node) || !r.enter(p, 1) {
		return
	}
	if p.node.Kind != yaml.MappingNode {
		r.fail(p, "want fields and their values")
		return
	}
	given := map[string]bool{}
	for _, f := range r.merged(p, nil, map[string]bool{}, true) {
		name := f.path
		f = p.field(name, f.node)
		read := readers[name]
		switch {
		case given[name]:
			r.fail(f, "want the field once")
		case read != nil:
			read(f)
		case slices.Contains(itsFields, name):
			r.tell(&r.ignored, "warnings", f, "the rate limit service ignores the field here")
		default:
			r.fail(f, "want a field of the rate limit service or of Weir%s", suggestion(name, readers))
		}
		given[name] = true
	}
}

// merged adds the fields of a mapping, with their names as paths, and then those of its merge keys.
// Unless they are its own, it leaves out those whose names are given.
func (r *reader) merged(p place, into []place, given map[string]bool, own bool) []place {
	var bases []place
	add := func(base place) {
		base = base.resolved()
		// A base may repeat names, and be in lists that contain themselves: their paths grow.
		if r.enter(base, 1+(len(base.node.Content)+len(base.path))/256) {
			bases = append(bases, base)
		}
	}
	for i := 0; i+1 < len(p.node.Content); i += 2 {
		name, value := place{node: p.node.Content[i], path: p.path}.resolved(), p.node.Content[i+1]
		switch {
		case name.node.Kind != yaml.ScalarNode:
			r.fail(name, "want the name of a field")
		case name.node.ShortTag() == "!!merge":
			add(place{value, p.path})
		case own || !given[name.node.Value]:
			given[name.node.Value] = true
			into = append(into, place{value, name.node.Value})
		}
	}
	for i := 0; i < len(bases) && r.nodes < maxNodes; i++ {
		switch base := bases[i]; base.node.Kind {
		case yaml.SequenceNode:
			for j := range base.node.Content {
				add(base.element(j))
			}
		case yaml.MappingNode:
			into = r.merged(base, into, given, false)
		default:
			r.fail(base, "want a mapping to merge")
		}
	}
	return into
}

// elements reads each element of a list.
func (r *reader) elements(p place, read func(place)) {
	switch p = p.resolved(); {
	case isNull(p.node) || !r.enter(p, 1):
	case p.node.Kind != yaml.SequenceNode:
		r.fail(p, "want a list")
	default:
		for i := range p.node.Content {
			read(p.element(i))
		}
	}
}

// text reads a scalar as it is written.
func (r *reader) text(into *string) func(place) {
	return func(p place) {
		switch p = p.resolved(); {
		case isNull(p.node):
		case p.node.Kind != yaml.ScalarNode:
			r.fail(p, "want a text")
		default:
			*into = p.node.Value
		}
	}
}

// truth reads true or false, or YAML 1.1's words for them.
func (r *reader) truth(into *bool) func(place) {
	return func(p place) {
		if p = p.resolved(); !isNull(p.node) && p.node.Decode(into) != nil {
			r.fail(p, "want true or false")
		}
	}
}

// whole reads a whole number up to most.
func (r *reader) whole(into *uint64, most uint64) func(place) {
	return func(p place) {
		var n uint64
		if p = p.resolved(); !isNull(p.node) && (p.node.Decode(&n) != nil || n > most) {
			r.fail(p, "want a whole number from 0 to %d", most)
		}
		*into = n
	}
}
