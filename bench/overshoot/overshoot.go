// Command overshoot measures how much of a limit many nodes admit together. It runs the plugin's own engine on simulated
// nodes, and the backend's own code behind a simulated network, under a virtual clock. For comparison it runs periodic
// synchronisation as others do it, and a single limiter that sees every request. It prints tables, and updates README.md
// and the tests' tables in its folder. With -check it writes nothing, and fails if they are out of date.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"weir/bench/page"
	"weir/internal/sim"
)

const (
	millisecond = sim.Millisecond
	second      = sim.Second
	minute      = sim.Minute
	monday      = sim.Monday
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if what is in the folder is out of date")
	only := flag.String("only", "", "print the trials whose names match a regular expression, such as ^token_bucket/5s/.*/steady, and write nothing")
	page.Main("overshoot", func(context.Context) error {
		if *only != "" {
			return matching(*only)
		}
		return run(*check)
	})
}

// quickTables is the file with the tables of the quick grid.
const quickTables = "testdata/quick.txt"

// everything matches all trials.
var everything = regexp.MustCompile("")

// matching prints the trials whose names match.
func matching(only string) error {
	names, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	trials, rows := slices.Concat(full().trials(names), others().trials(names), harder().trials(names)), refusalRows(names)
	if len(trials)+len(rows) == 0 {
		return errors.New("no trial has such a name")
	}
	if len(trials) > 0 {
		text, err := tables(trials)
		if fmt.Print(text); err != nil {
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
	return summary(all) + each(all), nil
}

func run(check bool) error {
	grid, err := measure(full().trials(everything))
	extras, errExtras := measure(others().trials(everything))
	conditions, errConditions := measure(harder().trials(everything))
	refusals, errRefusals := refusalTable(refusalRows(everything))
	fast, errFast := tables(quick().trials(everything))
	if err := errors.Join(err, errExtras, errConditions, errRefusals, errFast); err != nil {
		return err
	}
	blocks := []string{summary(grid), groups(grid), grouped("by algorithm and load", extras, byLoad),
		grouped("by algorithm, condition", append(alike(grid), conditions...), byCondition), refusals}
	for _, block := range blocks {
		fmt.Println(block)
	}
	return page.Keep(filepath.Join("bench", "overshoot"), check, map[string]string{quickTables: fast}, blocks...)
}

// alike returns the trials that differ from the harder trials only by their condition.
func alike(trials []results) (alike []results) {
	g := harder()
	g.conditions = []condition{good}
	for _, t := range g.trials(everything) {
		for i := range trials {
			if trials[i].name() == t.name() {
				alike = append(alike, trials[i])
			}
		}
	}
	return alike
}
