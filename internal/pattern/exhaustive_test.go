package pattern_test

import (
	"bufio"
	"compress/bzip2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
	"weir/internal/pattern"
)

// TestExhaustive holds Compile and Matches to what RE2's authors have written down of RE2: texts, and what each of
// many expressions does with them. By day it takes a part of the expressions. Go has the file for its own tests.
func TestExhaustive(t *testing.T) {
	t.Parallel()
	root := must.Get(exec.Command("go", "env", "GOROOT").Output())(t)
	file := must.Get(os.Open(filepath.Join(strings.TrimSpace(string(root)), "src", "regexp", "testdata", "re2-exhaustive.txt.bz2")))(t)
	defer file.Close()
	every := nightly.Or(1, 50)
	var texts []string
	var p *pattern.Pattern
	expr, at, inTexts := "", 0, false
	expressions, taken, results := 0, 0, 0
	for lines := bufio.NewScanner(bzip2.NewReader(file)); ; {
		if !lines.Scan() {
			must.OK(t, lines.Err())
			break
		}
		switch line := lines.Text(); {
		case line == "strings":
			texts, inTexts = texts[:0], true
		case line == "regexps":
			inTexts = false
		case line == "" || line[0] == '#' || line[0] >= 'A' && line[0] <= 'Z': // a comment, or a test's name
		case line[0] == '"':
			text, err := strconv.Unquote(line)
			must.OKf(t, err, "%s", line)
			if inTexts {
				texts = append(texts, text)
				continue
			}
			expr, at, p = text, 0, nil
			if expressions++; expressions%every != 0 || strings.Contains(expr, `\C`) { // a byte of UTF-8, which Go does not have
				continue
			}
			if p, err = pattern.Compile(expr); err == nil {
				taken++
			} else if !documented(expr, err) {
				t.Errorf("%q: %v", expr, err)
			}
		default:
			// The first of the four results is of a match of the whole text.
			whole, _, _ := strings.Cut(line, ";")
			if p != nil {
				results++
				must.Equal(t, p.Matches([]byte(texts[at])), whole != "-", "%q matches %q", expr, texts[at])
			}
			at++
		}
	}
	t.Logf("%d of %d expressions are taken, %d results", taken, expressions, results)
	must.AtLeast(t, taken, expressions/every*8/10, "of %d expressions are taken", expressions/every)
}
