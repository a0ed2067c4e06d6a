package main

import (
	"fmt"
	"slices"
	"strings"

	"weir/window"
)

// figure is a number in percent that every trial gives for every algorithm.
type figure struct {
	// name is the plot's file name, and caption its title.
	name, caption string
	// unit names the whole of which the figure is a share.
	unit string
	of   func(o *outcome, algorithm int) float64
}

// tallied returns a figure from a tally.
func tallied(h history, share func(*outcome, *tally) float64) func(*outcome, int) float64 {
	return func(o *outcome, algorithm int) float64 { return 100 * share(o, &o.tallies[algorithm][h]) }
}

func rateError(_ *outcome, t *tally) float64 { return t.errors / float64(max(t.rates, 1)) }

func wronglyAllowed(o *outcome, t *tally) float64 {
	return float64(t.wronglyAllowed) / float64(max(o.requests, 1))
}

func wronglyRejected(o *outcome, t *tally) float64 {
	return float64(t.wronglyRejected) / float64(max(o.requests, 1))
}

func wrong(o *outcome, t *tally) float64 { return wronglyAllowed(o, t) + wronglyRejected(o, t) }

// admits returns the limiter's admitted requests as a share of the log's.
func admits(o *outcome, t *tally) float64 { return float64(t.admits) / float64(max(o.admits, 1)) }

// worst returns the most hits that the limiter admitted within a window, as a share of the limit.
func worst(o *outcome, t *tally) float64 { return float64(t.most) / float64(o.limit) }

var figures = []figure{
	{"rate", "Mean error of the rate", "% of the true rate", tallied(offered, rateError)},
	{"wrong", "Wrong decisions, every request counted", "% of requests", tallied(offered, wrong)},
	{"own", "Wrong decisions, each limiter counting what it admits", "% of requests", tallied(own, wrong)},
	{"worst", "Most hits let through within a window", "% of the limit", tallied(own, worst)},
}

// judged is how many of the figures, from the first on, should be a tenth of the sliding counter's.
const judged = 2

// results are the outcomes of a study.
type results struct {
	*study
	outcomes []outcome
}

// report has the results of several studies. The last may have a single kind of traffic.
type report []results

func measure(studies ...*study) report {
	var r report
	for _, s := range studies {
		r = append(r, results{s, s.outcomes()})
	}
	return r
}

// mean returns the mean of a figure over all trials of a kind of traffic, or only over the trials
// with a limit if that isn't 0. Each trial counts the same, whatever its number of requests.
func (r *results) mean(f figure, algorithm int, kind string, limit uint64) float64 {
	sum, trials := 0.0, 0
	for i := range r.outcomes {
		if o := &r.outcomes[i]; o.traffic.name == kind && (limit == 0 || o.limit == limit) {
			sum += f.of(o, algorithm)
			trials++
		}
	}
	return sum / float64(max(trials, 1))
}

