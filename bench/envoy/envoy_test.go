package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"weir/bench/page"
)

// Envoys without a filter, with Envoy's own filter and with the plugin are started, asked and
// measured, and end.
func TestQuick(t *testing.T) {
	if testing.Short() {
		return // make test-fast
	}
	o := &options{
		dir: "..", plugin: filepath.Join("..", "..", "dist", "weir.wasm"), connections: 4, workers: 1, requests: 40, rounds: 2, processes: 1, rate: 400, streams: 20,
	}
	chosen, err := choose("^(local|weir|native-nothing|local-refuses|events-tokens)$")
	if err != nil {
		t.Fatal(err)
	}
	f, err := measure(t.Context(), o, chosen)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range f.variants {
		names = append(names, m.name)
		if len(m.samples) != 1 || len(m.samples[0]) != o.rounds || m.samples[0][0].envoy <= 0 || m.begun[0].cpu <= 0 || m.loaded[0].own <= 0 || m.module != "" && m.bytes == 0 {
			t.Errorf("%s: %+v", m.name, m)
		}
		if m.streamed() != (len(m.held) == 1) || !m.streamed() && (m.paced[0].p50 <= 0 || m.paced[0].p99 < m.paced[0].p50 || m.paced[0].cpu <= 0) {
			t.Errorf("%s: %v, %v", m.name, m.held, m.paced)
		}
		if !strings.Contains(f.String(), "\n| "+m.title+" | ") {
			t.Errorf("no row of %s", m.title)
		}
	}
	if got := strings.Join(names, " "); got != "none native-nothing weir local direct local-refuses events events-tokens" {
		t.Errorf("measured %s", got)
	}
}

