package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figures are the results of a run. Lists have an entry for each round.
type figures struct {
	Go           string         `json:"go"`
	CPUs         int            `json:"cpus"`
	Rounds       int            `json:"rounds"`
	BlockSeconds float64        `json:"block_seconds"`
	Senders      int            `json:"senders"`
	Counters     int            `json:"counters"`
	Stores       []storeFigures `json:"stores"`
}

type storeFigures struct {
	Name      string            `json:"name"`
	Server    string            `json:"server"`
	Ceilings  []ceilingFigures  `json:"ceilings"`
	Workloads []workloadFigures `json:"workloads"`
}

type ceilingFigures struct {
	Name      string    `json:"name"`
	Of        string    `json:"of,omitempty"`
	PerSecond []float64 `json:"per_second"`
	// ServerMicros is the server's processor time of an operation.
	ServerMicros []float64 `json:"server_cpu_us"`
}

type workloadFigures struct {
	Name          string    `json:"name"`
	HitsPerPush   int       `json:"hits_per_push"`
	HitsPerSecond []float64 `json:"hits_per_second"`
	// ServerMicros and OwnMicros are processor time of a hit: of the server, and of senders and
	// handler.
	ServerMicros []float64 `json:"server_cpu_us"`
	OwnMicros    []float64 `json:"own_cpu_us"`
	P50Millis    float64   `json:"p50_ms"`
	P99Millis    float64   `json:"p99_ms"`
	// CallsPerPush counts the commands that scripts call, or statements.
	CallsPerPush   float64 `json:"calls_per_push"`
	ScriptsPerPush float64 `json:"scripts_per_push"`
}

func newFigures(o *options) *figures {
	return &figures{
		Go: runtime.Version(), CPUs: runtime.NumCPU(), Rounds: o.rounds, BlockSeconds: o.block.Seconds(), Senders: o.senders, Counters: counters,
	}
}

func (c *ceilingFigures) add(perSecond float64, used, elapsed time.Duration) {
	c.PerSecond = append(c.PerSecond, perSecond)
	c.ServerMicros = append(c.ServerMicros, float64(used.Microseconds())/(perSecond*elapsed.Seconds()))
}

func (w *workloadFigures) add(b *block, used time.Duration) {
	hits := float64(len(b.waits) * w.HitsPerPush)
	w.HitsPerSecond = append(w.HitsPerSecond, hits/b.elapsed.Seconds())
	w.ServerMicros = append(w.ServerMicros, float64(used.Microseconds())/hits)
	w.OwnMicros = append(w.OwnMicros, float64(b.cpu.Microseconds())/hits)
}

// latencies computes the figures of the times of all rounds' pushes.
func (w *workloadFigures) latencies(waits []time.Duration) {
	slices.Sort(waits)
	at := func(share float64) float64 { return waits[int(share*float64(len(waits)-1))].Seconds() * 1000 }
	w.P50Millis, w.P99Millis = at(0.50), at(0.99)
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

func (f *figures) json() ([]byte, error) {
	out, err := json.MarshalIndent(f, "", " ")
	return append(out, '\n'), err
}

// String returns the figures as tables.
func (f *figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d senders, %d counters, %d rounds of %gs; %d processors, %s\n", f.Senders, f.Counters, f.Rounds, f.BlockSeconds, f.CPUs, f.Go)
	for i := range f.Stores {
		fmt.Fprintf(&b, "\n%s", &f.Stores[i])
	}
	return b.String()
}

// String returns a store's figures as tables.
func (s *storeFigures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n\n%-32s %9s  %12s\n", s.Name, s.Server, "ceiling", "ops/s", "server µs/op")
	for _, c := range s.Ceilings {
		fmt.Fprintf(&b, "%-32s %9.0f  %12s\n", c.Name, median(c.PerSecond), micros(c.ServerMicros))
	}
	fmt.Fprintf(&b, "\n%-22s %9s %9s %8s %8s  %13s %10s %9s %12s\n", "push of", "pushes/s", "hits/s", "p50 ms", "p99 ms",
		"server µs/hit", "own µs/hit", "calls/hit", "scripts/push")
	for _, w := range s.Workloads {
		hits := median(w.HitsPerSecond)
		fmt.Fprintf(&b, "%-22s %9.0f %9.0f %8.2f %8.2f  %13s %10s %9s %12s\n", w.Name, hits/float64(w.HitsPerPush), hits, w.P50Millis,
			w.P99Millis, micros(w.ServerMicros), micros(w.OwnMicros), some(w.CallsPerPush/float64(w.HitsPerPush)), some(w.ScriptsPerPush))
	}
	heading := fmt.Sprintf("%-22s", "hits/s ÷ ops/s")
	for _, c := range s.Ceilings {
		if c.Of == "" {
			heading += fmt.Sprintf("  %-19s %6s", c.Name, "CPU")
		}
	}
	b.WriteString("\n" + strings.TrimRight(heading, " ") + "\n")
	for _, w := range s.Workloads {
		line := fmt.Sprintf("%-22s", w.Name)
		for _, c := range s.Ceilings {
			if c.Of != "" && c.Of != w.Name {
				continue
			}
			middle, low, high := ratio(w.HitsPerSecond, c.PerSecond)
			line += fmt.Sprintf("  %-19s", fmt.Sprintf("%.3f (%.3f-%.3f)", middle, low, high))
			if c.Of == "" {
				cpu, _, _ := ratio(c.ServerMicros, w.ServerMicros)
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
