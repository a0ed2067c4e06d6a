package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/check"
	"weir/internal/must"
)

// findings are a report's, one to a line.
func findings(report *check.Report) string {
	var b strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "%d:%d: ", f.Line, f.Column)
		if f.Warning {
			b.WriteString("warning: ")
		}
		if f.Path != "" {
			b.WriteString(f.Path + ": ")
		}
		b.WriteString(f.Problem + "\n")
	}
	fmt.Fprintf(&b, "%d configurations\n", report.Configurations)
	return b.String()
}

// TestFiles checks each file of testdata, and wants what FILE.want has.
func TestFiles(t *testing.T) {
	t.Parallel()
	wants := must.Get(filepath.Glob("testdata/*.want"))(t)
	all, err := filepath.Glob("testdata/*.*")
	if err != nil || len(all) != 2*len(wants) || len(wants) == 0 {
		t.Errorf("%d files with %d wanted, %v", len(all)-len(wants), len(wants), err)
	}
	for _, want := range wants {
		name := strings.TrimSuffix(want, ".want")
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			content := must.Get(os.ReadFile(name))(t)
			wanted := must.Get(os.ReadFile(want))(t)
			report := check.File(name, content)
			must.Equal(t, findings(report), string(wanted), "")
			refused := slices.ContainsFunc(report.Findings, func(f check.Finding) bool { return !f.Warning })
			must.Equal(t, report.Refused(), refused, "refused is")
		})
	}
}

// The repository's own files are right.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	for name, configurations := range map[string]int{
		"../../envoy/envoy.yaml": 2, "../../envoy/istio.yaml": 1, "../../cmd/weir/example.json": 1,
	} {
		content := must.Get(os.ReadFile(name))(t)
		report := check.File(name, content)
		must.Equal(t, report.Refused(), false, "%s: refused: %s", name, findings(report))
		must.Equal(t, report.Configurations, configurations, "%s: configurations of\n%s", name, findings(report))
	}
}

// If a hint names another value, that value is right.
func TestHints(t *testing.T) {
	t.Parallel()
	one := func(rest string) string { return `{"rules": [{"name": "r", "limits": [{` + rest + `}]}]}` }
	for _, test := range []struct{ document, right string }{
		{one(`"limit": 1, "window": "1 minute"`), "1m"},
		{one(`"limit": 1, "window": "Hour"`), "1h"},
		{one(`"limit": 1, "window": "30"`), "30s"},
		{one(`"limit": 1, "window": "1 hour, 30 minutes"`), "1h30m"},
		{one(`"limit": 1, "window": "per day"`), "1d"},
		{one(`"limit": 1, "window": "1 fortnight"`), ""},
		{one(`"limit": 1, "window": "-1s"`), ""},
		{one(`"limit": 1, "window": "1m", "algorithm": "FixedWindow"`), "fixed_window"},
		{one(`"limit": 1, "window": "1m", "algorithm": "leaky-bucket"`), "token_bucket"},
		{one(`"limit": 1, "window": "1m", "algorithm": "quick"`), ""},
		{one(`"limit": 1, "window": "1m", "algorithm": "fixed_window", "start": "first"`), "first_hit"},
		{one(`"max": 1, "window": "1m"`), "limit"},
		{one(`"requestsPerUnit": 1, "window": "1m"`), "limit"},
		{one(`"limit": 1, "per": "1m"`), "window"},
		{one(`"limit": 1, "window": "1m"}], "shadow": true, "key": [{"header": "x"`), `mode": "shadow`},
		{one(`"limit": 1, "window": "1m"}], "key": ["remote_address"], "match": {"methods": ["GET"`) + "]}}]}", ""},
		{`{"headers": ["X-RateLimit"], "rules": [{"name": "r", "limits": [{"limit": 1, "window": "1m"}]}]}`, "x-ratelimit"},
		{`{"x_ratelimit_reset": "ms", "rules": [{"name": "r", "limits": [{"limit": 1, "window": "1m"}]}]}`, "milliseconds"},
		{`{"on_backend_failure": "fail-open", "rules": [{"name": "r", "limits": [{"limit": 1, "window": "1m"}]}]}`, "allow"},
		{`{"rules": [{"name": "r", "key": ["remote_address"], "limits": [{"limit": 1, "window": "1m"}]}]}`, "client_ip"},
		{`{"rules": [{"name": "r", "key": [{"ip": {}}], "limits": [{"limit": 1, "window": "1m"}]}]}`, "client_ip"},
		{`{"domain": "shop", "rules": [{"name": "r", "limits": [{"limit": 1, "window": "1m"}]}]}`, "namespace"},
		{`{"rules": [{"name": "r", "match": {"methods": ["post"]}, "limits": [{"limit": 1, "window": "1m"}]}]}`, "POST"},
		{`{"backend": {"cluster": "weir", "timeout": "2 secs"}, "rules": [{"name": "r", "limits": [{"limit": 1, "window": "1m"}]}]}`, "2s"},
	} {
		var meant []string
		for _, f := range check.File("-", []byte(test.document)).Findings {
			if _, hint, ok := strings.Cut(f.Problem, "did you mean "); ok {
				meant = append(meant, strings.Trim(hint, `"?`))
			}
		}
		must.Equal(t, strings.Join(meant, " "), test.right, "%s: meant", test.document)
	}
}

