package schema_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"weir/internal/must"
	"weir/internal/schema"
)

var update = flag.Bool("update", false, "write docs/fields.md")

const (
	docs      = "../../docs/"
	fieldPage = docs + "fields.md"
)

const introduction = `# Configuration fields

Every field of the configuration, in the order of the schema that ` + "`weir schema`" + ` prints. The schema has
these texts too, so editors show them. [configuration.md](configuration.md) has whole examples.
`

// sections are the parts of the page. An object that has a section of its own is linked where a field has
// it, and not told again there.
var sections = []struct{ title, of, prefix string }{
	{"The configuration", "", ""},
	{"A response", "response", "response."},
	{"A rule", "rule", "rule."},
	{"A number in the body", "body_cost", "rule.reserve."},
	{"A limit", "limit", "limit."},
	{"A match", "match", "match."},
	{"A comparison", "comparison", ""},
	{"A selector", "selector_object", ""},
	{"A selector of the body", "key_selector", ""},
	{"A part of a value", "group", ""},
	{"A duration", "duration", ""},
}

// linked are the sections by the definitions that lead to them.
var linked = map[string]string{
	"response": "a-response", "rule": "a-rule", "limit": "a-limit", "match": "a-match", "exception": "an-exception", "value_match": "a-comparison",
	"path_match": "a-comparison", "selector": "a-selector", "selector_object": "a-selector", "key_selector": "a-selector", "duration": "a-duration",
	"body_cost": "a-number-in-the-body",
}

// page writes docs/fields.md.
type page struct {
	t    *testing.T
	root *yaml.Node
	text strings.Builder
	// list has links to the fields of a section.
	list []string
}

// get is the value of a field, or nil.
func get(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		at := n
		n = nil
		for i := 0; i < len(at.Content); i += 2 {
			if at.Content[i].Value == name {
				n = at.Content[i+1]
			}
		}
	}
	return n
}

func value(n *yaml.Node, name string) string {
	if n = get(n, name); n != nil {
		return n.Value
	}
	return ""
}

