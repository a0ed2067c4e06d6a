package ratelimitservice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/must"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	in := func(limit string) string { return "domain: d\ndescriptors:\n- key: k\n  rate_limit: {" + limit + "}" }
	const at = "f.yaml:4: descriptors[0].rate_limit"
	for _, test := range []struct{ text, want string }{
		{"", "f.yaml: want a domain and its descriptors, got nothing"},
		{"# a comment", "f.yaml: want a domain and its descriptors, got nothing"},
		{"domain: [", "f.yaml: "},
		{"[]", "f.yaml:1: want fields and their values"},
		{"descriptors: []", "f.yaml:1: want a domain that is not empty"},
		{"domain: d\n---\ndomain: d", `f.yaml:3: want the domain "d" once`},
		{"domain: d\ndomains: e", "f.yaml:2: domains: want a field of the rate limit service or of Weir: did you mean domain?"},
		{"domain: d\ndomain: e", "f.yaml:2: domain: want the field once"},
		{"domain: d\ncharge: some", "f.yaml:2: charge: want all, refusing, all_or_none"},
		{"domain: d\ndescriptors: {key: a}", "f.yaml:2: descriptors: want a list"},
		{"domain: d\ndescriptors: [a]", "f.yaml:2: descriptors[0]: want fields and their values"},
		{"domain: d\ndescriptors: [{value: a}]", "f.yaml:2: descriptors[0]: want a key that is not empty"},
		{"domain: d\ndescriptors: [{key: [a]}]", "f.yaml:2: descriptors[0].key: want a text"},
		{"domain: d\ndescriptors: [{key: a_b}, {key: a, value: b}]", `f.yaml:2: descriptors[1]: want the key and value "a_b" once`},
		{"domain: d\ndescriptors: [{key: a, share_threshold: true}]", "f.yaml:2: descriptors[0]: want share_threshold only with a value that has a *"},
		{"domain: d\ndescriptors: [{key: a, shadow_mode: maybe}]", "f.yaml:2: descriptors[0].shadow_mode: want true or false"},
		{"domain: d\ndescriptors: [{key: a, metadata: [1]}]", "f.yaml:2: descriptors[0].metadata: want fields and their values"},
		{in("unit: minuet, requests_per_unit: 1"), at + `.unit: want second, minute, hour, day, month, year, week, got "minuet"`},
		{in("requests_per_unit: 1"), at + `.unit: want second, minute, hour, day, month, year, week, got ""`},
		{in("unit: unknown"), at + ".unit: want second"},
		{in("unit: day, requests_per_unit: -1"), at + ".requests_per_unit: want a whole number from 0 to 4294967295"},
		{in("unit: day, requests_per_unit: 4294967296"), at + ".requests_per_unit: want a whole number"},
		{in("unit: day, unlimited: true"), at + ": want no unit and no window for an unlimited limit"},
		{in("unit: day, replaces: [{}]"), at + ".replaces[0]: want the name of the limit to replace"},
		{in("unit: day, name: a, replaces: [{name: a}]"), at + ": want a limit that replaces others, and not itself"},
		{in("unit: day, algorithm: in_flight"), at + ".algorithm: want another algorithm than in_flight: only Weir's plugin learns when a request has ended"},
		{in("unit: day, algorithm: leaky"), at + `.algorithm: want fixed_window, sliding_window, sliding_log, token_bucket, got "leaky"`},
		{in("unit: day, window: 1s"), at + ".unit: want a unit or a window, not both"},
		{in("window: soon"), at + ".window: want a duration such as 90s"},
		{in("window: 1000d"), at + ": window: want 1ms to 366 days"},
		{in("window: month, zone: Mars/Base"), at + ": zone: want the IANA name"},
		{in("window: month, algorithm: token_bucket"), at + ".window: want a duration"},
		{in("unit: day, zone: UTC"), at + ".zone: want a zone only with the window"},
		{in("unit: day, start: later"), at + ".start: want clock or first_hit"},
		{in("unit: day, precision: 1h"), at + ".precision: want a precision only for a sliding_window"},
		{in("unit: day, precision: 7h, algorithm: sliding_window"), at + ": precision: want a duration that divides"},
		{in("unit: day, burst: 2"), at + ".burst: want a burst only for a token_bucket"},
		{in("unit: day, sync_rate: -1"), at + ".sync_rate: want seconds from 0.001 to 3600"},
		{"domain: d\ncharge: all_or_none\ndescriptors:\n- key: k\n  rate_limit: {unit: day, algorithm: sliding_window}", "f.yaml:5: descriptors[0].rate_limit: want fixed windows of units"},
		{"domain: d\ndescriptors: &d\n- key: a\n  descriptors: *d", "descriptors: want descriptors nested at most 64 deep"},
	} {
		_, err := Read([]File{{"f.yaml", []byte(test.text)}}, Options{})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) && !strings.Contains(test.want, "nested") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", test.text, err, test.want)
		}
	}
}

