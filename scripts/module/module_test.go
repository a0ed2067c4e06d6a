package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/nightly"
)

// program is of a module that imports the library.
const program = `package main

import (
	"context"
	"fmt"
	"time"

	"example.com/acme/weir/ratelimit"
)

func main() {
	limiter, err := ratelimit.NewLimiter(ratelimit.FixedWindow(2, 24*time.Hour))
	if err != nil {
		panic(err)
	}
	for range 3 {
		fmt.Println(limiter.Allow(context.Background(), "ann"))
	}
}
`

// TestMove moves a copy of the repository. Its packages then find each other, and a program of another module decides by the
// library.
func TestMove(t *testing.T) {
	t.Parallel()
	copied, elsewhere := t.TempDir(), t.TempDir()
	names := must.Get(files("../.."))(t)
	for _, name := range names {
		content := must.Get(os.ReadFile(filepath.Join("../..", name)))(t)
		write(t, filepath.Join(copied, name), string(content))
	}
	must.OK(t, move(copied, "example.com/acme/weir"))
	must.Equal(t, run(t, copied, "gofmt", "-l", "."), "", "not as gofmt has it")
	must.Equal(t, run(t, copied, "sh", "-c", `grep -rnE --include='*.go' --include=go.mod --include=.golangci.yml \
		'"weir/(config|window|ratelimit|internal)|module weir$|pkg: weir[ ,}]' --exclude-dir=module . || true`), "", "what is still under the old path")
	must.Contains(t, must.Text(t, filepath.Join(copied, ".github/CODEOWNERS")), "* @acme\n", "CODEOWNERS")
	if testing.Short() {
		return // before Go reads and compiles it all
	}
	// A package that is imported by its old name is not found.
	run(t, copied, "go", "list", "-test", "-deps", "./...")
	if nightly.On() {
		run(t, copied, "make", "dist/weir.wasm", "playground/site/engine.wasm", "playground/site/pair.wasm")
		run(t, copied, "go", "vet", "./...")
	}

	write(t, filepath.Join(elsewhere, "main.go"), program)
	write(t, filepath.Join(elsewhere, "go.mod"), "module shop\n\ngo 1.26.0\n\nrequire example.com/acme/weir v0.1.0\n\nreplace example.com/acme/weir => "+copied+"\n")
	write(t, filepath.Join(elsewhere, "go.sum"), must.Text(t, filepath.Join(copied, "go.sum")))
	must.Equal(t, run(t, elsewhere, "env", "GOWORK=off", "go", "run", "-mod=mod", "."), "true <nil>\ntrue <nil>\nfalse <nil>\n", "the program printed")
}

func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "a b", "https://example.com/weir", "/weir", "$1"} {
		must.Contains(t, fmt.Sprint(move(t.TempDir(), path)), "want a module path", "%q", path)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.OK(t, os.WriteFile(name, []byte(content), 0o600))
}

// run returns the output of a command in a folder.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = dir
	var failure strings.Builder
	command.Stderr = &failure
	printed, err := command.Output()
	must.OKf(t, err, "%s %v: %s%s", name, args, printed, &failure)
	return string(printed)
}
