package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"weir/window"
)

// truth is a trial of refusals: whether what was refused had room, by all that was admitted.
type truth struct {
	algorithm string
	limit     window.Limit
	nodes     int
	rate      int64 // sync_rate
	traffic   string
	load      float64 // in limits
	seed      uint64
}

// truths is what came of it.
type truths struct {
	requests, admitted, refused, falsely int
	late                                 int64 // the most that a time to come again was too late
	callouts                             int
	waits                                waits
	least, most                          float64 // that passed of the limit in a window
}

var debug bool
var falseAt = map[int64]int{}

const truthWindows = 4

func (t *truth) name() string {
	return fmt.Sprintf("%s limit %d nodes %d sync %g %s", t.algorithm, t.limit.Quota(), t.nodes, seconds(t.rate), t.traffic)
}

// next is when the next request comes, and to whom.
func (t *truth) next(random *rand.Rand, at int64, i int) (next int64, place int) {
	mean := float64(t.limit.Width) / (t.load * float64(t.limit.Quota()))
	gap := int64(random.ExpFloat64() * mean)
	place = random.IntN(t.nodes)
	phase := float64((at-monday)%t.limit.Width) / float64(t.limit.Width)
	switch t.traffic {
	case "in turn":
		return at + int64(mean), i % t.nodes
	case "bursts": // all comes in a tenth of each window
		if gap = int64(random.ExpFloat64() * mean / 10); phase > 0.1 {
			gap += t.limit.Width - (at-monday)%t.limit.Width
		}
	case "one falls silent": // a tenth into each window
		if phase > 0.1 && t.nodes > 1 && place == 0 {
			place = 1 + random.IntN(t.nodes-1)
		}
	case "one dies":
		if at-monday > t.limit.Width*3/10 && t.nodes > 1 && place == 0 {
			place = 1 + random.IntN(t.nodes-1)
		}
	}
	return at + max(gap, 1), place
}

func (t *truth) measure() (out truths, err error) {
	w, err := newWorld(worldOptions{seed: t.seed, places: t.nodes, workers: workers, network: near, limit: t.limit, capacity: 1024, syncRate: t.rate})
	if err != nil {
		return out, err
	}
	o := newOracle(t.limit)
	perWindow := map[int64]float64{}
	w.passed = func() {
		out.admitted++
		perWindow[(w.now-monday)/t.limit.Width] = max(perWindow[(w.now-monday)/t.limit.Width], o.admit(w.now))
	}
	w.refused = func(retryAt int64) {
		out.refused++
		l, s := &t.limit, &o.state
		if l.Advance(s, w.now); l.Allows(s, 1) {
			out.falsely++
			if debug {
				k := (w.now - monday) / (second / 10)
				falseAt[k]++
			}
		}
		at, ok := l.FitsAt(s, 1)
		switch {
		case retryAt == 0 && ok:
			out.late = math.MaxInt64
		case ok:
			out.late = max(out.late, retryAt-max(at, w.now))
		}
	}
	if t.traffic == "one dies" && t.nodes > 1 {
		w.at(monday+t.limit.Width*3/10, func() { w.kill(0) })
	}
	random := rand.New(rand.NewPCG(t.seed, 9))
	end := monday + truthWindows*t.limit.Width
	for at, place, i := monday, 0, 0; ; i++ {
		if at, place = t.next(random, at, i); at >= end {
			break
		}
		w.advance(at)
		out.requests++
		w.request(place, random.IntN(workers), onlyKey)
	}
	w.advance(end)
	out.callouts, out.waits = w.sent, w.waits
	w.advance(w.now + patience)
	out.least = math.Inf(1)
	for i := range int64(truthWindows) {
		out.least, out.most = min(out.least, perWindow[i]), max(out.most, perWindow[i])
	}
	return out, errors.Join(w.failure(), w.nobodyWaits())
}

func truthTable(some func(*truth) bool) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-60s %8s %8s %8s %9s %9s %9s %6s %6s\n", "", "requests", "admitted", "false", "per 1,000", "late, s", "callouts", "waits", "window")
	algorithms := map[string]func(limit uint64, width int64) window.Limit{
		"fixed": func(n uint64, w int64) window.Limit { return window.Limit{Shape: window.Shape{Kind: window.FixedWindow, Width: w}, Max: n} },
		"sliding": func(n uint64, w int64) window.Limit { return window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: w}, Max: n} },
		"tokens": func(n uint64, w int64) window.Limit { return window.Limit{Shape: window.Shape{Kind: window.TokenBucket, Width: w}, Max: n, Burst: n} },
		"log": func(n uint64, w int64) window.Limit { return window.Limit{Shape: window.Shape{Kind: window.SlidingBuckets, Width: w, Precision: 1}, Max: n} },
		"first hit": func(n uint64, w int64) window.Limit { return window.Limit{Shape: window.Shape{Kind: window.FirstHitWindow, Width: w}, Max: n} },
	}
	for _, name := range []string{"fixed", "sliding", "tokens", "log", "first hit"} {
		for _, limit := range []uint64{1, 2, 5, 10, 20, 100, 1000, 10_000, 100_000} {
			if name == "log" && limit > 1000 {
				continue
			}
			for _, nodes := range []int{1, 2, 3, 10, 50} {
				for _, traffic := range []string{"in turn", "at random", "bursts", "one falls silent", "one dies"} {
					for _, rate := range []int64{second, second/20} {
						t := &truth{algorithm: name, limit: algorithms[name](limit, minute), nodes: nodes, rate: rate, traffic: traffic, load: 2, seed: 1}
						if !some(t) {
							continue
						}
						r, err := t.measure()
						if err != nil {
							return "", fmt.Errorf("%s: %w", t.name(), err)
						}
						fmt.Fprintf(&b, "%-60s %8d %8d %8d %9.1f %9.2f %9.1f %6.1f %.3f to %.3f\n", t.name(), r.requests, r.admitted, r.falsely,
							1000*float64(r.falsely)/float64(r.requests), seconds(r.late), 1000*float64(r.callouts)/float64(r.requests),
							1000*float64(r.waits.requests)/float64(r.requests), r.least, r.most)
					}
				}
			}
		}
	}
	return b.String(), nil
}