// TestEnvoyproxysFiles reads the files of envoyproxy/ratelimit's own tests and examples. Files that it refuses are refused.
func TestEnvoyproxysFiles(t *testing.T) {
	t.Parallel()
	refused := map[string]string{
		"bad_limit_unit": ":6: descriptors[0].rate_limit.unit: want second", "bad_yaml": ": ", "duplicate_key": ":6: descriptors[1]: want the key and value",
		"empty_domain": ":1: want a domain", "empty_key": ":3: descriptors[0]: want a key", "misspelled_key": ": did you mean rate_limit?",
		"misspelled_key2": ": did you mean requests_per_unit?", "non_map_list": ": descriptors[0]: want fields", "non_string_key": ": 0.25: want a field",
		"replaces_empty": ": want the name of the limit to replace", "replaces_self": ": want a limit that replaces others", "unlimited_with_unit": ": want no unit",
	}
	names, err := filepath.Glob("testdata/envoyproxy/*.yaml")
	if err != nil || len(names) <= len(refused) {
		t.Fatalf("%d files, %v", len(names), err)
	}
	var basic File
	for _, name := range names {
		text := must.Get(os.ReadFile(name))(t)
		short := strings.TrimSuffix(filepath.Base(name), ".yaml")
		file := File{short, text}
		want, wrong := refused[short]
		if _, err := Read([]File{file}, Options{}); (err != nil) != wrong || wrong && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", short, err, want)
		}
		if !IsConfiguration(text, false) && short != "bad_yaml" {
			t.Errorf("%s: is judged as no file of the service", short)
		}
		if short == "basic_config" {
			basic = file
		}
		if short == "duplicate_domain" {
			_, err := Read([]File{basic, file}, Options{})
			must.Fails(t, err, "a domain twice")
		}
	}
}

// TestAllMistakes wants all of them to be told, of all files.
func TestAllMistakes(t *testing.T) {
	t.Parallel()
	_, err := Read([]File{{"a", []byte("domain: d\ndescriptors: [{value: 1}, {key: k, rate_limit: {unit: x}}]")}, {"b", []byte("domain: d")}}, Options{})
	want := "a:2: descriptors[0]: want a key that is not empty\n" +
		"a:2: descriptors[1].rate_limit.unit: want second, minute, hour, day, month, year, week, got \"x\"\n" +
		"b:1: want the domain \"d\" once"
	must.Equal(t, fmt.Sprint(err), want, "")
}

// TestManyMistakes wants the first errors and warnings of a file, however often aliases repeat them.
func TestManyMistakes(t *testing.T) {
	t.Parallel()
	var wrong, ignored strings.Builder
	for i := range 400 {
		fmt.Fprintf(&wrong, ", x%d: 1", i)
		fmt.Fprintf(&ignored, ", {key: k%d, descriptors: *d}", i)
	}
	mistakes, _ := Check([]File{{"f", []byte("domain: d\ndescriptors: [&a {key: a" + wrong.String() + "}" + strings.Repeat(", *a", 400) + "]")}}, Options{})
	must.Equal(t, len(mistakes), maxMistakes+1, "errors")
	must.Equal(t, mistakes[0].Error(), "f: too many errors, the rest are left out", "what stands before those of lines")
	_, warnings := Check([]File{{"f", []byte("domain: d\ndescriptors: [{key: a, descriptors: &d [{key: a, unit: day, name: a, domain: d}]}" + ignored.String() + "]")}}, Options{})
	must.Equal(t, len(warnings), maxMistakes+1, "warnings")
	must.Equal(t, warnings[maxMistakes].Error(), "f: too many warnings, the rest are left out", "the last one")
}

