// Command cold measures what a request of the native form takes while other code and data displace it from
// the processor's caches, as Envoy does between its hooks. It needs no Envoy, and is repeated to a few
// hundredths on a machine that has other things to do. Run make native before.
//
// With -lines it counts in Valgrind, by simulated caches that hold a request and not what runs between: the
// lines of caches that a request touches, and of them the missed ones, which the last cache lacks as well.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/bench/page"
)

func main() {
	objects := flag.String("objects", filepath.Join("dist", "native"), "the `folder` of the library's objects")
	requests := flag.Int("requests", 10_000, "requests of each configuration; with -lines 500 are enough")
	code := flag.Int("code", 512<<10, "bytes of other code, and of other data, between two hooks")
	lines := flag.Bool("lines", false, "count instructions and lines of caches, in place of nanoseconds")
	page.Main("cold", func(ctx context.Context) error {
		if *requests < 1 || *code < 0 {
			return errors.New("want at least one request, and no negative size")
		}
		if _, err := exec.LookPath(valgrind[0]); *lines && err != nil {
			return fmt.Errorf("-lines needs Valgrind (apt-get install valgrind): %w", err)
		}
		return measure(ctx, *objects, *requests, *code, *lines)
	})
}

// configurations are measured in this order.
var configurations = []struct {
	name, headers string
	users         int
}{
	{"with headers", ``, 1},
	{"`headers: []`", `"headers": [],`, 1},
	{"`headers: []`, 100,000 keys", `"headers": [],`, 100_000},
}

// measure prints a table of nanoseconds, or of lines.
func measure(ctx context.Context, objects string, requests, code int, lines bool) (err error) {
	dir, err := os.MkdirTemp("", "cold")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := build(ctx, dir, objects, code)
	if err != nil {
		return err
	}
	heads, cells := []string{"nanoseconds", "in all", "request headers", "response headers", "response body", "end"}, nanoseconds
	command := []string{program}
	if counts := filepath.Join(dir, "counts"); lines {
		heads = []string{"of a request", "instructions", "lines of code", "lines of data", "missed lines"}
		command = append(slices.Insert(valgrind, 1, "--callgrind-out-file="+counts), program)
		cells = func(string) ([]string, error) { return counted(counts, requests) }
	}
	fmt.Print(strings.TrimPrefix(page.Head(heads...), "\n"))
	for _, c := range configurations {
		configuration := `{` + c.headers + `"capacity": 200000, "rules": [{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000000, "window": "1m"}]}]}`
		printed, err := run(exec.CommandContext(ctx, command[0], append(command[1:], configuration, fmt.Sprint(requests), fmt.Sprint(c.users))...))
		if err != nil {
			return err
		}
		row, err := cells(printed)
		if err != nil {
			return err
		}
		fmt.Print(page.Row(append([]string{c.name}, row...)...))
	}
	return nil
}

// nanoseconds returns what the program has printed for each hook, and before it their sum.
func nanoseconds(printed string) (cells []string, err error) {
	sum, cells := 0, []string{""}
	for line := range strings.Lines(printed) {
		_, took, _ := strings.Cut(strings.TrimSpace(line), "\t")
		nanos := 0
		if _, err := fmt.Sscan(took, &nanos); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		sum, cells = sum+nanos, append(cells, took)
	}
	cells[0] = fmt.Sprint(sum)
	return cells, nil
}

// valgrind counts in hooks after which other code ran. The first caches hold what a request touches, and the
// last one what runs between requests besides, but not 100,000 keys.
var valgrind = []string{"valgrind", "--tool=callgrind", "--cache-sim=yes", "--I1=65536,8,64", "--D1=65536,8,64", "--LL=2097152,16,64", "--toggle-collect=run_cold"}

// counted returns what Valgrind has counted of a request.
func counted(file string, requests int) (cells []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, totals, found := strings.Cut(string(text), "\ntotals: ")
	// Instructions, reads, writes, and the misses of code, reads and writes by the first caches and by the last.
	// Zeros at the end are left out.
	var n [9]float64
	for i, number := range strings.Fields(totals) {
		if n[i], err = strconv.ParseFloat(number, 64); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New("valgrind has counted nothing")
	}
	for _, sum := range []float64{n[0], n[3], n[4] + n[5], n[6] + n[7] + n[8]} {
		cells = append(cells, fmt.Sprintf("%.1f", sum/float64(requests)))
	}
	return cells, nil
}

// build links the library's objects with the program that asks, and with code that displaces them.
func build(ctx context.Context, dir, objects string, code int) (program string, err error) {
	native, err := filepath.Glob(filepath.Join(objects, "*.o"))
	// Others are for another processor.
	native = slices.DeleteFunc(native, func(file string) bool { return strings.Count(filepath.Base(file), ".") > 1 })
	if err != nil || len(native) == 0 {
		return "", errors.Join(err, errors.New("no objects in "+objects+": run make native first"))
	}
	other := filepath.Join(dir, "displace.c")
	if err := os.WriteFile(other, displacing(code), 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "cold")
	arguments := append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-DNDEBUG", "-O1", "-w", "-I", "native", "-I", filepath.Join("native", "alone"), "-I", objects,
		filepath.Join("native", "alone", "cold.c"), other, "-o", program}, native...)
	_, err = run(exec.CommandContext(ctx, "gcc", append(arguments, "-lpthread")...))
	return program, err
}

func run(c *exec.Cmd) (printed string, err error) {
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(c.Path), err, problems.String())
	}
	return out.String(), nil
}

// displacing returns a C function displace. It runs about size bytes of code, and reads and writes an
// array of the same size. Its branches have no pattern.
func displacing(size int) []byte {
	const functionSize = 86 // of gcc's code, on average
	random := rand.New(rand.NewPCG(1, 1))
	words, n := size/4, size/functionSize
	var c bytes.Buffer
	fmt.Fprintf(&c, "#include <stdint.h>\nstatic uint32_t data[%d];\nstatic volatile uint32_t state = 1;\n", words)
	for i := range n {
		fmt.Fprintf(&c, `__attribute__((noinline)) static uint32_t f%d(uint32_t x) {
  uint32_t y = data[%d] + x;
  if (y & %d) y = y * %du ^ data[%d]; else y += %du;
  if (y >> %d & 1) data[%d] = y;
  if (x > %du) y ^= y >> 7;
  return y;
}
`, i, random.IntN(words), 1<<random.IntN(8), random.Uint32()|1, random.IntN(words), random.Uint32(), random.IntN(20), random.IntN(words), random.Uint32())
	}
	fmt.Fprintln(&c, "void displace(void) {\n  uint32_t x = state;")
	for _, i := range random.Perm(n) {
		fmt.Fprintf(&c, "  x = f%d(x);\n", i)
	}
	fmt.Fprintln(&c, "  state = x;\n}")
	return c.Bytes()
}
