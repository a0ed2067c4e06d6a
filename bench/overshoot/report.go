package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"weir/bench/page"
)

// way is a way of limiting in the tables.
type way struct {
	name string
	of   func(r *results) *outcome
}

var ways = []way{
	{"weir", func(r *results) *outcome { return &r.weir }},
	{"periodic sync", func(r *results) *outcome { return &r.periodic }},
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

// fromLoad is the least load at which callouts are summed up.
const fromLoad = 2

func share(r *results, o *outcome) (float64, bool)    { return r.share(o), true }
func steady(r *results, o *outcome) (float64, bool)   { return o.worst, !r.changing }
func changing(r *results, o *outcome) (float64, bool) { return o.worst, r.changing }
func callouts(r *results, o *outcome) (float64, bool) {
	return o.per1000(o.callouts), r.load >= fromLoad
}
func waited(_ *results, o *outcome) (float64, bool)  { return o.per1000(o.waits.Requests) / 10, true }
func longest(_ *results, o *outcome) (float64, bool) { return float64(o.waits.Longest) / 1e6, true }

// mostInUse is what may be in use of a limit. Arithmetic on rates rounds in the last digits of the rest.
const mostInUse = 1.00 + 1e-6

// over returns a way's figure in all trials that have it.
func over(all []results, w way, of figure) (found []float64) {
	for i := range all {
		if x, ok := of(&all[i], w.of(&all[i])); ok {
			found = append(found, x)
		}
	}
	return found
}

// most formats the most of numbers, if there is any.
func most(of []float64) string {
	if len(of) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", slices.Max(of))
}

// above counts what is above the limit.
func above(worst []float64) (n int) {
	for _, share := range worst {
		if share > mostInUse {
			n++
		}
	}
	return n
}

// summary returns the figures of all trials together.
func summary(all []results) string {
	rows := []string{fmt.Sprintf("%d trials\tadmitted, of what could be\ton average\tworst window, steady\ttrials above the limit\tworst window, changing\ttrials above the limit\t"+
		"callouts per 1,000, from %d times the limit on\twaited %%\tlongest ms", len(all), fromLoad)}
	for _, w := range ways {
		s, calls, still, moving := over(all, w, share), over(all, w, callouts), over(all, w, steady), over(all, w, changing)
		sum := 0.0
		for _, x := range s {
			sum += x
		}
		rows = append(rows, fmt.Sprintf("%s\t%.3f to %.3f\t%.3f\t%s\t%d of %d\t%s\t%d of %d\t%.1f to %.1f\t%.2f\t%.1f", w.name, slices.Min(s), slices.Max(s), sum/float64(len(s)),
			most(still), above(still), len(still), most(moving), above(moving), len(moving), slices.Min(calls), slices.Max(calls),
			slices.Max(over(all, w, waited)), slices.Max(over(all, w, longest))))
	}
	return page.Table(rows...)
}

// grouped returns, for the trials of each value of by, the least and the most hits that Weir and periodic synchronisation
// admitted, and their worst windows.
func grouped(heading string, all []results, by func(r *results) string) string {
	var groups []string
	for i := range all {
		if g := by(&all[i]); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	rows := []string{heading + "\tweir: admitted\tsteady\tchanging\tperiodic sync: admitted\tsteady\tchanging\tweir's callouts\twaited %"}
	for _, g := range groups {
		var some []results
		for i := range all {
			if by(&all[i]) == g {
				some = append(some, all[i])
			}
		}
		row := g
		for _, w := range ways[:2] {
			s := over(some, w, share)
			row += fmt.Sprintf("\t%.3f to %.3f\t%s\t%s", slices.Min(s), slices.Max(s), most(over(some, w, steady)), most(over(some, w, changing)))
		}
		calls := func(_ *results, o *outcome) (float64, bool) { return o.per1000(o.callouts), true }
		rows = append(rows, row+fmt.Sprintf("\t%.1f\t%.2f", slices.Max(over(some, ways[0], calls)), slices.Max(over(some, ways[0], waited))))
	}
	return page.Table(rows...)
}

func byLoad(r *results) string    { return fmt.Sprintf("%s %gx", r.algorithm.name, r.load) }
func byTraffic(r *results) string { return r.traffic.name }
func byRate(r *results) string {
	return fmt.Sprintf("%d s window, sync %g", r.width/second, seconds(r.rate))
}
func byCondition(r *results) string { return r.algorithm.name + " " + cmp.Or(r.condition.name, "good") }

// groups groups the trials by several properties.
func groups(all []results) string {
	return grouped("by algorithm and load", all, byLoad) + grouped("by traffic", all, byTraffic) + grouped("by window and sync_rate", all, byRate)
}

// each returns a line for each trial.
func each(all []results) string {
	rows := []string{"trial\toffered\tof the limit\tof what could be\tworst\tat the start\tcallouts per 1,000\twaited %\tlongest ms\tperiodic sync, of what could be\tworst\tone limiter, of the limit\tworst"}
	for i := range all {
		r := &all[i]
		o := &r.weir
		rows = append(rows, fmt.Sprintf("%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%.2f\t%.1f\t%.3f\t%.3f\t%.3f\t%.3f",
			r.name(), o.requests, r.ofLimit(o), r.share(o), o.worst, o.start, o.per1000(o.callouts), o.per1000(o.waits.Requests)/10, float64(o.waits.Longest)/1e6,
			r.share(&r.periodic), r.periodic.worst, r.ofLimit(&r.central), r.central.worst))
	}
	return page.Table(rows...)
}
