// Command backend measures how many hits a second the counter backend takes with each store, through its HTTP handler. It
// prints tables, and updates README.md in its folder. It starts the servers on free ports.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"weir/bench/page"
)

// options are the flags of the command line.
type options struct {
	rounds  int
	block   time.Duration
	senders int
	only    *regexp.Regexp
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often everything is measured")
	flag.DurationVar(&o.block, "block", time.Second, "how long something is measured at a time")
	flag.IntVar(&o.senders, "senders", 8, "senders at the same time")
	only := flag.String("only", "", "measure what matches a regular expression, such as ^Redis/100 items, and write nothing")
	page.Main("backend", func(ctx context.Context) (err error) {
		if o.only, err = regexp.Compile(*only); err != nil {
			return fmt.Errorf("-only: %w", err)
		}
		return run(ctx, &o)
	})
}

func run(ctx context.Context, o *options) error {
	if o.rounds < 1 || o.senders < 1 || o.block <= 0 {
		return errors.New("want at least one of -rounds and -senders, and a -block above 0")
	}
	all := fmt.Sprintf("%d senders, %d counters, %d rounds of %gs; %d processors, %s\n", o.senders, counters, o.rounds, o.block.Seconds(), runtime.NumCPU(), runtime.Version())
	for _, k := range stores {
		if !k.wanted(o.only) {
			continue
		}
		// Only servers that are measured must be installed.
		err := page.Hosted(func(t testing.TB) error {
			s, err := k.measure(ctx, t, o)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			all += "\n" + s.String()
			fmt.Println(s)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if o.only.String() != "" {
		return nil
	}
	return page.Keep(filepath.Join("bench", "backend"), false, nil, all)
}
