package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

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
	{"1/N share", func(r *results) *outcome { return &r.fixed }},
	{"one limiter", func(r *results) *outcome { return &r.central }},
}

// Weir must reach these goals. Arithmetic on rates rounds in the last digits of the rest.
const (
	mostSteady   = 1.00 + 1e-6
	mostChanging = 1.01 + 1e-6
	leastShare   = 0.97
	mostCallouts = 50
	// fromLoad is the least load at which callouts are judged.
	fromLoad = 2
)

// ofLimit returns the hits that a way admitted as a share of the limit.
func (r *results) ofLimit(o *outcome) float64 {
	return float64(o.admitted) / float64(r.windows()) / float64(r.algorithm.of.Quota())
}

// ofOffered returns the hits that a way admitted as a share of min(offered, limit), window by
// window.
func (r *results) ofOffered(o *outcome) float64 { return float64(o.admitted) / r.possible }

// share returns the hits that a way admitted as a share of the possible hits: of min(offered,
// limit), or of the hits of the central limiter, which sees every request, if those are fewer.
func (r *results) share(o *outcome) float64 {
	return float64(o.admitted) / math.Max(math.Min(r.possible, float64(r.central.admitted)), 1)
}

// bound returns how much of the limit may be in use.
func (r *results) bound() float64 {
	if r.changing {
		return mostChanging
	}
	return mostSteady
}

// misses returns the goals that a way does not reach, as letters.
func (r *results) misses(o *outcome) string {
	misses := ""
	if o.worst > r.bound() {
		misses += "w"
	}
	if r.share(o) < leastShare {
		misses += "s"
	}
	if r.load >= fromLoad && o.per1000(o.callouts) > mostCallouts {
		misses += "c"
	}
	return misses
}

// span is the least, the mean and the most of numbers.
type span struct {
	least, most, sum float64
	n                int
	// leastIn and mostIn are the trials with these numbers.
	leastIn, mostIn string
}

func (s *span) add(x float64, in string) {
	if s.n == 0 || x < s.least {
		s.least, s.leastIn = x, in
	}
	if s.n == 0 || x > s.most {
		s.most, s.mostIn = x, in
	}
	s.sum += x
	s.n++
}

func (s *span) mean() float64 { return s.sum / float64(max(s.n, 1)) }

// mostText returns the most, if there is any number.
func (s *span) mostText() string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", s.most)
}

// over returns the span of a figure over trials.
func over(all []results, of func(r *results) (x float64, ok bool)) (s span) {
	for i := range all {
		if x, ok := of(&all[i]); ok {
			s.add(x, all[i].name())
		}
	}
	return s
}

