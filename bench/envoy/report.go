package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"weir/bench/page"
)

// The tables are between these lines of README.md.
const (
	figuresBegin = "<!-- figures of envoy -->"
	figuresEnd   = "<!-- end of envoy figures -->"
)

// figures are the results of a run.
type figures struct {
	Machine     machine `json:"machine"`
	Requests    int     `json:"requests"`
	Rounds      int     `json:"rounds"`
	Processes   int     `json:"processes"`
	Connections int     `json:"connections"`
	// Rate is the number of requests a second at which latencies were measured.
	Rate int `json:"rate"`
	// Streams is how many streams were open while their memory was measured.
	Streams  int         `json:"streams"`
	Variants []*measured `json:"variants"`
}

type machine struct {
	// Plugin identifies the measured build by the size of its module and its SHA-256.
	Plugin       string `json:"plugin"`
	Envoy        string `json:"envoy"`
	Architecture string `json:"architecture"`
	Processor    string `json:"processor"`
	Processors   int    `json:"processors"`
	// RateLimit is the version of Envoy's rate limit service, if it was measured.
	RateLimit string `json:"ratelimit,omitempty"`
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
	memory
}

// latency has upper bounds in µs of the time that clients of a process waited for answers: for half
// of them, for 99 of 100, and for 999 of 1,000. cpu is Envoy's processor time of a request then, in
// µs.
type latency struct{ p50, p99, p999, cpu float64 }

// measured has the figures of a variant.
type measured struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Base is the name of the variant with which this variant is compared.
	Base string `json:"base,omitempty"`
	// Micros is Envoy's processor time of a request. More is its difference from the base's in the
	// same round of the same turn, and Share that difference as a multiple of the base's.
	Micros page.Spread  `json:"us"`
	More   *page.Spread `json:"more_us,omitempty"`
	Share  *page.Spread `json:"share,omitempty"`
	// Services is the processor time of services that work for Envoy.
	Services []serviceTime `json:"services,omitempty"`
	Busy     page.Spread   `json:"busy"`
	// Start is for variants that are started with a plugin, and for their bases.
	Start *start `json:"start,omitempty"`
	// ModuleBytes is the size of the plugin.
	ModuleBytes int64 `json:"module_bytes,omitempty"`
	Wasm        bool  `json:"wasm"`
	// P50 to P999 are upper bounds in µs of the time that clients waited for answers: for half of
	// them, for 99 of 100, and for 999 of 1,000.
	P50  page.Spread `json:"p50_us,omitzero"`
	P99  page.Spread `json:"p99_us,omitzero"`
	P999 page.Spread `json:"p999_us,omitzero"`
	// Paced is Envoy's processor time of a request at that rate. PacedMore and PacedShare are its
	// difference from the base's in the same turn.
	Paced      page.Spread  `json:"paced_us,omitzero"`
	PacedMore  *page.Spread `json:"paced_more_us,omitempty"`
	PacedShare *page.Spread `json:"paced_share,omitempty"`
	// Held is the memory of its own that the process has for each open stream, in KiB.
	Held *page.Spread `json:"held_kib,omitempty"`
	// Processes has Envoy's time of a request in each round of each process.
	Processes [][]float64 `json:"processes_us"`

	services []string
	samples  [][]sample // of each process
	begun    []begun
	loaded   []memory // after all requests

	latencies []latency // of each process

	streams bool
	held    []float64 // KiB for each open stream, of each process
}

// serviceTime is a service's processor time of a request. It is the mean over all requests, because
// work that a service does once a second is in few rounds.
type serviceTime struct {
	Name string  `json:"name"`
	Mean float64 `json:"mean_us"`
}

// start has the time and memory until a process is ready.
type start struct {
	CPUSeconds  page.Spread `json:"cpu_s"`
	WallSeconds page.Spread `json:"wall_s"`
	// Memory is in MiB: when the process is ready, and after all requests. Own is the memory that
	// the process has written.
	Resident       page.Spread `json:"resident_mib"`
	Own            page.Spread `json:"own_mib"`
	LoadedResident page.Spread `json:"loaded_resident_mib"`
	LoadedOwn      page.Spread `json:"loaded_own_mib"`
}

