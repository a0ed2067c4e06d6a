package convert_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/check"
	"weir/internal/convert"
	"weir/internal/must"
)

var update = flag.Bool("update", false, "write what testdata wants")

// foldersOf are the folders of testdata.
func foldersOf(t testing.TB) (folders []string) {
	t.Helper()
	wanted, err := filepath.Glob("testdata/*/want.json")
	if err != nil || len(wanted) < 15 {
		t.Fatalf("%d folders: %v", len(wanted), err)
	}
	for _, name := range wanted {
		folders = append(folders, filepath.Dir(name))
	}
	return folders
}

// sourceOf is the source of a folder of testdata.
func sourceOf(folder string) string {
	name, _, _ := strings.Cut(filepath.Base(folder), "-")
	if name == "ingress" {
		return "nginx"
	}
	return name
}

// filesOf are the files of a folder that are converted.
func filesOf(t testing.TB, folder string) (files []convert.File) {
	t.Helper()
	names := must.Get(filepath.Glob(filepath.Join(folder, "*")))(t)
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "want.") {
			continue
		}
		text := must.Get(os.ReadFile(name))(t)
		files = append(files, convert.File{Name: filepath.Base(name), Text: text})
	}
	return files
}

// TestFiles converts each folder of testdata, and wants what its want.json and want.lost have.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, folder := range foldersOf(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			result, err := convert.Convert(sourceOf(folder), filesOf(t, folder))
			var document, lost strings.Builder
			if err != nil {
				lost.WriteString("error: " + err.Error() + "\n")
			} else {
				document.Write(result.Document)
				for _, l := range result.Lost {
					lost.WriteString(l.String() + "\n")
				}
			}
			for name, got := range map[string]string{"want.json": document.String(), "want.lost": lost.String()} {
				name = filepath.Join(folder, name)
				if *update {
					must.OK(t, os.WriteFile(name, []byte(got), 0o644))
				}
				want, err := os.ReadFile(name)
				if err != nil || string(want) != got {
					t.Errorf("%s: %v\ngot\n%swant\n%s", name, err, got, want)
				}
			}
			if document.Len() == 0 {
				return
			}
			policies := strings.Count(document.String(), `"kind": "RateLimitPolicy"`)
			if report := check.File("weir.json", []byte(document.String())); report.Refused() || report.Configurations != max(1, policies) {
				t.Errorf("weir check finds %d configurations, %v", report.Configurations, report.Findings)
			}
		})
	}
}

// Conditions of which all have to hold do so in one match, also where two are of one part of the request.
func TestConditionsOfPolicies(t *testing.T) {
	t.Parallel()
	const policy = `{apiVersion: kuadrant.io/v1, kind: RateLimitPolicy, metadata: {name: p}, spec: {targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: g}, limits: {a: {rates: [{limit: 5, window: 1h}], when: [WHEN]}}}}`
	for when, want := range map[string]string{
		`{predicate: "request.method != 'GET'"}, {predicate: "request.host != 'a'"}`:                                                        `"match": {"not": {"any": [{"not": {"not": {"host": {"exact": "a"}}}}, {"method": {"exact": "GET"}}]}}`,
		`{predicate: "request.headers['a'] == 'x'"}, {predicate: "request.headers['b'] == 'y'"}`:                                            `"match": {"headers": {"a": {"exact": "x"}, "b": {"exact": "y"}}}`,
		`{predicate: "request.headers['a'].startsWith('x')"}, {predicate: "request.headers['a'].endsWith('y')"}`:                            `"match": {"headers": {"a": {"prefix": "x"}}, "not": {"not": {"headers": {"a": {"suffix": "y"}}}}}`,
		`{predicate: "request.method == 'GET' || request.method == 'PUT'"}, {predicate: "request.host == 'a' || request.url_path == '/b'"}`: `"not": {"not": `,
	} {
		result := must.Get(convert.Convert("policies", []convert.File{{Name: "file.yaml", Text: []byte(strings.Replace(policy, "WHEN", when, 1))}}))(t)
		document := strings.Join(strings.Fields(string(result.Document)), " ")
		document = strings.NewReplacer("{ ", "{", " }", "}", "[ ", "[", " ]", "]").Replace(document)
		if len(result.Lost) > 0 || !strings.Contains(document, want) {
			t.Errorf("%s: %v\n%s\nwant %s", when, result.Lost, document, want)
		}
	}
}

