package expression

import "strings"

// Field is a field of a match, and its value in JSON.
type Field struct{ Name, JSON string }

// All other comparisons imply the first of these.
const isPresent, isAbsent = `{"present":true}`, `{"present":false}`

type node struct {
	kind kind
	// part and comparison, in JSON, are those of one that compares.
	part       part
	comparison string
	of         []node
}

type kind uint8

const (
	compares kind = iota
	allOf
	anyOf
	noneOf
)

// add adds a condition to a combination of others.
func (n *node) add(other node) {
	if other.kind == n.kind {
		n.of = append(n.of, other.of...)
	} else {
		n.of = append(n.of, other)
	}
}

// fields returns a match that is met where the condition is.
func (n *node) fields() []Field {
	all := node{kind: allOf}
	all.add(*n)
	var m match
	for i := range all.of {
		m.add(&all.of[i])
	}
	return m.fields()
}

// match is a match that is being made. It can compare each part once, and has a single any and a
// single not. What has no place any more is put under not, negated.
type match struct {
	parts []node
	any   string
	none  []string // of which none may hold
}

func (m *match) add(n *node) {
	switch n.kind {
	case compares:
		for i := range m.parts {
			switch other := &m.parts[i]; {
			case other.part != n.part:
				continue
			case other.comparison == n.comparison, n.comparison == isPresent && other.comparison != isAbsent:
			case other.comparison == isPresent && n.comparison != isAbsent:
				other.comparison = n.comparison
			default:
				m.addAny(array([]string{object(n.fields()...)}))
			}
			return
		}
		m.parts = append(m.parts, *n)
	case anyOf:
		if len(n.of) == 1 {
			m.add(&n.of[0])
			return
		}
		m.addAny(array(objects(n.of)))
	case noneOf:
		m.none = append(m.none, objects(n.of)...)
	case allOf:
		for i := range n.of {
			m.add(&n.of[i])
		}
	}
}

func (m *match) addAny(choices string) {
	if m.any == "" {
		m.any = choices
	} else {
		m.none = append(m.none, object(Field{"not", object(Field{"any", choices})}))
	}
}

func (m *match) fields() (fields []Field) {
	for _, n := range m.parts {
		if n.part.name == "" {
			fields = append(fields, Field{n.part.field, n.comparison})
			continue
		}
		named := Field{n.part.name, n.comparison}
		at := 0
		for at < len(fields) && fields[at].Name != n.part.field {
			at++
		}
		if at < len(fields) {
			f := &fields[at]
			f.JSON = strings.TrimSuffix(f.JSON, "}") + "," + object(named)[1:]
		} else {
			fields = append(fields, Field{n.part.field, object(named)})
		}
	}
	if m.any != "" {
		fields = append(fields, Field{"any", m.any})
	}
	switch len(m.none) {
	case 0:
	case 1:
		fields = append(fields, Field{"not", m.none[0]})
	default:
		fields = append(fields, Field{"not", object(Field{"any", array(m.none)})})
	}
	return fields
}

// objects returns a match for each of some conditions.
func objects(of []node) (all []string) {
	for i := range of {
		all = append(all, object(of[i].fields()...))
	}
	return all
}

func object(fields ...Field) string {
	named := make([]string, len(fields))
	for i, f := range fields {
		named[i] = encoded(f.Name) + ":" + f.JSON
	}
	return "{" + strings.Join(named, ",") + "}"
}

func array(values []string) string { return "[" + strings.Join(values, ",") + "]" }