// summarize computes the spreads from the samples.
func (f *figures) summarize() error {
	byName := map[string]*measured{}
	for _, m := range f.Variants {
		byName[m.Name] = m
	}
	for _, m := range f.Variants {
		base := byName[m.Base]
		if m.Base != "" && base == nil {
			return fmt.Errorf("%s: %s was not measured", m.Name, m.Base)
		}
		var all, more, share, busy []float64
		services := make([]float64, len(m.services))
		for i, process := range m.samples {
			var own []float64
			for j, s := range process {
				own, busy = append(own, hundredths(s.envoy)), append(busy, s.busy)
				for k, took := range s.services {
					services[k] += took
				}
				if base != nil {
					b := base.samples[i][j].envoy
					more, share = append(more, s.envoy-b), append(share, (s.envoy-b)/b)
				}
			}
			all = append(all, own...)
			m.Processes = append(m.Processes, own)
		}
		m.Micros, m.Busy = page.SpreadOf(all), page.SpreadOf(busy)
		if m.streams {
			m.Held = spreadOf(m.held)
		} else {
			m.P50 = page.SpreadOf(each(m.latencies, func(l latency) float64 { return l.p50 }))
			m.P99 = page.SpreadOf(each(m.latencies, func(l latency) float64 { return l.p99 }))
			m.P999 = page.SpreadOf(each(m.latencies, func(l latency) float64 { return l.p999 }))
			m.Paced = page.SpreadOf(each(m.latencies, func(l latency) float64 { return l.cpu }))
			if base != nil {
				var more, share []float64
				for i, l := range m.latencies {
					b := base.latencies[i].cpu
					more, share = append(more, l.cpu-b), append(share, (l.cpu-b)/b)
				}
				m.PacedMore, m.PacedShare = spreadOf(more), spreadOf(share)
			}
		}
		if base != nil {
			m.More, m.Share = spreadOf(more), spreadOf(share)
		}
		for k, name := range m.services {
			m.Services = append(m.Services, serviceTime{Name: name, Mean: services[k] / float64(len(all))})
		}
		if (m.Wasm || m.Name == none) && !m.streams {
			m.Start = startOf(m.begun, m.loaded)
		}
	}
	return nil
}

func startOf(processes []begun, loaded []memory) *start {
	of := func(value func(begun) float64) page.Spread { return page.SpreadOf(each(processes, value)) }
	return &start{
		CPUSeconds: of(func(b begun) float64 { return b.cpu }), WallSeconds: of(func(b begun) float64 { return b.wall }),
		Resident: of(func(b begun) float64 { return b.resident }), Own: of(func(b begun) float64 { return b.own }),
		LoadedResident: page.SpreadOf(each(loaded, func(m memory) float64 { return m.resident })),
		LoadedOwn:      page.SpreadOf(each(loaded, func(m memory) float64 { return m.own })),
	}
}

func each[T any](all []T, value func(T) float64) []float64 {
	values := make([]float64, len(all))
	for i, one := range all {
		values[i] = value(one)
	}
	return values
}

func hundredths(n float64) float64 { return math.Round(100*n) / 100 }

func spreadOf(values []float64) *page.Spread {
	s := page.SpreadOf(values)
	return &s
}

func (f *figures) json() ([]byte, error) {
	out, err := json.MarshalIndent(f, "", " ")
	return append(out, '\n'), err
}