// A missing part is an error with a hint, and ends everything that was started before.
func TestMissing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for only, want := range map[string]string{"^weir$": "make build", "^weir-sync$": "scripts/test-dependencies bench", "^global$": "scripts/test-dependencies bench"} {
		o := &options{dir: "..", plugin: "nowhere", weir: "nowhere", ratelimit: "nowhere"}
		if only != "^weir$" {
			o.plugin = filepath.Join("..", "..", "dist", "weir.wasm")
		}
		chosen, err := choose(only)
		if err != nil {
			t.Fatal(err)
		}
		s, err := openSite(t.Context(), o, chosen)
		if s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v", only, s, err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Tables have all figures. A variant's cost is its difference from what it is compared with in the same rounds.
func TestReport(t *testing.T) {
	variant := func(name, title string, than *measured, module string, micros ...float64) *measured {
		m := &measured{variant: &variant{name: name, title: title, module: module}, than: than, samples: [][]sample{nil}, loaded: []memory{{own: 22}}}
		if than != nil {
			m.base = than.name
		}
		for _, n := range micros {
			m.samples[0] = append(m.samples[0], sample{envoy: n, busy: 0.9})
		}
		m.begun = []begun{{cpu: micros[0] / 100, wall: micros[0] / 50, memory: memory{resident: 100, own: 20}}}
		m.paced = []latency{{micros[0], 2 * micros[0], 4 * micros[0], micros[0] / 2}}
		return m
	}
	no, refuse, stream := variant(none, "no filter", nil, "", 100, 200), variant(direct, "direct", nil, "", 50, 50), variant(events, "events", nil, "", 1500, 1600)
	weir, global, tokens := variant("weir", "Weir", no, plugin, 150, 240), variant("global", "global", no, "", 300, 310), variant("tokens", "tokens", stream, plugin, 2500, 2700)
	weir.bytes, global.services, stream.held, tokens.held = 2608485, []string{"service", "redis"}, []float64{33}, []float64{39}
	global.samples[0][0].services, global.samples[0][1].services = []float64{100, 0}, []float64{200, 30}
	f := &figures{
		machine: "some machine", options: &options{requests: 4000, rounds: 2, processes: 1, connections: 16, rate: 5000, streams: 1000},
		variants: []*measured{no, weir, global, refuse, variant("refuses", "refuses", refuse, "", 40.25, 45.5), stream, tokens},
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	written, err := page.WithTables(string(readme), f.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"some machine; 1 processes of each, 2 rounds of 4,000 requests, 16 connections.",
		"| CPU time of a request in Envoy | in all | 10–90 % | more than direct | 10–90 % | adds | in services | Envoy busy |\n| --- | --: | --: | --: | --: | --: | --: | --: |",
		"| no filter | 200.0 µs | 100.0–200.0 |  |  |  |  | 90 % |",
		"| Weir | 240.0 µs | 150.0–240.0 | **50.0 µs** | 40.0–50.0 | 50 % |  | 90 % |",
		"| global | 310.0 µs | 300.0–310.0 | **200.0 µs** | 110.0–200.0 | 200 % | service 150.0 µs, redis 15.0 µs | 90 % |",
		"| refuses | 45.5 µs | 40.2–45.5 | **-4.5 µs** | -9.8–-4.5 | -9 % |  | 90 % |",
		"| tokens | 2700.0 µs | 2500.0–2700.0 | **1100.0 µs** | 1000.0–1100.0 | 69 % |  | 90 % |",
		"| no filter | 50.0 µs | 50.0–50.0 |  |  |  | 100 µs | 100–100 | 200 µs | 200–200 | 400 µs | 400–400 |",
		"| Weir | 75.0 µs | 75.0–75.0 | **25.0 µs** | 25.0–25.0 | 50 % | 150 µs | 150–150 | 300 µs | 300–300 | 600 µs | 600–600 |",
		"| memory of its own for each of 1,000 open streams | half of the processes | 10–90 % |",
		"| tokens | 39.0 KiB | 39.0–39.0 |",
		"| no filter | 1.00 s | 1.00–1.00 | 2.00 s | 100.0 MiB | 20.0 MiB | 22.0 MiB |  |",
		"| Weir | 1.50 s | 1.50–1.50 | 3.00 s | 100.0 MiB | 20.0 MiB | 22.0 MiB | 2,608,485 B |",
	} {
		if !strings.Contains(written, line+"\n") {
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

const printed = `starting benchmark...
spawning thread #0: 16 total client(s). 4000 total requests
progress: 100% done

finished in 309.10ms, 12940.80 req/s, 2.52MB/s
requests: 4000 total, 4000 started, 4000 done, 3 succeeded, 3997 failed, 0 errored, 0 timeout
status codes: 3 2xx, 0 3xx, 3996 4xx, 1 5xx
traffic: 798.83KB (818000) total, 441.41KB (452000) headers (space savings 0.00%), 11.72KB (12000) data
`

func TestParseLoad(t *testing.T) {
	got, err := parseLoad(printed)
	if want := (loaded{elapsed: 309100 * time.Microsecond, done: 4000, classes: [6]int{2: 3, 4: 3996, 5: 1}}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, line := range []string{"finished in", "requests:", "status codes:"} {
		if got, err := parseLoad(strings.Replace(printed, line, "nothing of", 1)); err == nil {
			t.Errorf("without %q: got %+v", line, got)
		}
	}
}

// Processor time is the sum over all threads in nanoseconds. That of a start includes threads that
// have ended. Memory is in MiB.
func TestProcess(t *testing.T) {
	const pid = 70
	dir := t.TempDir()
	for name, text := range map[string]string{
		"task/70/schedstat": "1500000000 46550 1\n",
		"task/71/schedstat": "250000007 1 2\n",
		"stat":              "70 (wrk:worker_0) S 1 70 70 0 -1 4194560 9 0 0 0 310 41 0 0 20 0 3 0 100 200 300 18446744073709551615" + strings.Repeat(" 0", 27) + "\n",
		"smaps_rollup":      "5581a000-7ffd2000 ---p 00000000 00:00 0    [rollup]\nRss:   104448 kB\nPss:   90000 kB\nPrivate_Clean:  1024 kB\nPrivate_Dirty:   20480 kB\n",
	} {
		file := filepath.Join(dir, strconv.Itoa(pid), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ran(fs, pid); err != nil || got != 1_750_000_007 {
		t.Errorf("ran %d ns, %v", got, err)
	}
	if got, err := started(fs, pid); err != nil || got != 3.51 {
		t.Errorf("started in %v s, %v", got, err)
	}
	if got, err := memoryOf(fs, pid); err != nil || got != (memory{resident: 102, own: 20}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, measure := range map[string]func() error{
		"ran":     func() error { _, err := ran(fs, pid+1); return err },
		"started": func() error { _, err := started(fs, pid+1); return err },
		"memory":  func() error { _, err := memoryOf(fs, pid+1); return err },
	} {
		if measure() == nil {
			t.Errorf("%s: a process that is not there was measured", name)
		}
	}
}

func TestParseLog(t *testing.T) {
	got, err := parseLog("1795255200000000\t200\t310\n1795255200000100\t200\t90\n")
	if err != nil || !slices.Equal(got, []float64{90, 310}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"1\t200\n", "1\t200\tsoon\n"} {
		if _, err := parseLog(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
