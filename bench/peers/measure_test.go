package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/bench/page"
	"weir/bench/site"
	"weir/internal/must"
)

// Limiters that need no program of benchmarks alone refuse, are measured, and have a row with figures. The limiters of
// this process allocate what they say.
func TestQuick(t *testing.T) {
	if testing.Short() {
		return // make test-fast
	}
	dist := filepath.Join("..", "..", "dist")
	o := &options{Options: site.Options{Dir: "..", Plugin: filepath.Join(dist, "weir.wasm"), Weir: filepath.Join(dist, "weir")}}
	o.hurry()
	there := map[string][]string{
		"envoy": {"none", "local", "weir", "posts", "weir-asks", "events", "weir-events", "native-nothing", "direct", "local-refuses", "weir-sync"}, "proxies": {"nginx", "limit_req", "envoy", "local", "wasm", "wasm-sync"}, "services": {"weir", "weir-exact"},
		"libraries": {"weir", "weir-bucket", "time-rate", "throttled", "ulule", "go-limiter"}, "redis": {"weir", "redis_rate", "ulule", "throttled"},
	}
	for _, g := range slices.Backward(groups) {
		g.contenders = slices.DeleteFunc(slices.Clone(g.contenders), func(c contender) bool { return !slices.Contains(there[g.name], c.name) })
		r := must.Get(measure(t.Context(), o, g))(t)
		for _, c := range g.contenders {
			if len(r.values[c.name]) != 1 || len(r.values[c.name][0]) != len(g.metrics) || r.values[c.name][0][0] <= 0 || !strings.Contains(r.String(), "\n| "+c.title+" | **") {
				t.Errorf("%s/%s: %v", g.name, c.name, r.values[c.name])
			}
			if asked := r.values[c.name][0][1]; (g.name == "proxies" || g.name == "envoy") && math.IsNaN(asked) == strings.HasSuffix(c.name, "-sync") {
				t.Errorf("%s/%s: %v µs in weir serve", g.name, c.name, asked)
			}
		}
	}
}

// A limiter that never refuses, refuses too early or refuses everybody is not measured.
func TestRefuses(t *testing.T) {
	for name, allows := range map[string]func(user string, n int) bool{
		"": func(user string, n int) bool { return user == "user-b" || n <= 5 }, "never": func(string, int) bool { return true },
		"early": func(user string, n int) bool { return user == "user-b" || n <= 2 }, "everybody": func(_ string, n int) bool { return n <= 3 },
	} {
		n := 0
		err := refuses(t.Context(), nil, contender{start: func(context.Context, *bench, int) (*subject, error) {
			return &subject{allow: func(_ context.Context, user string) (bool, error) {
				n++
				return allows(user, n), nil
			}}, nil
		}})
		must.Equal(t, err == nil, name == "", "%s: %v", name, err)
	}
}

// A table has medians, and differences and ratios of the same round. What is compared with nothing, and what it has not,
// leaves cells empty.
func TestTable(t *testing.T) {
	r := &results{
		group{title: "a proxy", reference: "of that without", metrics: []metric{{"CPU", "µs", 1, "vmr"}, {"memory", "B", 0, "v"}}, contenders: []contender{{name: "no", title: "none"}, {name: "weir", title: "Weir", than: "no"}}},
		map[string][][]float64{"no": {{10, math.NaN()}, {40, math.NaN()}, {20, math.NaN()}}, "weir": {{20, 60}, {50, 61}, {60, 65}}},
	}
	const want = `
| a proxy | CPU | CPU, added | of that without | memory |
| --- | --: | --: | --: | --: |
| none | **20.0** µs (10.0–40.0) |  |  |  |
| Weir | **50.0** µs (20.0–60.0) | **10.0** µs (10.0–40.0) | **2.00** × (1.25–3.00) | **61** B (60–65) |
`
	must.Equal(t, r.String(), want, "")
	r.tables, r.metrics[1].shown = map[int]string{1: "its start"}, "a"
	const started = `
| its start | memory |
| --- | --: |
| Weir | **62** B (60–65) |
`
	if got := r.String(); !strings.HasSuffix(got, started) || strings.Count(got, "none") != 1 {
		t.Errorf("got %s", got)
	}
	r.contenders = append(r.contenders, contender{name: "b", title: "B", than: "no"}, contender{name: "c", title: "C", than: "other"})
	r.values["b"], r.values["c"], r.values["other"] = [][]float64{{11, 6}, {45, 6}, {22, 6}}, [][]float64{{50, 0}, {51, 0}, {52, 0}}, [][]float64{{35, 0}, {42, 0}, {41, 0}}
	r.quotes = []quotes{{"weir", 0, 'm', []string{"b", "c"}}, {"b", 1, 'r', []string{"weir"}}}
	const beside = `
| a proxy | beside | figure | Weir beside it |  |
| --- | --: | --: | --: | --: |
| Weir | B | CPU | **9.0** µs (5.0–38.0) | more |
| Weir | C | CPU | **1.0** µs (-5.0–29.0) | neither |
| B | Weir | memory | **0.10** × (0.09–0.10) | less |
`
	must.Equal(t, r.beside(), beside, "")
}

// A chosen limiter includes what it is compared with. Pages have a block for each group, by its name.
func TestChoose(t *testing.T) {
	chosen := must.Get(choose("^proxies/(local|native)$"))(t)
	var names []string
	for _, g := range chosen {
		for _, c := range g.contenders {
			names = append(names, g.name+"/"+c.name)
		}
	}
	must.Equal(t, strings.Join(names, " "), "proxies/envoy proxies/local proxies/native", "chose")
	for _, only := range []string{"nobody", "("} {
		_, err := choose(only)
		must.Fails(t, err, "%q", only)
	}
	for of, quoted := range map[string]bool{"../README.md": false, "../comparison.md": true} {
		text := must.Get(os.ReadFile(of))(t)
		file, tables := filepath.Join(t.TempDir(), "page.md"), map[string]string{}
		must.OK(t, os.WriteFile(file, text, 0o600))
		for _, g := range groups {
			if !quoted || len(g.quotes) > 0 {
				tables[g.name] = ""
			}
		}
		must.Reportf(t, page.Keep(file, tables), "%s", of)
	}
}
