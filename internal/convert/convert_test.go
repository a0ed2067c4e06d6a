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
				must.Equal(t, got, must.Text(t, name), "%s", name)
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
		document, lost := policyText(t, strings.Replace(policy, "WHEN", when, 1))
		if lost != "" || !strings.Contains(document, want) {
			t.Errorf("%s: %s\n%s\nwant %s", when, lost, document, want)
		}
	}
}

// Kuadrant can't evaluate a counter's expression without the header, and lets the request pass unless its failure mode is another. So
// the rule leaves it alone, which is told.
func TestCountersOfAbsentHeaders(t *testing.T) {
	t.Parallel()
	const policy = `{apiVersion: kuadrant.io/v1, kind: RateLimitPolicy, metadata: {name: p}, spec: {targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: g}, limits: {a: {rates: [{limit: 5, window: 1h}], counters: [{expression: COUNTER}], when: [WHEN]}}}}`
	for _, test := range []struct{ counter, when, match, lost string }{
		{`"request.headers['x-user']"`, "", `"match": {"headers": {"x-user": {"present": true}}}`, "counters[0].expression: Kuadrant's failure mode decides"},
		{"request.headers.user", "{predicate: request.method == 'GET'}", `"headers": {"user": {"present": true}}`, "counters[0].expression: Kuadrant's failure mode decides"},
		{"request.useragent", "", `"match": {"headers": {"user-agent": {"present": true}}}`, "counters[0].expression: Kuadrant's failure mode decides"},
		{"request.path", "{predicate: request.method == 'GET'}", `"match": {"method": {"exact": "GET"}}`, ""},
		{"source.remote_address", "{predicate: request.method == 'GET'}", `"match": {"method": {"exact": "GET"}}`, ""},
	} {
		document, lost := policyText(t, strings.NewReplacer("COUNTER", test.counter, "WHEN", test.when).Replace(policy))
		must.Contains(t, document, test.match, "%s", test.counter)
		if !strings.Contains(lost, test.lost) || test.lost == "" && lost != "" {
			t.Errorf("%s: lost %q", test.counter, lost)
		}
	}
}

// Local limits of Envoy Gateway's ignore some fields of a rule (buildLocalRateLimit, buildRouteLocalRateLimits). That is told, and the
// rule is as it is without them.
func TestIgnoredFieldsOfLocalRules(t *testing.T) {
	t.Parallel()
	const policy = "{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: BackendTrafficPolicy, metadata: {name: p}, spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}], rateLimit: {SCOPE: {rules: [{limit: {requests: 5, unit: Hour}RULE}]}}}}"
	const selected = ", clientSelectors: [{headers: [{name: x, value: a}]}]"
	for _, test := range []struct {
		rule, field string
		ignored     bool
	}{
		{"", "cost: {request: {from: Number, number: 3}}", true},
		{selected, "cost: {request: {from: Metadata, metadata: {namespace: a, key: b}}}", true},
		{selected, "cost: {response: {from: Number, number: 3}}", true},
		{"", "shared: true", true},
		{selected, "shared: true", true},
		{"", "shadowMode: true", true},
		{selected, "shadowMode: true", false},
		{"", "xRateLimitHeaders: Off", false},
	} {
		of := func(scope, rule string) (document, lost string) {
			return policyText(t, strings.NewReplacer("SCOPE", scope, "RULE", rule).Replace(policy))
		}
		field, _, _ := strings.Cut(test.field, ":")
		without, _ := of("local", test.rule)
		with, lost := of("local", test.rule+", "+test.field)
		must.Equal(t, with == without, test.ignored, "%s%s has no effect", test.field, test.rule)
		told := "spec.rateLimit.local.rules[0]." + field + ": Envoy Gateway's local limits ignore it"
		if strings.HasSuffix(lost, told) != test.ignored || !test.ignored && lost != "" {
			t.Errorf("%s%s: lost %q", test.field, test.rule, lost)
		}
		if _, lost := of("global", test.rule+", "+test.field); strings.Contains(lost, "ignore") {
			t.Errorf("global %s%s: lost %q", test.field, test.rule, lost)
		}
	}
}

// policyText converts a policy, and returns its text on one line and what is lost.
func policyText(t *testing.T, text string) (document, lost string) {
	t.Helper()
	result := must.Get(convert.Convert("policies", []convert.File{{Name: "file.yaml", Text: []byte(text)}}))(t)
	var told []string
	for _, l := range result.Lost {
		told = append(told, l.String())
	}
	document = strings.Join(strings.Fields(string(result.Document)), " ")
	return strings.NewReplacer("{ ", "{", " }", "}", "[ ", "[", " ]", "]").Replace(document), strings.Join(told, "; ")
}

