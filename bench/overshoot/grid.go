// Command overshoot measures how much of a limit many nodes admit together. It runs the plugin's own engine on simulated
// nodes, and the backend's own code behind a simulated network, under a virtual clock. For comparison it runs periodic
// synchronisation as others do it, and a single limiter that sees every request. It prints tables, and updates README.md
// and the tests' tables in its folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"weir/bench/page"
	"weir/internal/sim"
	"weir/window"
)

const (
	nodes   = 10
	workers = 2
)

// algorithm is the algorithm of a trial, and its limit.
type algorithm struct {
	name string
	of   window.Limit // without the window
	// buckets is the number of parts of the window.
	buckets int64
}

// algorithms are the algorithms of the grid. extra are tried with a smaller limit in addition.
var (
	algorithms = []algorithm{
		{name: "sliding_window", of: window.Limit{Shape: window.Shape{Kind: window.SlidingWindow}, Max: 1000}},
		{name: "fixed_window", of: window.Limit{Shape: window.Shape{Kind: window.FixedWindow}, Max: 1000}},
		{name: "token_bucket", of: window.Limit{Shape: window.Shape{Kind: window.TokenBucket}, Max: 1000, Burst: 1000}},
	}
	extra = []algorithm{
		{name: "sub_buckets", of: window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets}, Max: 100}, buckets: 10},
		{name: "sliding_log", of: window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Precision: window.LogPrecision}, Max: 100}},
		{name: "first_hit", of: window.Limit{Shape: window.Shape{Kind: window.FirstHitWindow}, Max: 100}},
	}
)

// trial is a cell of the grid.
type trial struct {
	algorithm algorithm
	traffic   traffic
	width     int64
	rate      int64 // sync_rate
	// load is the offered traffic as a multiple of the limit.
	load float64
	// changing means that nodes come and go.
	changing  bool
	condition condition
	seed      uint64
}

// condition is the state of the network and of the clocks.
type condition struct {
	name    string
	network sim.Network
	// clocksOff bounds the difference of a node's clock from the backend's, in both directions.
	clocksOff int64
}

// good is the condition of the grid: a round trip within a zone takes 2 to 4 ms, and nothing is
// lost. The hard conditions are tried in addition.
var (
	good = condition{network: sim.Near}
	hard = []condition{
		{name: "far", network: sim.Network{Trip: 25 * millisecond, Jitter: 5 * millisecond}},
		{name: "lossy", network: sim.Network{Trip: sim.Near.Trip, Jitter: sim.Near.Jitter, LostBefore: 0.05, LostAfter: 0.05}},
		{name: "clocks off", network: sim.Near, clocksOff: 50 * millisecond},
	}
)

const (
	// warmUp is how many windows pass before the measurement.
	warmUp = 2
	// cycle is the number of windows after which the membership changes repeat.
	cycle = 6
)

// windows returns how many windows are measured: more if they are short.
func (t *trial) windows() int64 { return max(cycle, min(2*cycle, minute/t.width*cycle/4)) }

func (t *trial) measured() int64 { return monday + warmUp*t.width }

func (t *trial) limit() window.Limit {
	l := t.algorithm.of
	if l.Width = t.width; t.algorithm.buckets > 0 {
		l.Precision = t.width / t.algorithm.buckets
	}
	return l
}

func (t *trial) flow() *flow {
	f := &flow{
		traffic: t.traffic, seed: t.seed, nodes: nodes, workers: workers, width: t.width,
		rate: t.load * float64(t.algorithm.of.Quota()), start: monday, end: t.measured() + t.windows()*t.width,
	}
	if t.changing {
		f.changes = t.changes()
	}
	return f
}

