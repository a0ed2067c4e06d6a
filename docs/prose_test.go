package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
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

// These are how many hard sentences there are. The numbers only fall: write no new hard sentence,
// and lower the number when you have mended some.
const (
	hardInPages    = 0
	hardInComments = 0
	hardInStrings  = 0
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

// TestProseOfComments reads all comments, of tests too.
func TestProseOfComments(t *testing.T) {
	count := 0
	eachFile(t, func(path string, file *ast.File) {
		for _, group := range file.Comments {
			count += countHard(t, path, group.Text())
		}
	})
	if count != hardInComments {
		t.Errorf("%d sentences of comments are hard to read, want %d", count, hardInComments)
	}
}

// TestProseOfStrings reads the strings of several words outside of tests: errors, help texts, log
// lines, and the descriptions of flags and metrics.
func TestProseOfStrings(t *testing.T) {
	count := 0
	eachFile(t, func(path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			expr, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, isString := textOf(expr)
			if isString && strings.Contains(text, " ") {
				count += countHard(t, path, text)
			}
			return !isString
		})
	})
	if count != hardInStrings {
		t.Errorf("%d sentences of strings are hard to read, want %d", count, hardInStrings)
	}
}

// textOf is a literal, or a sum with one in it, where other operands are an x.
func textOf(expr ast.Expr) (text string, isString bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, isLeft := textOf(e.X)
			right, isRight := textOf(e.Y)
			return left + right, isLeft || isRight
		}
	}
	return "x", false
}

// eachFile visits the Go files.
func eachFile(t *testing.T, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "dist" || entry.Name() == "node_modules" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		visit(path, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
