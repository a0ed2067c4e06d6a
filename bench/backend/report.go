package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// operations are what is measured in rounds. Lists have an entry for each round.
type operations struct {
	perSecond []float64
	// serverMicros is the server's processor time of each.
	serverMicros []float64
}

func (o *operations) add(perSecond float64, used, elapsed time.Duration) {
	o.perSecond = append(o.perSecond, perSecond)
	o.serverMicros = append(o.serverMicros, float64(used.Microseconds())/(perSecond*elapsed.Seconds()))
}

// hits are the operations of a workload.
type hits struct {
	workload
	operations
	waits []time.Duration // of pushes
	// ownMicros is the processor time of senders and handler.
	ownMicros []float64
	// calls are the commands that scripts call in a push, or statements.
	calls, scripts float64
}

// wait returns the wait, in milliseconds, that a share of all pushes has at most.
func (h *hits) wait(share float64) float64 {
	slices.Sort(h.waits)
	return h.waits[int(share*float64(len(h.waits)-1))].Seconds() * 1000
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio returns the ratios of the same rounds.
func ratio(of, to []float64) (middle, low, high float64) {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios), slices.Min(ratios), slices.Max(ratios)
}

// String returns a store's figures as tables.
func (s *subject) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n\n%-32s %9s  %12s\n", s.name, s.server, "ceiling", "ops/s", "server µs/op")
	for _, c := range s.ceilings {
		fmt.Fprintf(&b, "%-32s %9.0f  %12s\n", c.name, median(c.perSecond), micros(c.serverMicros))
	}
	fmt.Fprintf(&b, "\n%-22s %9s %9s %8s %8s  %13s %10s %9s %12s\n", "push of", "pushes/s", "hits/s", "p50 ms", "p99 ms",
		"server µs/hit", "own µs/hit", "calls/hit", "scripts/push")
	for _, w := range s.workloads {
		hits, each := median(w.perSecond), float64(w.hits())
		fmt.Fprintf(&b, "%-22s %9.0f %9.0f %8.2f %8.2f  %13s %10s %9s %12s\n", w.name, hits/each, hits, w.wait(0.50), w.wait(0.99),
			micros(w.serverMicros), micros(w.ownMicros), some(w.calls/each), some(w.scripts))
	}
	line := fmt.Sprintf("%-22s", "hits/s ÷ ops/s")
	for _, c := range s.ceilings {
		if c.of == "" {
			line += fmt.Sprintf("  %-19s %6s", c.name, "CPU")
		}
	}
	b.WriteString("\n" + strings.TrimRight(line, " ") + "\n")
	for _, w := range s.workloads {
		line := fmt.Sprintf("%-22s", w.name)
		for _, c := range s.ceilings {
			if c.of != "" && c.of != w.name {
				continue
			}
			middle, low, high := ratio(w.perSecond, c.perSecond)
			line += fmt.Sprintf("  %-19s", fmt.Sprintf("%.3f (%.3f-%.3f)", middle, low, high))
			if c.of == "" {
				cpu, _, _ := ratio(c.serverMicros, w.serverMicros)
				line += fmt.Sprintf(" %6s", some(cpu))
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// micros formats a median, or - if none was measured.
func micros(of []float64) string { return some(median(of)) }

func some(of float64) string {
	switch {
	case of == 0 || of != of:
		return "-"
	case of < 0.1:
		return fmt.Sprintf("%.3f", of)
	}
	return fmt.Sprintf("%.2f", of)
}
