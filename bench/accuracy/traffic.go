package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	second = int64(1e9)
	// width is the window of every limit of the study.
	width = 60 * second
	// cycle is a day, scaled so that several fit into a trial: within a window the rate changes 180
	// times as fast as on a real day.
	cycle = 8 * width
	// swing is how far the rate of diurnal traffic departs from its mean, as a share of the mean.
	swing = 0.9
	// spacing is the mean time between the requests of a burst.
	spacing = 0.2 * float64(second)
)

// traffic is Poisson arrivals that an envelope thins. Each arrival may bring a burst of requests.
// They come from keys whose mean rates follow Zipf's law.
type traffic struct {
	name string
	// on and off are how long a key sends and how long it is silent; nil if it is never silent.
	on, off duration
	// diurnal makes the rate follow a sine of a cycle.
	diurnal bool
	// burst is the mean number of requests of an arrival, with a geometric distribution; 1 for no
	// bursts.
	burst float64
	// keys is the number of keys. The first is the hottest; the key of rank k has k^-zipf of its
	// rate.
	keys int
}

const zipf = 1.1

// kinds are the kinds of traffic that the study combines with every limit and ratio.
var kinds = []traffic{
	{name: "poisson", burst: 1, keys: 1},
	{name: "bursts", burst: 5, keys: 1},
	{name: "on/off", on: exponential(20), off: exponential(40), burst: 1, keys: 1},
	{name: "pareto on/off", on: pareto(5), off: pareto(10), burst: 1, keys: 1},
	{name: "diurnal", diurnal: true, burst: 1, keys: 1},
	{name: "diurnal bursts", diurnal: true, burst: 5, keys: 1},
	{name: "zipf", burst: 1, keys: 1000},
	{name: "zipf diurnal bursts", diurnal: true, burst: 5, keys: 1000},
}

// clients is the traffic of an operator's edge, as Cloudflare described it: very many sources,
// hardly any near its limit.
var clients = traffic{name: "clients", diurnal: true, burst: 5, keys: 20_000}

// duration draws times in nanoseconds with a known mean.
type duration interface {
	mean() float64
	draw(*rand.Rand) float64
}

// exponential is a duration without memory. Its value is the mean in seconds.
type exponential float64

func (e exponential) mean() float64             { return float64(e) * float64(second) }
func (e exponential) draw(r *rand.Rand) float64 { return r.ExpFloat64() * e.mean() }

// pareto is a duration with a heavy tail. Its value is the least duration in seconds. Sums of such
// on/off sources are self-similar, like the traffic of the web (https://doi.org/10.1109/90.650143).
// It is bounded, because a study ends.
type pareto float64

const (
	paretoShape = 1.5
	// paretoBound is the longest duration, as a multiple of the least.
	paretoBound = 200
)

func (p pareto) mean() float64 {
	return float64(p) * float64(second) * paretoShape / (paretoShape - 1) *
		(1 - math.Pow(paretoBound, 1-paretoShape)) / (1 - math.Pow(paretoBound, -paretoShape))
}

func (p pareto) draw(r *rand.Rand) float64 {
	u := r.Float64() * (1 - math.Pow(paretoBound, -paretoShape))
	return float64(p) * float64(second) * math.Pow(1-u, -1/paretoShape)
}

// weights returns the mean rates of the keys, as shares of the hottest key's.
func (t *traffic) weights() []float64 {
	weights := make([]float64, t.keys)
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -zipf)
	}
	return weights
}

// requests returns the times in [0, span) at which a key sends, in order, in nanoseconds. rate is
// the mean in requests per window.
func (t *traffic) requests(r *rand.Rand, rate float64, span int64) []int64 {
	peak := rate / float64(width) / t.burst
	if t.diurnal {
		peak *= 1 + swing
	}
	on, until := true, math.Inf(1)
	if t.on != nil {
		share := t.on.mean() / (t.on.mean() + t.off.mean())
		peak /= share
		on, until = r.Float64() >= share, 0 // the next pass of the loop switches
	}
	var times []int64
	for at := 0.0; ; {
		at += r.ExpFloat64() / peak
		if at >= float64(span) {
			break
		}
		for until <= at {
			if on = !on; on {
				until += t.on.draw(r)
			} else {
				until += t.off.draw(r)
			}
		}
		if !on || t.diurnal && r.Float64()*(1+swing) >= 1+swing*math.Sin(2*math.Pi*at/float64(cycle)) {
			continue
		}
		times = append(times, int64(at))
		for within := at; r.Float64() >= 1/t.burst; {
			if within += r.ExpFloat64() * spacing; within < float64(span) {
				times = append(times, int64(within))
			}
		}
	}
	slices.Sort(times)
	return times
}
