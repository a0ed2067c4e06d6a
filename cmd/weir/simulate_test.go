package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
	"weir/internal/simulate"
)

// files is a new directory, and writes files into it.
func files(t *testing.T) (dir string, write func(name, content string) (path string)) {
	t.Helper()
	dir = t.TempDir()
	return dir, func(name, content string) string { return must.File(t, filepath.Join(dir, name), content) }
}

// Files of envoyproxy/ratelimit are simulated by the actions of Envoy's routes.
func TestSimulateDescriptors(t *testing.T) {
	t.Parallel()
	_, write := files(t)
	limits := write("limits.yaml", "domain: shop\ndescriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 3}}, {key: other, rate_limit: {unit: day, requests_per_unit: 1}}]")
	routes := write("envoy.yaml", "virtual_hosts: [{name: app, domains: [\"*\"], routes: [{match: {prefix: /api}, route: {cluster: app, rate_limits: [{actions: [{remote_address: {}}]}]}}]}]")
	broken := write("broken.yaml", "domain: shop\ndescriptors: [{}]")
	log := ""
	for second := range 5 {
		log += fmt.Sprintf("10.0.0.7 - - [02/Jan/2026:15:04:%02d +0000] \"GET /api/a HTTP/1.1\" 200 1 \"-\" \"curl\"\n", second)
		log += fmt.Sprintf("10.0.0.7 - - [02/Jan/2026:15:04:%02d +0000] \"GET /other HTTP/1.1\" 200 1 \"-\" \"curl\"\n", second)
	}
	log = write("access.log", log)
	executeAll(t, nil, []lineTest{
		{"simulate --descriptors " + limits + " --descriptors " + routes + " " + log, 0, "requests   10, refused 2 (20.0 %)", "no action in Envoy's routes makes such a descriptor"},
		{"simulate --descriptors " + limits + " " + log, 1, "", "want another FILE with Envoy's routes"},
		{"simulate --descriptors " + broken + " --descriptors " + routes + " " + log, 1, "", "broken.yaml:2"},
		{"simulate --descriptors " + limits + " --config " + routes + " " + log, 2, "", "want --config or --descriptors"},
	})
}

