// Command envoy measures the cost of a request in a real Envoy: its processor time without a filter, with the plugin, with
// filters that do less, and with Envoy's own rate limit filters, all in turns. It also measures the cost of Envoy's start
// with each plugin. It prints tables, and updates its part of README.md in the folder bench.
//
// Run it at the top of the repository, after make build and scripts/test-dependencies bench, on Linux with at least two
// processors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/envoytest"
)

// options are the flags of the command line.
type options struct {
	site.Options
	envoy                       string
	requests, rounds, processes int
	connections, rate, workers  int
	only                        string
	quick                       bool
}

func main() {
	o := options{Options: site.Options{Dir: "bench", Weir: filepath.Join("dist", "weir"), RateLimit: filepath.Join("dist", "ratelimit", "service_cmd")}}
	flag.StringVar(&o.Plugin, "plugin", filepath.Join("dist", "weir.wasm"), "the plugin's `file`")
	flag.StringVar(&o.Native, "native", filepath.Join("dist", "libweir.so"), "the `file` of the plugin ahead of time")
	flag.StringVar(&o.envoy, "envoy", "", "the `version` of the Envoy; the newest that is there if empty")
	flag.IntVar(&o.requests, "requests", 4000, "how many requests are measured at a time")
	flag.IntVar(&o.rounds, "rounds", 7, "how often each process is measured")
	flag.IntVar(&o.processes, "processes", 6, "how many processes of each variant are measured, one after the other")
	flag.IntVar(&o.connections, "connections", 16, "how many connections have a request at the same time")
	flag.IntVar(&o.rate, "rate", 5000, "how many requests a second are sent where latencies are measured")
	flag.IntVar(&o.workers, "workers", 1, "how many worker threads each Envoy has; with more than one it shares its processors with what asks it")
	flag.StringVar(&o.only, "only", "", "measure only the variants whose `names` match this regular expression and what they are compared with, and write nothing")
	flag.BoolVar(&o.quick, "quick", false, "measure so little that the figures say nothing, and write nothing")
	page.Main("envoy", func(ctx context.Context) error { return run(ctx, &o) })
}

func run(ctx context.Context, o *options) error {
	if o.quick {
		o.requests, o.rounds, o.processes = 200, 1, 1
	}
	if min(o.rounds, o.processes, o.connections, o.rate, o.workers) < 1 || o.requests < o.connections {
		return errors.New("want -rounds, -processes, -connections, -rate and -workers of 1 or more, and a request for each of -connections")
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	return page.Hosted(func(t testing.TB) error {
		f, err := measure(ctx, t, o, chosen)
		if err != nil {
			return err
		}
		fmt.Print(f)
		if o.quick || o.only != "" {
			return nil
		}
		return page.Keep(filepath.Join(o.Dir, "README.md"), map[string]string{"envoy": f.String()})
	})
}

// choose returns the variants whose names match a regular expression, and their bases.
func choose(only string) (chosen []*variant, err error) {
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
	}
	matching, err := page.Matching(only, names)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, v := range variants {
		if matching[v.name] {
			wanted[v.name], wanted[v.base] = true, true
		}
	}
	for _, v := range variants {
		if wanted[v.name] {
			chosen = append(chosen, v)
		}
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

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
