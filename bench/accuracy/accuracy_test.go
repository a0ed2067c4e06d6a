package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"weir/window"
)

// The tables and the plots of a study are the same every time, and those of the quick study equal
// the kept tables: a change must come with new figures in README.md.
func TestStudyIsDeterministic(t *testing.T) {
	t.Parallel()
	first, second := measure(quick()), measure(quick())
	if first.String() != second.String() {
		t.Errorf("two studies differ:\n%s\n%s", first, second)
	}
	kept, err := os.ReadFile(quickTables)
	if err != nil {
		t.Fatal(err)
	}
	if first.String() != string(kept) {
		t.Errorf("figures have changed: run go run ./bench/accuracy\ngot:\n%s\nwant:\n%s", first, kept)
	}
	plots, err := first.plots()
	if err != nil {
		t.Fatal(err)
	}
	again, err := second.plots()
	if err != nil {
		t.Fatal(err)
	}
	if len(plots) != len(figures) {
		t.Errorf("%d plots of %d figures", len(plots), len(figures))
	}
	for name := range plots {
		if !bytes.Equal(plots[name], again[name]) {
			t.Errorf("%s differs between two studies", name)
		}
	}
}

// README.md shows every plot, and has figures for all traffic.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if !strings.Contains(string(readme), "("+f.name+".svg)") {
			t.Errorf("README.md does not show %s.svg", f.name)
		}
	}
	_, tables, _ := strings.Cut(string(readme), "\n```text\n")
	for _, s := range full() {
		for _, kind := range s.kinds {
			if !strings.Contains(tables, "\n"+kind.name+" ") {
				t.Errorf("README.md has no figures for %s", kind.name)
			}
		}
	}
}

// A log judged by the log is never wrong. Weighed sub-buckets equal the log if each nanosecond has
// a bucket, and the sliding window counter if there is a single bucket.
func TestErrorIsZeroForTheLog(t *testing.T) {
	t.Parallel()
	s := quick()
	s.algorithms = []algorithm{
		{name: "log", new: newLog},
		{name: "weighed log", new: func(limit uint64) limiter { return newWeighed(window.LogPrecision, limit) }},
	}
	for _, o := range s.outcomes() {
		for a := range s.algorithms {
			for h, tally := range o.tallies[a] {
				if tally.wronglyAllowed+tally.wronglyRejected != 0 || tally.errors != 0 || history(h) == own && tally.admits != o.admits {
					t.Errorf("%s, %s, limit %d, ratio %g, history %d: %+v", s.algorithms[a].name, o.traffic.name, o.limit, o.ratio, h, tally)
				}
			}
		}
		if most := o.tallies[0][own].most; most == 0 || uint64(most) > o.limit {
			t.Errorf("%s: log of %d let %d hits through within a window", o.traffic.name, o.limit, most)
		}
	}
}

func TestOneWeighedBucketIsTheSlidingCounter(t *testing.T) {
	t.Parallel()
	s := quick()
	s.algorithms = []algorithm{slidingCounter(), weighedBuckets(1)}
	for _, o := range s.outcomes() {
		for h := range histories {
			counter, weighed := o.tallies[0][h], o.tallies[1][h]
			if math.Abs(counter.errors-weighed.errors) > 1e-9*counter.errors {
				t.Errorf("%s, history %d: errors of %g and %g", o.traffic.name, h, counter.errors, weighed.errors)
			}
			counter.errors, weighed.errors = 0, 0
			if counter != weighed {
				t.Errorf("%s, history %d: %+v and %+v", o.traffic.name, h, counter, weighed)
			}
		}
	}
}