// No policy takes the place of another: policies of two kinds for the same targets are one, others have names of their own, and what
// can't be kept is lost.
func TestPoliciesBesideEachOther(t *testing.T) {
	t.Parallel()
	const file = `apiVersion: kuadrant.io/v1
kind: %sRateLimitPolicy
metadata: {name: %s, namespace: shop}
spec: {targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: %s}, %s}
---
`
	const limits = "limits: {a: {rates: [{limit: %d, window: 1h}]}}"
	of := func(kind, name, target, block string, limit int) string {
		return fmt.Sprintf(file, kind, name, target, fmt.Sprintf(strings.Replace(block, "LIMITS", limits, 1), limit))
	}
	created := func(policy, day string) string {
		return strings.Replace(policy, "namespace: shop", "namespace: shop, creationTimestamp: '"+day+"T00:00:00Z'", 1)
	}
	gateway := func(policy string) string { return strings.Replace(policy, "HTTPRoute", "Gateway", 1) }
	traffic := func(name, kind, target, settings string) string {
		policy := strings.Replace(fmt.Sprintf(file, "", name, target, settings), "kuadrant.io/v1\nkind: RateLimitPolicy", "gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy", 1)
		return strings.Replace(policy, "HTTPRoute", kind, 1)
	}
	const global = "rateLimit: {global: {rules: [{limit: {requests: 5, unit: Hour}, shared: true}]}}"
	for _, test := range []struct{ name, text, want, lost string }{
		{"two kinds", of("", "app", "app", "LIMITS", 1) + of("Token", "app", "app", "defaults: {LIMITS}", 2), "app HTTPRoute/app a=1 tokens-a=2", ""},
		{"two overrides", of("", "app", "app", "overrides: {LIMITS}", 1) + of("Token", "other", "app", "overrides: {strategy: atomic, LIMITS}", 2), "app HTTPRoute/app a=1 tokens-a=2", ""},
		{"one kind", of("", "app", "app", "LIMITS", 1) + of("", "other", "app", "LIMITS", 2), "app HTTPRoute/app a=1", "file:9:7: targetRefs: the RateLimitPolicy app is for one of the targets, too, and holds there, as one RateLimitPolicy can: this one is left out there"},
		{"two ways", of("", "app", "app", "LIMITS", 1) + of("Token", "other", "app", "overrides: {LIMITS}", 2), "app HTTPRoute/app a=1", "file:9:7: targetRefs: the RateLimitPolicy app is for one of the targets, too"},
		{"a name", of("", "app", "app", "LIMITS", 1) + of("Token", "app", "b", "LIMITS", 2), "app HTTPRoute/app a=1; app-2 HTTPRoute/b tokens-a=2", "file:8:18: metadata.name: another policy has it: this one is app-2"},
		{"a name with a dot", of("", "a-b", "app", "LIMITS", 1) + of("", "a.b", "b", "LIMITS", 2), "a-b HTTPRoute/app a=1; a-b-2 HTTPRoute/b a=2", "file:8:18: metadata.name: a RateLimitPolicy's has no dot: other letters take their place; file:8:18: metadata.name: another policy has it: this one is a-b-2"},
		{"the older", created(of("", "a", "app", "LIMITS", 1), "2026-05-01") + created(of("", "b", "app", "LIMITS", 2), "2026-01-01"), "b HTTPRoute/app a=2", "file:4:7: targetRefs: the RateLimitPolicy b is"},
		{"as old", created(of("", "b", "app", "LIMITS", 1), "2026-05-01") + created(of("", "a", "app", "LIMITS", 2), "2026-05-01"), "a HTTPRoute/app a=2", "file:4:7: targetRefs: the RateLimitPolicy a is"},
		{"replaces another kind", gateway(of("", "gw", "g", "LIMITS", 1)) + of("Token", "app", "app", "LIMITS", 2), "gw Gateway/g a=1; app HTTPRoute/app tokens-a=2", "file:9:7: targetRefs: its rules replace those of the RateLimitPolicy gw"},
		{"is replaced by another kind", gateway(of("", "gw", "g", "overrides: {LIMITS}", 1)) + of("Token", "app", "app", "LIMITS", 2), "gw Gateway/g a=1; app HTTPRoute/app tokens-a=2", "file:9:7: targetRefs: its rules are replaced by those of the RateLimitPolicy gw"},
		{"beside another kind", gateway(of("", "gw", "g", "defaults: {strategy: merge, LIMITS}", 1)) + of("Token", "app", "app", "LIMITS", 2), "gw Gateway/g a=1; app HTTPRoute/app tokens-a=2", ""},
		{"replaces its kind", gateway(of("", "gw", "g", "LIMITS", 1)) + of("", "app", "app", "LIMITS", 2), "gw Gateway/g a=1; app HTTPRoute/app a=2", ""},
		{"lifts", traffic("gw", "Gateway", "g", global) + traffic("app", "HTTPRoute", "app", "timeout: {}"), "gw Gateway/g global-0=5", "file:9:7: rateLimit: without it, the policy lifts the limits of the BackendTrafficPolicy gw"},
		{"an older without limits", traffic("app", "HTTPRoute", "app", "timeout: {}") + traffic("app2", "HTTPRoute", "app", global), "", "file:9:7: targetRefs: the BackendTrafficPolicy app, without limits, is for one of the targets, too, and holds there"},
		{"a younger without limits", traffic("gw", "Gateway", "g", global) + traffic("app", "HTTPRoute", "app", global) + traffic("app2", "HTTPRoute", "app", "timeout: {}"), "gw Gateway/g global-0=5; app HTTPRoute/app global-0=5", ""},
		{"merges", traffic("gw", "Gateway", "g", global) + traffic("app", "HTTPRoute", "app", "mergeType: StrategicMerge"), "gw Gateway/g global-0=5", ""},
	} {
		got, lost := policiesOf(t, test.text)
		if got != test.want || !strings.HasPrefix(lost, test.lost) || test.lost == "" && lost != "" {
			t.Errorf("%s: %s\nwant %s\nlost %s\nwant %s", test.name, got, test.want, lost, test.lost)
		}
	}
}

