package scripts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// elsewhere are packages with goroutines that the race detector does not help: tools, and what works
// in other processes.
var elsewhere = []string{"weir/internal/envoytest", "weir/scripts/mutants"}

// TestConcurrentPackagesAreRaced holds the Makefile's list of packages for the race detector against
// the sources: each package that starts goroutines or synchronises them is in it.
func TestConcurrentPackagesAreRaced(t *testing.T) {
	t.Parallel()
	raced := list(t, strings.Fields(output(t, "make", "-s", "--eval", "print: ; @echo $(raced)", "print"))...)
	concurrent := 0
	for _, line := range list(t, "./...") {
		path, dir, _ := strings.Cut(line, " ")
		if !isConcurrent(t, dir) || slices.Contains(elsewhere, path) {
			continue
		}
		concurrent++
		if !slices.Contains(raced, line) {
			t.Errorf("%s has goroutines, and is not in the Makefile's list of packages for the race detector", path)
		}
	}
	if concurrent < 10 {
		t.Errorf("only %d packages have goroutines", concurrent)
	}
}

// list is each package's path and folder.
func list(t *testing.T, patterns ...string) []string {
	t.Helper()
	lines := output(t, "go", append([]string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}, patterns...)...)
	return strings.Split(strings.TrimSpace(lines), "\n")
}

// output returns the output of a command in the repository's folder.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = ".."
	command.Env = append(os.Environ(), "MAKEFLAGS=") // of a make -j around
	printed, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, printed)
	}
	return string(printed)
}

// isConcurrent reports whether a folder's code, without its tests, starts goroutines or has locks.
func isConcurrent(t *testing.T, dir string) (found bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			found = found || strings.HasPrefix(spec.Path.Value, `"sync`) || strings.HasPrefix(spec.Path.Value, `"golang.org/x/sync`)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			_, starts := n.(*ast.GoStmt)
			found = found || starts
			return !found
		})
	}
	return found
}
