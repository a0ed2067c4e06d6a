package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hardToRead are the forms that readers have to read twice: a sentence whose subject is a clause or
// comes after its parts, and words that stand for a noun which the reader then has to look for.
var hardToRead = map[string]*regexp.Regexp{
	"opens with What, Who, Whoever or Of": regexp.MustCompile(`^(What|Who|Whoever|Of) [^?]*$`),
	"is what":                             regexp.MustCompile(`(?i)\b(is|are|was) what\b`),
	"as many":                             regexp.MustCompile(`(?i)\bas many\b`),
	"one as a pronoun":                    regexp.MustCompile(`(?i)\b(the|this|that|another|each|every|an?|no|any|which|older|newer|last|next|other) one\b( (that|which|who|is|has|was|in|of|with|for|from|and|or|to|by|at)\b|[.,;:)?]|$)|\bone (that|which|who)\b|\bones\b`),
}

var (
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	quoted    = regexp.MustCompile(`"[^"\n]*"`)
	linkOf    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	blocks    = regexp.MustCompile(`\n\s*\n|\n(?:\s*[-*|] |\s*\d+\. |\|)`)
	sentences = regexp.MustCompile(`[.!?:] +(?:[A-Z])`)
	cells     = regexp.MustCompile(` \| | \|$`)
	codeLines = regexp.MustCompile(`(?m)^(    |\t).*$`)
	spaces    = regexp.MustCompile(`\s+`)
)

// sentencesOf are the sentences of Markdown or of a comment, without code.
func sentencesOf(text string) (all []string) {
	text = fenced.ReplaceAllString(text, "\n\n")
	text = codeLines.ReplaceAllString(text, "")
	text = linkOf.ReplaceAllString(text, "$1")
	text = codeSpan.ReplaceAllString(text, "`x`")
	text = quoted.ReplaceAllString(text, "`x`")
	for _, block := range blocks.Split(text, -1) {
		for _, cell := range cells.Split(block, -1) {
			cell = strings.TrimSpace(spaces.ReplaceAllString(strings.TrimLeft(cell, "#|->* "), " "))
			for {
				end := sentences.FindStringIndex(cell)
				if end == nil {
					break
				}
				all = append(all, cell[:end[0]+1])
				cell = cell[end[1]-1:]
			}
			if cell != "" {
				all = append(all, cell)
			}
		}
	}
	return all
}

func countHard(t *testing.T, where, text string) (count int) {
	t.Helper()
	for _, sentence := range sentencesOf(text) {
		// A comment begins with the name of its function, which may be Of.
		sentence = strings.TrimPrefix(sentence, "Of returns ")
		for form, pattern := range hardToRead {
			if pattern.MatchString(sentence) {
				count++
				t.Logf("%s: %s: %s", where, form, sentence)
			}
		}
	}
	return count
}

// These are how many hard sentences there are. They only fall: write no new ones, and lower the
// number when you have mended some.
const (
	hardInPages    = 0
	hardInComments = 0
)

func TestProse(t *testing.T) {
	count := 0
	for _, page := range pages(t) {
		count += countHard(t, page, read(t, page))
	}
	if count != hardInPages {
		t.Errorf("%d sentences of the pages are hard to read, want %d", count, hardInPages)
	}
}

// TestProseOfComments reads the comments of exported identifiers, and of packages.
func TestProseOfComments(t *testing.T) {
	count := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "dist" || entry.Name() == "node_modules" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if group, ok := n.(*ast.CommentGroup); ok {
				count += countHard(t, path, group.Text())
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count != hardInComments {
		t.Errorf("%d sentences of comments are hard to read, want %d", count, hardInComments)
	}
}
