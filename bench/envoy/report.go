package main

import (
	"fmt"
	"strings"

	"weir/bench/page"
	"weir/bench/site"
)

// figures are the results of a run.
type figures struct {
	*options
	// machine describes the measured build, and the machine.
	machine  string
	variants []*measured
}

// measured has the figures of a variant. Lists have an entry for each process.
type measured struct {
	*variant
	// than is what it is compared with.
	than *measured
	// bytes is the size of the module.
	bytes   int64
	samples [][]sample // of each round
	begun   []begun
	loaded  []site.Memory // after all requests
	paced   []latency
}

// sample is the time of a request in a round of a process.
type sample struct {
	// envoy and services are µs of processor time.
	envoy    float64
	services []float64
	// busy is the share of the time in which Envoy ran.
	busy float64
}

// begun has the time and memory of a process's start.
type begun struct {
	cpu, wall float64 // seconds
	site.Memory
}

// latency has upper bounds in µs of the time that clients of a process waited for answers: for half of them, for 99 of
// 100, and for 999 of 1,000. cpu is Envoy's processor time of a request then, in µs.
type latency struct{ p50, p99, p999, cpu float64 }

// each returns a value of each process.
func each[T any](all []T, value func(T) float64) (values []float64) {
	for _, one := range all {
		values = append(values, value(one))
	}
	return values
}

// rounds returns a value of each sample.
func (m *measured) rounds(value func(sample) float64) (values []float64) {
	for _, process := range m.samples {
		values = append(values, each(process, value)...)
	}
	return values
}

// costs returns cells: the times of a variant, and their difference from those of its base at the same place.
func (m *measured) costs(times func(*measured) []float64) []string {
	own := times(m)
	s := page.SpreadOf(own)
	if m.than == nil {
		return []string{micros(s.Median), between(s), "", "", ""}
	}
	more, share := make([]float64, len(own)), make([]float64, len(own))
	for i, base := range times(m.than) {
		more[i], share[i] = own[i]-base, (own[i]-base)/base
	}
	d := page.SpreadOf(more)
	return []string{micros(s.Median), between(s), "**" + micros(d.Median) + "**", between(d), fmt.Sprintf("%.0f %%", 100*page.SpreadOf(share).Median)}
}

func micros(n float64) string      { return fmt.Sprintf("%.1f µs", n) }
func between(s page.Spread) string { return fmt.Sprintf("%.1f–%.1f", s.Low, s.High) }

// String returns the figures as tables in Markdown.
func (f *figures) String() string {
	var costs, paced, starts string
	for _, m := range f.variants {
		cell := func(format string, values []float64) string { return fmt.Sprintf(format, page.SpreadOf(values).Median) }
		if m.than == nil {
			costs += page.Head("CPU time of a request in Envoy", "in all", "10–90 %", "more than "+m.title, "10–90 %", "adds", "in services", "Envoy busy")
		}
		var services []string
		for i, name := range m.Services { // the mean, because work that a service does once a second is in few rounds
			sum := 0.0
			rounds := m.rounds(func(s sample) float64 { return s.services[i] })
			for _, took := range rounds {
				sum += took
			}
			services = append(services, name+" "+micros(sum/float64(len(rounds))))
		}
		cpu := m.costs(func(m *measured) []float64 { return m.rounds(func(s sample) float64 { return s.envoy }) })
		busy := cell("%.0f %%", m.rounds(func(s sample) float64 { return 100 * s.busy }))
		costs += page.Row(append(append([]string{m.title}, cpu...), strings.Join(services, ", "), busy)...)
		row := append([]string{m.title}, m.costs(func(m *measured) []float64 { return each(m.paced, func(l latency) float64 { return l.cpu }) })...)
		for _, of := range []func(l latency) float64{func(l latency) float64 { return l.p50 }, func(l latency) float64 { return l.p99 }, func(l latency) float64 { return l.p999 }} {
			s := page.SpreadOf(each(m.paced, of))
			row = append(row, fmt.Sprintf("%.0f µs", s.Median), fmt.Sprintf("%.0f–%.0f", s.Low, s.High))
		}
		paced += page.Row(row...)
		if m.Module == "" && m.name != none {
			continue
		}
		module := ""
		if m.Module != "" {
			module = page.Thousands(int(m.bytes)) + " B"
		}
		took := page.SpreadOf(each(m.begun, func(b begun) float64 { return b.cpu }))
		starts += page.Row(m.title, fmt.Sprintf("%.2f s", took.Median), fmt.Sprintf("%.2f–%.2f", took.Low, took.High), cell("%.2f s", each(m.begun, func(b begun) float64 { return b.wall })),
			cell("%.1f MiB", each(m.begun, func(b begun) float64 { return b.Resident })), cell("%.1f MiB", each(m.begun, func(b begun) float64 { return b.Own })),
			cell("%.1f MiB", each(m.loaded, func(l site.Memory) float64 { return l.Own })), module)
	}
	if paced != "" {
		paced = page.Head(fmt.Sprintf("at %s requests a second", page.Thousands(f.rate)), "CPU time of a request in Envoy", "10–90 %", "more", "10–90 %", "adds",
			"latency of half of the answers", "10–90 %", "of 99 of 100", "10–90 %", "of 999 of 1,000", "10–90 %") + paced
	}
	if starts != "" {
		starts = page.Head("Envoy's start", "CPU time", "10–90 %", "until ready", "resident memory", "of its own", "of its own after the requests", "module") + starts
	}
	return fmt.Sprintf("\n%s; %d processes of each, %d rounds of %s requests, %d connections.\n", f.machine, f.processes, f.rounds, page.Thousands(f.requests), f.connections) +
		costs + paced + starts
}
