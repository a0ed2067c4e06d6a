package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	sourced    = regexp.MustCompile(`^\[[^\]]+\]\[([a-z]{2})\]$`)
	sourceList = regexp.MustCompile(`(?m)^\[([a-z]{2})\]: https://\S+$`)
)

// TestComparisonIsSourced wants each word about a peer to link to where it was read, unless the peer
// does not tell.
func TestComparisonIsSourced(t *testing.T) {
	t.Parallel()
	text := read(t, "comparison.md")
	unused := map[string]bool{}
	for _, found := range sourceList.FindAllStringSubmatch(text, -1) {
		unused[found[1]] = true
	}
	sources := len(unused)
	rows := 0
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 7 || cells[1] == "Weir" {
			continue
		}
		rows++
		for _, cell := range cells[2:] {
			link := sourced.FindStringSubmatch(cell)
			switch {
			case link != nil && strings.Contains(text, "\n["+link[1]+"]: "):
				delete(unused, link[1])
			case cell != "not documented":
				t.Errorf("%s: %q has no source", cells[0], cell)
			}
		}
	}
	if rows < 100 || sources < 20 {
		t.Errorf("%d rows with %d sources", rows, sources)
	}
	for name := range unused {
		t.Errorf("no cell links to [%s]", name)
	}
}