// byAlgorithm prints a figure of every algorithm on every kind of traffic.
func (r *results) byAlgorithm(b *strings.Builder, f figure) {
	fmt.Fprintf(b, "%s, %s: mean over limits and ratios\n\n%-16s", f.caption, f.unit, "")
	for i := range r.kinds {
		fmt.Fprintf(b, "  %*s", heading(r.kinds[i].name), r.kinds[i].name)
	}
	b.WriteString("\n")
	for a := range r.algorithms {
		fmt.Fprintf(b, "%-16s", r.algorithms[a].name)
		for _, kind := range r.kinds {
			fmt.Fprintf(b, "  %*.3f", heading(kind.name), r.mean(f, a, kind.name, 0))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// heading returns the width of a column with a name.
func heading(name string) int { return max(len(name), 7) }

// needed returns how many sub-buckets bring a figure to a tenth of the sliding counter's, which is
// the first algorithm: the least number from which on all numbers in the study do.
func (r *results) needed(f figure, weighed bool, kind string, limit uint64) string {
	target := r.mean(f, 0, kind, limit) / 10
	if target == 0 {
		return "-"
	}
	need, most := 0, 0
	for a, algorithm := range r.algorithms[1:] {
		if algorithm.weighed != weighed {
			continue
		}
		most = algorithm.buckets
		switch enough := r.mean(f, a+1, kind, limit) <= target; {
		case !enough:
			need = 0
		case need == 0:
			need = algorithm.buckets
		}
	}
	if need == 0 {
		return fmt.Sprintf(">%d", most)
	}
	return fmt.Sprint(need)
}

// tenths prints how many sub-buckets bring the error to a tenth of the sliding counter's.
func (r *results) tenths(b *strings.Builder) {
	last := slices.IndexFunc(r.algorithms, func(a algorithm) bool { return a.weighed }) - 1
	fmt.Fprintf(b, "Sub-buckets needed for a tenth of the sliding counter's figure: mean over ratios, every request counted\n\n")
	fmt.Fprintf(b, "%-20s %5s  %-40s  %s\n", "", "", "error of the rate, %", "wrong decisions, %")
	columns := fmt.Sprintf("  %8s  %8s  %8s  %8s", "counter", fmt.Sprintf("with %d", r.algorithms[last].buckets), "needed", "weighed")
	fmt.Fprintf(b, "%-20s %5s%s  %s\n", "traffic", "limit", columns, columns)
	for _, kind := range r.kinds {
		for _, limit := range r.limits {
			var cells [judged]string
			for i, f := range figures[:judged] {
				cells[i] = fmt.Sprintf("  %8.3f  %8.3f  %8s  %8s", r.mean(f, 0, kind.name, limit), r.mean(f, last, kind.name, limit),
					r.needed(f, false, kind.name, limit), r.needed(f, true, kind.name, limit))
			}
			fmt.Fprintf(b, "%-20s %5d%s\n", kind.name, limit, strings.Join(cells[:], "  "))
		}
	}
	b.WriteString("\n")
}

// each prints an algorithm's figures in each trial.
func (r *results) each(b *strings.Builder, algorithm int) {
	fmt.Fprintf(b, "The %s in each trial, %%\n\n", r.algorithms[algorithm].name)
	fmt.Fprintf(b, "%-20s %5s %5s %8s  %11s  %-23s  %-23s  %s\n", "", "", "", "", "",
		"every request counted", "what the log admits", "what it admits itself")
	columns := fmt.Sprintf("%7s %8s %8s", "rate", "allowed", "rejected")
	fmt.Fprintf(b, "%-20s %5s %5s %8s  %11s  %s  %s  %8s %8s %8s %8s\n", "traffic", "limit", "ratio", "requests", "near/keys",
		columns, columns, "allowed", "rejected", "admits", "worst")
	for i := range r.outcomes {
		o := &r.outcomes[i]
		fmt.Fprintf(b, "%-20s %5d %5.2f %8d  %11s", o.traffic.name, o.limit, o.ratio, o.requests, fmt.Sprintf("%d/%d", o.near, o.keys))
		for _, h := range []history{offered, admitted} {
			fmt.Fprint(b, " ")
			for _, share := range []func(*outcome, *tally) float64{rateError, wronglyAllowed, wronglyRejected} {
				fmt.Fprintf(b, " %7.3f", tallied(h, share)(o, algorithm))
			}
		}
		fmt.Fprint(b, " ")
		for _, share := range []func(*outcome, *tally) float64{wronglyAllowed, wronglyRejected, admits, worst} {
			fmt.Fprintf(b, " %8.3f", tallied(own, share)(o, algorithm))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// steady writes how much a client gets if it never stops asking.
func steady(b *strings.Builder) {
	b.WriteString("A client that never stops asking: what passes, as a share of the limit\n")
	b.WriteString("limit  sliding window\n")
	for _, limit := range []uint64{1, 2, 3, 5, 10, 20, 50, 100, 1000} {
		l := window.Limit{Shape: window.Shape{Kind: window.SlidingWindow, Width: width}, Max: limit}
		fmt.Fprintf(b, "%5d  %14.2f\n", limit, window.Steady(&l))
	}
	b.WriteString("\n")
}

// String returns the report as tables.
func (r report) String() string {
	var b strings.Builder
	for _, f := range figures {
		r[0].byAlgorithm(&b, f)
	}
	r[0].tenths(&b)
	for i := range r {
		r[i].each(&b, 0)
	}
	steady(&b)
	return strings.TrimSuffix(b.String(), "\n")
}
