package docs

import (
	"regexp"
	"strings"
	"testing"
)

// rule is the line under a table's head.
var rule = regexp.MustCompile(`^\|(?:\s*:?-+:?\s*\|)+$`)

// TestTables wants each table to be whole: rows without a head, as behind a blank line, are shown as
// text, and cells beyond those of the head not at all.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		lines := strings.Split(fenced.ReplaceAllStringFunc(read(t, page), func(block string) string {
			return strings.Repeat("\n", strings.Count(block, "\n"))
		}), "\n")
		cells := func(line string) int { return strings.Count(line, "|") - strings.Count(line, `\|`) }
		head := 0
		for i, line := range lines {
			if !strings.HasPrefix(line, "|") {
				head = 0
				continue
			}
			switch {
			case head > 0 && cells(line) != head:
				t.Errorf("%s:%d: a row of %d cells in a table of %d", page, i+1, cells(line)-1, head-1)
			case head > 0:
			case i+1 == len(lines) || !rule.MatchString(lines[i+1]):
				t.Errorf("%s:%d: a row of no table: %.60s", page, i+1, line)
			default:
				head = cells(line)
			}
		}
	}
}
