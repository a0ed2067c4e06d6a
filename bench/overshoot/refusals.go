package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"weir/bench/page"
	"weir/internal/sim"
	"weir/window"
)

// refusalTrial sends more requests than the limit in each window, and examines the refusals. A
// refusal is false if all hits admitted by then, and the request, fit the limit.
type refusalTrial struct {
	name  string
	limit window.Limit
	nodes int
	// programs is how many of the nodes are programs.
	programs int
	rate     int64 // sync_rate
	// load is the offered traffic as a multiple of the limit.
	load    float64
	traffic string
}

// refusals has the figures of trials.
type refusals struct {
	requests, admitted, falsely, callouts, waits int
	// worst is the greatest share of a trial's requests that was refused falsely. late is by how
	// many nanoseconds the announced time to retry was after the time at which the request would
	// have passed.
	worst float64
	late  int64
	// least and most are shares of the limit. The share of a window is the most of the limit in use
	// in it. least is the share of the window with the least, and most that of the window with the
	// most.
	least, most float64
}

const refusalWindows = 4

// even is a network that always takes the same time. All admitted hits reach the trial with the
// same delay after their grant, so windows and buckets that begin with a hit equal the backend's.
var even = sim.Network{Trip: sim.Near.Trip}

// next returns the time and the node of the request after a request at a time.
func (t *refusalTrial) next(random *rand.Rand, at int64, i int) (next int64, place int) {
	width := t.limit.Width
	mean := float64(width) / (t.load * float64(t.limit.Quota()))
	gap, since := int64(random.ExpFloat64()*mean), (at-monday)%width
	place = random.IntN(t.nodes)
	switch t.traffic {
	case "in turn":
		return at + int64(mean), i % t.nodes
	case "bursts": // all requests come in a tenth of a window
		if gap = int64(random.ExpFloat64() * mean / 10); since > width/10 {
			gap += width - since
		}
	case "half at one":
		if random.IntN(2) == 0 {
			place = 0
		}
	case "one falls silent":
		if since > width/10 && place == 0 {
			place = t.nodes - 1
		}
	case "one dies":
		if at-monday > width*3/10 && place == 0 {
			place = t.nodes - 1
		}
	}
	return at + max(gap, 1), place
}

func (t *refusalTrial) measure() (out refusals, err error) {
	own := t.limit
	if t.rate < 0 { // sync_rate "share"
		own.Max /= uint64(t.nodes)
	}
	w, err := sim.New(sim.Options{Seed: seed, Places: t.nodes, Workers: workers, Programs: t.programs, Network: even, Limit: own, Capacity: 1024, SyncRate: t.rate})
	if err != nil {
		return out, err
	}
	o := sim.NewOracle(t.limit)
	var used [refusalWindows + 1]float64
	w.Passed = func(*sim.Request) {
		out.admitted++
		now := &used[(w.Now-monday)/t.limit.Width]
		*now = max(*now, o.Admit(w.Now))
	}
	w.Refused = func(_ *sim.Request, retryAt int64) {
		l, s := &t.limit, &o.State
		if l.Advance(s, w.Now); l.Allows(s, 1) {
			out.falsely++
		}
		if at, ok := l.FitsAt(s, 1); ok {
			out.late = max(out.late, retryAt-max(at, w.Now))
		}
	}
	if t.traffic == "one dies" {
		w.At(monday+t.limit.Width*3/10, func() { w.Kill(0) })
	}
	random := rand.New(rand.NewPCG(seed, 9))
	end := monday + refusalWindows*t.limit.Width
	for at, i := monday+1, 0; ; i++ {
		next, place := t.next(random, at, i)
		if at = next; at >= end {
			break
		}
		w.Advance(at)
		out.requests++
		w.Request(place, random.IntN(workers), onlyKey, 0)
	}
	w.Advance(end)
	out.callouts, out.waits = w.Sent, w.Waits.Requests
	out.worst = float64(out.falsely) / float64(out.requests)
	w.Advance(w.Now + patience)
	out.least = math.Inf(1)
	for _, share := range used[:refusalWindows] {
		out.least, out.most = min(out.least, share), max(out.most, share)
	}
	return out, errors.Join(w.Failure(), w.NobodyWaits())
}

// add adds the figures of trials.
func (s *refusals) add(t *refusals) {
	if s.requests == 0 {
		s.least = math.Inf(1)
	}
	s.requests, s.admitted, s.falsely = s.requests+t.requests, s.admitted+t.admitted, s.falsely+t.falsely
	s.callouts, s.waits = s.callouts+t.callouts, s.waits+t.waits
	s.worst, s.late = max(s.worst, t.worst), max(s.late, t.late)
	s.least, s.most = min(s.least, t.least), max(s.most, t.most)
}

