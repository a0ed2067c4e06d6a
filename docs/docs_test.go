// Package docs has no code: its tests keep the pages true to the code that they name, and type what
// the pages have somebody type.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"weir/internal/must"
)

var reference = regexp.MustCompile("`((?:[a-z0-9]+/)*[a-z0-9_.]+\\.(?:go|lua|sql|json|txtar|yml|mod))(?::([A-Za-z]+))?`")

// TestReferences wants every `file.go` and `file.go:name` of the pages to be there.
func TestReferences(t *testing.T) {
	pages := must.Get(filepath.Glob("*.md"))(t)
	checked := 0
	for _, page := range append(pages, "../CONTRIBUTING.md", "../RATIONALE.md") {
		for _, found := range reference.FindAllStringSubmatch(must.Text(t, page), -1) {
			file, name := found[1], found[2]
			code, err := os.ReadFile(filepath.Join("..", file))
			if err != nil {
				t.Errorf("%s: %s: %v", page, found[0], err)
			} else if name != "" && !defines(string(code), name) {
				t.Errorf("%s: %s: the file has nothing of this name", page, found[0])
			}
			checked++
		}
	}
	must.AtLeast(t, checked, 50, "references found")
}

// defines reports whether Go code has a function, method, type, variable or constant of a name.
func defines(code, name string) bool {
	return regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type |var |const |\t)` + name + `\b`).MatchString(code)
}
