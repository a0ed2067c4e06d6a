// Command native measures what does not run on V8: the Go benchmarks of the plugin's packages,
// whole streams of the compiled plugin on wazero, and requests through weir run. Each is measured
// in turns with its floor, the least that could be done in its place. It prints tables, and keeps
// native.json, native.svg and its part of README.md, in the folder bench, up to date.
//
// It is run at the top of the repository, after make build, and needs Node for the assembler of the
// floor filters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"weir/bench/floor"
	"weir/bench/page"
)

// options are the command line's.
type options struct {
	dir, plugin, weir string
	rounds            int
	benchTime         time.Duration
	block             time.Duration
	clients           int
	only              string
	dry               bool
}

// parts are what -only names.
const (
	partPackages = "packages"
	partWazero   = "wazero"
	partProxy    = "proxy"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "bench", "folder of README.md, native.json and native.svg, with v8 in it")
	flag.StringVar(&o.plugin, "plugin", filepath.Join("dist", "weir.wasm"), "the plugin's `file`")
	flag.StringVar(&o.weir, "weir", filepath.Join("dist", "weir"), "the command's `file`")
	flag.IntVar(&o.rounds, "rounds", 11, "how often everything is measured")
	flag.DurationVar(&o.benchTime, "benchtime", 100*time.Millisecond, "how long a Go benchmark runs in a round")
	flag.DurationVar(&o.block, "block", 500*time.Millisecond, "how long a proxy is asked in a round")
	flag.IntVar(&o.clients, "clients", 8, "how many clients ask a proxy at the same time")
	flag.StringVar(&o.only, "only", "", "measure only `packages, wazero or proxy`, and write nothing")
	flag.BoolVar(&o.dry, "dry", false, "write nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.check()
	if err == nil {
		err = run(ctx, &o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "native:", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	if o.rounds < 1 || o.clients < 1 || o.benchTime <= 0 || o.block <= 0 {
		return errors.New("want at least one of -rounds and -clients, and -benchtime and -block above 0")
	}
	switch o.only {
	case "", partPackages, partWazero, partProxy:
		return nil
	}
	return fmt.Errorf("-only: want %s, %s or %s, got %.40q", partPackages, partWazero, partProxy, o.only)
}

func (o *options) wants(part string) bool { return o.only == "" || o.only == part }

func run(ctx context.Context, o *options) (err error) {
	all := figures{Machine: machine{Go: runtime.Version(), OS: runtime.GOOS, Architecture: runtime.GOARCH, CPUs: runtime.NumCPU()}, Rounds: o.rounds}
	var filters *floor.Filters
	if o.wants(partWazero) || o.wants(partProxy) {
		// First, as it is what may be missing.
		if filters, err = floor.Export(ctx, o.dir, o.plugin, wazeroScenarios...); err != nil {
			return err
		}
	}
	if o.wants(partPackages) {
		if all.Packages, err = measurePackages(ctx, o); err != nil {
			return err
		}
	}
	if o.wants(partWazero) {
		if all.Wazero, err = measureWazero(ctx, o, filters); err != nil {
			return fmt.Errorf("wazero: %w", err)
		}
	}
	if o.wants(partProxy) {
		if all.Proxy, err = measureProxy(ctx, o, filters.Nothing); err != nil {
			return fmt.Errorf("weir run: %w", err)
		}
	}
	fmt.Print(&all)
	if o.dry || o.only != "" {
		return nil
	}
	readme, err := os.ReadFile(filepath.Join(o.dir, "README.md"))
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	if files["README.md"], err = page.Between(readme, "<!-- figures of native -->", "<!-- end of native figures -->", all.String()); err != nil {
		return err
	}
	if files["native.json"], err = all.json(); err != nil {
		return err
	}
	if files["native.svg"], err = all.plot(); err != nil {
		return err
	}
	return page.Keep(o.dir, files, false, "")
}

func say(format string, args ...any) {
	fmt.Fprintln(os.Stderr, strings.TrimSpace(fmt.Sprintf(format, args...)))
}
