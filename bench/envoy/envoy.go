// Command envoy measures the cost of a request in a real Envoy: its processor time without a
// filter, with the plugin, with filters that do less, and with Envoy's own rate limit filters, all
// in turns. It also measures the cost of Envoy's start with each plugin. It prints tables, and
// updates envoy.json, envoy.svg and its part of README.md in the folder bench.
//
// Run it at the top of the repository, after make build and scripts/test-dependencies bench, on
// Linux with at least two processors. It needs Node to assemble the floor filters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"weir/bench/page"
	"weir/internal/envoytest"
)

// options are the flags of the command line.
type options struct {
	dir, plugin, native, weir, ratelimit string
	envoy                                string
	requests, rounds, processes          int
	connections, rate, streams, workers  int
	only                                 string
	quick, dry                           bool
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "bench", "folder of README.md, envoy.json and envoy.svg, with v8 in it")
	flag.StringVar(&o.plugin, "plugin", filepath.Join("dist", "weir.wasm"), "the plugin's `file`")
	flag.StringVar(&o.native, "native", filepath.Join("dist", "libweir.so"), "the `file` of the plugin ahead of time")
	flag.StringVar(&o.weir, "weir", filepath.Join("dist", "weir"), "the command's `file`")
	flag.StringVar(&o.ratelimit, "ratelimit", filepath.Join("dist", "ratelimit", "service_cmd"), "the `file` of Envoy's rate limit service")
	flag.StringVar(&o.envoy, "envoy", "", "the `version` of the Envoy; the newest that is there if empty")
	flag.IntVar(&o.requests, "requests", 4000, "how many requests are measured at a time")
	flag.IntVar(&o.rounds, "rounds", 7, "how often each process is measured")
	flag.IntVar(&o.processes, "processes", 6, "how many processes of each variant are measured, one after the other")
	flag.IntVar(&o.connections, "connections", 16, "how many connections have a request at the same time")
	flag.IntVar(&o.rate, "rate", 5000, "how many requests a second are sent where latencies are measured")
	flag.IntVar(&o.streams, "streams", 1000, "how many streams are open where their memory is measured")
	flag.IntVar(&o.workers, "workers", 1, "how many worker threads each Envoy has; with more than one it shares its processors with what asks it")
	flag.StringVar(&o.only, "only", "", "measure only the variants whose `names` match this regular expression and what they are compared with, and write nothing")
	flag.BoolVar(&o.quick, "quick", false, "measure so little that the figures say nothing, and write nothing")
	flag.BoolVar(&o.dry, "dry", false, "write nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "envoy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.quick {
		o.requests, o.rounds, o.processes = 200, 1, 1
	}
	if o.requests < o.connections || o.rounds < 1 || o.processes < 1 || o.connections < 1 || o.rate < 1 || o.streams < 1 || o.workers < 1 {
		return errors.New("want -rounds, -processes, -connections, -rate, -streams and -workers of 1 or more, and a request for each of -connections")
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	all, err := measure(ctx, o, chosen)
	if err != nil {
		return err
	}
	fmt.Print(all)
	if o.dry || o.quick || o.only != "" {
		return nil
	}
	return all.keep(o.dir)
}

// keep writes the figures.
func (f *figures) keep(dir string) error {
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	if files["README.md"], err = page.Between(readme, figuresBegin, figuresEnd, f.String()); err != nil {
		return err
	}
	if files["envoy.json"], err = f.json(); err != nil {
		return err
	}
	if files["envoy.svg"], err = f.plot(); err != nil {
		return err
	}
	return page.Keep(dir, files, false, "")
}

// choose returns the variants whose names match a regular expression, and their bases.
func choose(only string) ([]*variant, error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	wanted := map[string]bool{}
	for _, v := range variants {
		if pattern.MatchString(v.name) {
			wanted[v.name], wanted[v.base] = true, true
		}
	}
	var chosen []*variant
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
		if wanted[v.name] {
			chosen = append(chosen, v)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only: want one of %s, got %.40q", strings.Join(names, ", "), only)
	}
	return chosen, nil
}

// binary returns the Envoy of a version; the newest if version is empty.
func binary(version string) (envoytest.Binary, error) {
	all, err := envoytest.Binaries()
	if err != nil {
		return envoytest.Binary{}, err
	}
	var versions []string
	for _, b := range all {
		if version == "" || b.Version == version {
			return b, nil
		}
		versions = append(versions, b.Version)
	}
	return envoytest.Binary{}, fmt.Errorf("-envoy: want one of %s, got %.40q", strings.Join(versions, ", "), version)
}

func say(format string, args ...any) {
	fmt.Fprintln(os.Stderr, strings.TrimSpace(fmt.Sprintf(format, args...)))
}
