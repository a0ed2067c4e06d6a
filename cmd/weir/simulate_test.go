package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/simulate"
)

// Logs of several formats are one demand, in each form of the report.
func TestSimulate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	configuration := write("weir.json", `{"rules": [{"name": "per-client", "key": ["client_ip"], "limits": [{"limit": 3, "window": "1m", "algorithm": "sliding_log"}]}]}`)
	nginx, envoy, fromStdin := "", "", ""
	for second := range 4 {
		nginx += fmt.Sprintf("10.0.0.7 - - [02/Jan/2026:15:04:%02d +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"curl\"\n", 10*second)
		envoy += fmt.Sprintf("[2026-01-02T15:04:%02d.500Z] \"GET /b HTTP/1.1\" 200 - 0 1 1 1 \"10.0.0.7\" \"curl\" \"id\" \"shop.example\" \"10.0.0.1:80\"\n", 10*second)
		fromStdin += fmt.Sprintf("{\"when\": \"2026-01-02T15:04:%02d.700Z\", \"path\": \"/c\", \"who\": \"10.0.0.%d\"}\n", 10*second, second)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(envoy)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	simulateIt := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		args = append([]string{"simulate", "--config", configuration, "--field", "when=time", "--field", "who=client_ip"}, args...)
		args = append(args, write("access.log", nginx), write("envoy.log.gz", packed.String()), "-")
		code := run(t.Context(), args, environment{stdin: strings.NewReader(fromStdin), stdout: &stdout, stderr: &stderr})
		if code != 0 || stderr.Len() > 0 {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		return stdout.String()
	}

	var report simulate.Report
	if err := json.Unmarshal([]byte(simulateIt("--json")), &report); err != nil {
		t.Fatal(err)
	}
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
	for _, want := range []string{"requests   12, refused 5 (41.7 %)", "10.0.0.7", "rule per-client", "token_bucket, burst 3", "at most 1 % of requests: 8"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	page := filepath.Join(dir, "page.html")
	if text := simulateIt("--html", page, "--keys", "1"); text != "" {
		t.Errorf("printed %q", text)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("<svg")) {
		t.Errorf("%v: %.200s", err, html)
	}
}

// A configuration may be in any file that weir check reads.
func TestSimulateConfigurations(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	log := write("access.log", "10.0.0.7 - - [02/Jan/2026:15:04:01 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"curl\"\n")
	yaml := write("limits.yaml", "rules:\n- name: per-client\n  key: [client_ip]\n  limits:\n  - {limit: 3, window: 1m, algorithm: sliding_log}\n")
	bad := write("bad.yaml", "rules:\n- name: per-client\n  limits: []\n")
	none := write("none.yaml", "static_resources: {}\n")
	for _, c := range []struct {
		config         string
		code           int
		stdout, stderr string
	}{
		{yaml, 0, "per-client", ""},
		{yaml + ":1", 0, "per-client", ""},
		{yaml + ":3", 2, "", "no configuration that begins in line 3, but in 1"},
		{bad, 1, "", bad + ":3:11: rules[0].limits: want 1 to 8 limits, got 0\nweir simulate: configuration refused\n"},
		{none, 1, "", "has no configuration"},
		{"../../envoy/envoy.yaml", 2, "", "../../envoy/envoy.yaml has configurations in lines 66, "},
		{"../../envoy/envoy.yaml:66", 0, "per-user", ""},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"simulate", "--config", c.config, log}, environment{stdout: &stdout, stderr: &stderr})
		if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: exit code %d\n%s\n%s\nwant %d\n%s\n%s", c.config, code, &stdout, &stderr, c.code, c.stdout, c.stderr)
		}
	}
}
