package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"weir/internal/commandtest"
	"weir/internal/must"
)

const (
	page = "../docs/monitoring.md"
	// The chart installs these, and who has no chart takes them from it.
	rulesFile     = "../charts/weir/files/rules.yaml"
	dashboardFile = "../charts/weir/files/dashboard.json"
)

type rule struct {
	Record, Alert, Expr string
	For                 string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	must.OK(t, yaml.Unmarshal(must.Get(os.ReadFile(rulesFile))(t), &file))
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

var comparison = regexp.MustCompile(`(?s)^(.+\S)\s+(?:>|>=)\s+[0-9.]+\s*$`)

// measured returns the expression that an alert compares with a number, or that a recording rule
// records.
func (r rule) measured(t *testing.T) string {
	t.Helper()
	if r.Alert == "" {
		return r.Expr
	}
	match := comparison.FindStringSubmatch(r.Expr)
	if match == nil {
		t.Fatalf("alert %s: want a comparison with a number at the end, got %s", r.Alert, r.Expr)
	}
	return match[1]
}

// dashboard has the fields of Grafana's dashboard.json that tests use.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	GridPos                  struct{ X, Y, W, H int }
	Panels                   []panel // of a row that is closed
	Targets                  []struct {
		RefID string
		Expr  string
	}
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(dashboardFile))(t), &d))
	for _, p := range slices.Clone(d.Panels) {
		d.Panels = append(d.Panels, p.Panels...)
	}
	return d
}

func TestPromtool(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	_, shown, _ := strings.Cut(must.Text(t, page), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	must.OK(t, os.WriteFile(config, []byte(shown), 0o600))
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "rules_test.yaml"}, {"check", "config", "--syntax-only", config}} {
		commandtest.Run(t, exec.Command("promtool", args...))
	}
}

// Envoy Gateway's Envoys get the tags of envoy/envoy.yaml from the page's EnvoyProxy.
func TestTagsOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	type bootstrap struct {
		Stats struct {
			Tags []map[string]string `yaml:"stats_tags"`
		} `yaml:"stats_config"`
	}
	var proxy struct {
		Spec struct {
			Bootstrap struct{ Type, Value string }
		}
	}
	var merged, want bootstrap
	_, shown, _ := strings.Cut(must.Text(t, page), "kind: EnvoyProxy\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	must.OK(t, yaml.Unmarshal([]byte(shown), &proxy))
	must.Equal(t, proxy.Spec.Bootstrap.Type, "Merge", "what becomes of Envoy Gateway's own tags")
	must.OK(t, yaml.Unmarshal([]byte(proxy.Spec.Bootstrap.Value), &merged))
	must.OK(t, yaml.Unmarshal([]byte(must.Text(t, "../envoy/envoy.yaml")), &want))
	must.Same(t, merged, want, "tags")
}

// Each alert says what is wrong and links to a section with the remedy. rules_test.yaml makes it
// fire, and has healthy values for everything that alerts read.
func TestAlertsAreExplainedAndTested(t *testing.T) {
	t.Parallel()
	var tests struct {
		Tests []struct {
			Name        string
			InputSeries []struct{ Series string } `yaml:"input_series"`
			Queries     []struct {
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	must.OK(t, yaml.Unmarshal(must.Get(os.ReadFile("rules_test.yaml"))(t), &tests))
	fired, healthy := map[string]bool{}, ""
	for _, test := range tests.Tests {
		for _, q := range test.Queries {
			for _, s := range q.Samples {
				fired[regexp.MustCompile(`alertname="(\w+)"`).FindStringSubmatch(s.Labels)[1]] = true
			}
		}
		if test.Name == "healthy" {
			for _, s := range test.InputSeries {
				healthy += s.Series + "\n"
			}
		}
	}
	sections := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^### (Weir\w+)$`).FindAllStringSubmatch(must.Text(t, page), -1) {
		sections[match[1]] = true
	}
	alerts := 0
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		must.Equal(t, fired[r.Alert], true, "%s: rules_test.yaml has it fire", r.Alert)
		must.Equal(t, sections[r.Alert], true, "%s: %s has a section of this name", r.Alert, page)
		must.Equal(t, r.Annotations["runbook"], "docs/monitoring.md#"+strings.ToLower(r.Alert), "%s: runbook", r.Alert)
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: want a summary and a description, got %v", r.Alert, r.Annotations)
		}
		must.Equal(t, slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]), true, "%s: its severity, %q, is known", r.Alert, r.Labels["severity"])
		// A single event stays in an increase for its whole range.
		if r.For == "" && !strings.Contains(r.Expr, "increase(") {
			t.Errorf("%s: want a time that it lasts", r.Alert)
		}
		for _, name := range metricsIn(r.Expr) {
			if !strings.Contains(healthy, name+"{") && !strings.Contains(healthy, name+"_bucket{") {
				t.Errorf("%s: rules_test.yaml has no healthy values of %s", r.Alert, name)
			}
		}
	}
	must.Equal(t, alerts, len(sections), "alerts, and sections of %s", page)
}

// Grafana shows the dashboard without plugins, with any Prometheus.
func TestDashboardIsGrafanas(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		must.Equal(t, ids[p.ID], false, "%s: another panel has its id", p.Title)
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, taken := cells[cell]; taken || cell[0] >= 24 {
					t.Fatalf("%s lies on %q, or outside, at %v", p.Title, other, cell)
				}
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		must.Equal(t, slices.Contains([]string{"timeseries", "stat"}, p.Type), true, "%s: panel of type %s", p.Title, p.Type)
		if p.Description == "" || len(p.Targets) == 0 || p.GridPos.W == 0 || p.GridPos.H == 0 {
			t.Errorf("%s: want a description, queries and a size", p.Title)
		}
		want := source{"prometheus", "${datasource}"}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			must.Equal(t, p.Datasource, want, "%s, query %s: source", p.Title, q.RefID)
			must.Equal(t, refs[q.RefID], false, "%s: another query has the id %s", p.Title, q.RefID)
			refs[q.RefID] = true
		}
	}
}

// labels has labels that look like metrics.
var labels = []string{"weir_namespace", "weir_rule", "weir_outcome"}

// metricsIn returns the metrics of Weir in a text, sorted.
func metricsIn(text string) (names []string) {
	// A part of a recording rule's name, such as rule:weir_requests:rate5m, looks like a metric
	// too.
	for _, name := range regexp.MustCompile(`[a-z0-9_:]+`).FindAllString(text, -1) {
		if strings.HasPrefix(name, "weir_") && !strings.Contains(name, ":") && !slices.Contains(labels, name) {
			names = append(names, histogram(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// histogram returns the name of the histogram that a series belongs to.
func histogram(name string) string {
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if whole, ok := strings.CutSuffix(name, part); ok && strings.HasSuffix(whole, "_seconds") {
			return whole
		}
	}
	return name
}

func (d dashboard) shown() (names []string) {
	var all strings.Builder
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			fmt.Fprintln(&all, q.Expr)
		}
	}
	return metricsIn(all.String())
}

// documented returns the metrics in the tables of the page.
func documented(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` \\|").FindAllStringSubmatch(must.Text(t, page), -1) {
		names = append(names, match[1])
	}
	return names
}
