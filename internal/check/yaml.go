package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxMerged bounds how many fields the merge keys of a document add: each may add all of another
// one's.
const maxMerged = 1 << 16

// readYAML returns the documents of a stream up to the first mistake, which is the error.
func readYAML(text []byte, at *places) (documents []*node, err error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r := yamlReader{at: at, read: map[*yaml.Node]*node{}}
	for {
		var document yaml.Node
		switch err := loader.Load(&document); {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return documents, err
		case document.Kind == yaml.DocumentNode && len(document.Content) == 1:
			documents = append(documents, r.value(document.Content[0]))
		}
		if r.merged > maxMerged {
			return documents, fmt.Errorf("merge keys (<<) add more than %d fields", maxMerged)
		}
	}
}

// yamlReader makes nodes of what the library has parsed. An alias is the very node that it stands
// for.
type yamlReader struct {
	at     *places
	read   map[*yaml.Node]*node
	merged int
}

func (r *yamlReader) value(y *yaml.Node) *node {
	for y.Kind == yaml.AliasNode && y.Alias != nil {
		y = y.Alias
	}
	if n := r.read[y]; n != nil {
		return n
	}
	n := &node{at: r.at.offset(y.Line, y.Column)}
	r.read[y] = n
	switch y.Kind {
	case yaml.SequenceNode:
		n.kind = kindArray
		for _, element := range y.Content {
			n.children = append(n.children, r.value(element))
		}
	case yaml.MappingNode:
		n.kind = kindObject
		r.fields(n, y.Content)
	default:
		n.scalar(y)
	}
	return n
}

const mergeKey = "<<"

// ignored is the tag by which Envoy leaves fields out: they only hold anchors.
const ignored = "!ignore"

func (r *yamlReader) fields(n *node, content []*yaml.Node) {
	given := map[string]bool{}
	var bases []*node
	for i := 0; i+1 < len(content); i += 2 {
		key, value := content[i], r.value(content[i+1])
		at := r.at.offset(key.Line, key.Column)
		for key.Kind == yaml.AliasNode && key.Alias != nil {
			key = key.Alias
		}
		switch {
		case key.Tag == ignored || content[i+1].Tag == ignored:
			continue
		case key.ShortTag() == "!!merge":
			bases = append(bases, value)
			n.merge = at + len(mergeKey)
			continue
		case key.Kind != yaml.ScalarNode:
			value = &node{at: at, text: "null", problem: "want the name of a field, got " + show(key)}
		}
		given[key.Value] = true
		named := name{text: key.Value, at: at}
		if key.Style == 0 {
			named.reads = boolean(key.Value)
		}
		n.names = append(n.names, named)
		n.children = append(n.children, value)
	}
	for i := 0; i < len(bases); i++ {
		base := bases[i]
		bases = append(bases, base.elements()...)
		for j := range base.names {
			if name := base.names[j]; !given[name.text] && r.merged <= maxMerged {
				r.merged++
				given[name.text] = true
				n.names = append(n.names, name)
				n.children = append(n.children, base.children[j])
			}
		}
		if len(bases) > maxMerged {
			r.merged = maxMerged + 1
			return
		}
	}
}

// scalar reads a scalar as JSON has it. A scalar that readers of YAML disagree about is a problem.
func (n *node) scalar(y *yaml.Node) {
	switch y.Style &^ yaml.TaggedStyle {
	case yaml.SingleQuotedStyle:
		n.writing = singleQuoted
	case yaml.DoubleQuotedStyle:
		n.writing = doubleQuoted
	case yaml.LiteralStyle, yaml.FoldedStyle:
		n.writing = block
	}
	switch tag := y.ShortTag(); tag {
	case "!!str", "!!timestamp":
		n.kind, n.text = kindString, y.Value
	case "!!null":
		n.text = "null"
	case "!!bool":
		if n.text = strings.ToLower(y.Value); n.text != "true" && n.text != "false" {
			n.problem = "want true or false, got " + show(y)
		}
	case "!!int", "!!float":
		n.text = strings.TrimPrefix(y.Value, "+")
		if json.Valid([]byte(n.text)) {
			break
		}
		number, err := strconv.ParseFloat(n.text, 64)
		switch {
		case tag == "!!int", strings.ContainsAny(n.text, "_xX"):
			n.problem = "want a decimal number, as readers of YAML disagree about others, got " + show(y)
		case err != nil || math.IsInf(number, 0) || math.IsNaN(number):
			n.problem = "want a number that JSON has, got " + show(y)
		default: // such as .5
			n.text = strconv.FormatFloat(number, 'g', -1, 64)
		}
	default:
		n.problem = "want a value that JSON has, got one of type " + short(tag)
	}
	if n.problem != "" {
		n.kind, n.text = kindScalar, "null"
	}
	if y.Style == 0 {
		n.envoys = envoys(n)
	}
}

// envoys returns what Envoy makes of a scalar without quotes, if that is something else: of 1e2,
// 0.5 and whatever 32 bits don't hold strings, and of yes a boolean. That is so in 1.36.4 and
// 1.40.0.
func envoys(n *node) string {
	switch {
	case n.problem != "":
		return ""
	case n.kind == kindScalar && strings.Trim(n.text, "truefalsn") != "":
		if _, err := strconv.ParseInt(n.text, 10, 32); err != nil {
			return strconv.Quote(n.text)
		}
	case n.kind == kindString:
		return boolean(n.text)
	}
	return ""
}

// boolean returns the boolean that a word without quotes is in YAML 1.1, which Envoy and Kubernetes read; empty for none.
func boolean(word string) string {
	switch word {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return "true"
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return "false"
	}
	return ""
}

// show returns a value as it is written, if it is short.
func show(y *yaml.Node) string {
	switch y.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "an array"
	}
	return short(y.Value)
}

// short cuts off what is too long to show.
func short(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// mistakeOf says what the YAML library found, and where.
func mistakeOf(err error, at *places) (problem string, offset int) {
	var failed *yaml.LoadError
	if !errors.As(err, &failed) {
		return err.Error(), 0
	}
	problem = "not YAML: " + failed.Message
	if failed.ContextMsg != "" {
		problem += " (" + failed.ContextMsg + ")"
	}
	if strings.Contains(failed.Message, "cannot start any token") {
		problem += "; indent by spaces, and put a value that begins with % @ or ` into quotes"
	}
	mark := failed.Mark
	if mark.Line == 0 {
		mark = failed.ContextMark
	}
	return problem, at.offset(mark.Line, mark.Column)
}