// changes returns the changes of membership. In each cycle they come shortly after a window has
// begun, and somewhat later in each further cycle: an eleventh node joins; a node leaves in good
// order; the first node (the hot node, if there is any) crashes, and is back after a second; the
// node that left comes back; the eleventh leaves.
func (t *trial) changes() (all []change) {
	for n := range t.windows() / cycle {
		at := func(w int64, late float64) int64 {
			return t.measured() + (n*cycle+w)*t.width + int64((late+0.3*float64(n))*float64(t.width))
		}
		down := at(2, 0.04)
		all = append(all,
			change{at: at(0, 0.02), place: nodes, what: joins},
			change{at: at(1, 0.03), place: 1, what: leaves},
			change{at: down, place: 0, what: crashes},
			change{at: down + second, place: 0, what: joins},
			change{at: at(3, 0.05), place: 1, what: joins},
			change{at: at(4, 0.06), place: nodes, what: leaves},
		)
	}
	return all
}

func (t *trial) name() string {
	name := fmt.Sprintf("%s/%ds/sync %g/%s/%gx/steady", t.algorithm.name, t.width/second, seconds(t.rate), t.traffic.name, t.load)
	if t.changing {
		name = strings.TrimSuffix(name, "steady") + "changing"
	}
	if t.condition.name != "" {
		name += "/" + t.condition.name
	}
	return name
}

func seconds(nanos int64) float64 { return float64(nanos) / float64(second) }

// grid is a set of trials.
type grid struct {
	algorithms []algorithm
	kinds      []traffic
	widths     []int64
	rates      []int64
	loads      []float64
	changing   []bool
	conditions []condition
}

// loads are the offered traffic as multiples of the limit.
var loads = []float64{1, 2, 5, 10}

// full returns the grid that the product must pass.
func full() grid {
	return grid{
		algorithms: algorithms, kinds: kinds, widths: []int64{minute, 5 * second}, rates: []int64{second, second / 2},
		loads: loads, changing: []bool{false, true}, conditions: []condition{good},
	}
}

// others returns a grid of the other algorithms, with fewer trials.
func others() grid {
	g := full()
	g.algorithms, g.rates = extra, g.rates[:1]
	return g
}

// harder returns the algorithms of the grid in worse conditions.
func harder() grid {
	g := quick()
	g.loads, g.changing, g.conditions = []float64{2, 10}, g.changing[:1], hard
	return g
}

// quick returns a part of the grid that takes a second.
func quick() grid {
	g := full()
	g.widths, g.rates, g.loads = g.widths[1:], g.rates[:1], []float64{1, 5}
	return g
}

// seed makes the study come out the same every time.
const seed = 20260102

func (g grid) trials() (all []trial) {
	for _, c := range g.conditions {
		for _, a := range g.algorithms {
			for _, changing := range g.changing {
				for _, width := range g.widths {
					for _, rate := range g.rates {
						for i, kind := range g.kinds {
							for _, load := range g.loads {
								t := trial{algorithm: a, traffic: kind, width: width, rate: rate, load: load, changing: changing, condition: c}
								// The traffic does not depend on the algorithm, the interval and
								// the condition.
								t.seed = seed + uint64(width/second)*1000 + uint64(load)*10 + uint64(i)
								all = append(all, t)
							}
						}
					}
				}
			}
		}
	}
	return all
}

// results are the outcomes of all ways in a trial.
type results struct {
	trial
	// possible is the sum of min(offered, limit) over the measured windows.
	possible                float64
	weir, periodic, central outcome
}

// measure lets all ways limit the requests of each trial.
func measure(trials []trial) ([]results, error) {
	var all []results
	for i := range trials {
		t := &trials[i]
		r := results{trial: *t}
		for _, way := range []struct {
			run  func() (outcome, error)
			into *outcome
		}{{t.weir, &r.weir}, {t.periodic, &r.periodic}, {t.central, &r.central}} {
			var err error
			if *way.into, err = way.run(); err != nil {
				return nil, fmt.Errorf("%s: %w", t.name(), err)
			}
		}
		r.possible = t.possible()
		all = append(all, r)
	}
	return all, nil
}

// possible counts by windows of the clock, for any algorithm.
func (t *trial) possible() (hits float64) {
	quota := float64(t.algorithm.of.Quota())
	offered := make([]float64, t.windows())
	for a := range t.flow().arrivals() {
		if a.at >= t.measured() {
			offered[(a.at-t.measured())/t.width]++
		}
	}
	for _, n := range offered {
		hits += math.Min(n, quota)
	}
	return hits
}

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
