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

// history chooses the hits that the limiters count, and so what their decisions are about.
type history int

const (
	// offered: all limiters count every request, admitted or not. No decision affects the next.
	// Cloudflare measured in this way, and count_rejected works in this way.
	offered history = iota
	// admitted: all limiters count the requests that the log admits. Each decision is judged alone,
	// at the limit.
	admitted
	// own: each limiter counts the requests that it admits itself, as in service. A different
	// decision changes the limiter's later state.
	own
	histories
)

// algorithm is a limiter that the study judges.
type algorithm struct {
	name string
	// buckets is the number of sub-buckets; counterBuckets for the sliding window counter.
	buckets int
	// weighed reports whether the oldest sub-bucket is weighed.
	weighed bool
	// new returns a limiter without hits.
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

// newLog returns the limiter by which the others are judged.
func newLog(limit uint64) limiter {
	return newCounter(window.SlidingBuckets, window.LogPrecision, limit)
}

// study is the traffic for the algorithms: each kind with each limit at each ratio.
type study struct {
	algorithms []algorithm
	kinds      []traffic
	limits     []uint64
	ratios     []float64
	// requests is about how many requests a trial has over all its keys, if the least and the most
	// number of cycles allow it.
	requests    float64
	least, most int
}

var (
	limits = []uint64{10, 100, 1000}
	ratios = []float64{0.5, 0.9, 1, 1.1, 2, 5}
	// plainNumbers are the numbers of plain sub-buckets in the study. A configuration may have at
	// most 64.
	plainNumbers   = []int{2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32, 40, 48, 60, 64, 128, 256, 512}
	weighedNumbers = []int{2, 4, 8, 16, 32, 64}
)

// algorithms returns the sliding window counter and sub-buckets, plain and weighed.
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

// full returns the full study: every kind of traffic, and the clients of an edge, of which even the
// hottest is at most near its limit.
func full() []*study {
	all := algorithms(plainNumbers, weighedNumbers)
	return []*study{
		{algorithms: all, kinds: kinds, limits: limits, ratios: ratios, requests: 15_000, least: 3, most: 100},
		{algorithms: all, kinds: []traffic{clients}, limits: limits[1:], ratios: []float64{0.3, 0.4, 0.45, 0.5, 0.9},
			requests: 150_000, least: 3, most: 100},
	}
}

// quick returns a study that takes a second.
func quick() *study {
	return &study{algorithms: algorithms([]int{2, 8, 64}, []int{8}), kinds: []traffic{kinds[0], kinds[3], kinds[7]},
		limits: []uint64{10, 100}, ratios: []float64{0.9, 2}, requests: 1000, least: 1, most: 20}
}

// trial is a kind of traffic against a limit.
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
	// tallies has the tallies of each algorithm under each history.
	tallies [][histories]tally
	// admits is how many requests the log admits if it counts only those.
	admits int
	// keys is how many keys sent a request, and near how many of them had a rate within a tenth of
	// the limit at a request.
	keys, near int
}

// tally counts the decisions of a limiter in a trial.
type tally struct {
	// wronglyAllowed and wronglyRejected count the requests for which the log decided otherwise.
	wronglyAllowed, wronglyRejected int
	// admits counts the requests that the limiter allowed.
	admits int
	// most is the most hits that the limiter allowed within any window, including the warm-up.
	most int
	// rates is the number of requests at which the true rate was above zero, and errors the sum of
	// |estimate − true| / true over them.
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

// warmUp is the part of a trial that isn't measured. After it every limiter has seen the windows
// that it uses.
const warmUp = 2 * width

// measure runs the algorithms on the trial.
func (t trial) measure(algorithms []algorithm, random *rand.Rand) outcome {
	out := outcome{trial: t, tallies: make([][histories]tally, len(algorithms))}
	for _, weight := range t.traffic.weights() {
		rate := t.ratio * float64(t.limit) * weight
		out.addKey(algorithms, t.traffic.requests(random, rate, warmUp+int64(t.cycles)*cycle))
	}
	return out
}

// addKey passes the requests of a key to a limiter of each algorithm for each history.
func (o *outcome) addKey(algorithms []algorithm, times []int64) {
	if len(times) == 0 {
		return
	}
	// The log counts the hits that it admits itself, under admitted as under own.
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
					if history(h) != own { // under own there is no true rate to compare with
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

// recent has the times of the last window, in order.
type recent []int64

// add adds a time, not before the last time, and returns how many times the window has that ends
// with it.
func (r *recent) add(at int64) int {
	gone := 0
	for gone < len(*r) && (*r)[gone] <= at-width {
		gone++
	}
	*r = append((*r)[gone:], at)
	return len(*r)
}

// trials returns all combinations of the study.
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
	for i := len(trials) - 1; i >= 0; i-- { // begin with the longest trials, which are the last
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes
}
