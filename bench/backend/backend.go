// Command backend measures how many hits a second the counter backend takes with each store,
// through its HTTP handler. In the same run it alternates with the store's own benchmark on the
// same server. It prints tables, and updates README.md and figures.json in its folder. It starts
// the servers on free ports.
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
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"weir/bench/page"
)

// options are the flags of the command line.
type options struct {
	dir     string
	rounds  int
	block   time.Duration
	senders int
	only    *regexp.Regexp
	profile string
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", filepath.Join("bench", "backend"), "folder of README.md and figures.json")
	flag.IntVar(&o.rounds, "rounds", 5, "how often everything is measured")
	flag.DurationVar(&o.block, "block", time.Second, "how long something is measured at a time")
	flag.IntVar(&o.senders, "senders", 8, "senders, and clients of the stores' benchmarks, at the same time")
	only := flag.String("only", "", "measure what matches a regular expression, such as ^Redis/100 items, and write nothing")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of this process, senders and handler, to a file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		err = fmt.Errorf("-only: %w", err)
	} else if err = o.check(); err == nil {
		err = run(ctx, &o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
}

func (o *options) check() error {
	if o.rounds < 1 || o.senders < 1 || o.block <= 0 {
		return errors.New("want at least one of -rounds and -senders, and a -block above 0")
	}
	return nil
}

func run(ctx context.Context, o *options) (err error) {
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	all := newFigures(o)
	for _, s := range stores {
		if !s.wanted(o.only) {
			continue
		}
		// Only servers that are measured must be installed.
		err := hosted(func(t testing.TB) error {
			found, err := s.measure(ctx, t, o)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			all.Stores = append(all.Stores, *found)
			fmt.Println(found)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if o.only.String() != "" {
		return nil
	}
	readme, err := os.ReadFile(filepath.Join(o.dir, "README.md"))
	if err != nil {
		return err
	}
	files := make(map[string][]byte)
	if files["README.md"], err = page.WithTables(readme, all.String()); err != nil {
		return err
	}
	if files["figures.json"], err = all.json(); err != nil {
		return err
	}
	return page.Keep(o.dir, files, false, "go run ./bench/backend")
}
