package check_test

import (
	"testing"

	"weir/internal/check"
	"weir/internal/must"
)

// A file that somebody has come upon is checked if it is Weir's, broken or not, and else passed over.
func TestFound(t *testing.T) {
	t.Parallel()
	const ofMap = "apiVersion: v1\nkind: ConfigMap\ndata:\n  configuration.yaml: |"
	for _, test := range []struct {
		name, file, text string
		configurations   int
		refused          bool
	}{
		{"a configuration", "a.json", `{"rules": [{"name": "total", "limits": [{"limit": 60, "window": "1s"}]}]}`, 1, false},
		{"one with a mistake", "a.json", `{"rules": [{"name": "total", "limits": [{"limit": 60}]}]}`, 1, true},
		{"one in YAML", "a.yaml", "rules:\n- {name: total, limits: [{limit: 60, window: 1s}]}\n", 1, false},
		{"one without rules", "a.yaml", "sync_rate: 1\n", 1, true},
		{"broken JSON", "a.json", `{"rules": [{"name": "total", "limits": [}`, 1, true},
		{"broken YAML", "a.yaml", "rules: [\n  limits: {", 0, true},
		{"broken, of another program", "a.yaml", "jobs: [\n", 0, false},
		{"a template", "a.yaml", "rules: {{ .Values.rules }}\nlimits: weir\n", 0, false},
		{"npm's", "package.json", `{"name": "shop", "rules": {"semi": "error"}}`, 0, false},
		{"rules of others", "semgrep.yaml", "rules:\n- {id: eval, pattern: eval(...)}\n", 0, false},
		{"a list", "a.json", `["a"]`, 0, false},
		{"nothing", "a.yaml", "", 0, false},
		{"comments", "a.yaml", "# weir\n", 0, false},
		{"no text", "a.json", "\xff\xfe", 0, false},
		{"a workload", "a.yaml", "apiVersion: v1\nkind: Secret\n", 0, false},
		{"the controller's configuration", "a.yaml", ofMap + "\n    sync_rate: 1\n", 1, false},
		{"no rules, in a namespace", "a.yaml", ofMap + "\n    sync_rate: 1\n    namespace: shop\n", 1, true},
		{"the controller's, misspelt", "a.yaml", ofMap + "\n    sync_rate: 1\n    rule: []\n", 1, true},
		{"several", "a.yaml", "a: 1\n---\nrules:\n- {name: total, limits: [{limit: 60, window: 1s}]}\n---\nb: 1\n", 1, false},
	} {
		report := check.Found(test.file, []byte(test.text))
		must.Equal(t, report.Configurations, test.configurations, "%s: configurations of\n%s", test.name, findings(report))
		must.Equal(t, report.Refused(), test.refused, "%s: refused: %s", test.name, findings(report))
	}
}

// A configuration in a ConfigMap begins where its file has it.
func TestConfigurationOfAConfigMap(t *testing.T) {
	t.Parallel()
	report := check.File("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\ndata:\n  weir.json: |\n    \n"+
		`    {"namespace": "shop", "rules": [{"name": "total", "limits": [{"limit": 60, "window": "1s"}]}]}`+"\n"))
	if len(report.Accepted) != 1 || report.Accepted[0].Line != 6 || report.Accepted[0].Column != 5 || report.Accepted[0].Config.Namespace != "shop" {
		t.Errorf("got %+v\n%s", report.Accepted, findings(report))
	}
}
