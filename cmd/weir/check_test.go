package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"weir/internal/must"
)

// A pipe that is named is read, as the shell's <(COMMAND) has it. One in a folder has no writer, and a device no end.
func TestCheckPipes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe.json")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	r, w, err := os.Pipe()
	must.OK(t, err)
	defer r.Close()
	must.Get(w.WriteString(`{"rules": [{"name": "total", "limits": [{"limit": 60, "window": "1s"}]}]}`))(t)
	w.Close()
	substituted := fmt.Sprint("/dev/fd/", r.Fd())
	executeAll(t, nil, []lineTest{
		{"check " + folder, 1, pipe + ": want a regular file\n", ""},
		{"check " + substituted, 0, substituted + ": ok\n", ""},
		{"check /dev/zero", 1, "/dev/zero: want at most 64 MiB\n", ""},
		{"convert --from nginx /dev/zero", 1, "", "/dev/zero: want at most 64 MiB\n"},
		{"convert --from nginx " + folder, 1, "", folder + " is a directory: want a file\n"},
	})
}

// weir compile replaces expressions, and nothing else.
func TestCompile(t *testing.T) {
	t.Parallel()
	const (
		written  = `{ "rules":[{"name":"a", "match": {"path": {"prefix": "/\u0061"}, "if" : %s}, "limits":[{"limit":1e+02,  "window":"1m"}]}]}`
		compiled = `{ "rules":[{"name":"a", "match": {"path": {"prefix": "/\u0061"}, %s}, "limits":[{"limit":1e+02,  "window":"1m"}]}]}` + "\n"
	)
	for expression, want := range map[string]string{
		`"request.method == \"PUT\" && has(query.a)"`: `"method":{"exact":"PUT"},"query":{"a":{"present":true}}`,
		`"request.url_path.endsWith(\"b\")"`:          `"any":[{"path":{"suffix":"b"}}]`,
	} {
		want = fmt.Sprintf(compiled, want)
		for _, document := range []string{fmt.Sprintf(written, expression), want} {
			if code, stdout, stderr := execute(t.Context(), nil, document, "compile", "-"); code != 0 || stdout != want {
				t.Errorf("exit %d: %s%s", code, stdout, stderr)
			}
		}
	}
	wrong := fmt.Sprintf(written, `"reqest.method == 'PUT'"`)
	must.Equal(t, said(t, nil, "compile"), "2 weir compile --help says more.\nweir compile: usage: want the name of one file, or - for standard input\n", "")
	code, stdout, stderr := execute(t.Context(), nil, wrong, "compile", "-")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "-:1:73: rules[0].match.if: column 1: unknown name reqest.method, did you mean request.method?\n") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	dir, file := files(t)
	const (
		good  = `{"rules": [{"name": "total", "limits": [{"limit": 60, "window": "1s"}]}], "sync_rate": -1}`
		warn  = `{"rules": [{"name": "total", "limits": [{"limit": 60, "window": "1s"}, {"limit": 90, "window": "1s"}]}], "sync_rate": -1}`
		alone = `{"rules": [{"name": "total", "limits": [{"limit": 60, "window": "1s"}]}]}`
		bad   = "{\"rules\": [{\"name\": \"é\",\n \"limits\": [{\"limit\": 60, \"window\": \"1 second\"}]}]}"
	)
	const hidden = "rules[0].limits[1]: never decides, because limits[0] refuses first: 60 in 1s"
	const noName = `rules[0].name: want a string of 1 to 64 of A-Za-z0-9_-, got "é"`
	const noWindow = `rules[0].limits[0].window: want a duration such as "30s" or "1m", got "1 second", did you mean "1s"?`
	secret := file("kubernetes.yaml", "apiVersion: v1\nkind: Secret\n")
	others := file("package.json", `{}`)
	folder := filepath.Join(dir, "folder")
	for _, path := range []string{"a", "b", "none", ".git", "a/node_modules"} {
		must.OK(t, os.MkdirAll(filepath.Join(folder, path), 0o700))
	}
	file("folder/a/good.json", good)
	file("folder/a/notes.txt", bad)
	file("folder/a/node_modules/bad.json", bad)
	file("folder/.git/bad.json", bad)
	file("folder/b/bad.yml", "rules:\n- name: total\n  limits: [{limit: 60, window: 1 second}]\n")
	file("folder/none/package.json", `{"name": "shop"}`)
	file("folder/none/values.yaml", "a: {{ .Values }}\n")
	link := filepath.Join(dir, "link")
	must.OK(t, os.Symlink(folder, link))
	goodFile, badFile := file("good.json", good), file("a,b:c.yaml", "rules: []\n")
	for name, test := range map[string]struct {
		args           []string
		stdin          string
		code           int
		stdout, stderr string
	}{
		"good":             {[]string{"-"}, good, 0, "-: ok\n", ""},
		"alone":            {[]string{"--strict", "-"}, alone, 0, "-:1:1: note: counts in each proxy alone: a backend makes one limit of all proxies\n-: ok\n", ""},
		"shared":           {[]string{"-"}, strings.Replace(alone, "{", `{"backend": {"cluster": "weir"}, `, 1), 0, "-: ok\n", ""},
		"a rule alone":     {[]string{"-"}, strings.Replace(alone, `"total"`, `"total", "sync_rate": -1`, 1), 0, "-: ok\n", ""},
		"parts of limits":  {[]string{"-"}, strings.Replace(alone, "{", `{"sync_rate": "share", "replicas": 2, `, 1), 0, "-:1:1: note: rule total: each of 2 proxies has 30 of limits[0], whatever the others leave unused\n-: ok\n", ""},
		"unknown parts":    {[]string{"-"}, strings.Replace(alone, "{", `{"sync_rate": "share", "replicas": {"property": ["node", "id"]}, `, 1), 0, "-:1:1: note: rule total: each proxy has its part of the limits, once a property tells how many there are\n-: ok\n", ""},
		"alone, JSON":      {[]string{"--format", "json", "-"}, alone, 0, "[]\n", ""},
		"warned":           {[]string{"-"}, warn, 0, "-:1:72: warning: " + hidden + "\n-: ok\n", ""},
		"strict":           {[]string{"--strict", "-", goodFile}, warn, 1, "-:1:72: warning: " + hidden + "\n-: ok\n" + goodFile + ": ok\n", "weir check: configuration refused: 1 of 2\n"},
		"bad":              {[]string{"-", goodFile}, bad, 1, "-:1:21: " + noName + "\n-:2:37: " + noWindow + "\n" + goodFile + ": ok\n", "weir check: configuration refused: 1 of 2\n"},
		"YAML":             {[]string{"-"}, "rules:\n- name: total\n  limits: [{limit: 60, window: 1 second}]\n", 1, "-:3:32: " + noWindow + "\n", "weir check: configuration refused\n"},
		"missing":          {[]string{filepath.Join(dir, "none")}, "", 1, filepath.Join(dir, "none") + ": open " + filepath.Join(dir, "none") + ": no such file or directory\n", "weir check: configuration refused\n"},
		"beside":           {[]string{goodFile, secret}, "", 0, goodFile + ": ok\n" + secret + ": no configuration\n", ""},
		"none":             {[]string{secret}, "", 1, secret + ": no configuration\n", "weir check: want a file with a configuration, got none; with --allow-none that is no mistake\n"},
		"none, allowed":    {[]string{"--allow-none", secret}, "", 0, secret + ": no configuration\n", ""},
		"others, allowed":  {[]string{"--allow-none", others, "-"}, bad, 1, others + ": no configuration\n-:1:21: " + noName + "\n-:2:37: " + noWindow + "\n", "weir check: configuration refused: 1 of 2\n"},
		"others":           {[]string{others}, "", 1, others + ":1:1: rules: missing, want an array of 1 to 256 rules\n", "weir check: configuration refused\n"},
		"folder":           {[]string{folder}, "", 1, folder + "/a/good.json: ok\n" + folder + "/b/bad.yml:3:32: " + noWindow + "\n", "weir check: configuration refused: 1 of 2\n"},
		"link to a folder": {[]string{link, goodFile}, "", 1, link + "/a/good.json: ok\n" + link + "/b/bad.yml:3:32: " + noWindow + "\n" + goodFile + ": ok\n", "weir check: configuration refused: 1 of 3\n"},
		"folder of none":   {[]string{filepath.Join(folder, "none")}, "", 1, "", "weir check: want a file with a configuration, got none; with --allow-none that is no mistake\n"},
		"none, allowed in": {[]string{"--allow-none", filepath.Join(folder, "none")}, "", 0, "", ""},
		"GitHub":           {[]string{"--format", "github", "-"}, bad, 1, "::error file=-,line=1,col=21::" + noName + "\n::error file=-,line=2,col=37::" + noWindow + "\n", "weir check: configuration refused\n"},
		"GitHub's escapes": {[]string{"--format", "github", badFile}, "", 1, "::error file=" + dir + "/a%2Cb%3Ac.yaml,line=1,col=8::rules: want 1 to 256 rules, got 0\n", "weir check: configuration refused\n"},
		"GitHub's warning": {[]string{"--format", "github", "-"}, warn, 0, "::warning file=-,line=1,col=72::" + hidden + "\n", ""},
		"no such format":   {[]string{"--format", "sarif", "-"}, good, 2, "", "weir check --help says more.\nweir check: usage: --format: want text, json or github, got \"sarif\"\n"},
		"no files":         {nil, good, 2, "", "weir check --help says more.\nweir check: usage: want the names of files, or - for standard input\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := execute(t.Context(), nil, test.stdin, append([]string{"check"}, test.args...)...)
			if code != test.code || stdout != test.stdout || stderr != test.stderr {
				t.Errorf("exit code %d, want %d; stdout\n%swant\n%sstderr\n%swant\n%s", code, test.code, stdout, test.stdout, stderr, test.stderr)
			}
		})
	}
}

