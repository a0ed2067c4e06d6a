// Command cold measures what a request of the native form takes while other code and data displace it from
// the processor's caches, as Envoy does between its hooks. It needs no Envoy, and is repeated to a few
// hundredths on a machine that has other things to do. Run make native before.
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
	"strings"

	"weir/bench/page"
)

func main() {
	objects := flag.String("objects", filepath.Join("dist", "native"), "the `folder` of the library's objects")
	requests := flag.Int("requests", 10_000, "requests of each configuration")
	code := flag.Int("code", 512<<10, "bytes of other code, and of other data, between two hooks")
	page.Main("cold", func(ctx context.Context) error {
		if *requests < 1 || *code < 0 {
			return errors.New("want at least one request, and no negative size")
		}
		return measure(ctx, *objects, *requests, *code)
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

// measure prints a table of nanoseconds.
func measure(ctx context.Context, objects string, requests, code int) (err error) {
	dir, err := os.MkdirTemp("", "cold")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := build(ctx, dir, objects, code)
	if err != nil {
		return err
	}
	fmt.Print(strings.TrimPrefix(page.Head("nanoseconds", "in all", "request headers", "response headers", "response body", "end"), "\n"))
	for _, c := range configurations {
		configuration := `{` + c.headers + `"capacity": 200000, "rules": [{"name": "user", "key": [{"header": "x-user"}], "limits": [{"limit": 1000000, "window": "1m"}]}]}`
		printed, err := run(exec.CommandContext(ctx, program, configuration, fmt.Sprint(requests), fmt.Sprint(c.users)))
		if err != nil {
			return err
		}
		sum, cells := 0, []string{c.name, ""}
		for line := range strings.Lines(printed) {
			_, took, _ := strings.Cut(strings.TrimSpace(line), "\t")
			nanos := 0
			if _, err := fmt.Sscan(took, &nanos); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			sum, cells = sum+nanos, append(cells, took)
		}
		cells[1] = fmt.Sprint(sum)
		fmt.Print(page.Row(cells...))
	}
	return nil
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
