package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"weir/window"
)

// refusalTrial brings twice a limit's requests in each window, and looks at what is refused. A
// refusal is false if all that was admitted by then, and the request, fit the limit.
type refusalTrial struct {
	limit   window.Limit
	nodes   int
	rate    int64 // sync_rate
	traffic string
}

// refusals is what came of trials.
type refusals struct {
	requests, admitted, falsely, callouts, waits int
	// worst is the greatest share of a trial's requests that was refused falsely, and late by how
	// much the time to come again, in nanoseconds, was after the one when the request would have
	// passed.
	worst float64
	late  int64
	// least and most are what of the limit was in use at most, in the windows where it was least
	// and most.
	least, most float64
}

const (
	refusalWindows = 4
	refusalLoad    = 2.0
)

// next is when the request after the one at a time comes, and to which node.
func (t *refusalTrial) next(random *rand.Rand, at int64, i int) (next int64, place int) {
	width := t.limit.Width
	mean := float64(width) / (refusalLoad * float64(t.limit.Quota()))
	gap, since := int64(random.ExpFloat64()*mean), (at-monday)%width
	place = random.IntN(t.nodes)
	switch t.traffic {
	case "in turn":
		return at + int64(mean), i % t.nodes
	case "bursts": // all comes in a tenth of a window
		if gap = int64(random.ExpFloat64() * mean / 10); since > width/10 {
			gap += width - since
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
	w, err := newWorld(worldOptions{seed: seed, places: t.nodes, workers: workers, network: near, limit: t.limit, capacity: 1024, syncRate: t.rate})
	if err != nil {
		return out, err
	}
	o := newOracle(t.limit)
	var used [refusalWindows + 1]float64
	w.passed = func() {
		out.admitted++
		now := &used[(w.now-monday)/t.limit.Width]
		*now = max(*now, o.admit(w.now))
	}
	w.refused = func(retryAt int64) {
		l, s := &t.limit, &o.state
		if l.Advance(s, w.now); l.Allows(s, 1) {
			out.falsely++
		}
		if at, ok := l.FitsAt(s, 1); ok {
			out.late = max(out.late, retryAt-max(at, w.now))
		}
	}
	if t.traffic == "one dies" {
		w.at(monday+t.limit.Width*3/10, func() { w.kill(0) })
	}
	random := rand.New(rand.NewPCG(seed, 9))
	end := monday + refusalWindows*t.limit.Width
	for at, i := monday+1, 0; ; i++ {
		next, place := t.next(random, at, i)
		if at = next; at >= end {
			break
		}
		w.advance(at)
		out.requests++
		w.request(place, random.IntN(workers), onlyKey)
	}
	w.advance(end)
	out.callouts, out.waits = w.sent, w.waits.requests
	out.worst = float64(out.falsely) / float64(out.requests)
	w.advance(w.now + patience)
	out.least = math.Inf(1)
	for _, share := range used[:refusalWindows] {
		out.least, out.most = min(out.least, share), max(out.most, share)
	}
	return out, errors.Join(w.failure(), w.nobodyWaits())
}

// add sums trials up.
func (s *refusals) add(t *refusals) {
	if s.requests == 0 {
		s.least = math.Inf(1)
	}
	s.requests, s.admitted, s.falsely = s.requests+t.requests, s.admitted+t.admitted, s.falsely+t.falsely
	s.callouts, s.waits = s.callouts+t.callouts, s.waits+t.waits
	s.worst, s.late = max(s.worst, t.worst), max(s.late, t.late)
	s.least, s.most = min(s.least, t.least), max(s.most, t.most)
}

// refusalTable is a row for each algorithm, limit and number of nodes, of all traffic but where a
// node dies, which has rows of its own.
func refusalTable() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-21s %6s %5s %8s %7s %7s %7s %8s %7s  %s\n", "", "limit", "nodes", "requests",
		"false", "worst", "late, s", "callouts", "waited", "of the limit in use")
	all := []string{"in turn", "at random", "bursts", "one falls silent"}
	for _, a := range append(append([]algorithm{}, algorithms...), extra...) {
		for _, limit := range []uint64{1, 5, 10, 100, 1000, 10_000} {
			if limit > 1000 && a.of.Kind != window.FixedWindow || limit > 100 && a.of.IsLog() {
				continue // what all have admitted takes long to look through
			}
			for _, nodes := range []int{2, 10} {
				if err := refusalRow(&b, a, a.name, limit, nodes, all); err != nil {
					return "", err
				}
				if limit >= 100 && nodes > 2 {
					if err := refusalRow(&b, a, a.name+", dies", limit, nodes, []string{"one dies"}); err != nil {
						return "", err
					}
				}
			}
		}
	}
	return b.String(), nil
}

// refusalRow is the sum of the trials of some traffic.
func refusalRow(b *strings.Builder, a algorithm, name string, limit uint64, nodes int, traffic []string) error {
	var all refusals
	for _, kind := range traffic {
		t := &refusalTrial{limit: a.of, nodes: nodes, rate: second, traffic: kind}
		t.limit.Max, t.limit.Width = limit, minute
		if t.limit.Burst > 0 {
			t.limit.Burst = limit
		}
		if a.buckets > 0 {
			t.limit.Precision = minute / a.buckets
		}
		one, err := t.measure()
		if err != nil {
			return fmt.Errorf("%s, limit %d, %d nodes, %s: %w", name, limit, nodes, kind, err)
		}
		all.add(&one)
	}
	per := func(n int) float64 { return 1000 * float64(n) / float64(all.requests) }
	fmt.Fprintf(b, "%-21s %6d %5d %8d %7.1f %7.1f %7.1f %8.1f %7.1f  %.3f to %.3f\n", name, limit, nodes, all.requests,
		per(all.falsely), 1000*all.worst, seconds(all.late), per(all.callouts), per(all.waits), all.least, all.most)
	return nil
}