// On a terminal weir check shows the place of a mistake, and nothing that the terminal would obey.
func TestExcerpt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		line   string
		column int
		want   string
	}{
		{`{"rules": [}`, 12, "    {\"rules\": [}\n               ^\n"},
		{"\té\x1b[31m,\r", 8, "     é [31m,\n           ^\n"},
		{"", 1, "    \n    ^\n"},
		{"\xff{", 9, "    �{\n      ^\n"},
		{strings.Repeat("a", 80) + "b" + strings.Repeat("c", 80), 81, "    " + strings.Repeat("a", 50) + "b" + strings.Repeat("c", 49) + "\n" + strings.Repeat(" ", 54) + "^\n"},
	} {
		must.Equal(t, excerpt([]byte(test.line), test.column), test.want, "%q at %d", test.line, test.column)
	}
}

// What files have in them reaches no terminal that would obey it.
func TestLegible(t *testing.T) {
	t.Parallel()
	const field = "domain: d\n\"\\e[2J\\x9b\": 1\n"
	executeAll(t, nil, []lineTest{
		{"check - <<< " + field, 1, `-:2:14: \x1b[2J\u009b: want a field of the rate limit service`, ""},
		{"check --format github - <<< " + field, 1, `::\x1b[2J\u009b: want a field of the rate limit service`, ""},
		{"convert --from ratelimit - <<< " + field, 1, "", `-:2: \x1b[2J\u009b: want a field of the rate limit service`},
		{"convert --from kong - <<< " + field, 1, "", `-:2:1: \x1b[2J\u009b: convert does not know`},
	})
	must.Equal(t, legible("é\t—\nb\xff\r"), "é\t—\nb\ufffd"+`\r`, "kept is what people read")
}

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"rules:\n- {name: total, limits: [{limit: 60, window: 1x}, {limit: 1, window: 1s}]}\n": `[
  {
    "file": "-",
    "line": 2,
    "column": 46,
    "severity": "error",
    "path": "rules[0].limits[0].window",
    "problem": "want a duration such as \"30s\" or \"1m\", got \"1x\""
  }
]
`,
		"domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minuet}}\n": `[
  {
    "file": "-",
    "line": 3,
    "column": 31,
    "severity": "error",
    "path": "descriptors[0].rate_limit.unit",
    "problem": "want second, minute, hour, day, month, year, week, got \"minuet\""
  }
]
`,
		"domain: d\ndescriptors:\n- {key: k, unit: day}\n": `[
  {
    "file": "-",
    "line": 3,
    "column": 18,
    "severity": "warning",
    "path": "descriptors[0].unit",
    "problem": "the rate limit service ignores the field here"
  }
]
`,
	} {
		_, stdout, _ := execute(t.Context(), nil, input, "check", "--format", "json", "-")
		must.Equal(t, stdout, want, "%s", input)
	}
}