// TestManyReplaced wants the search for limits that replace each other to end in long chains, and to say so once.
func TestManyReplaced(t *testing.T) {
	t.Parallel()
	const chain = 2000
	var text strings.Builder
	for _, domain := range []string{"d", "e"} {
		fmt.Fprintf(&text, "---\ndomain: %s\ndescriptors:\n", domain)
		for i := range chain {
			fmt.Fprintf(&text, "- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1, name: n%d, replaces: [{name: n%d}]}}\n", i, i, i+1)
		}
	}
	mistakes, warnings := Check([]File{{"f", []byte(text.String())}}, Options{})
	if len(mistakes) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0].Problem, "too many limits replace others") {
		t.Errorf("mistakes %v, warnings %v", mistakes, warnings)
	}
}

// TestBasesInThemselves wants the bound of a file's values to hold for what merge keys reach, too, and for the paths there.
func TestBasesInThemselves(t *testing.T) {
	for _, bases := range []string{"&b [" + strings.Repeat("*b, ", 20) + "]", "&b [{<<: *b}]"} {
		var mistakes []Mistake
		n := testing.AllocsPerRun(1, func() {
			mistakes, _ = Check([]File{{"f", []byte("domain: d\ndescriptors: [{key: a, <<: " + bases + "}]")}}, Options{})
		})
		must.EqualOrEnd(t, len(mistakes), 1, "%s: errors", bases)
		must.Contains(t, mistakes[0].Problem, "want at most", "%s", bases)
		if path := len(mistakes[0].Path); n > 8*maxNodes || path > maxNodes/8 {
			t.Errorf("%s: %v allocations, and a path of %d bytes", bases, n, path)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	c, err := Read([]File{
		{"a", []byte("domain: d\nbase: &b\ndescriptors:\n- {key: a, shadow_mode: yes, rate_limit: &l {unit: SECOND, requests_per_unit: 7, shadow_mode: true}}")},
	}, Options{})
	must.Fails(t, err, "a field that nobody knows: %v", c)
	c = must.Get(Read([]File{
		{"a", []byte("domain: d\ndescriptors:\n- {key: a, shadow_mode: yes, rate_limit: &l {unit: SECOND, requests_per_unit: 7, shadow_mode: true}}\n- {key: 5, value: 1.5, rate_limit: {<<: *l, requests_per_unit: 8}}\n" +
			"- {key: 6, rate_limit: {<<: [[{requests_per_unit: 7}], {<<: {unit: day, requests_per_unit: 6}, requests_per_unit: 9}]}}")},
		{"b", []byte("domain: d\ndescriptors:\n- {key: c, rate_limit: }")},
	}, Options{MergeDomains: true}))(t)
	if want := "a:3: descriptors[0].rate_limit.shadow_mode: the rate limit service ignores the field here"; len(c.Ignored) == 0 || c.Ignored[0].Error() != want {
		t.Errorf("ignored are %v, want %q", c.Ignored, want)
	}
	d := c.domains["d"]
	if a := d.byKey["a"].limit; !a.shadow || a.told.RequestsPerUnit != 7 || a.told.Unit.String() != "SECOND" {
		t.Errorf("a is %+v", a)
	}
	if five := d.byKey["5_1.5"].limit; five.told.RequestsPerUnit != 8 || five.shadow {
		t.Errorf("5 is %+v", five)
	}
	if six := d.byKey["6"].limit; six.told.RequestsPerUnit != 9 || six.told.Unit.String() != "DAY" {
		t.Errorf("6 is %+v", six)
	}
	if n := d.byKey["c"]; n == nil || n.limit != nil {
		t.Errorf("c is %+v", n)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(messaging)
	f.Add("domain: d\ndescriptors: &d\n- key: a\n  descriptors: *d")
	f.Add("domain: d\ndescriptors: [{key: a, rate_limit: {<<: &a {<<: *a}}}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Read([]File{{"f", []byte(text)}}, Options{})
		must.Equal(t, c == nil, err != nil, "nothing is read, with the error %v", err)
	})
}
