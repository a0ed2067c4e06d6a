// Command overshoot measures how much of a limit many nodes admit together. It runs the plugin's own engine on simulated
// nodes, and the backend's own code behind a simulated network, under a virtual clock. For comparison it runs periodic
// synchronisation as others do it, and a single limiter that sees every request. It prints tables, and updates README.md
// and the tests' tables in its folder.
package main

import (
	"context"
	"errors"
	"fmt"

	"weir/bench/page"
	"weir/internal/sim"
)

const (
	millisecond = sim.Millisecond
	second      = sim.Second
	minute      = sim.Minute
	monday      = sim.Monday
)

func main() { page.Main("overshoot", run) }

// tables returns the summary of trials, and the figures of each.
func tables(trials []trial) (string, error) {
	all, err := measure(trials)
	if err != nil {
		return "", err
	}
	return summary(all) + each(all), nil
}

func run(context.Context) error {
	grid, err := measure(full().trials())
	extras, errExtras := measure(others().trials())
	conditions, errConditions := measure(harder().trials())
	refusals, errRefusals := refusalTable(refusalRows())
	fast, errFast := tables(quick().trials())
	if err := errors.Join(err, errExtras, errConditions, errRefusals, errFast); err != nil {
		return err
	}
	blocks := map[string]string{
		"all": summary(grid), "groups": groups(grid), "others": grouped("by algorithm and load", extras, byLoad),
		"conditions": grouped("by algorithm, condition", append(alike(grid), conditions...), byCondition), "refusals": refusals,
	}
	for _, name := range []string{"all", "groups", "others", "conditions", "refusals"} {
		fmt.Println(blocks[name])
	}
	return page.KeepStudy("overshoot", fast, blocks)
}

// alike returns the trials that differ from the harder trials only by their condition.
func alike(trials []results) (alike []results) {
	g := harder()
	g.conditions = []condition{good}
	for _, t := range g.trials() {
		for i := range trials {
			if trials[i].name() == t.name() {
				alike = append(alike, trials[i])
			}
		}
	}
	return alike
}
