package check

import (
	"bytes"
	"slices"
)

// Found checks a file that was found in a folder. A file without rules with limits, and without a
// module of Weir's, belongs to another program: Found reports nothing about it, nor about templates
// of documents.
func Found(name string, content []byte, readers ...Reader) *Report {
	return check(checker{file: content, places: placesOf(content), found: true, readers: readers}, name)
}

// evident reports whether a document is certainly a configuration of Weir's.
func evident(n *node) bool {
	return n.get("sync_rate") != nil || n.get("on_backend_failure") != nil || limited(n)
}

// limited reports whether a document has rules with limits.
func limited(n *node) bool {
	return slices.ContainsFunc(n.get("rules").elements(), func(rule *node) bool { return rule.get("limits") != nil })
}

// meant reports whether an unreadable text was meant to contain a configuration.
func meant(text []byte) bool {
	has := func(word string) bool { return bytes.Contains(text, []byte(word)) }
	return !has("{{") && (has("weir") || has("rules") && has("limits"))
}

// configMap checks the values in a ConfigMap's data, each as a file named by its key.
func (c *checker) configMap(data *node) {
	for i, value := range data.children {
		if value.kind != kindString {
			continue
		}
		content := []byte(value.text)
		inner := checker{file: content, places: placesOf(content), found: true, mapped: true, readers: c.readers}
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
