package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"weir/bench/page"
)

// benchmarks are those that have a floor beside them, or something else to be compared with, by
// package.
var benchmarks = []struct{ pkg, pattern string }{
	{"window", "^BenchmarkState$"},
	{"filter", "^Benchmark(Table|HotKey|Capacity|Match)$"},
	{"ratelimit", "^BenchmarkHotKey$"},
	{"config", "^BenchmarkDocument$"},
	{"internal/wire", "^BenchmarkMessages$"},
}

// ratios are what benchmarks have compared themselves, by their unit for it.
var ratios = []struct{ of, unit, title string }{
	{"filter.HotKey", "8-workers/1", "one key: decisions a second of 8 workers, as a share of one worker's"},
	{"filter.HotKey", "floor-8-workers/1", "the same of workers that get and set, and decide nothing"},
	{"ratelimit.HotKey", "8-goroutines/1", "one key of the Go library: decisions a second of 8 goroutines, as a share of one's"},
	{"filter.Table/512_keys", "90%/10%", "get, decide, set of 512 keys: time at 90 % of the capacity, in times of that at 10 %"},
	{"filter.Table/4096_keys", "90%/10%", "the same of 4,096 keys, whose pages don't stay in a processor's own cache at 90 %"},
	{"filter.Table/512_keys", "floors-at-10%", "get, decide, set of 512 keys at 10 % of the capacity, in times of a get and a set"},
	{"filter.Table/512_keys", "floors-at-90%", "the same at 90 %"},
}

// packageFigures are of Go benchmarks.
type packageFigures struct {
	// Pairs are benchmarks with their floors.
	Pairs []pairFigures `json:"pairs"`
	// Comparisons are what benchmarks have compared themselves.
	Comparisons []comparisonFigures `json:"comparisons"`
	// Metrics are what benchmarks report beside their time: medians, by benchmark and unit.
	Metrics map[string]map[string]float64 `json:"metrics"`
}

type pairFigures struct {
	Name       string      `json:"name"`
	Ratio      page.Spread `json:"ratio"`
	Nanos      float64     `json:"ns"`
	FloorNanos float64     `json:"floor_ns"`
	// Allocations are those of one operation.
	Allocations *float64 `json:"allocations,omitempty"`
}

type comparisonFigures struct {
	Title string      `json:"title"`
	Ratio page.Spread `json:"ratio"`
}

// results are what benchmarks have reported, a value for each round, by name and unit.
type results map[string]map[string][]float64

// measurePackages runs the benchmarks, all of them in each round.
func measurePackages(ctx context.Context, o *options) (*packageFigures, error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is the system's to tidy up what stays
	for _, b := range benchmarks {
		say("compiling the benchmarks of %s", b.pkg)
		command := exec.CommandContext(ctx, "go", "test", "-c", "-o", filepath.Join(dir, path.Base(b.pkg)), "./"+b.pkg)
		if output, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go test -c ./%s: %w\n%s", b.pkg, err, output)
		}
	}
	all := results{}
	for round := range o.rounds {
		say("packages, round %d of %d", round+1, o.rounds)
		for _, b := range benchmarks {
			command := exec.CommandContext(ctx, filepath.Join(dir, path.Base(b.pkg)), "-test.run", "^$", "-test.bench", b.pattern,
				"-test.benchtime", o.benchTime.String())
			command.Dir = b.pkg
			output, err := command.CombinedOutput()
			if err != nil {
				return nil, fmt.Errorf("benchmarks of %s: %w\n%s", b.pkg, err, output)
			}
			if err := all.add(path.Base(b.pkg), string(output), runtime.GOMAXPROCS(0)); err != nil {
				return nil, err
			}
		}
	}
	return all.figures()
}

// add takes the lines of benchmarks from what a test binary has printed. Their names end with the
// number of processors, if there are several.
func (r results) add(pkg, output string, processors int) error {
	found := false
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		found = true
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if processors > 1 {
			name = strings.TrimSuffix(name, "-"+strconv.Itoa(processors))
		}
		name = pkg + "." + name
		if r[name] == nil {
			r[name] = map[string][]float64{}
		}
		for value := range slices.Chunk(fields[2:], 2) {
			n, err := strconv.ParseFloat(value[0], 64)
			if err != nil || len(value) != 2 {
				return fmt.Errorf("want values with units, got %.200q", line)
			}
			r[name][value[1]] = append(r[name][value[1]], n)
		}
	}
	if !found {
		return fmt.Errorf("%s has none of the benchmarks that are to be measured", pkg)
	}
	return nil
}

const (
	nanosUnit      = "ns/op"
	allocationUnit = "allocs/op"
)

// floorOf is the name of a benchmark's floor: "floor of X" beside X, else "floor" beside all.
func (r results) floorOf(name string) (floor string, ok bool) {
	parent, own, _ := strings.Cut(name, "/")
	for _, floor := range []string{parent + "/floor_of_" + own, parent + "/floor"} {
		if _, ok := r[floor]; ok && floor != name {
			return floor, !strings.HasPrefix(own, "floor")
		}
	}
	return "", false
}

// compared reports whether a metric is one of the ratios.
func compared(name, unit string) bool {
	for _, c := range ratios {
		if c.of == name && c.unit == unit {
			return true
		}
	}
	return false
}

func (r results) figures() (*packageFigures, error) {
	f := &packageFigures{Metrics: map[string]map[string]float64{}}
	names := make([]string, 0, len(r))
	for name := range r {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for unit, values := range r[name] {
			switch unit {
			case nanosUnit, allocationUnit, "B/op":
				continue
			}
			if compared(name, unit) {
				continue
			}
			if f.Metrics[name] == nil {
				f.Metrics[name] = map[string]float64{}
			}
			f.Metrics[name][unit] = page.Median(values)
		}
		floor, ok := r.floorOf(name)
		if !ok {
			continue
		}
		own, least := r[name][nanosUnit], r[floor][nanosUnit]
		if len(own) != len(least) {
			return nil, fmt.Errorf("%s has %d rounds, and its floor %d", name, len(own), len(least))
		}
		p := pairFigures{Name: name, Ratio: ratio(own, least), Nanos: page.Median(own), FloorNanos: page.Median(least)}
		if allocations := r[name][allocationUnit]; len(allocations) > 0 {
			n := page.Median(allocations)
			p.Allocations = &n
		}
		f.Pairs = append(f.Pairs, p)
	}
	for _, c := range ratios {
		values := r[c.of][c.unit]
		if len(values) == 0 {
			return nil, fmt.Errorf("%s reports no %s", c.of, c.unit)
		}
		f.Comparisons = append(f.Comparisons, comparisonFigures{Title: c.title, Ratio: page.SpreadOf(values)})
	}
	return f, nil
}
