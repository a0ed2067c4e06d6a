// Command mutants finds changes of the code that no test notices. Such a change shows a property
// that no test checks, or code that has no effect.
//
//	go run ./scripts/mutants [-seed 1] [-n 100] [-match text] path...
//
// A path is a Go file, or a folder with Go files. A change replaces an operator, number, boolean,
// min or max in these files. Among the changes that compile, the seed selects n; 0 selects all. Each
// change is built and tested by itself, first by the tests of its package, then by those packages of
// -by that depend on it, the fastest first, until a test fails or takes far longer than without the
// change. The files stay as they are: go sees the change in an overlay.
//
// To see that a test catches a certain change, name it: -n 0 -match 'Limit.fill: ago <= now'.
//
// Changes that have no effect on the program are in equal.txt, each with the reason below it. They
// count as noticed. Only the tests of their own package run on them.
//
// The command fails if a change went unnoticed, or if a change in equal.txt was noticed.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed equal.txt
var equalText string

func main() {
	seed := flag.Uint64("seed", 1, "which changes are selected")
	most := flag.Int("n", 100, "how many changes are selected; 0 is all")
	match := flag.String("match", "", "only changes whose names contain this")
	by := flag.String("by", "./internal/wire,./internal/counter,./sharedata,./internal/store,./internal/store/memory,./filter,./internal/engine,./ratelimit",
		"packages whose tests also run on changes in their dependencies")
	flag.Parse()
	r := &run{out: os.Stdout, equal: parseEqual(equalText)}
	err := r.choose(flag.Args(), *seed, *most, *match)
	if err == nil {
		err = r.all(strings.Split(*by, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// parseEqual reads the names of mutants, each on a line, and the indented reasons below them.
func parseEqual(text string) (reasons map[string]string) {
	reasons = map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || line[0] == '#':
		case trimmed == strings.TrimRight(line, "\n"):
			name = trimmed
			reasons[name] = ""
		default:
			reasons[name] = strings.TrimSpace(reasons[name] + " " + trimmed)
		}
	}
	return reasons
}

type run struct {
	out     io.Writer
	equal   map[string]string // the reasons, by the mutants' names
	mutants []mutant
	tests   []test
	temp    string
}

type test struct {
	path  string
	needs []string // all packages that the tests depend on
	took  time.Duration
}

func (r *run) choose(paths []string, seed uint64, most int, match string) error {
	mutants, err := listAll(paths)
	if err != nil {
		return err
	}
	if most == 0 {
		most = len(mutants)
	} else {
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	}
	compiler := newCompiler()
	for i := range mutants {
		if m := &mutants[i]; len(r.mutants) < most && strings.Contains(m.name, match) {
			compiles, err := compiler.compiles(m)
			if err != nil {
				return err
			}
			if compiles {
				r.mutants = append(r.mutants, *m)
			}
		}
	}
	return nil
}

// all runs the mutants, two at a time, and prints the results.
func (r *run) all(by []string) (err error) {
	if r.temp, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.temp)) }()
	if err := r.findTests(by); err != nil {
		return err
	}
	next := make(chan int)
	var workers sync.WaitGroup
	var mutex sync.Mutex
	var failed error
	caught, equal, missed := 0, 0, 0
	for range 2 {
		workers.Go(func() {
			for i := range next {
				m := &r.mutants[i]
				_, same := r.equal[m.name]
				catcher, err := r.try(i, same)
				mutex.Lock()
				result := "caught by " + catcher
				switch {
				case err != nil:
					failed = errors.Join(failed, err)
					result = "failed"
				case same && catcher == "":
					result = "equal"
					equal++
				case catcher == "":
					result = "NOT NOTICED"
					missed++
				case same:
					result = "IN equal.txt, BUT " + result
					missed++
				default:
					caught++
				}
				fmt.Fprintf(r.out, "%s:%d: %s\n\t%s\n", m.file, m.line, result, m.name)
				mutex.Unlock()
			}
		})
	}
	for i := range r.mutants {
		next <- i
	}
	close(next)
	workers.Wait()
	fmt.Fprintf(r.out, "%d changes: %d caught, %d equal, %d not noticed\n", len(r.mutants), caught, equal, missed)
	if failed == nil && missed > 0 {
		failed = errors.New("the tests have holes")
	}
	return failed
}

// findTests finds the tests that run on the mutants, their dependencies, and their duration.
func (r *run) findTests(by []string) error {
	packages := slices.Clone(by)
	for i := range r.mutants {
		packages = append(packages, "./"+filepath.Dir(r.mutants[i].file))
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	list := exec.Command("go", append([]string{"list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, packages...)...)
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(output)) {
		needs := strings.Fields(line)
		if path, ok := strings.CutSuffix(needs[0], ".test"); ok {
			r.tests = append(r.tests, test{path: path, needs: needs[1:]})
		}
	}
	for i := range r.tests {
		t := &r.tests[i]
		start := time.Now()
		passed, output, err := t.run(10*time.Minute, "-count=1")
		if t.took = time.Since(start); err != nil || !passed {
			return fmt.Errorf("%s without a change: %w\n%s", t.path, cmp.Or(err, errors.New("failed")), output)
		}
	}
	slices.SortFunc(r.tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	return nil
}

// run reports whether the tests pass within atMost.
func (t *test) run(atMost time.Duration, flags ...string) (passed bool, output []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), atMost+time.Minute) // and the time to build
	defer cancel()
	// A change may make a loop endless, which would take all memory.
	arguments := append([]string{"-c", `ulimit -v 8000000; exec go test -short -vet=off -failfast "$@"`, "go", "-timeout=" + atMost.String(), t.path}, flags...)
	command := exec.CommandContext(ctx, "sh", arguments...)
	output, err = command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return false, output, nil // or the change keeps the tests from building
	}
	return err == nil, output, err
}

// try returns the path of the package whose tests notice a mutant, or an empty path if none do.
func (r *run) try(i int, ownOnly bool) (catcher string, err error) {
	m := &r.mutants[i]
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(r.temp, fmt.Sprintf("%d.go", i)), filepath.Join(r.temp, fmt.Sprintf("%d.json", i))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, m.apply(content), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	for _, own := range []bool{true, false} {
		for j := range r.tests {
			t := &r.tests[j]
			if isOwn := strings.HasSuffix("/"+t.path, "/"+filepath.ToSlash(filepath.Dir(m.file))); isOwn != own || !own && (ownOnly || !t.depends(m)) {
				continue
			}
			passed, output, err := t.run(max(30*time.Second, 5*t.took), "-overlay="+overlay)
			switch {
			case err != nil:
				return "", fmt.Errorf("%s: %w\n%s", m.name, err, output)
			case bytes.Contains(output, []byte("panic: test timed out")):
				return t.path + ", which did not end", nil
			case !passed:
				return t.path, nil
			}
		}
	}
	return "", nil
}

// depends reports whether the tests depend on the mutant's package.
func (t *test) depends(m *mutant) bool {
	return slices.ContainsFunc(t.needs, func(path string) bool {
		return strings.HasSuffix("/"+path, "/"+filepath.ToSlash(filepath.Dir(m.file)))
	})
}
