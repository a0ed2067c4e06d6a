package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/bench/page"
)

// figures are what came of a run.
type figures struct {
	Machine machine `json:"machine"`
	Rounds  int     `json:"rounds"`
	// What was not measured is not there.
	Packages *packageFigures `json:"packages,omitempty"`
	Wazero   []wazeroFigures `json:"wazero,omitempty"`
	Proxy    *proxyFigures   `json:"proxy,omitempty"`
}

type machine struct {
	Go           string `json:"go"`
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	CPUs         int    `json:"processors"`
}

// ratio is that of the same rounds.
func ratio(of, to []float64) page.Spread {
	return page.SpreadOf(paired(of, to, func(a, b float64) float64 { return a / b }))
}

func difference(of, to []float64) page.Spread {
	return page.SpreadOf(paired(of, to, func(a, b float64) float64 { return a - b }))
}

func paired(of, to []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, len(of))
	for i := range of {
		out[i] = f(of[i], to[i])
	}
	return out
}

func (f *figures) json() ([]byte, error) {
	out, err := json.MarshalIndent(f, "", " ")
	return append(out, '\n'), err
}

// String is the figures as tables in Markdown.
func (f *figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d processors, %s, %s/%s, %d rounds.\n", f.Machine.CPUs, f.Machine.Go, f.Machine.OS, f.Machine.Architecture, f.Rounds)
	if f.Packages != nil {
		f.Packages.write(&b)
	}
	if f.Wazero != nil {
		page.Row(&b, "", "on wazero", "times the floor", "10–90 %", "more than the floor", "weir", "floor", "nothing", "host calls of a request")
		page.Row(&b, "---", "--:", "--:", "--:", "--:", "--:", "--:", "---")
		for i := range f.Wazero {
			w := &f.Wazero[i]
			page.Row(&b, w.Title, bold(w.Ratio), between(w.Ratio), nanos(w.MoreNanos.Median), nanos(w.Nanos.Weir), nanos(w.Nanos.Floor),
				nanos(w.Nanos.Nothing), calls(w.Calls))
		}
	}
	if p := f.Proxy; p != nil {
		page.Row(&b, "", fmt.Sprintf("%d clients, connections kept open", p.Clients), "requests a second", "10–90 %", "mean time")
		page.Row(&b, "---", "--:", "--:", "--:")
		for _, t := range p.Targets {
			page.Row(&b, t.Name, page.Thousands(t.PerSecond.Median), page.Thousands(t.PerSecond.Low)+"–"+page.Thousands(t.PerSecond.High), fmt.Sprintf("%.2f ms", t.Millis))
		}
		fmt.Fprintf(&b, "\nWith the plugin weir run answers %.2f times as many requests a second as with a filter that does nothing (%s),"+
			"\nand %.2f times as many as the upstream without a proxy (%s).\n", p.ToNothing.Median, between(p.ToNothing), p.ToNone.Median, between(p.ToNone))
	}
	b.WriteString("\n")
	return b.String()
}

func (f *packageFigures) write(b *strings.Builder) {
	page.Row(b, "", "Go benchmark", "times the floor", "10–90 %", "time", "floor", "allocations")
	page.Row(b, "---", "--:", "--:", "--:", "--:", "--:")
	for _, p := range f.Pairs {
		allocations := ""
		if p.Allocations != nil {
			allocations = page.Thousands(*p.Allocations)
		}
		page.Row(b, readable(p.Name), bold(p.Ratio), between(p.Ratio), nanos(p.Nanos), nanos(p.FloorNanos), allocations)
	}
	page.Row(b, "", "one with another", "ratio", "10–90 %")
	page.Row(b, "---", "--:", "--:")
	for _, c := range f.Comparisons {
		page.Row(b, c.Title, bold(c.Ratio), between(c.Ratio))
	}
	page.Row(b, "", "what else they report", "", "")
	page.Row(b, "---", "--:", "---")
	for _, name := range slices.Sorted(maps.Keys(f.Metrics)) {
		for _, unit := range slices.Sorted(maps.Keys(f.Metrics[name])) {
			n := f.Metrics[name][unit]
			value := fmt.Sprintf("%.1f", n)
			if n >= 1000 {
				value = page.Thousands(n)
			}
			page.Row(b, readable(name), value, unit)
		}
	}
}

// readable is a benchmark's name as it was written.
func readable(name string) string {
	return strings.ReplaceAll(strings.Replace(name, "/", ": ", 1), "_", " ")
}

func bold(s page.Spread) string { return fmt.Sprintf("**%.2f**", s.Median) }

func between(s page.Spread) string { return fmt.Sprintf("%.2f–%.2f", s.Low, s.High) }

func nanos(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f ns", n)
	}
	return page.Thousands(n) + " ns"
}

// calls are host calls in the form that the table of bench/v8 has them in.
func calls(of map[string]float64) string {
	sum := 0.0
	var names []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		n := of[name]
		sum += n
		short := strings.TrimSuffix(strings.TrimPrefix(name, "proxy_"), "_nanoseconds")
		if n != 1 {
			short = number(n) + " " + short
		}
		names = append(names, short)
	}
	return number(sum) + ": " + strings.Join(names, ", ")
}

func number(n float64) string {
	switch {
	case n == float64(int(n)):
		return fmt.Sprint(int(n))
	case n < 0.01:
		return "<0.01"
	}
	return fmt.Sprintf("%.2f", n)
}

// plot is the ratios as bars. Those of the packages are of different floors, and what takes many
// times as long as another thing would hide the rest: they are in the table.
func (f *figures) plot() ([]byte, error) {
	bars := page.Bars{Title: "Time in times of the floor's", X: "median of rounds; lines: 10 % to 90 % of them", Bound: 1}
	for _, w := range f.Wazero {
		bars.Bars = append(bars.Bars, page.Bar{Name: "wazero: " + w.Name, At: w.Ratio.Median, Low: w.Ratio.Low, High: w.Ratio.High})
	}
	for _, p := range f.Packages.Pairs {
		if p.Ratio.Median < mostPlotted {
			bars.Bars = append(bars.Bars, page.Bar{Name: readable(p.Name), At: p.Ratio.Median, Low: p.Ratio.Low, High: p.Ratio.High})
		}
	}
	r := f.Proxy.ToNothing
	bars.Bars = append(bars.Bars, page.Bar{Name: "weir run, a request", At: 1 / r.Median, Low: 1 / r.High, High: 1 / r.Low})
	return bars.SVG()
}

// mostPlotted is how many times its floor's time a benchmark may take to be plotted.
const mostPlotted = 20