// A file of the rate limit service is known as one, also in a ConfigMap, and its warnings say what is hardly meant.
func TestCheckDescriptors(t *testing.T) {
	t.Parallel()
	inMap := func(text string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata:\n  config.yaml: |\n    " + strings.ReplaceAll(text, "\n", "\n    ")
	}
	const (
		right     = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n"
		wrong     = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minuet, requests_per_unit: 1}}\n"
		missing   = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day}}\n"
		unlimited = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unlimited: true}}\n- {key: j, rate_limit: {unit: day, requests_per_unit: 0}}\n"
		other     = "domain: d\nname: of another program\n"
	)
	replacing := func(a, b string) string {
		return "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1, name: a, replaces: [{name: " + a +
			"}]}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: b, replaces: [{name: " + b + "}]}}\n" +
			"- {key: c, rate_limit: {unit: day, requests_per_unit: 1, name: c, replaces: [{name: a}]}}\n"
	}
	executeAll(t, nil, []lineTest{
		{"check - <<< " + right, 0, "-: ok\n", ""},
		{"check - <<< " + inMap(right), 0, "-: ok\n", ""},
		{"check - <<< " + inMap(wrong), 1, `-:8:35: descriptors[0].rate_limit.unit: want second, minute, hour, day, month, year, week, got "minuet"`, ""},
		{"check - <<< " + inMap("domain: d\ndescriptors:\n- [\n"), 1, "-:6:5: ", ""},
		{"check - <<< " + inMap("domain: {{ .Values.domain }}\ndescriptors:\n{{ toYaml .Values.descriptors }}\n"), 1, "", "got none"},
		{"check - <<< " + inMap(missing), 0, "-:8:28: warning: descriptors[0].rate_limit: requests_per_unit is missing: the limit is 0, and refuses every request", ""},
		{"check - <<< " + missing, 0, "-:3:24: warning: descriptors[0].rate_limit: requests_per_unit is missing: the limit is 0, and refuses every request", ""},
		{"check - <<< domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: }}\n", 0, "warning: descriptors[0].rate_limit: requests_per_unit is missing", ""},
		{"check - <<< " + unlimited, 0, "-: ok\n", ""},
		{"check - <<< domain: d\n", 0, "-: ok\n", ""},
		{"check - <<< " + inMap("domain: d\n"), 0, "-: ok\n", ""},
		{"check - <<< " + inMap(other), 1, "", "got none"},
		{"check - <<< " + other, 0, "-:2:7: warning: name: the rate limit service ignores the field here", ""},
		{"check - <<< domain: d\ndomain: e\ndescriptors: []\n", 1, "-:2:9: domain: want the field once", ""},
		{"check - <<< domain: d\ndescriptor: []\n", 1, "-:2:13: descriptor: want a field of the rate limit service or of Weir: did you mean descriptors?", ""},
		{"check - <<< descriptors: []\n", 1, "-:1:1: want a domain that is not empty", ""},
		{"check - <<< ---\n# none\n---\n" + wrong, 1, `got "minuet"`, ""},
		{"check - <<< " + replacing("b", "a"), 0, `-:3:77: warning: descriptors[0].rate_limit.replaces: "a" and "b" replace each other: a request that both match is limited by neither`, ""},
		{"check - <<< " + replacing("b", "c"), 0, `descriptors[2].rate_limit.replaces: "c" and "a" replace each other`, ""},
		{"check - <<< " + replacing("b", "x"), 0, "-: ok\n", ""},
	})
}