// A mistake of JSON comes with what is probably to be changed.
func TestSyntaxHints(t *testing.T) {
	t.Parallel()
	const limits = `"limits": [{"limit": 1, "window": "1m"}]`
	for document, hint := range map[string]string{
		`{"rules": [{"name": "r", ` + limits + `},` + "\n]}": ": take out the comma before it",
		`{"rules": [{"name": "r", ` + limits + `,}]}`:        ": take out the comma before it",
		"{# limits\n}":     ": JSON has no comments",
		"{/* limits */}":   ": JSON has no comments",
		`{'rules': []}`:    ": JSON has double quotes",
		`{"rules": ['r']}`: ": JSON has double quotes",
		`{"rules": [{"name": "r" ` + limits + `}]}`:                ": is a comma missing before it?",
		`{"rules": [{"name": "r", ` + limits + `} {"name": "s"}]}`: ": is a comma missing before it?",
		`{"rules": [{"limits": [{"limit": 1_000}]}]}`:              ": write numbers without separators",
		`{"rules": [{"name": "r", ` + limits + `}]`:                ": is a closing bracket missing?",
		`{"rules": [nil]}`: "",
		`{"rules": []}}`:   "",
	} {
		findings := check.File("-", []byte(document)).Findings
		must.EqualOrEnd(t, len(findings), 1, "%s: %+v", document, findings)
		_, got, _ := strings.Cut(findings[0].Problem, ", got ")
		if _, after, told := strings.Cut(got, ": "); told != (hint != "") || told && ": "+after != hint {
			t.Errorf("%s: %q, want the hint %q", document, findings[0].Problem, hint)
		}
	}
}

// A window in seconds that would be usual in milliseconds is warned of, also in YAML.
func TestWindowsInMilliseconds(t *testing.T) {
	t.Parallel()
	for window, warned := range map[string]bool{"60000": true, "1000": true, "3600000": true, "60": false, "3600": false, "86400": false, "2592000": false, `"60000s"`: false} {
		for _, document := range []string{
			`{"rules": [{"name": "r", "limits": [{"limit": 1000000, "window": ` + window + `}]}]}`,
			"rules:\n- name: r\n  limits:\n  - limit: 1000000\n    window: " + window + "\n",
		} {
			found := false
			for _, f := range check.File("-", []byte(document)).Findings {
				found = found || f.Warning && f.Path == "rules[0].limits[0].window" && strings.Contains(f.Problem, "milliseconds")
			}
			must.Equal(t, found, warned, "%s: warned", document)
		}
	}
}

