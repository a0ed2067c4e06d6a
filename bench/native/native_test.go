package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bench/page"
)

const printed = `goos: linux
cpu: some of them
BenchmarkTable/512_keys-2 	     100	       1.250 90%/10%	         4.000 floors-at-10%	         3.000 floors-at-90%	       200.0 ns-at-10%
BenchmarkTable/4096_keys-2 	     100	       1.500 90%/10%	         5.000 floors-at-10%
BenchmarkMessages/push-2 	     100	       200.0 ns/op
BenchmarkMessages/floor_of_push-2 	     100	       50.0 ns/op
BenchmarkMessages/answer-2 	     100	       300.0 ns/op
BenchmarkMessages/floor_of_answer-2 	     100	       60.0 ns/op
BenchmarkMatch/one_rule-2 	     100	       30.0 ns/op	       0 B/op	       1 allocs/op
BenchmarkMatch/floor-2 	     100	       10.0 ns/op
BenchmarkHotKey-2 	     100	       0.8000 8-workers/1	        0.9000 floor-8-workers/1	        25.00 %lost-races
PASS
`

const printedByLibrary = "BenchmarkHotKey-2 	     100	       1.100 8-goroutines/1\n"

// The benchmarks are named by folders of the repository, which outlive no move by themselves.
func TestBenchmarksExist(t *testing.T) {
	for _, b := range benchmarks {
		if files, err := filepath.Glob(filepath.Join("..", "..", b.pkg, "bench_test.go")); err != nil || len(files) == 0 {
			t.Errorf("%s has no bench_test.go (%v)", b.pkg, err)
		}
	}
}

// added are the results of one round of everything.
func added(t *testing.T, output string) results {
	t.Helper()
	r := results{}
	for pkg, output := range map[string]string{"filter": output, "ratelimit": printedByLibrary} {
		if err := r.add(pkg, output, 2); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Benchmarks stand beside the floors of their own rounds.
func TestPairs(t *testing.T) {
	r := added(t, printed)
	for _, output := range []string{strings.ReplaceAll(printed, " 10.0 ns/op", " 5.0 ns/op"), printed} {
		if err := r.add("filter", output, 2); err != nil {
			t.Fatal(err)
		}
	}
	f, err := r.figures()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]page.Spread{
		"filter.Messages/push": {Median: 4, Low: 4, High: 4}, "filter.Messages/answer": {Median: 5, Low: 5, High: 5}, "filter.Match/one_rule": {Median: 3, Low: 3, High: 6},
	}
	for _, p := range f.Pairs {
		if p.Ratio != want[p.Name] {
			t.Errorf("%s: got %+v, want %+v", p.Name, p.Ratio, want[p.Name])
		}
		if (p.Allocations != nil) != (p.Name == "filter.Match/one_rule") {
			t.Errorf("%s: allocations %v", p.Name, p.Allocations)
		}
		delete(want, p.Name)
	}
	if len(want) > 0 {
		t.Errorf("no pairs of %v", want)
	}
	for i, want := range []float64{0.8, 0.9, 1.1, 1.25, 1.5, 4, 3} {
		if got := f.Comparisons[i]; got.Ratio.Median != want {
			t.Errorf("got %+v, want %v", got, want)
		}
	}
	if got := f.Metrics["filter.Table/512_keys"]; len(got) != 1 || got["ns-at-10%"] != 200 {
		t.Errorf("got %v", got)
	}
	if got := f.Metrics["filter.HotKey"]["%lost-races"]; got != 25 {
		t.Errorf("got %v %% lost", got)
	}
}

func TestWhatIsNoBenchmark(t *testing.T) {
	if err := (results{}).add("filter", "PASS\n", 2); err == nil {
		t.Error("a package without benchmarks was measured")
	}
	if err := (results{}).add("filter", "BenchmarkMatch/floor 100 many ns/op\n", 1); err == nil {
		t.Error("a time that is no number was taken")
	}
	for _, missing := range []string{"8-workers/1	", "floors-at-90%"} {
		r := added(t, strings.ReplaceAll(printed, missing, "0"+missing))
		if f, err := r.figures(); err == nil {
			t.Errorf("what is compared is missing, and gives %+v", f)
		}
	}
}

// The page has a place for the tables, and the tables, the plot and the JSON have all figures.
func TestReport(t *testing.T) {
	packages, err := added(t, printed).figures()
	if err != nil {
		t.Fatal(err)
	}
	all := &figures{
		Packages: packages,
		Wazero: []wazeroFigures{{Name: "allowed", Title: "allowed: one rule", Ratio: page.Spread{Median: 2.5, Low: 2, High: 3},
			Calls: map[string]float64{"proxy_get_current_time_nanoseconds": 1, "proxy_replace_header_map_value": 5, "proxy_get_shared_data": 0.001}}},
		Proxy: &proxyFigures{Clients: 8, Targets: []targetFigures{{Name: "no proxy", PerSecond: page.Spread{Median: 12345, Low: 1000, High: 20000}, Millis: 0.5}}, ToNothing: page.Spread{Median: 0.8, Low: 0.5, High: 1}},
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	written, err := page.Between(readme, "<!-- figures of native -->", "<!-- end of native figures -->", all.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| filter.Messages: answer | **5.00** | 5.00–5.00 | 300 ns | 60.0 ns |  |",
		"| filter.Match: one rule | **3.00** | 3.00–3.00 | 30.0 ns | 10.0 ns | 1 |",
		"| filter.HotKey | 25.0 | %lost-races |",
		"6.00: get_current_time, <0.01 get_shared_data, 5 replace_header_map_value |",
		"| no proxy | 12,345 | 1,000–20,000 | 0.50 ms |",
	} {
		if !strings.Contains(string(written), line+"\n") {
			t.Errorf("no line %s in\n%s", line, all)
		}
	}
	plotted, err := all.plot()
	if err != nil {
		t.Fatal(err)
	}
	for _, bar := range []string{"wazero: allowed", "filter.Match: one rule", "weir run, a request"} {
		if !strings.Contains(string(plotted), ">"+bar+"<") {
			t.Errorf("no bar of %s", bar)
		}
	}
	encoded, err := all.json()
	var again figures
	if err != nil || json.Unmarshal(encoded, &again) != nil || again.String() != all.String() {
		t.Errorf("the figures are others after JSON: %v\n%s", err, encoded)
	}
}

// Clients ask until the time is over, and the first one that is not answered well ends it.
func TestAsk(t *testing.T) {
	url, stop, err := serveUpstream()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	o := &options{clients: 3, block: time.Millisecond}
	if perSecond, millis, err := ask(context.Background(), http.DefaultClient, url, o); err != nil || perSecond <= 0 || millis <= 0 {
		t.Errorf("got %v a second, %v ms, %v", perSecond, millis, err)
	}
	refusing := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Status: "429 Too Many Requests", StatusCode: 429, Body: http.NoBody}, nil
	})
	o.block = time.Hour
	if _, _, err := ask(context.Background(), &http.Client{Transport: refusing}, url, o); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("refused requests give %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
