// Command overshoot measures how much of a limit many nodes admit together. It runs the plugin's
// own engine on simulated nodes, and the backend's own code behind a simulated network, under a
// virtual clock. For comparison it runs periodic synchronisation as others do it, a fixed share for
// each node, and a single limiter that sees every request. It prints tables, and updates README.md,
// the plots and the tests' tables in its folder. With -check it writes nothing, and fails if they
// are out of date.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"weir/bench/page"
	"weir/bench/sim"
)

const (
	millisecond = sim.Millisecond
	second      = sim.Second
	minute      = sim.Minute
	monday      = sim.Monday
)

func main() {
	dir := flag.String("dir", filepath.Join("bench", "overshoot"), "folder of README.md and the plots")
	check := flag.Bool("check", false, "write nothing; fail if what is in the folder is out of date")
	few := flag.Bool("quick", false, "print the tables of a part of the grid, and write nothing")
	only := flag.String("only", "", "print the trials whose names match a regular expression, such as ^token_bucket/5s/.*/steady, and write nothing")
	flag.Parse()
	if err := run(*dir, *check, *few, *only); err != nil {
		fmt.Fprintln(os.Stderr, "overshoot:", err)
		os.Exit(1)
	}
}

// quickTables is the file with the tables of the quick grid.
const quickTables = "testdata/quick.txt"

func run(dir string, check, few bool, only string) error {
	all, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if few || only != "" {
		trials := quick().trials(all)
		if !few {
			trials = append(append(full().trials(all), others().trials(all)...), harder().trials(all)...)
		}
		rows := refusalRows(all)
		if few {
			rows = nil
		}
		return printed(trials, rows)
	}
	grid, err := measure(full().trials(all))
	if err != nil {
		return err
	}
	extras, err := measure(others().trials(all))
	if err != nil {
		return err
	}
	conditions, err := measure(harder().trials(all))
	if err != nil {
		return err
	}
	cost, err := measureDemand(costs())
	if err != nil {
		return err
	}
	provision, err := measureDemand(thousand())
	if err != nil {
		return err
	}
	refusals, err := refusalTable(refusalRows(all))
	if err != nil {
		return err
	}
	blocks := []string{summary(grid), groups(grid), byOne("by algorithm and load", extras, byLoad),
		byOne("by algorithm, condition", append(alike(grid), conditions...), byCondition), costTable(cost), provisionTable(provision), refusals}
	for _, block := range blocks {
		fmt.Println(block)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	files, err := plots(grid)
	if err != nil {
		return err
	}
	if files["README.md"], err = page.WithTables(readme, blocks...); err != nil {
		return err
	}
	if files["provision.svg"], err = provisionPlot(provision); err != nil {
		return fmt.Errorf("plot provision: %w", err)
	}
	fast, err := tables(quick().trials(all))
	if err != nil {
		return err
	}
	files[quickTables] = []byte(fast)
	return page.Keep(dir, files, check, "go run ./bench/overshoot")
}

// alike returns the trials that differ from the harder trials only by their condition.
func alike(trials []results) (alike []results) {
	g := harder()
	g.conditions = []condition{good}
	for _, t := range g.trials(regexp.MustCompile("")) {
		for i := range trials {
			if trials[i].name() == t.name() {
				alike = append(alike, trials[i])
			}
		}
	}
	return alike
}

// printed prints the tables of some trials.
func printed(trials []trial, rows []refusalRow) error {
	if len(trials)+len(rows) == 0 {
		return errors.New("no trial has such a name")
	}
	if len(trials) > 0 {
		text, err := tables(trials)
		fmt.Print(text)
		if err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		return nil
	}
	text, err := refusalTable(rows)
	fmt.Print(text)
	return err
}

// tables returns the summary of trials, and the figures of each.
func tables(trials []trial) (string, error) {
	all, err := measure(trials)
	if err != nil {
		return "", err
	}
	return summary(all) + "\n" + each(all), nil
}