// A byte that is of no character is told at its place, also in a file that nobody has named, if that is meant
// to have a configuration.
func TestNotUTF8(t *testing.T) {
	t.Parallel()
	const text = "rules:\n- {name: \"é\xff\", limits: [{limit: 60, window: 1s}]}\n"
	for _, report := range []*check.Report{check.File("a.yaml", []byte(text)), check.Found("a.yaml", []byte(text)), check.File("a.json", []byte(text))} {
		must.Equal(t, findings(report), "2:12: want UTF-8, got the byte 0xff\n0 configurations\n", "findings")
		must.Equal(t, report.Refused(), true, "refused")
	}
}

// FuzzFile wants an answer to whatever is in a file, at places of the file.
func FuzzFile(f *testing.F) {
	files := must.Get(filepath.Glob("testdata/*"))(f)
	for _, file := range append(files, "../../envoy/envoy.yaml", "../../envoy/istio.yaml") {
		content := must.Get(os.ReadFile(file))(f)
		f.Add(file, content)
	}
	for _, seed := range []string{"a: *a", "? ? ?", "<<: &a {<<: *a}", "--- |\n", "- &a [*a, *a]\n- *a", "\ufeffrules: []", "a: \u2028\u0085 b\rc: d", "[[[[", `"\ud800"`} {
		f.Add("-", []byte(seed))
		f.Add("a.yaml", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		report := check.File(name, content)
		lines := strings.Split(string(content), "\n")
		for _, finding := range report.Findings {
			if finding.Line < 1 || finding.Line > len(lines) {
				t.Fatalf("line %d of %d", finding.Line, len(lines))
			}
			must.Between(t, finding.Column, 1, len([]rune(lines[finding.Line-1]))+1, "column in line %d", finding.Line)
			if finding.Problem == "" {
				t.Error("no problem")
			}
		}
	})
}

// Small files that aliases make large take little time and memory.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	var nested, merged strings.Builder
	nested.WriteString("a0: &a0 {x: 1}\n")
	merged.WriteString("a0: &a0 {x: 1}\n")
	for i := 1; i < 2000; i++ {
		fmt.Fprintf(&nested, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1)
		fmt.Fprintf(&merged, "a%d: &a%d {<<: [*a%d, *a%d], x%d: 1}\n", i, i, i-1, i-1, i)
	}
	for _, content := range []string{
		nested.String() + "rules: *a1999\n",
		nested.String() + "rules: *a20\n",
		nested.String() + "static_resources: {listeners: *a1999}\n",
		merged.String(),
		"rules: &r [" + strings.Repeat("*r, ", 10_000) + "]\n",
	} {
		_, took := must.Allocated(func() { check.File("a.yaml", []byte(content)) })
		must.AtMost(t, took, 256<<20, "%.100q: bytes allocated", content)
	}
}

// So do filters that each have what another filter has.
func TestAliasesOfFiltersAreBounded(t *testing.T) {
	t.Parallel()
	const typed = `"@type": type.googleapis.com/envoy.extensions.filters.http.`
	filter := `&f {typed_config: {` + typed + `jwt_authn.v3.JwtAuthentication, providers: {`
	for i := range 2000 {
		filter += fmt.Sprintf("p%d: {from_headers: *h, from_params: [a]}, ", i)
	}
	for _, filters := range []string{
		filter + "}}}, " + strings.Repeat("*f, ", 2000),
		"&f {typed_config: {" + typed + "header_mutation.v3.HeaderMutation, mutations: {request_mutations: *h}}}, " + strings.Repeat("*f, ", 20_000),
	} {
		begun := time.Now()
		report := check.File("a.yaml", []byte("anchors: [&h ["+strings.Repeat("{name: x-a}, ", 2000)+"]]\nhttp_filters: ["+filters+"{typed_config: {"+typed+
			`wasm.v3.Wasm, config: {configuration: {"@type": type.googleapis.com/google.protobuf.Struct, value: {rules: [
				{name: r, key: [jwt_claim: sub, header: x-b], limits: [{limit: 100, window: 1m}]}]}}}}}]`+"\n"))
		must.AtMost(t, time.Since(begun), 10*time.Second, "took")
		if report.Refused() || len(report.Findings) == 0 || !strings.Contains(fmt.Sprint(report.Findings), "too large to be compared") {
			t.Errorf("got %v", report.Findings)
		}
	}
}