// inJSON is a value in one line.
func inJSON(n *yaml.Node) string {
	var parts []string
	switch {
	case n.Kind == yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, strconv.Quote(n.Content[i].Value)+": "+inJSON(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, inJSON(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case n.Tag == "!!str":
		return strconv.Quote(n.Value)
	}
	return n.Value
}

// definition is the schema's part that a field refers to, with its name; nil if it refers to none.
func (p *page) definition(n *yaml.Node) (name string, def *yaml.Node) {
	pointer := value(n, "$ref")
	if pointer == "" {
		return "", nil
	}
	return path.Base(pointer), get(p.root, strings.Split(strings.TrimPrefix(pointer, "#/"), "/")...)
}

// told is a value that a field has, or the definition that it refers to.
func (p *page) told(n *yaml.Node, name string) *yaml.Node {
	for n != nil {
		if found := get(n, name); found != nil {
			return found
		}
		_, n = p.definition(n)
	}
	return nil
}

// number has a comma before every three digits.
func number(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// bounds are those of a number, a length or a count, after a word that leads to them.
func bounds(n *yaml.Node, word, least, most string) string {
	from, to := number(value(n, least)), number(value(n, most))
	switch {
	case from != "" && to != "":
		return word + from + " to " + to
	case from != "":
		return word + "at least " + from
	case value(n, "exclusiveMinimum") != "":
		if below := value(n, "exclusiveMaximum"); below != "" {
			to = "below " + below
		} else if to != "" {
			to = "at most " + to
		}
		return strings.TrimSuffix(word+"above "+value(n, "exclusiveMinimum")+", "+to, ", ")
	case to != "":
		return word + "at most " + to
	}
	return ""
}

// kind is the type of a field.
func (p *page) kind(n *yaml.Node) string {
	for _, either := range []string{"anyOf", "oneOf"} {
		if of := get(n, either); of != nil && get(n, "properties") == nil {
			var kinds []string
			for _, variant := range of.Content {
				if kind := p.kind(variant); !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
			}
			return strings.Join(kinds, ", or ")
		}
	}
	if name, def := p.definition(n); def != nil {
		if anchor := linked[name]; anchor != "" {
			return "[" + strings.ReplaceAll(anchor, "-", " ") + "](#" + anchor + ")"
		}
		return p.kind(def)
	}
	if enum := get(n, "enum"); enum != nil {
		var values []string
		for _, v := range enum.Content {
			values = append(values, "`"+inJSON(v)+"`")
		}
		return strings.Join(values, ", ")
	}
	if only := get(n, "const"); only != nil {
		return "`" + inJSON(only) + "`"
	}
	switch kind := value(n, "type"); kind {
	case "array":
		return "array" + bounds(n, " of ", "minItems", "maxItems") + ": " + p.kind(get(n, "items"))
	case "object":
		if of := get(n, "additionalProperties"); of != nil && of.Kind == yaml.MappingNode && get(of, "properties") == nil {
			return "object, by name: " + p.kind(of)
		}
		return kind
	case "integer", "number":
		return kind + bounds(n, ", ", "minimum", "maximum")
	case "string":
		if most := bounds(n, " of ", "minLength", "maxLength"); most != "" {
			return kind + most + " characters"
		}
		return kind
	default:
		return kind
	}
}

// more is a link to the section that $comment names, by its heading.
func (p *page) more(to string) string {
	file, anchor, _ := strings.Cut(to, "#")
	text := must.Get(os.ReadFile(docs + file))(p.t)
	for _, found := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		slug := strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")
		if anchor == "" || slug == anchor {
			return fmt.Sprintf(" More: [%s](%s).", found[1], to)
		}
	}
	p.t.Errorf("%s: no such heading", to)
	return ""
}

// field tells of a field, and of those inside it.
func (p *page) field(name string, n *yaml.Node, required bool) {
	base := name[strings.LastIndex(name, ".")+1:]
	examples, said := get(n, "examples"), p.told(n, "description")
	if examples == nil || said == nil {
		p.t.Errorf("%s: want a description and examples in schema.json", name)
		return
	}
	fmt.Fprintf(&p.text, "\n### `%s`\n\n%s", name, said.Value)
	if to := value(n, "$comment"); to != "" {
		p.text.WriteString(p.more(to))
	}
	p.list = append(p.list, fmt.Sprintf("[`%s`](#%s)", name, strings.ReplaceAll(name, ".", "")))
	kind := p.kind(n)
	if required {
		kind += "; required"
	}
	fmt.Fprintf(&p.text, "\n\n- Type: %s\n", kind)
	if def := p.told(n, "default"); def != nil {
		fmt.Fprintf(&p.text, "- Default: `%s`\n", inJSON(def))
	}
	fmt.Fprintf(&p.text, "- Example: `%q: %s`\n", base, inJSON(examples.Content[0]))
	p.inside(name+".", n)
}

// inside tells of the fields of the objects that a field may have.
func (p *page) inside(prefix string, n *yaml.Node) {
	if n == nil {
		return
	}
	if fields := get(n, "properties"); fields != nil {
		for i := 0; i < len(fields.Content); i += 2 {
			of := fields.Content[i+1]
			required := get(n, "required")
			p.field(prefix+fields.Content[i].Value, of, required != nil && slices.ContainsFunc(required.Content, func(r *yaml.Node) bool {
				return r.Value == fields.Content[i].Value
			}))
		}
	}
	for _, in := range []string{"items", "additionalProperties"} {
		if of := get(n, in); of != nil {
			p.inside(prefix, of)
		}
	}
	for _, either := range []string{"anyOf", "oneOf"} {
		if of := get(n, either); of != nil {
			for _, variant := range of.Content {
				p.inside(prefix, variant)
			}
		}
	}
}

// TestFieldsPage wants docs/fields.md to be what the schema says.
func TestFieldsPage(t *testing.T) {
	var document yaml.Node
	must.OK(t, yaml.Unmarshal(schema.JSON, &document))
	p := &page{t: t, root: document.Content[0]}
	p.text.WriteString(introduction)
	for _, s := range sections {
		n := p.root
		if s.of != "" {
			n = get(p.root, "$defs", s.of)
		}
		before := p.text.String()
		p.text.Reset()
		p.list = nil
		p.inside(s.prefix, n)
		fields := p.text.String()
		p.text.Reset()
		fmt.Fprintf(&p.text, "%s\n## %s\n\n%s\n", before, s.title, value(n, "description"))
		if len(p.list) > 0 {
			fmt.Fprintf(&p.text, "\n%s\n%s", strings.Join(p.list, " · "), fields)
		}
	}
	if *update {
		must.OK(t, os.WriteFile(fieldPage, []byte(p.text.String()), 0o644))
	}
	must.Equal(t, must.Text(t, fieldPage), p.text.String(), "docs/fields.md is not what the schema says: go test ./internal/schema -run TestFieldsPage -update writes it")
}

// TestExamples wants every example of the schema to be valid where it stands.
func TestExamples(t *testing.T) {
	document := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(schema.JSON)))(t)
	c := jsonschema.NewCompiler()
	must.OK(t, c.AddResource("schema.json", document))
	checked := 0
	var visit func(pointer string, at any)
	visit = func(pointer string, at any) {
		switch at := at.(type) {
		case map[string]any:
			if examples, ok := at["examples"].([]any); ok {
				here, err := c.Compile("schema.json#" + pointer)
				must.OKf(t, err, "%s", pointer)
				for _, example := range examples {
					must.Reportf(t, here.Validate(example), "%s: %v", pointer, example)
					checked++
				}
			}
			for name, in := range at {
				if name != "examples" {
					visit(pointer+"/"+name, in)
				}
			}
		case []any:
			for i, in := range at {
				visit(fmt.Sprint(pointer, "/", i), in)
			}
		}
	}
	visit("", document)
	must.AtLeast(t, checked, 100, "examples")
}
