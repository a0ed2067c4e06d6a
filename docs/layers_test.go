package docs

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesAreLayers wants the files of a package to need each other one way: a file uses nothing
// of a file that uses something of it, through others or not. A method counts where it stands,
// whatever file has its type.
func TestFilesAreLayers(t *testing.T) {
	t.Parallel()
	// With -trimpath a test does not know where Go is, which the importer asks.
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(root))
	for _, dir := range []string{"internal/node", "filter"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			uses := usesOf(t, dir)
			around := cycle(uses)
			for i, file := range around {
				next := around[(i+1)%len(around)]
				t.Errorf("%s uses %v of %s", file, slices.Sorted(maps.Keys(uses[file][next])), next)
			}
		})
	}
}

// uses has the names that files use of others: by the file, and by the file that declares them.
type uses map[string]map[string]map[string]bool

func (u uses) add(file, of, name string) {
	if u[file] == nil {
		u[file] = map[string]map[string]bool{}
	}
	if u[file][of] == nil {
		u[file][of] = map[string]bool{}
	}
	u[file][of][name] = true
}

// usesOf reads a package of the repository, without its tests.
func usesOf(t *testing.T, dir string) uses {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if built, err := build.Default.MatchFile(filepath.Split(path)); err != nil {
			t.Fatal(err)
		} else if !built {
			continue // it is another system's
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	pkg, err := config.Check("weir/"+dir, set, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	all := uses{}
	base := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	for name, declared := range info.Uses {
		if declared.Pkg() == pkg && base(name.Pos()) != base(declared.Pos()) {
			all.add(base(name.Pos()), base(declared.Pos()), name.Name)
		}
	}
	return all
}

// cycle is the shortest way from a file back to itself; nil if there is none.
func cycle(u uses) (shortest []string) {
	for _, file := range slices.Sorted(maps.Keys(u)) {
		if way := wayBack(u, file); way != nil && (shortest == nil || len(way) < len(shortest)) {
			shortest = way
		}
	}
	return shortest
}

func wayBack(u uses, start string) []string {
	seen := map[string]bool{}
	for ways := [][]string{{start}}; len(ways) > 0; ways = ways[1:] {
		way := ways[0]
		for _, next := range slices.Sorted(maps.Keys(u[way[len(way)-1]])) {
			if next == start {
				return way
			}
			if !seen[next] {
				seen[next] = true
				ways = append(ways, append(slices.Clone(way), next))
			}
		}
	}
	return nil
}