// A folder of the rate limit service is read as the service reads it: all files together. In a folder that has files of others,
// each file is checked by itself. A ConfigMap is read as the folder that it becomes.
func TestCheckFolderOfDescriptors(t *testing.T) {
	t.Parallel()
	const d = "domain: d\ndescriptors:\n- {key: %s, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	folder := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			must.File(t, filepath.Join(dir, name), text)
		}
		return dir
	}
	inMap := func(files ...string) string {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata:"
		for i := 0; i < len(files); i += 2 {
			text += "\n  " + files[i] + ": |\n    " + strings.ReplaceAll(strings.TrimSpace(files[i+1]), "\n", "\n    ")
		}
		return "check - <<< " + text + "\n"
	}
	a, b := fmt.Sprintf(d, "a"), fmt.Sprintf(d, "b")
	twice := folder(map[string]string{"a.yaml": a, "b.yaml": b})
	wrong := folder(map[string]string{"a.yaml": a, "b.yaml": "descriptors: []\n", "c": "notes\n", ".d": "notes\n"})
	mixed := folder(map[string]string{"a.yaml": a, "b.yaml": b, "c.yaml": "x: 1\n", "d": "notes\n"})
	template := folder(map[string]string{"a.yaml": a, "b.yaml": "{{- if .Values.on }}\ndomain: d\ndescriptors: []\n{{- end }}\n"})
	link := filepath.Join(t.TempDir(), "link")
	must.OK(t, os.Symlink(twice, link))
	executeAll(t, nil, []lineTest{
		{"check " + link, 1, link + "/a.yaml: ok\n" + link + "/b.yaml:1:1: want the domain \"d\" once\n", "refused: 1 of 2"},
		{"check " + template, 0, template + "/a.yaml: ok\n", ""},
		{"check " + twice, 1, twice + "/a.yaml: ok\n" + twice + "/b.yaml:1:1: want the domain \"d\" once\n", "refused: 1 of 2"},
		{"check " + wrong, 1, wrong + "/a.yaml: ok\n" + wrong + "/b.yaml:1:1: want a domain that is not empty\n" + wrong + "/c:1:1: want fields and their values\n", "refused: 2 of 3"},
		{"check " + mixed, 0, mixed + "/a.yaml: ok\n" + mixed + "/b.yaml: ok\n", ""},
		{"check - <<< " + a + "---\n" + b, 1, "-:5:1: want the domain \"d\" once\n", ""},
		{inMap("a.yaml", a, "b.yaml", b), 1, "-:10:5: want the domain \"d\" once\n", ""},
		{inMap("b.yaml", a, "a.yaml", b), 1, "-:6:5: want the domain \"d\" once\n", ""},
		{inMap("one", a, "two", b), 1, "-:10:5: want the domain \"d\" once\n", ""},
		{inMap("a.yaml", a, "b.yaml", "descriptors: []", "c", "notes", ".d", "notes"), 1, "-:10:5: want a domain that is not empty\n-:12:5: want fields and their values\n", ""},
		{inMap("a.yaml", a, "b.yaml", b, "c.yaml", "x: 1"), 0, "-: ok, 2 configurations\n", ""},
		{inMap("a.yaml", a, "b.yaml", "{{- if .Values.on }}\ndomain: d\ndescriptors: []\n{{- end }}"), 0, "-: ok\n", ""},
	})
	executeAll(t, map[string]string{"MERGE_DOMAIN_CONFIG": "true"}, []lineTest{
		{"check " + twice, 0, twice + "/a.yaml: ok\n" + twice + "/b.yaml: ok\n", ""},
		{inMap("a.yaml", a, "b.yaml", b), 0, "-: ok, 2 configurations\n", ""},
	})
	executeAll(t, map[string]string{"MERGE_DOMAIN_CONFIG": "yes"}, []lineTest{{"check " + twice, 2, "", "MERGE_DOMAIN_CONFIG: want true or false"}})
}