// refusalRow is the trials of a row of the table.
type refusalRow struct {
	name   string
	trials []refusalTrial
}

// refusalTraffic is the traffic that most rows sum up.
var refusalTraffic = []string{"in turn", "at random", "bursts", "one falls silent"}

// refusalGrid is rows that differ by algorithm, limit and number of nodes.
type refusalGrid struct {
	algorithms []algorithm
	limits     []uint64
	nodes      []int
	variation  string
	as         refusalTrial // all other fields
	traffic    []string
}

// refusalGrids returns all rows of the table.
func refusalGrids() []refusalGrid {
	every, two := append(append([]algorithm{}, algorithms...), extra...), algorithms[:2]
	usual := refusalTrial{rate: second, load: 2}
	often, seldom, programs, five, share := usual, usual, usual, usual, usual
	often.rate, seldom.rate, programs.programs, five.load, share.rate = second/20, 5*second, 2, 5, -second
	spared := share
	spared.load = 0.8
	return []refusalGrid{
		{every, []uint64{1, 5, 10, 20, 100, 1000, 10_000}, []int{2, 10}, "", usual, refusalTraffic},
		{algorithms, []uint64{100_000}, []int{2, 10}, "", usual, refusalTraffic[1:2]},
		{two, []uint64{10, 100, 1000, 10_000}, []int{1, 3, 50}, "", usual, refusalTraffic},
		{algorithms[2:], []uint64{1000}, []int{50, 100}, "", usual, refusalTraffic},
		{two, []uint64{10, 100, 1000}, []int{3}, ", programs", programs, refusalTraffic},
		{two, []uint64{10, 100, 1000}, []int{3}, ", sync 0.05", often, refusalTraffic},
		{two, []uint64{10, 100, 1000}, []int{3}, ", sync 5", seldom, refusalTraffic},
		{algorithms, []uint64{100, 1000}, []int{10}, ", 5x", five, refusalTraffic},
		{two[:1], []uint64{10, 100, 1000}, []int{3, 10}, ", share", share, refusalTraffic[1:2]},
		{two[:1], []uint64{10, 100, 1000}, []int{3, 10}, ", share, half at one", share, []string{"half at one"}},
		{two[:1], []uint64{10, 100, 1000}, []int{3, 10}, ", share, 0.8x", spared, refusalTraffic[1:2]},
		{two[:1], []uint64{10, 100, 1000}, []int{3, 10}, ", share, 0.8x, half at one", spared, []string{"half at one"}},
		{every, []uint64{100, 1000}, []int{2, 10}, ", dies", usual, []string{"one dies"}},
	}
}

func refusalRows() (rows []refusalRow) {
	for _, g := range refusalGrids() {
		for _, a := range g.algorithms {
			for _, limit := range g.limits {
				if limit > 100 && a.of.IsLog() {
					continue // comparing with all admitted hits takes long
				}
				for _, nodes := range g.nodes {
					row := refusalRow{name: a.name + g.variation}
					for _, kind := range g.traffic {
						t := g.as
						t.limit, t.nodes, t.traffic = a.of, nodes, kind
						t.limit.Max, t.limit.Width = limit, minute
						if t.limit.Burst > 0 {
							t.limit.Burst = limit
						}
						if a.buckets > 0 {
							t.limit.Precision = minute / a.buckets
						}
						t.name = fmt.Sprintf("refusals/%s/%d/%d/%s", row.name, limit, nodes, kind)
						row.trials = append(row.trials, t)
					}
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

func refusalTable(rows []refusalRow) (string, error) {
	lines := []string{"of 1,000 requests\tlimit\tnodes\trequests\trefused falsely\tthe worst\tlate, s\tcallouts\twaited\tof the limit in use"}
	for _, row := range rows {
		var all refusals
		for j := range row.trials {
			one, err := row.trials[j].measure()
			if err != nil {
				return "", fmt.Errorf("%s: %w", row.trials[j].name, err)
			}
			all.add(&one)
		}
		per := func(n int) float64 { return 1000 * float64(n) / float64(all.requests) }
		lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.3f to %.3f", row.name, row.trials[0].limit.Max, row.trials[0].nodes, all.requests,
			per(all.falsely), 1000*all.worst, seconds(all.late), per(all.callouts), per(all.waits), all.least, all.most))
	}
	return page.Table(lines...), nil
}