// Logs of several formats are one demand, in each form of the report.
func TestSimulate(t *testing.T) {
	dir, write := files(t)
	configuration := write("weir.json", `{"rules": [{"name": "per-client", "key": ["client_ip"], "limits": [{"limit": 3, "window": "1m", "algorithm": "sliding_log"}]}]}`)
	nginx, envoy, fromStdin := "", "", ""
	for second := range 4 {
		nginx += fmt.Sprintf("10.0.0.7 - - [02/Jan/2026:15:04:%02d +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"curl\"\n", 10*second)
		envoy += fmt.Sprintf("[2026-01-02T15:04:%02d.500Z] \"GET /b HTTP/1.1\" 200 - 0 1 1 1 \"10.0.0.7\" \"curl\" \"id\" \"shop.example\" \"10.0.0.1:80\"\n", 10*second)
		fromStdin += fmt.Sprintf("{\"when\": \"2026-01-02T15:04:%02d.700Z\", \"path\": \"/c\", \"who\": \"10.0.0.%d\"}\n", 10*second, second)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	must.Get(w.Write([]byte(envoy)))(t)
	must.OK(t, w.Close())
	simulateIt := func(args ...string) string {
		t.Helper()
		args = append([]string{"simulate", "--config", configuration, "--field", "when=time", "--field", "who=client_ip"}, args...)
		args = append(args, write("access.log", nginx), write("envoy.log.gz", packed.String()), "-")
		code, stdout, stderr := execute(t.Context(), nil, fromStdin, args...)
		must.EqualOrEnd(t, code, 0, "exit code, with %s", stderr)
		must.EqualOrEnd(t, stderr, "", "stderr")
		return stdout
	}

	var report simulate.Report
	must.OK(t, json.Unmarshal([]byte(simulateIt("--json")), &report))
	// 8 requests of 10.0.0.7 within a minute, of which 3 pass; the others come once each.
	if report.Requests != 12 || report.Refused != 5 || report.Rules[0].Keys != 5 || report.Rules[0].Worst[0].Values[0] != "10.0.0.7" {
		t.Errorf("%+v", report)
	}
	for i, format := range []string{"combined", "envoy", "json"} {
		if log := report.Logs[i]; log.Format != format || log.Requests != 4 || log.Gzip != (i == 1) {
			t.Errorf("%+v, want %s", log, format)
		}
	}
	text := simulateIt()
	for _, want := range []string{"requests   12, refused 5 (41.7 %)", "10.0.0.7 has 100 % of the refusals, by per-client.", "10.0.0.7", "rule per-client", "token_bucket, burst 3", "at most 1 % of requests: 8"} {
		must.Contains(t, text, want, "")
	}
	page := filepath.Join(dir, "page.html")
	must.Equal(t, simulateIt("--html", page, "--keys", "1"), "", "printed")
	must.Contains(t, must.Text(t, page), "<svg", "page")
}

// A configuration is read from what people deploy, as weir check reads it.
func TestSimulateDeployed(t *testing.T) {
	dir, write := files(t)
	const rule = `{"name": "all", "limits": [{"limit": 2, "window": "1m", "algorithm": "sliding_log"}]}`
	plugin := func(resource, configuration string) string {
		return "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nspec:\n  url: oci://x/weir\n  pluginConfig:\n    " +
			"namespace: " + resource + "\n    rules:\n    - " + configuration + "\n"
	}
	istio := plugin("shop", rule)
	other := plugin("blog", strings.Replace(rule, `"limit": 2`, `"limit": 3`, 1))
	var seven strings.Builder
	for i := range 7 {
		fmt.Fprintf(&seven, "\n    - {name: r%d, limits: [{limit: 4, window: 1h}]}", i)
	}
	both := write("both.yaml", istio+"---\n"+other)
	// Its name has what looks like a place.
	colon := write("a:5", "rules: ["+rule+"]")
	choices := "several configurations; choose one of\n" +
		"  " + both + ":6:5 (namespace shop, rules all)\n  " + both + ":15:5 (namespace blog, rules all)\n"
	log := write("access.log", strings.Repeat(`{"time": "2026-01-02T15:04:05.1Z", "path": "/a"}`+"\n", 10))
	jsonPlugin := func(namespace string) string {
		return `{"apiVersion": "extensions.istio.io/v1alpha1", "kind": "WasmPlugin", "spec": {"url": "oci://x/weir", "pluginConfig": {"namespace": "` +
			namespace + `", "rules": [` + rule + `]}}}`
	}
	line := write("line.json", "["+jsonPlugin("shop")+", "+strings.Replace(jsonPlugin("blog"), `"limit": 2`, `"limit": 3`, 1)+"]")
	for name, test := range map[string]struct {
		config, stdin string
		refused       int // of 10 requests
		code          int
		stderr        string
	}{
		"YAML":               {config: write("plain.yaml", "rules:\n- name: all\n  limits:\n  - limit: 4\n    window: 1h\n"), refused: 6},
		"an expression":      {config: write("if.yaml", "rules:\n- name: all\n  match: {if: request.url_path == \"/a\"}\n  limits:\n  - limit: 4\n    window: 1h\n"), refused: 6},
		"which is not met":   {config: write("not.yaml", "rules:\n- name: all\n  match: {if: request.url_path != \"/a\"}\n  limits:\n  - limit: 4\n    window: 1h\n")},
		"one plugin":         {config: write("istio.yaml", istio), refused: 8},
		"the same plugin":    {config: write("twice.yaml", istio+"---\n"+istio), refused: 8},
		"one by its line":    {config: both + ":15", refused: 7},
		"by its column too":  {config: both + ":6:5", refused: 8},
		"a name with a line": {config: colon, refused: 8},
		"behind such a name": {config: colon + ":1:1", refused: 8},
		"standard input":     {config: "-", stdin: istio, refused: 8},
		"one of those":       {config: "-:15", stdin: istio + "---\n" + other, refused: 7},
		"one of a line":      {config: line + ":1:359", refused: 7},
		"several in a line":  {config: line + ":1", code: 2, stderr: "several configurations; choose one of\n"},
		"several":            {config: both, code: 2, stderr: choices},
		"no such column":     {config: both + ":6:4", code: 2, stderr: "no configuration begins at " + both + ":6:4; choose one of\n"},
		"part of a line":     {config: both + ":1", code: 2, stderr: "no configuration begins at " + both + ":1; choose one of\n"},
		"Envoy's": {
			config: "../../envoy/envoy.yaml", code: 2,
			stderr: "../../envoy/envoy.yaml has several configurations; choose one of\n  ../../envoy/envoy.yaml:66:29 (namespace default, rules per-user",
		},
		"one of Envoy's": {config: "../../envoy/envoy.yaml:66"}, // within its limits
		"many rules": {
			config: write("many.yaml", istio+"---\n"+plugin("many", "{name: first, limits: [{limit: 4, window: 1h}]}"+seven.String())),
			code:   2, stderr: ":15:5 (namespace many, rules first, r0, r1, r2, r3, 3 more)\n",
		},
		"none":            {config: write("none.yaml", "apiVersion: v1\nkind: Secret\n"), code: 1, stderr: "none.yaml: want a configuration, or a document of Envoy"},
		"a mistake":       {config: write("bad.yaml", strings.Replace(istio, "window", "windw", 1)), code: 1, stderr: "bad.yaml:8:47: rules[0].limits[0].windw: unknown field"},
		"no file":         {config: filepath.Join(dir, "gone.yaml:7"), code: 1, stderr: "gone.yaml: no such file"},
		"a log there too": {config: "-:7 -", code: 2, stderr: "want standard input for the configuration or for a log, not for both"},
	} {
		t.Run(name, func(t *testing.T) {
			config, more, _ := strings.Cut(test.config, " ")
			args := append([]string{"simulate", "--json", "--config", config}, append(strings.Fields(more), log)...)
			code, stdout, stderr := execute(t.Context(), nil, test.stdin, args...)
			must.EqualOrEnd(t, code, test.code, "exit code: %s", stderr)
			if test.code != 0 {
				must.Contains(t, stderr, test.stderr, "printed")
				return
			}
			var report simulate.Report
			must.OK(t, json.Unmarshal([]byte(stdout), &report))
			must.Equal(t, report.Refused, uint64(test.refused), "refused")
		})
	}
}