func TestSchema(t *testing.T) {
	t.Parallel()
	var schema struct {
		Schema string `json:"$schema"`
	}
	must.Report(t, json.Unmarshal([]byte(printed(t, "schema")), &schema))
	must.Equal(t, schema.Schema, "https://json-schema.org/draft/2020-12/schema", "a schema of")
	executeAll(t, nil, []lineTest{{"schema x", 2, "", "want flags only"}})
}

// The hook of pre-commit runs a command that there is, and passes over what is not Weir's.
func TestPreCommitHook(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile("../../.pre-commit-hooks.yaml"))(t)
	var hooks []struct {
		ID, Name, Description, Entry, Language string
		TypesOr                                []string `json:"types_or"`
	}
	must.OK(t, yaml.UnmarshalStrict(content, &hooks))
	must.EqualOrEnd(t, len(hooks), 1, "hooks")
	h := hooks[0]
	words := strings.Fields(h.Entry)
	if h.ID == "" || h.Name == "" || h.Language != "system" || !slices.Equal(h.TypesOr, []string{"json", "yaml"}) || words[0] != "weir" {
		t.Fatalf("got %+v", h)
	}
	for file, code := range map[string]int{"../../.golangci.yml": 0, "../../envoy/envoy.yaml": 0, "../../playground/browser/package-lock.json": 0, "../../internal/check/testdata/plain.json": 1} {
		got, stdout, stderr := execute(t.Context(), nil, "", append(words[1:len(words):len(words)], file)...)
		must.Equal(t, got, code, "%s: exit code, with\n%s%s", file, stdout, stderr)
	}
}
