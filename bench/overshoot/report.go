package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// way is a way of limiting in the tables.
type way struct {
	name string
	of   func(r *results) *outcome
}

var ways = []way{
	{"weir", func(r *results) *outcome { return &r.weir }},
	{"periodic sync", func(r *results) *outcome { return &r.periodic }},
	{"1/N share", func(r *results) *outcome { return &r.fixed }},
	{"one limiter", func(r *results) *outcome { return &r.central }},
}

// ofLimit returns the hits that a way admitted as a share of the limit.
func (r *results) ofLimit(o *outcome) float64 {
	return float64(o.admitted) / float64(r.windows()) / float64(r.algorithm.of.Quota())
}

// share returns the hits that a way admitted as a share of the possible hits: of min(offered, limit), or of the hits of the
// central limiter, which sees every request, if those are fewer.
func (r *results) share(o *outcome) float64 {
	return float64(o.admitted) / math.Max(math.Min(r.possible, float64(r.central.admitted)), 1)
}

// figure is a number of a way in a trial, if the trial has it.
type figure func(r *results, o *outcome) (x float64, ok bool)

// fromLoad is the least load at which callouts are judged.
const fromLoad = 2

func share(r *results, o *outcome) (float64, bool)    { return r.share(o), true }
func steady(r *results, o *outcome) (float64, bool)   { return o.worst, !r.changing }
func changing(r *results, o *outcome) (float64, bool) { return o.worst, r.changing }
func callouts(_ *results, o *outcome) (float64, bool) { return o.per1000(o.callouts), true }
func judgedCallouts(r *results, o *outcome) (float64, bool) {
	return o.per1000(o.callouts), r.load >= fromLoad
}
func waited(_ *results, o *outcome) (float64, bool)  { return o.per1000(o.waits.Requests) / 10, true }
func longest(_ *results, o *outcome) (float64, bool) { return float64(o.waits.Longest) / 1e6, true }

// ofOffered is what was admitted as a share of min(offered, limit), window by window.
func ofOffered(r *results, o *outcome) (float64, bool) { return float64(o.admitted) / r.possible, true }

// mostSteady is what may be in use of a limit. Arithmetic on rates rounds in the last digits of the rest.
const mostSteady = 1.00 + 1e-6

// goals are what Weir must reach. Their letters stand for them in the lines of trials.
var goals = []struct {
	name, letter string
	of           figure
	below        bool
	bound        float64
}{
	{"worst window above 1.00, steady", "w", steady, false, mostSteady},
	{"worst window above 1.01, changing", "w", changing, false, 1.01 + 1e-6},
	{"admitted below 0.97 of what could be", "s", share, true, 0.97},
	{"  … of min(offered, limit)", "", ofOffered, true, 0.97},
	{"callouts above 50 per 1,000, ≥2x", "c", judgedCallouts, false, 50},
}

// missed reports whether a way does not reach a goal.
func missed(goal int, r *results, o *outcome) bool {
	g := &goals[goal]
	x, ok := g.of(r, o)
	return ok && (g.below && x < g.bound || !g.below && x > g.bound)
}

// misses returns the goals that a way does not reach, as letters.
func (r *results) misses(o *outcome) (letters string) {
	for i := range goals {
		if missed(i, r, o) {
			letters += goals[i].letter
		}
	}
	return letters
}

// span is the least, the mean and the most of numbers. leastIn and mostIn are the trials with these.
type span struct {
	least, mean, most float64
	n                 int
	leastIn, mostIn   string
}

// over returns the span of a way's figure over trials.
func over(all []results, w way, of figure) (s span) {
	sum := 0.0
	for i := range all {
		r := &all[i]
		x, ok := of(r, w.of(r))
		if !ok {
			continue
		}
		if s.n == 0 || x < s.least {
			s.least, s.leastIn = x, r.name()
		}
		if s.n == 0 || x > s.most {
			s.most, s.mostIn = x, r.name()
		}
		sum += x
		s.n++
	}
	s.mean = sum / float64(max(s.n, 1))
	return s
}

// String returns the most, if there is any number.
func (s span) String() string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", s.most)
}