// The decisions were made by hand: limit 10 a minute, 10 hits at the end of a window, then a hit
// every 15 s.
func TestTallyByHand(t *testing.T) {
	t.Parallel()
	out := outcome{trial: trial{limit: 10}, tallies: make([][histories]tally, 2)}
	begin := warmUp + width
	var times []int64
	for range 10 {
		times = append(times, begin-second)
	}
	times = append(times, begin+15*second, begin+30*second, begin+59*second)
	out.addKey([]algorithm{slidingCounter(), subBuckets(2)}, times)
	// The true rates are 0 to 9, then 10, 11 and 2. The counter then estimates 7.5, 1 + 5 and 2 +
	// 1/6, and half-window buckets 10, 1 and 2.
	for a, want := range []tally{
		{wronglyAllowed: 2, admits: 13, rates: 12, errors: 2.5/10 + 5.0/11 + (1.0/6)/2},
		{wronglyAllowed: 1, admits: 12, rates: 12, errors: 10.0 / 11},
	} {
		got := out.tallies[a][offered]
		if math.Abs(got.errors-want.errors) > 1e-9 {
			t.Errorf("algorithm %d: errors of %g, want %g", a, got.errors, want.errors)
		}
		if got.errors = want.errors; got != want {
			t.Errorf("algorithm %d: %+v, want %+v", a, got, want)
		}
	}
	if most := out.tallies[0][own].most; most != 12 {
		t.Errorf("the counter let %d hits through within a window, want 12", most)
	}
	if out.requests != 13 || out.admits != 11 || out.keys != 1 || out.near != 1 {
		t.Errorf("%d requests, %d admitted, %d keys, %d near; want 13, 11, 1, 1", out.requests, out.admits, out.keys, out.near)
	}
}

// Every kind of traffic has the requested rate, in order, within its span.
func TestTrafficKeepsItsRate(t *testing.T) {
	t.Parallel()
	for i, kind := range append([]traffic{clients}, kinds...) {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			const rate, windows = 20, 10_000
			times := kind.requests(rand.New(rand.NewPCG(seed, uint64(i))), rate, windows*width)
			for j := range times {
				if times[j] < 0 || times[j] >= windows*width || j > 0 && times[j] < times[j-1] {
					t.Fatalf("request %d at %d", j, times[j])
				}
			}
			// Heavy tails converge slowly.
			tolerance := 0.02
			if _, heavy := kind.on.(pareto); heavy {
				tolerance = 0.05
			}
			if got := float64(len(times)) / windows; math.Abs(got/rate-1) > tolerance {
				t.Errorf("%g requests per window, want %d within %g %%", got, rate, 100*tolerance)
			}
		})
	}
}

// Durations have the stated mean: the share of time in which a key sends depends on it.
func TestDurationHasItsMean(t *testing.T) {
	t.Parallel()
	for _, d := range []duration{exponential(20), pareto(5)} {
		const draws = 200_000
		random, sum := rand.New(rand.NewPCG(seed, 1)), 0.0
		for range draws {
			sum += d.draw(random)
		}
		if got := sum / draws; math.Abs(got/d.mean()-1) > 0.02 {
			t.Errorf("%T: mean of %g s, want %g s", d, got/float64(second), d.mean()/float64(second))
		}
	}
}

// Traffic has the shape of its name: the variance of Poisson counts is their mean, bursts vary by
// the square of their sizes, and a day has its peak.
func TestTrafficHasItsShape(t *testing.T) {
	t.Parallel()
	const rate, windows = 20, 8000
	counts := func(kind traffic) (counts []float64, dispersion float64) {
		counts = make([]float64, windows)
		for _, at := range kind.requests(rand.New(rand.NewPCG(seed, 1)), rate, windows*width) {
			counts[at/width]++
		}
		for _, n := range counts {
			dispersion += (n - rate) * (n - rate) / rate / windows
		}
		return counts, dispersion
	}
	for i, test := range []struct{ least, most float64 }{{0.95, 1.05}, {8, 9.5}, {13, 17}, {10, 16}} {
		if _, got := counts(kinds[i]); got < test.least || got > test.most {
			t.Errorf("%s: variance %g times the mean, want %g to %g", kinds[i].name, got, test.least, test.most)
		}
	}
	day, _ := counts(kinds[4])
	morning, evening := 0.0, 0.0
	for i, n := range day {
		if int64(i)%(cycle/width) < cycle/width/2 {
			morning += n
		} else {
			evening += n
		}
	}
	// The mean of half a sine is 2/π.
	want := (1 + swing*2/math.Pi) / (1 - swing*2/math.Pi)
	if got := morning / evening; math.Abs(got/want-1) > 0.03 {
		t.Errorf("the first half of a day has %g times the requests of the second, want %g", got, want)
	}
	weights := kinds[6].weights()
	if got, want := weights[0]/weights[99], math.Pow(100, zipf); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("the hottest key has %g times the rate of the hundredth, want %g", got, want)
	}
}
