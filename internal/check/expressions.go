package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"weir/internal/expression"
)

// compiled returns a document with conditions in place of each "if". Those that can't be compiled
// stay, and are among its mistakes.
func compiled(d *document) *document {
	if !bytes.Contains(d.text, []byte(`"if"`)) || !json.Valid(d.text) {
		return d
	}
	e := expressions{of: d, mistakes: d.mistakes}
	for i, rule := range readJSON(d.text).get("rules").elements() {
		path := fmt.Sprintf("rules[%d].", i)
		e.match(path+"match", rule.get("match"))
		for j, exception := range rule.get("except").elements() {
			e.match(fmt.Sprintf("%sexcept[%d]", path, j), exception)
		}
	}
	c := &document{text: append(e.text, d.text[e.read:]...), mistakes: e.mistakes, envoys: d.envoys, of: d.of}
	if d.written {
		for _, m := range e.made {
			c.expressed = append(c.expressed, mistake{d.from(m.at), m.path, "the plugin knows no expressions: put what weir compile prints of this configuration in its place"})
		}
	}
	c.from = func(offset int) int {
		i := sort.Search(len(e.made), func(i int) bool { return e.made[i].start > offset }) - 1
		if i < 0 {
			return d.from(offset)
		}
		if m := e.made[i]; offset >= m.end {
			return d.from(offset - m.end + m.after)
		}
		return d.from(e.made[i].at)
	}
	return c
}

type expressions struct {
	of   *document
	text []byte // so far
	read int    // how much of the document's text is in text
	made []made
	// mistakes are the document's and those of expressions.
	mistakes []mistake
}

// made are conditions in the new text. at is the offset of the expression in the old one, and after
// that of what follows it.
type made struct {
	start, end, at, after int
	path                  string
}

// match compiles the expressions in a match.
func (e *expressions) match(path string, n *node) {
	if n == nil || n.kind != kindObject {
		return
	}
	for i, child := range n.children {
		switch name := n.names[i]; name.text {
		case "any":
			for j, n := range child.elements() {
				e.match(fmt.Sprintf("%s.any[%d]", path, j), n)
			}
		case "not":
			e.match(path+".not", child)
		case "if":
			if child.kind != kindString {
				e.mistakes = append(e.mistakes, mistake{e.of.from(child.at), path + ".if", "want an expression of CEL in quotes"})
				continue
			}
			text, problem := inside(n, child.text)
			if problem != "" {
				e.mistakes = append(e.mistakes, mistake{e.of.from(child.at), path + ".if", problem})
				continue
			}
			e.text = append(e.text, e.of.text[e.read:name.at]...)
			start := len(e.text)
			e.text = append(e.text, text...)
			e.read = child.end
			e.made = append(e.made, made{start, len(e.text), child.at, child.end, path + ".if"})
		}
	}
}

// inside returns fields that can stand in a match in place of an expression.
func inside(n *node, expressed string) (text, problem string) {
	fields, err := expression.Compile(expressed)
	if err != nil {
		return "", err.Error()
	}
	all := make([]string, len(fields))
	beside := true
	for i, f := range fields {
		all[i] = fmt.Sprintf("%q:%s", f.Name, f.JSON)
		beside = beside && n.get(f.Name) == nil
	}
	text = strings.Join(all, ",")
	switch {
	case beside:
		return text, ""
	case n.get("any") == nil:
		return `"any":[{` + text + `}]`, ""
	case n.get("not") == nil:
		return `"not":{"not":{` + text + `}}`, ""
	}
	return "", "want no such expression beside both any and not: it can stand in one of them"
}
