package main

import (
	"errors"
	"fmt"

	"weir/bench/page"
	"weir/internal/sim"
	"weir/window"
)

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
