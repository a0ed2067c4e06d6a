package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"weir/window"
)

// seed makes the study come out the same every time.
const seed = 20260101

// history says which hits the limiters count, and so what their decisions are about.
type history int

const (
	// offered: all limiters count every request, whether it is rejected or not. No decision changes
	// what the next decision sees. Cloudflare measured so, and count_rejected does so.
	offered history = iota
	// admitted: all limiters count the requests that the log admits. Each decision is judged for
	// itself, at the limit.
	admitted
	// own: each limiter counts the requests that it admits itself, as it does in service. A
	// decision that differs changes what the limiter sees from then on.
	own
	histories
)

// algorithm is a limiter that the study judges, by how it looks at a limit.
type algorithm struct {
	name string
	// buckets is the number of sub-buckets; counterBuckets for the sliding window counter.
	buckets int
	// weighed reports whether the oldest sub-bucket is weighed.
	weighed bool
	// new makes a limiter that has seen no hit.
	new func(limit uint64) limiter
}

func slidingCounter() algorithm {
	return algorithm{name: "sliding counter", buckets: counterBuckets, new: func(limit uint64) limiter {
		return newCounter(window.SlidingWindow, 0, limit)
	}}
}

func subBuckets(n int) algorithm {
	return algorithm{name: fmt.Sprintf("%d sub-buckets", n), buckets: n, new: func(limit uint64) limiter {
		return newCounter(window.SlidingBuckets, width/int64(n), limit)
	}}
}

func weighedBuckets(n int) algorithm {
	return algorithm{name: fmt.Sprintf("%d weighed", n), buckets: n, weighed: true, new: func(limit uint64) limiter {
		return newWeighed(width/int64(n), limit)
	}}
}

// newLog makes the limiter that the others are judged by.
func newLog(limit uint64) limiter {
	return newCounter(window.SlidingBuckets, window.LogPrecision, limit)
}

// study is the traffic that the algorithms are tried on: each kind with each limit at each ratio.
type study struct {
	algorithms []algorithm
	kinds      []traffic
	limits     []uint64
	ratios     []float64
	// requests is about how many a trial has over all its keys, as far as the least and the most
	// number of cycles let it.
	requests    float64
	least, most int
}

var (
	limits = []uint64{10, 100, 1000}
	ratios = []float64{0.5, 0.9, 1, 1.1, 2, 5}
	// plainNumbers are those of sub-buckets that the study looks at; a configuration may have 64 of
	// them at most.
	plainNumbers   = []int{2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 40, 48, 60, 64, 128, 256, 512}
	weighedNumbers = []int{2, 4, 8, 16, 32, 64}
)

// algorithms are the sliding window counter and sub-buckets, plain and weighed.
func algorithms(plain, weighed []int) []algorithm {
	all := []algorithm{slidingCounter()}
	for _, n := range plain {
		all = append(all, subBuckets(n))
	}
	for _, n := range weighed {
		all = append(all, weighedBuckets(n))
	}
	return all
}

// full is the study: every kind of traffic, and the clients of an edge, whose hottest is at most
// near its limit.
func full() []*study {
	all := algorithms(plainNumbers, weighedNumbers)
	return []*study{
		{algorithms: all, kinds: kinds, limits: limits, ratios: ratios, requests: 15_000, least: 3, most: 100},
		{algorithms: all, kinds: []traffic{clients}, limits: limits[1:], ratios: []float64{0.3, 0.4, 0.45, 0.5, 0.9},
			requests: 150_000, least: 3, most: 100},
	}
}

// quick is a study that takes a second.
func quick() *study {
	return &study{algorithms: algorithms([]int{2, 8, 64}, []int{8}), kinds: []traffic{kinds[0], kinds[3], kinds[7]},
		limits: []uint64{10, 100}, ratios: []float64{0.9, 2}, requests: 1000, least: 1, most: 20}
}

// trial is one kind of traffic against one limit.
type trial struct {
	traffic traffic
	limit   uint64
	// ratio is the mean rate of the hottest key, as a multiple of the limit.
	ratio  float64
	cycles int
}

// outcome is the outcome of a trial.
type outcome struct {
	trial
	requests int
	// tallies are those of each algorithm under each history.
	tallies [][histories]tally
	// admits is how many requests the log admits of which it counts those.
	admits int
	// keys is how many keys sent anything; near, how many had a rate within a tenth of the limit at
	// a request of theirs.
	keys, near int
}

