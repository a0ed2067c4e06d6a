package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"weir/bench/page"
)

// The tables are between these lines of README.md.
const (
	figuresBegin = "<!-- figures of envoy -->"
	figuresEnd   = "<!-- end of envoy figures -->"
)

// figures are what came of a run.
type figures struct {
	Machine     machine     `json:"machine"`
	Requests    int         `json:"requests"`
	Rounds      int         `json:"rounds"`
	Processes   int         `json:"processes"`
	Connections int         `json:"connections"`
	Variants    []*measured `json:"variants"`
}

type machine struct {
	Envoy        string `json:"envoy"`
	Architecture string `json:"architecture"`
	Processor    string `json:"processor"`
	Processors   int    `json:"processors"`
	// RateLimit is the version of Envoy's rate limit service, if that was measured.
	RateLimit string `json:"ratelimit,omitempty"`
}

// sample is what a request took in one round of one process.
type sample struct {
	// Envoy and Services are µs of processor time.
	Envoy    float64 `json:"envoy_us"`
	Services float64 `json:"services_us,omitempty"`
	// Busy is the share of the time in which Envoy ran.
	Busy float64 `json:"busy"`
}

// measured is a variant's.
type measured struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Base is the name of the variant that it is compared with.
	Base string `json:"base,omitempty"`
	// Micros is Envoy's processor time for a request, More what it is beyond the base's in the same round of the same turn, and
	// Share that in times of the base's.
	Micros page.Spread  `json:"us"`
	More   *page.Spread `json:"more_us,omitempty"`
	Share  *page.Spread `json:"share,omitempty"`
	// Services is the time of the services that work for Envoy.
	Services *page.Spread `json:"services_us,omitempty"`
	Busy     page.Spread  `json:"busy"`
	// Start is of variants that are started with a plugin, and of what they are compared with.
	Start *start `json:"start,omitempty"`
	// ModuleBytes is the size of the plugin.
	ModuleBytes int64 `json:"module_bytes,omitempty"`
	Wasm        bool  `json:"wasm"`
	// Samples are those of each process, and of its rounds.
	Samples [][]sample `json:"samples"`

	startCPU, startWall, startResident, startOwn, loadedResident, loadedOwn []float64
}

// start is what a process takes until it is ready.
type start struct {
	CPUSeconds  page.Spread `json:"cpu_s"`
	WallSeconds page.Spread `json:"wall_s"`
	// Memory is in MiB: when the process is ready, and after all requests.
	Resident       page.Spread `json:"resident_mib"`
	Own            page.Spread `json:"own_mib"`
	LoadedResident page.Spread `json:"loaded_resident_mib"`
	LoadedOwn      page.Spread `json:"loaded_own_mib"`
}

// summarize works out the spreads from the samples.
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
		var micros, more, share, services, busy []float64
		for i, process := range m.Samples {
			for j, s := range process {
				micros, busy, services = append(micros, s.Envoy), append(busy, s.Busy), append(services, s.Services)
				if base != nil {
					b := base.Samples[i][j].Envoy
					more, share = append(more, s.Envoy-b), append(share, (s.Envoy-b)/b)
				}
			}
		}
		m.Micros, m.Busy = page.SpreadOf(micros), page.SpreadOf(busy)
		if base != nil {
			m.More, m.Share = spreadOf(more), spreadOf(share)
		}
		if spread := spreadOf(services); spread.High > 0 {
			m.Services = spread
		}
		if m.Wasm || m.Name == none {
			m.Start = &start{
				CPUSeconds: page.SpreadOf(m.startCPU), WallSeconds: page.SpreadOf(m.startWall), Resident: page.SpreadOf(m.startResident),
				Own: page.SpreadOf(m.startOwn), LoadedResident: page.SpreadOf(m.loadedResident), LoadedOwn: page.SpreadOf(m.loadedOwn),
			}
		}
	}
	return nil
}

func spreadOf(values []float64) *page.Spread {
	s := page.SpreadOf(values)
	return &s
}

func (f *figures) json() ([]byte, error) {
	out, err := json.MarshalIndent(f, "", " ")
	return append(out, '\n'), err
}

// String is the figures as tables in Markdown.
func (f *figures) String() string {
	var b strings.Builder
	with := ""
	if f.Machine.RateLimit != "" {
		with = ", ratelimit " + f.Machine.RateLimit
	}
	fmt.Fprintf(&b, "\nEnvoy %s%s, %s, %d processors; %d processes of each, %d rounds of %s requests, %d connections.\n",
		f.Machine.Envoy, with, f.Machine.Processor, f.Machine.Processors, f.Processes, f.Rounds, page.Thousands(float64(f.Requests)), f.Connections)
	titles := map[string]string{}
	for _, m := range f.Variants {
		titles[m.Name] = m.Title
	}
	base := "–" // no variant's
	for _, m := range f.Variants {
		if m.Base == "" {
			page.Row(&b, "", "CPU time of a request in Envoy", "in all", "10–90 %", "more than "+m.Title, "10–90 %", "adds", "in services", "Envoy busy")
			page.Row(&b, "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:")
			base = m.Name
		}
		more, moreBetween, adds, services := "", "", "", ""
		if m.Base == base {
			more, moreBetween = "**"+micros(m.More.Median)+"**", between(*m.More)
			adds = fmt.Sprintf("%.0f %%", 100*m.Share.Median)
		}
		if m.Services != nil {
			services = micros(m.Services.Median)
		}
		page.Row(&b, m.Title, micros(m.Micros.Median), between(m.Micros), more, moreBetween, adds, services, fmt.Sprintf("%.0f %%", 100*m.Busy.Median))
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
func seconds(n float64) string       { return fmt.Sprintf("%.2f s", n) }
func mebibytes(s page.Spread) string { return fmt.Sprintf("%.1f MiB", s.Median) }
func between(s page.Spread) string   { return fmt.Sprintf("%.1f–%.1f", s.Low, s.High) }

// plot is what the variants add to a request, as bars.
func (f *figures) plot() ([]byte, error) {
	bars := page.Bars{Title: "CPU time of a request in Envoy, beyond that without a filter", X: "µs, median of rounds and processes; lines: 10 % to 90 % of them"}
	for _, m := range f.Variants {
		if m.More != nil {
			bars.Bars = append(bars.Bars, page.Bar{Name: strings.ReplaceAll(m.Title, "`", ""), At: m.More.Median, Low: m.More.Low, High: m.More.High})
		}
	}
	return bars.SVG()
}