// A local rule without selectors is for what the others are not for. So it goes where one of them does.
func TestLocalRulesOfPolicies(t *testing.T) {
	t.Parallel()
	const file = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: app}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app}]
  rateLimit: {type: Local, local: {rules: [{limit: {requests: 9, unit: Hour}}, RULES]}}
`
	rule := func(value string, limit int) string {
		return fmt.Sprintf("{clientSelectors: [{headers: [{name: x, value: %s}]}], limit: {requests: %d, unit: Hour}}", value, limit)
	}
	many := make([]string, 64)
	for i := range many {
		many[i] = rule(fmt.Sprint("v", i), i+1)
	}
	for _, test := range []struct{ rules, want, lost string }{
		{rule("a", 1), "app HTTPRoute/app local-1=1 local-0=9 except 1", ""},
		{rule("a", 1) + ", " + strings.Replace(rule("b", 2), "name: x", "type: Maybe, unknown: x, name: x", 1), "app HTTPRoute/app local-1=1", "is for what the other local rules are not for, of which one is lost: lost, too"},
		{strings.Replace(rule("'('", 1), "name: x", "type: RegularExpression, name: x", 1), "", "is for what the other local rules are not for, of which one is lost: lost, too"},
		{strings.Join(many[:63], ", "), "", ""},
		{strings.Join(many, ", "), "", "a RateLimitPolicy has at most 64 rules"},
	} {
		got, lost := policiesOf(t, strings.Replace(file, "RULES", test.rules, 1))
		if len(test.rules) < 1000 && got != test.want || !strings.Contains(lost, test.lost) || test.lost == "" && lost != "" {
			t.Errorf("%.200s: %s\nwant %s\nlost %s\nwant %s", test.rules, got, test.want, lost, test.lost)
		}
	}
}

// policiesOf converts policies, and says in a few words what comes out. Weir takes it.
func policiesOf(t *testing.T, text string) (all, lost string) {
	t.Helper()
	result := must.Get(convert.Convert("policies", []convert.File{{Name: "file", Text: []byte(text)}}))(t)
	type rules struct {
		Rules []struct {
			Name   string
			Limits []struct{ Limit int }
			Except []any
		}
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				rules
				TargetRefs          []struct{ Kind, Name string }
				Defaults, Overrides rules
			}
		}
	}
	var parts, told []string
	if len(result.Document) > 0 {
		must.OK(t, json.Unmarshal(result.Document, &list))
		if report := check.File("weir.json", result.Document); report.Refused() || report.Configurations != len(list.Items) {
			t.Errorf("weir check: %v", report.Findings)
		}
	}
	for _, p := range list.Items {
		part := p.Metadata.Name
		for _, ref := range p.Spec.TargetRefs {
			part += " " + ref.Kind + "/" + ref.Name
		}
		for _, r := range append(append(p.Spec.Rules, p.Spec.Defaults.Rules...), p.Spec.Overrides.Rules...) {
			part += fmt.Sprintf(" %s=%d", r.Name, r.Limits[0].Limit)
			if r.Except != nil {
				part += fmt.Sprint(" except ", len(r.Except))
			}
		}
		parts = append(parts, part)
	}
	for _, l := range result.Lost {
		told = append(told, l.String())
	}
	return strings.Join(parts, "; "), strings.Join(told, "; ")
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

// A field goes before that of a merge key, wherever this stands. A field that is there twice is refused.
func TestFieldsOfMergeKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ config, want string }{
		{"{<<: *base, minute: 7}", `"limit": 7`},
		{"{minute: 7, <<: *base}", `"limit": 7`},
		{"{<<: [{minute: 7}, *base]}", `"limit": 7`},
		{"{<<: [[{minute: 7}], {hour: 9}]}", `"limit": 7`},
		{"{<<: [[{minute: 8}], {minute: 7}]}", `"limit": 7`},
		{"{<<: *base}", `"limit": 5`},
		{"{policy: &key minute, *key : 7}", `"limit": 7`},
		{"{policy: &key minute, *key : 7, minute: 8}", `file:8:45: want the field "minute" once; line 8 has it too`},
		{"{minute: 7, hour: 1, minute: 8}", `file:8:34: want the field "minute" once; line 8 has it too`},
	} {
		result, err := convert.Convert("kong", []convert.File{{Name: "file", Text: fmt.Appendf(nil, kongFile, test.config)}})
		got := fmt.Sprint(err)
		if err == nil {
			got = string(result.Document)
		}
		must.Contains(t, got, test.want, "%s", test.config)
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