// summary returns the figures of all trials together.
func summary(all []results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d trials            admitted, of what could be    worst window   worst window     callouts        waited,  longest\n", len(all))
	fmt.Fprintf(&b, "                       least    mean    most         steady   changing       per 1,000, ≥2x      %%         ms\n")
	for _, w := range ways {
		s, c := over(all, w, share), over(all, w, judgedCallouts)
		fmt.Fprintf(&b, "%-20s %7.3f %7.3f %7.3f  %12.3f %10.3f %9.1f to %5.1f %12.2f %9.1f\n", w.name, s.least, s.mean, s.most,
			over(all, w, steady).most, over(all, w, changing).most, c.least, c.most, over(all, w, waited).most, over(all, w, longest).most)
	}
	b.WriteString("\nWhere it falls short                                   trials that do               the worst of them, by weir\n")
	fmt.Fprintf(&b, "%-40s %8s %14s %10s\n", "", "weir", "periodic sync", "1/N share")
	for g, goal := range goals {
		var n [4]int
		for i, w := range ways {
			for j := range all {
				if missed(g, &all[j], w.of(&all[j])) {
					n[i]++
				}
			}
		}
		s := over(all, ways[0], goal.of)
		fmt.Fprintf(&b, "%-40s %4d/%-3d %9d %13d", goal.name, n[0], s.n, n[1], n[2])
		if n[3] > 0 {
			fmt.Fprintf(&b, " (one limiter: %d)", n[3])
		}
		if goal.below {
			fmt.Fprintf(&b, "   %.3f %s\n", s.least, s.leastIn)
		} else {
			fmt.Fprintf(&b, "   %.3f %s\n", s.most, s.mostIn)
		}
	}
	missed := 0
	for i := range all {
		if all[i].misses(&all[i].weir) != "" {
			missed++
		}
	}
	fmt.Fprintf(&b, "\n%d of %d trials miss a goal of weir's (the one about min(offered, limit) apart).\n", missed, len(all))
	return b.String()
}

// grouped returns, for the trials of each value of by, the least and the most hits that each way admitted, and its worst
// windows.
func grouped(heading string, all []results, by func(r *results) string) string {
	var b strings.Builder
	var groups []string
	for i := range all {
		if g := by(&all[i]); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	fmt.Fprintf(&b, "%-26s", heading)
	for _, w := range ways[:3] {
		fmt.Fprintf(&b, "  %-31s", w.name)
	}
	fmt.Fprintf(&b, "  weir's\n%-26s%s  callouts  waited %%\n", "", strings.Repeat("  admitted       steady changing ", 3))
	for _, g := range groups {
		var some []results
		for i := range all {
			if by(&all[i]) == g {
				some = append(some, all[i])
			}
		}
		fmt.Fprintf(&b, "%-26s", g)
		for _, w := range ways[:3] {
			s := over(some, w, share)
			fmt.Fprintf(&b, "  %.3f to %.3f %6s %8s ", s.least, s.most, over(some, w, steady), over(some, w, changing))
		}
		fmt.Fprintf(&b, "  %8.1f  %8.2f\n", over(some, ways[0], callouts).most, over(some, ways[0], waited).most)
	}
	return b.String()
}

func byLoad(r *results) string    { return fmt.Sprintf("%s %gx", r.algorithm.name, r.load) }
func byTraffic(r *results) string { return r.traffic.name }
func byRate(r *results) string {
	return fmt.Sprintf("%d s window, sync %g", r.width/second, seconds(r.rate))
}
func byCondition(r *results) string { return r.algorithm.name + " " + cmp.Or(r.condition.name, "good") }

// groups groups the trials by several properties.
func groups(all []results) string {
	return grouped("by algorithm and load", all, byLoad) + "\n" + grouped("by traffic", all, byTraffic) + "\n" + grouped("by window and sync_rate", all, byRate)
}

// each returns a line for each trial.
func each(all []results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-57s %8s  %-73s  %-15s  %-15s  %s\n", "", "", "weir", "periodic sync", "1/N share", "one limiter")
	fmt.Fprintf(&b, "%-57s %8s  %6s %6s %6s %6s %6s %6s %6s %6s %5s %-8s  %7s %7s  %7s %7s  %6s %6s\n", "trial", "offered",
		"limit", "share", "worst", "start", "calls", "trips", "wait %", "wait", "ms", "misses", "share", "worst", "share", "worst", "limit", "worst")
	for i := range all {
		r := &all[i]
		o := &r.weir
		fmt.Fprintf(&b, "%-57s %8d  %6.3f %6.3f %6.3f %6.3f %6.1f %6.1f %6.2f %6d %5.1f %-8s  %7.3f %7.3f  %7.3f %7.3f  %6.3f %6.3f\n",
			r.name(), o.requests, r.ofLimit(o), r.share(o), o.worst, o.start, o.per1000(o.callouts), o.per1000(o.roundTrips),
			o.per1000(o.waits.Requests)/10, o.waits.Requests, float64(o.waits.Longest)/1e6, r.misses(o),
			r.share(&r.periodic), r.periodic.worst, r.share(&r.fixed), r.fixed.worst, r.ofLimit(&r.central), r.central.worst)
	}
	return b.String()
}
