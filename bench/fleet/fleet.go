// Command fleet measures what a fleet of 10 to 10,000 proxies costs its clients and its backend: how many requests wait and
// for how long, how many are refused falsely or pass above a limit, and how many pushes and bytes the backend gets. It runs
// the plugin's own engine on simulated nodes, and the backend's own store behind a simulated network, under a virtual
// clock. It prints tables, and updates README.md in its folder.
//
// TestReal measures real nodes against a real weir serve.
package main

import (
	"context"
	"errors"
	"fmt"

	"weir/bench/page"
	"weir/internal/sim"
	"weir/window"
)

func main() {
	page.Main("fleet", run)
}

func run(context.Context) error {
	busy, errBusy := busyTable(fleets())
	idle, errIdle := idleTable(idleFleets())
	small, errSmall := tables(smallFleets(), smallIdle())
	if err := errors.Join(errBusy, errIdle, errSmall); err != nil {
		return err
	}
	fmt.Print(busy, idle)
	return page.KeepStudy("fleet", small, map[string]string{"busy": busy, "idle": idle})
}

func tables(busy []fleet, idle []idleFleet) (string, error) {
	first, errFirst := busyTable(busy)
	second, errSecond := idleTable(idle)
	return first + second, errors.Join(errFirst, errSecond)
}

// usual returns the fleet from which others differ in a few things: its limits are far from nearly
// all keys.
func usual() fleet {
	return fleet{
		nodes: 300, perNode: 10, keys: 20_000, skew: 1.2, limit: 100_000, width: 60 * sim.Minute, rate: sim.Second, network: sim.Near,
		warm: 20 * sim.Second, span: 10 * sim.Second,
	}
}

// fleets returns the rows of the table.
func fleets() (all []fleet) {
	add := func(change func(f *fleet)) {
		f := usual()
		change(&f)
		all = append(all, f)
	}
	// A few proxies and many users.
	for _, nodes := range []int{1, 3} {
		add(func(f *fleet) {
			f.nodes, f.perNode, f.keys, f.skew, f.limit, f.width = nodes, 1000, 100_000, 0, 1000, sim.Minute
		})
	}
	for _, nodes := range []int{10, 100, 300, 1000, 3000} {
		add(func(f *fleet) { f.nodes = nodes })
	}
	add(func(f *fleet) { f.nodes, f.perNode = 10_000, 1 })
	for _, keys := range []int{100, 1_000_000} {
		add(func(f *fleet) { f.keys = keys })
	}
	add(func(f *fleet) { f.skew = 0 })
	// The hottest keys have more requests than these limits. The end of the minute is measured.
	for _, limit := range []uint64{100, 1000, 10_000} {
		for _, nodes := range []int{30, 300} {
			add(func(f *fleet) { f.nodes, f.limit, f.width, f.span = nodes, limit, sim.Minute, 45*sim.Second })
		}
	}
	add(func(f *fleet) { f.network = sim.Network{Trip: 75 * sim.Millisecond} })
	return all
}

// smallFleets returns a part of the rows that takes a second or two.
func smallFleets() (all []fleet) {
	for _, nodes := range []int{10, 50} {
		f := usual()
		f.nodes, f.keys = nodes, 2000
		all = append(all, f)
		f.limit, f.width = 1000, 25*sim.Second
		all = append(all, f)
	}
	return all
}

// idleFleet is nodes without requests.
type idleFleet struct {
	nodes, workers int
	rate           int64
}

// Idle nodes are measured for idleSpan, after idleWarm.
const idleSpan, idleWarm = 2 * sim.Minute, sim.Minute

func idleFleets() (all []idleFleet) {
	for _, nodes := range []int{10, 1000} {
		all = append(all, idleFleet{nodes, 1, sim.Second})
	}
	return append(all, idleFleet{100, 8, sim.Second}, idleFleet{100, 2, sim.Second / 5}, idleFleet{100, 2, 5 * sim.Second})
}

func smallIdle() []idleFleet { return []idleFleet{{10, 2, sim.Second}} }

func (f *idleFleet) measure() (load sim.Load, err error) {
	w, err := sim.New(sim.Options{
		Overrides: true, Seed: seed, Places: f.nodes, Workers: f.workers, Network: sim.Near, Capacity: 1024, SyncRate: f.rate,
		Limit: window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: sim.Minute}, Max: 1000},
	})
	if err != nil {
		return load, err
	}
	w.Advance(sim.Monday + idleWarm)
	before := w.Backend.Load
	w.Advance(sim.Monday + idleWarm + idleSpan)
	return w.Backend.Minus(before), errors.Join(w.Failure(), w.NobodyWaits())
}

func idleTable(fleets []idleFleet) (string, error) {
	rows := []string{"idle nodes\tworkers\tsync_rate\tpushes a second\tof each node\tbytes up a push\tdown"}
	for i := range fleets {
		f := &fleets[i]
		load, err := f.measure()
		if err != nil {
			return "", fmt.Errorf("%d idle nodes: %w", f.nodes, err)
		}
		second := float64(load.Pushes) * float64(sim.Second) / float64(idleSpan)
		each := float64(max(load.Pushes, 1))
		rows = append(rows, fmt.Sprintf("%d\t%d\t%.1f\t%.1f\t%.3f\t%.0f\t%.0f", f.nodes, f.workers, float64(f.rate)/float64(sim.Second), second,
			second/float64(f.nodes), float64(load.BodyBytes)/each, float64(load.AnswerBytes)/each))
	}
	return page.Table(rows...), nil
}