// tally counts what one limiter did in a trial.
type tally struct {
	// wronglyAllowed and wronglyRejected are requests for which the log decided otherwise.
	wronglyAllowed, wronglyRejected int
	// admits are the requests that the limiter allowed.
	admits int
	// most is the most hits that the limiter allowed within any window, those of the warm-up among
	// them.
	most int
	// rates is at how many requests the true rate was above zero; errors is the sum of |its own −
	// true| / true over them.
	rates  int
	errors float64
}

func (t *tally) decided(allows, want bool) {
	switch {
	case allows && !want:
		t.wronglyAllowed++
	case !allows && want:
		t.wronglyRejected++
	}
	if allows {
		t.admits++
	}
}

func (t *tally) believed(rate, want float64) {
	if want > 0 {
		t.rates++
		t.errors += math.Abs(rate-want) / want
	}
}

// warmUp is the part of a trial that isn't measured: after it every limiter has seen the windows
// that it looks at.
const warmUp = 2 * width

// measure tries the algorithms.
func (t trial) measure(algorithms []algorithm, random *rand.Rand) outcome {
	out := outcome{trial: t, tallies: make([][histories]tally, len(algorithms))}
	for _, weight := range t.traffic.weights() {
		rate := t.ratio * float64(t.limit) * weight
		out.addKey(algorithms, t.traffic.requests(random, rate, warmUp+int64(t.cycles)*cycle))
	}
	return out
}

// addKey lets the requests of one key pass a limiter of each algorithm for each history.
func (o *outcome) addKey(algorithms []algorithm, times []int64) {
	if len(times) == 0 {
		return
	}
	// The log counts what it admits itself, under admitted as under own.
	all, log := newLog(o.limit), newLog(o.limit)
	limiters := make([][histories]limiter, len(algorithms))
	for i := range limiters {
		for h := range histories {
			limiters[i][h] = algorithms[i].new(o.limit)
		}
	}
	passed := make([]recent, len(algorithms))
	near := false
	for _, at := range times {
		measured := at >= warmUp
		allAllows, logAllows := all.allows(at), log.allows(at)
		allRate, logRate := all.rate(), log.rate()
		for i := range limiters {
			tallies := &o.tallies[i]
			for h, l := range limiters[i] {
				allows, want, rate := l.allows(at), logAllows, logRate
				if history(h) == offered {
					want, rate = allAllows, allRate
				}
				if measured {
					tallies[h].decided(allows, want)
					if history(h) != own { // where it has no true rate to compare with
						tallies[h].believed(l.rate(), rate)
					}
				}
				if history(h) == offered || history(h) == admitted && logAllows || history(h) == own && allows {
					l.take()
				}
				if history(h) == own && allows {
					tallies[h].most = max(tallies[h].most, passed[i].add(at))
				}
			}
		}
		all.take()
		if logAllows {
			log.take()
		}
		if measured {
			o.requests++
			if logAllows {
				o.admits++
			}
			near = near || math.Abs(allRate-float64(o.limit)) <= float64(o.limit)/10
		}
	}
	o.keys++
	if near {
		o.near++
	}
}

// recent is the times of the last window, in order.
type recent []int64

// add adds a time, no earlier than the last time, and returns how many there are in the window that
// ends with it.
func (r *recent) add(at int64) int {
	gone := 0
	for gone < len(*r) && (*r)[gone] <= at-width {
		gone++
	}
	*r = append((*r)[gone:], at)
	return len(*r)
}

// trials are all combinations of the study.
func (s *study) trials() []trial {
	var trials []trial
	for _, kind := range s.kinds {
		for _, limit := range s.limits {
			for _, ratio := range s.ratios {
				perCycle := 0.0
				for _, weight := range kind.weights() {
					perCycle += weight * ratio * float64(limit) * float64(cycle/width)
				}
				cycles := min(max(int(s.requests/perCycle), s.least), s.most)
				trials = append(trials, trial{traffic: kind, limit: limit, ratio: ratio, cycles: cycles})
			}
		}
	}
	return trials
}

// outcomes measures all trials, on all processors. The number of processors does not change the
// result.
func (s *study) outcomes() []outcome {
	trials := s.trials()
	outcomes := make([]outcome, len(trials))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = trials[i].measure(s.algorithms, rand.New(rand.NewPCG(seed, uint64(i))))
			}
		})
	}
	for i := len(trials) - 1; i >= 0; i-- { // the longest are the last, and would be waited for
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes
}
