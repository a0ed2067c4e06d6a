package main

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/bench/site"
	"weir/internal/must"
)

// Envoys without a filter, with Envoy's own filter and with the plugin are started, asked and
// measured, and end.
func TestQuick(t *testing.T) {
	if testing.Short() {
		return // make test-fast
	}
	o := &options{
		Options:     site.Options{Dir: "..", Plugin: filepath.Join("..", "..", "dist", "weir.wasm")},
		connections: 4, workers: 1, requests: 40, rounds: 2, processes: 1, rate: 400,
	}
	chosen := must.Get(choose("^(local|weir|weir-asks|weir-events|native-nothing|local-refuses)$"))(t)
	f := must.Get(measure(t.Context(), t, o, chosen))(t)
	var names []string
	for _, m := range f.variants {
		names = append(names, m.name)
		if len(m.samples) != 1 || len(m.samples[0]) != o.rounds || m.samples[0][0].envoy <= 0 || m.begun[0].cpu <= 0 || m.loaded[0].Own <= 0 || m.Module != "" && m.bytes == 0 {
			t.Errorf("%s: %+v", m.name, m)
		}
		if m.paced[0].p50 <= 0 || m.paced[0].p99 < m.paced[0].p50 || m.paced[0].cpu <= 0 {
			t.Errorf("%s: %v", m.name, m.paced)
		}
		if !strings.Contains(f.String(), "\n| "+m.title+" | ") {
			t.Errorf("no row of %s", m.title)
		}
	}
	if got := strings.Join(names, " "); got != "none native-nothing weir local posts weir-asks events weir-events direct local-refuses" {
		t.Errorf("measured %s", got)
	}
}

// Tables have all figures. A variant's cost is its difference from what it is compared with in the same rounds.
func TestReport(t *testing.T) {
	variant := func(name, title string, than *measured, module string, micros ...float64) *measured {
		m := &measured{variant: &variant{Envoy: site.Envoy{Module: module}, name: name, title: title}, than: than, samples: [][]sample{nil}, loaded: []site.Memory{{Own: 22}}}
		if than != nil {
			m.base = than.name
		}
		for _, n := range micros {
			m.samples[0] = append(m.samples[0], sample{envoy: n, busy: 0.9})
		}
		m.begun = []begun{{cpu: micros[0] / 100, wall: micros[0] / 50, Memory: site.Memory{Resident: 100, Own: 20}}}
		m.paced = []latency{{micros[0], 2 * micros[0], 4 * micros[0], micros[0] / 2}}
		return m
	}
	no, refuse := variant(none, "no filter", nil, "", 100, 200), variant(direct, "direct", nil, "", 50, 50)
	weir, global := variant("weir", "Weir", no, site.Plugin, 150, 240), variant("global", "global", no, "", 300, 310)
	weir.bytes, global.Services = 2608485, []string{"service", "redis"}
	global.samples[0][0].services, global.samples[0][1].services = []float64{100, 0}, []float64{200, 30}
	f := &figures{
		machine: "some machine", options: &options{requests: 4000, rounds: 2, processes: 1, connections: 16, rate: 5000},
		variants: []*measured{no, weir, global, refuse, variant("refuses", "refuses", refuse, "", 40.25, 45.5)},
	}
	for _, line := range []string{
		"some machine; 1 processes of each, 2 rounds of 4,000 requests, 16 connections.",
		"| CPU time of a request in Envoy | in all | 10–90 % | more than direct | 10–90 % | adds | in services | Envoy busy |\n| --- | --: | --: | --: | --: | --: | --: | --: |",
		"| no filter | 200.0 µs | 100.0–200.0 |  |  |  |  | 90 % |",
		"| Weir | 240.0 µs | 150.0–240.0 | **50.0 µs** | 40.0–50.0 | 50 % |  | 90 % |",
		"| global | 310.0 µs | 300.0–310.0 | **200.0 µs** | 110.0–200.0 | 200 % | service 150.0 µs, redis 15.0 µs | 90 % |",
		"| refuses | 45.5 µs | 40.2–45.5 | **-4.5 µs** | -9.8–-4.5 | -9 % |  | 90 % |",
		"| no filter | 50.0 µs | 50.0–50.0 |  |  |  | 100 µs | 100–100 | 200 µs | 200–200 | 400 µs | 400–400 |",
		"| Weir | 75.0 µs | 75.0–75.0 | **25.0 µs** | 25.0–25.0 | 50 % | 150 µs | 150–150 | 300 µs | 300–300 | 600 µs | 600–600 |",
		"| no filter | 1.00 s | 1.00–1.00 | 2.00 s | 100.0 MiB | 20.0 MiB | 22.0 MiB |  |",
		"| Weir | 1.50 s | 1.50–1.50 | 3.00 s | 100.0 MiB | 20.0 MiB | 22.0 MiB | 2,608,485 B |",
	} {
		if !strings.Contains(f.String(), line+"\n") {
			t.Errorf("no line %s in\n%s", line, f)
		}
	}
}

// A chosen variant includes its base. A name that no variant has is an error that lists the names.
func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(variants) {
		t.Errorf("got %d of %d variants, %v", len(all), len(variants), err)
	}
	for _, only := range []string{"nobody", "("} {
		if chosen, err := choose(only); err == nil {
			t.Errorf("%q gives %d variants", only, len(chosen))
		}
	}
	for _, v := range variants {
		found, err := choose("^" + v.name + "$")
		if err != nil || v.base != "" && (len(found) != 2 || found[0].name != v.base) {
			t.Errorf("%s: got %d variants, %v", v.name, len(found), err)
		}
	}
}
