package check

import (
	"bytes"
	"slices"
)

// Found checks a file that somebody has come upon, as in a folder: what has no rules with limits, and
// loads no module of Weir's, is another program's. Nothing is said of it, nor of templates of documents.
func Found(name string, content []byte) *Report {
	return check(checker{file: content, places: placesOf(content), found: true}, name)
}

// evident reports whether a document is a configuration of Weir's, and no other program's.
func evident(n *node) bool {
	return n.get("sync_rate") != nil || n.get("on_backend_failure") != nil ||
		slices.ContainsFunc(n.get("rules").elements(), func(rule *node) bool { return rule.get("limits") != nil })
}

// meant reports whether a text that can't be read was to have a configuration.
func meant(text []byte) bool {
	has := func(word string) bool { return bytes.Contains(text, []byte(word)) }
	return !has("{{") && (has("weir") || has("rules") && has("limits"))
}

// configMap checks what a ConfigMap's data has: each value as a file of the name of its key.
func (c *checker) configMap(data *node) {
	for i, value := range data.children {
		if value.kind != kindString {
			continue
		}
		content := []byte(value.text)
		inner := checker{file: content, places: placesOf(content), found: true}
		report := check(inner, data.names[i].text)
		places := align(c.file, value)
		from := func(offset int) int { return places[min(offset, len(places)-1)] }
		c.report.Configurations += report.Configurations
		for _, f := range report.Findings {
			c.add(mistake{from(f.at), f.Path, f.Problem}, f.Warning)
		}
		for _, a := range report.Accepted {
			a.Line, a.Column = c.places.position(from(inner.places.offset(a.Line, a.Column)))
			c.report.Accepted = append(c.report.Accepted, a)
		}
	}
}