// summary returns the figures of all trials together.
func summary(all []results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d trials            admitted, of what could be    worst window   worst window     callouts        waited,  longest\n", len(all))
	fmt.Fprintf(&b, "                       least    mean    most         steady   changing       per 1,000, ≥2x      %%         ms\n")
	for _, w := range ways {
		share := over(all, func(r *results) (float64, bool) { return r.share(w.of(r)), true })
		steady := over(all, func(r *results) (float64, bool) { return w.of(r).worst, !r.changing })
		changing := over(all, func(r *results) (float64, bool) { return w.of(r).worst, r.changing })
		callouts := over(all, func(r *results) (float64, bool) { return w.of(r).per1000(w.of(r).callouts), r.load >= fromLoad })
		waited := over(all, func(r *results) (float64, bool) { return w.of(r).per1000(w.of(r).waits.Requests) / 10, true })
		longest := over(all, func(r *results) (float64, bool) { return float64(w.of(r).waits.Longest) / 1e6, true })
		fmt.Fprintf(&b, "%-20s %7.3f %7.3f %7.3f  %12.3f %10.3f %9.1f to %5.1f %12.2f %9.1f\n", w.name,
			share.least, share.mean(), share.most, steady.most, changing.most, callouts.least, callouts.most, waited.most, longest.most)
	}
	b.WriteString("\nWhere it falls short                                   trials that do               the worst of them, by weir\n")
	fmt.Fprintf(&b, "%-40s %8s %14s %10s\n", "", "weir", "periodic sync", "1/N share")
	for _, goal := range []struct {
		name  string
		of    func(r *results, o *outcome) (x float64, judged bool)
		below bool
		bound float64
	}{
		{"worst window above 1.00, steady", func(r *results, o *outcome) (float64, bool) { return o.worst, !r.changing }, false, mostSteady},
		{"worst window above 1.01, changing", func(r *results, o *outcome) (float64, bool) { return o.worst, r.changing }, false, mostChanging},
		{"admitted below 0.97 of what could be", func(r *results, o *outcome) (float64, bool) { return r.share(o), true }, true, leastShare},
		{"  … of min(offered, limit)", func(r *results, o *outcome) (float64, bool) { return r.ofOffered(o), true }, true, leastShare},
		{"callouts above 50 per 1,000, ≥2x", func(r *results, o *outcome) (float64, bool) { return o.per1000(o.callouts), r.load >= fromLoad }, false, mostCallouts},
	} {
		fmt.Fprintf(&b, "%-40s", goal.name)
		judged := 0
		var worst span
		for i, w := range ways {
			n := 0
			for j := range all {
				x, ok := goal.of(&all[j], w.of(&all[j]))
				if !ok {
					continue
				}
				if i == 0 {
					judged++
					worst.add(x, all[j].name())
				}
				if goal.below && x < goal.bound || !goal.below && x > goal.bound {
					n++
				}
			}
			if w.name == "one limiter" {
				if n > 0 {
					fmt.Fprintf(&b, " (one limiter: %d)", n)
				}
				continue
			}
			fmt.Fprintf(&b, " %*d", []int{4, 9, 13}[i], n)
			if i == 0 {
				fmt.Fprintf(&b, "/%-3d", judged)
			}
		}
		if goal.below {
			fmt.Fprintf(&b, "   %.3f %s\n", worst.least, worst.leastIn)
		} else {
			fmt.Fprintf(&b, "   %.3f %s\n", worst.most, worst.mostIn)
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

// grouped prints, for the trials of each value of by, the least and the most hits that each way
// admitted, and its worst windows.
func grouped(b *strings.Builder, heading string, all []results, by func(r *results) string) {
	var groups []string
	for i := range all {
		if g := by(&all[i]); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	fmt.Fprintf(b, "%-26s", heading)
	for _, w := range ways[:3] {
		fmt.Fprintf(b, "  %-31s", w.name)
	}
	fmt.Fprintf(b, "  weir's\n%-26s", "")
	for range ways[:3] {
		fmt.Fprintf(b, "  admitted       steady changing ")
	}
	b.WriteString("  callouts  waited %\n")
	for _, g := range groups {
		fmt.Fprintf(b, "%-26s", g)
		for _, w := range ways[:3] {
			share := over(all, func(r *results) (float64, bool) { return r.share(w.of(r)), by(r) == g })
			steady := over(all, func(r *results) (float64, bool) { return w.of(r).worst, by(r) == g && !r.changing })
			changing := over(all, func(r *results) (float64, bool) { return w.of(r).worst, by(r) == g && r.changing })
			fmt.Fprintf(b, "  %.3f to %.3f %6s %8s ", share.least, share.most, steady.mostText(), changing.mostText())
		}
		callouts := over(all, func(r *results) (float64, bool) { return r.weir.per1000(r.weir.callouts), by(r) == g })
		waited := over(all, func(r *results) (float64, bool) { return r.weir.per1000(r.weir.waits.Requests) / 10, by(r) == g })
		fmt.Fprintf(b, "  %8.1f  %8.2f\n", callouts.most, waited.most)
	}
	b.WriteString("\n")
}

func membershipName(changing bool) string {
	if changing {
		return "changing"
	}
	return "steady"
}

func byLoad(r *results) string {
	return fmt.Sprintf("%s %gx", r.algorithm.name, r.load)
}

func byTraffic(r *results) string { return r.traffic.name }

func byRate(r *results) string {
	return fmt.Sprintf("%d s window, sync %g", r.width/second, seconds(r.rate))
}

func byCondition(r *results) string { return r.algorithm.name + " " + cmp.Or(r.condition.name, "good") }

// byOne groups the trials by a property.
func byOne(heading string, all []results, by func(r *results) string) string {
	var b strings.Builder
	grouped(&b, heading, all, by)
	return strings.TrimSuffix(b.String(), "\n")
}

// groups groups the trials by several properties.
func groups(all []results) string {
	var b strings.Builder
	grouped(&b, "by algorithm and load", all, byLoad)
	grouped(&b, "by traffic", all, byTraffic)
	grouped(&b, "by window and sync_rate", all, byRate)
	return strings.TrimSuffix(b.String(), "\n")
}

// each returns a line for each trial.
func each(all []results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-57s %8s  %-73s  %-15s  %-15s  %s\n", "", "", "weir", "periodic sync", "1/N share", "one limiter")
	fmt.Fprintf(&b, "%-57s %8s  %6s %6s %6s %6s %6s %6s %6s %6s %5s %-8s  %7s %7s  %7s %7s  %6s %6s\n", "trial", "offered",
		"limit", "share", "worst", "start", "calls", "trips", "wait %", "wait", "ms", "misses",
		"share", "worst", "share", "worst", "limit", "worst")
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

// plots returns the grid's plots, by file name.
func plots(all []results) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, figure := range []struct {
		name, title, y string
		of             func(w way, load float64) float64
		bound          page.Bound
	}{
		{"worst", "The most of the limit that was ever in use", "times the limit",
			func(w way, load float64) float64 {
				s := over(all, func(r *results) (float64, bool) { return w.of(r).worst, r.load == load && !r.changing })
				return s.most
			}, page.Bound{Name: "the limit", At: 1, Horizontal: true}},
		{"share", "The least that was admitted of what could be", "share",
			func(w way, load float64) float64 {
				s := over(all, func(r *results) (float64, bool) { return r.share(w.of(r)), r.load == load && !r.changing })
				return s.least
			}, page.Bound{Name: "0.97", At: leastShare, Horizontal: true}},
	} {
		c := page.Chart{
			Title: figure.title + ": all trials while nodes neither come nor go", X: "offered, times the limit", Y: figure.y,
			PadX: 0.1, PadY: 0.05, Bounds: []page.Bound{figure.bound},
			XTicks: func(_, _ float64) (ticks []plot.Tick) {
				for _, load := range loads {
					ticks = append(ticks, plot.Tick{Value: math.Log2(load), Label: fmt.Sprint(load)})
				}
				return ticks
			},
		}
		for _, w := range ways {
			line := page.Line{Name: w.name}
			for _, load := range loads {
				line.Points = append(line.Points, plotter.XY{X: math.Log2(load), Y: figure.of(w, load)})
			}
			c.Lines = append(c.Lines, line)
		}
		svg, err := c.SVG()
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", figure.name, err)
		}
		files[figure.name+".svg"] = svg
	}
	return files, nil
}