const kongFile = `
_base: &base {minute: 5, limit_by: header, header_name: X-User}
services:
- name: shop
  routes: [{name: r, paths: [/]}]
  plugins:
  - name: rate-limiting
    config: %s
`

// A rule that the plugin would refuse is lost at its place, and others are kept. A path or host that any
// fulfils is no condition.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, source, text, want, lost string }{
		{"a path", "apisix", "routes:\n- {id: 1, uri: foo, plugins: {limit-count: {count: 5, time_window: 60}}}\n- {id: 2, uri: /, plugins: {limit-count: {count: 5, time_window: 60}}}",
			"route-2-limit-count", `file:2:44: the plugin would refuse this rule: match.path.exact: want a path that begins with "/", without a query, got "foo"`},
		{"any path and host", "apisix", "routes:\n- {id: 1, uri: '*', host: '*', plugins: {limit-count: {count: 5, time_window: 60}}}", "route-1-limit-count", ""},
	} {
		result, err := convert.Convert(test.source, []convert.File{{Name: "file", Text: []byte(test.text)}})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var document struct {
			Rules []struct {
				Name  string
				Match any
			}
		}
		if err := json.Unmarshal(result.Document, &document); err != nil {
			t.Errorf("%s: %v, lost %v", test.name, err, result.Lost)
			continue
		}
		lost := ""
		for _, l := range result.Lost {
			lost += l.String()
		}
		if len(document.Rules) != 1 || document.Rules[0].Name != test.want || lost != test.lost {
			t.Errorf("%s: got %+v, lost %s", test.name, document.Rules, lost)
		}
		if test.lost == "" && document.Rules[0].Match != nil {
			t.Errorf("%s: matches %v", test.name, document.Rules[0].Match)
		}
	}
}

// A field goes before that of a merge key, wherever this stands. A field that is there twice is refused.
func TestFieldsOfMergeKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ config, want string }{
		{"{<<: *base, minute: 7}", `"limit": 7`},
		{"{minute: 7, <<: *base}", `"limit": 7`},
		{"{<<: [{minute: 7}, *base]}", `"limit": 7`},
		{"{<<: *base}", `"limit": 5`},
		{"{minute: 7, hour: 1, minute: 8}", `file:8:34: want the field "minute" once; line 8 has it too`},
	} {
		result, err := convert.Convert("kong", []convert.File{{Name: "file", Text: fmt.Appendf(nil, kongFile, test.config)}})
		got := fmt.Sprint(err)
		if err == nil {
			got = string(result.Document)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s", test.config, got)
		}
	}
}

// FuzzConvert wants an answer to whatever is in a file: an error, or what the plugin takes, with losses at
// places of the file.
func FuzzConvert(f *testing.F) {
	for _, folder := range foldersOf(f) {
		for _, file := range filesOf(f, folder) {
			f.Add(sourceOf(folder), string(file.Text), "")
			f.Add(sourceOf(folder), string(file.Text), string(file.Text))
		}
	}
	for _, seed := range []string{"a {", "}", `"`, "'\\", "${", "include *;", "a b;;", "map $a $b {", "x: &x [*x, *x]", "a: &a {<<: *a}", "limit_req_zone $a zone=a:1 rate=1r/s; limit_req zone=a;", "<<: {"} {
		for _, source := range convert.Sources() {
			f.Add(source, seed, seed)
		}
	}
	f.Fuzz(func(t *testing.T, source, first, second string) {
		files := []convert.File{{Name: "first", Text: []byte(first)}, {Name: "second", Text: []byte(second)}}
		result, err := convert.Convert(source, files)
		if err != nil {
			if strings.Contains(err.Error(), "the plugin would refuse") {
				t.Error(err)
			}
			return
		}
		for _, l := range result.Lost {
			text := first
			if l.File == "second" {
				text = second
			}
			lines := strings.Split(text, "\n")
			if l.Line < 1 || l.Line > len(lines) || l.Column < 1 || l.Problem == "" {
				t.Errorf("%s in a file of %d lines", l, len(lines))
			}
		}
	})
}