// String returns the figures as tables in Markdown.
func (f *figures) String() string {
	var b strings.Builder
	with := ""
	if f.Machine.RateLimit != "" {
		with = ", ratelimit " + f.Machine.RateLimit
	}
	fmt.Fprintf(&b, "\nweir.wasm of %s; Envoy %s%s, %s, %d processors; %d processes of each, %d rounds of %s requests, %d connections.\n",
		f.Machine.Plugin, f.Machine.Envoy, with, f.Machine.Processor, f.Machine.Processors, f.Processes, f.Rounds, page.Thousands(float64(f.Requests)), f.Connections)
	base := ""
	for _, m := range f.Variants {
		if m.Base == "" {
			page.Row(&b, "", "CPU time of a request in Envoy", "in all", "10–90 %", "more than "+m.Title, "10–90 %", "adds", "in services", "Envoy busy")
			page.Row(&b, "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
			base = m.Name
		}
		more, moreBetween, adds := "", "", ""
		if m.More != nil && m.Base == base {
			more, moreBetween = "**"+micros(m.More.Median)+"**", between(*m.More)
			adds = fmt.Sprintf("%.0f %%", 100*m.Share.Median)
		}
		var services []string
		for _, s := range m.Services {
			services = append(services, s.Name+" "+micros(s.Mean))
		}
		page.Row(&b, m.Title, micros(m.Micros.Median), between(m.Micros), more, moreBetween, adds, strings.Join(services, ", "), fmt.Sprintf("%.0f %%", 100*m.Busy.Median))
	}
	rows := 0
	for _, m := range f.Variants {
		if m.Held != nil {
			continue
		}
		if rows++; rows == 1 {
			page.Row(&b, "", fmt.Sprintf("at %s requests a second", page.Thousands(float64(f.Rate))), "CPU time of a request in Envoy", "10–90 %", "more", "10–90 %", "adds",
				"latency of half of the answers", "10–90 %", "of 99 of 100", "10–90 %", "of 999 of 1,000", "10–90 %")
			page.Row(&b, "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
		}
		more, moreBetween, adds := "", "", ""
		if m.PacedMore != nil {
			more, moreBetween = "**"+micros(m.PacedMore.Median)+"**", between(*m.PacedMore)
			adds = fmt.Sprintf("%.0f %%", 100*m.PacedShare.Median)
		}
		page.Row(&b, m.Title, micros(m.Paced.Median), between(m.Paced), more, moreBetween, adds,
			whole(m.P50.Median), wholes(m.P50), whole(m.P99.Median), wholes(m.P99), whole(m.P999.Median), wholes(m.P999))
	}
	for _, m := range f.Variants {
		if m.Held == nil {
			continue
		}
		if m.Base == "" {
			page.Row(&b, "", fmt.Sprintf("memory of its own for each of %s open streams", page.Thousands(float64(f.Streams))), "half of the processes", "10–90 %")
			page.Row(&b, "---", "--:", "--:")
		}
		page.Row(&b, m.Title, fmt.Sprintf("%.1f KiB", m.Held.Median), between(*m.Held))
	}
	first := ""
	for _, m := range f.Variants {
		s := m.Start
		if s == nil {
			continue
		}
		if first == "" {
			page.Row(&b, first, "Envoy's start", "CPU time", "10–90 %", "until ready", "resident memory", "of its own", "of its own after the requests", "module")
			page.Row(&b, "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
			first = "begun"
		}
		module := ""
		if m.Wasm {
			module = page.Thousands(float64(m.ModuleBytes)) + " B"
		}
		page.Row(&b, m.Title, seconds(s.CPUSeconds.Median), fmt.Sprintf("%.2f–%.2f", s.CPUSeconds.Low, s.CPUSeconds.High), seconds(s.WallSeconds.Median),
			mebibytes(s.Resident), mebibytes(s.Own), mebibytes(s.LoadedOwn), module)
	}
	b.WriteString("\n")
	return b.String()
}

func micros(n float64) string        { return fmt.Sprintf("%.1f µs", n) }
func whole(n float64) string         { return fmt.Sprintf("%.0f µs", n) }
func wholes(s page.Spread) string    { return fmt.Sprintf("%.0f–%.0f", s.Low, s.High) }
func seconds(n float64) string       { return fmt.Sprintf("%.2f s", n) }
func mebibytes(s page.Spread) string { return fmt.Sprintf("%.1f MiB", s.Median) }
func between(s page.Spread) string   { return fmt.Sprintf("%.1f–%.1f", s.Low, s.High) }

// plot draws the additional cost of each variant as bars.
func (f *figures) plot() ([]byte, error) {
	bars := page.Bars{Title: "CPU time of a request in Envoy, beyond that without a filter", X: "µs, median of rounds and processes; lines: 10 % to 90 % of them"}
	for _, m := range f.Variants {
		if m.More != nil && m.Held == nil {
			bars.Bars = append(bars.Bars, page.Bar{Name: strings.ReplaceAll(m.Title, "`", ""), At: m.More.Median, Low: max(m.More.Low, 0), High: m.More.High})
		}
	}
	return bars.SVG()
}
